"""Stop and go on: the second half continues from the first half's files, as if nothing had been between. A minute.

Ctrl-C, a file named `stop` in the run's folder, or `break_step` end a run with complete files. `checkpoint_per_step`
writes them on the way too, so that a run which is killed can go on from there.
"""

from __future__ import annotations

from elegantrl import Config, train_agent
from elegantrl.agents import AgentSAC
from quick import quick


def settings() -> Config:
    args = Config(AgentSAC, "Pendulum-v1", net_dims=(64, 64), learning_rate=1e-3, break_step=5_000, eval_per_step=1_000)
    args.cwd = "resumed_run"
    args.if_save_buffer = True  # replay goes into the checkpoint: the run goes on bit for bit, and the file is larger
    return quick(args)


def main() -> None:
    first = train_agent(settings(), if_single_process=True)

    args = settings()  # in real life, another process on another day
    args.continue_train = True
    args.break_step *= 2
    second = train_agent(args, if_single_process=True)
    print(f"first half: step 0 to {first.total_step}; second half: on to {second.total_step}")
    print(f"evaluations in recorder.npy, of both halves: {len(second.evaluator.records.rows)}")


if __name__ == "__main__":
    main()
