"""A2C and PPO choose among actions: CartPole-v1, 16 at a time. A minute; --quick: seconds."""

from __future__ import annotations

from elegantrl import Config, LinearSchedule, train_agent
from elegantrl.agents import AgentA2C, AgentPPO
from quick import quick


def main() -> None:
    for agent_class in (AgentA2C, AgentPPO):
        args = Config(agent_class, "CartPole-v1", num_envs=16, break_score=495)
        args.gamma = 0.98
        if agent_class is AgentA2C:  # one step on each short rollout
            args.horizon_len, args.break_step, args.eval_per_step = 8, 400_000, 10_000
            args.learning_rate = LinearSchedule(1e-3)
        else:  # ten epochs over each longer one
            args.horizon_len, args.break_step, args.eval_per_step = 64, 100_000, 5_000
            args.learning_rate, args.batch_size, args.repeat_times = 1e-3, 256, 10
        run = train_agent(quick(args), if_single_process=True)
        print(f"{agent_class.__name__}: best greedy return {run.evaluator.records.best_return:.0f} of 500")


if __name__ == "__main__":
    main()
