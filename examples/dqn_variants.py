"""DQN and what was made of it, on CartPole-v1: double, duelling, both. A quarter of an hour; --quick: seconds."""

from __future__ import annotations

from elegantrl import Config, LinearSchedule, train_agent
from elegantrl.agents import AgentD3QN, AgentDoubleDQN, AgentDQN, AgentDuelingDQN
from quick import quick


def main() -> None:
    for agent_class in (AgentDQN, AgentDoubleDQN, AgentDuelingDQN, AgentD3QN):
        args = Config(agent_class, "CartPole-v1", num_envs=16, break_step=600_000, eval_per_step=12_000)
        args.net_dims = (128, 128)
        args.learning_rate = LinearSchedule(1e-3, 2e-5, fraction=0.8)  # small in the last fifth
        args.explore_rate = LinearSchedule(1.0, 0.05, fraction=0.2)  # from all random to 5 %, in a fifth of the run
        args.batch_size, args.utd = 128, 0.125  # an update for every eight transitions
        run = train_agent(quick(args), if_single_process=True)
        print(f"{agent_class.__name__}: best greedy return {run.evaluator.records.best_return:.0f} of 500")


if __name__ == "__main__":
    main()
