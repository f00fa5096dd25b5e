"""Several processes: Workers explore, an Evaluator measures, this one learns. Minutes; --quick: seconds.

That pays where stepping the environment or measuring the policy takes long. Without the guard at the end of the file it
works too: no process imports a script anew. Several GPUs: `learner_gpu_ids=(0, 1)`, each with Workers of its own.
"""

from __future__ import annotations

from elegantrl import Config, train_agent
from elegantrl.agents import AgentSAC
from quick import quick


def main() -> None:
    args = Config(
        AgentSAC, "Pendulum-v1", net_dims=(64, 64), learning_rate=1e-3, break_step=20_000, eval_per_step=1_000
    )
    args.num_workers = 2  # processes that explore
    args.num_envs = 2  # environments of each
    args.worker_lag = 0  # 1: they go on while this one learns, with a policy that is one rollout old
    args.max_restarts = 1  # of Workers that were killed or hang; what one raises is raised here, with its traceback
    train_agent(quick(args))


if __name__ == "__main__":
    main()
