"""A2C and PPO with a Gaussian policy, which they choose by the environment: Pendulum-v1. Minutes; --quick: seconds."""

from __future__ import annotations

from elegantrl import Config, LinearSchedule, train_agent
from elegantrl.agents import AgentA2C, AgentPPO
from quick import quick


def main() -> None:
    for agent_class in (AgentPPO, AgentA2C):
        args = Config(agent_class, "Pendulum-v1", break_score=-160)
        args.gamma = 0.9  # what is done now shows within ten steps
        args.learning_rate = LinearSchedule(1e-3)
        args.if_norm_reward = True  # rewards in units of the return's spread
        args.eval_times = 16
        if agent_class is AgentPPO:
            args.num_envs, args.horizon_len, args.batch_size = 4, 1024, 64
            args.break_step, args.eval_per_step = 150_000, 10_000
        else:
            args.num_envs, args.horizon_len = 16, 8
            args.lambda_gae_adv, args.activation = 1.0, "relu"
            args.break_step, args.eval_per_step = 600_000, 30_000
        run = train_agent(quick(args), if_single_process=True)
        print(f"{agent_class.__name__}: best greedy return {run.evaluator.records.best_return:.0f}, random about -1200")


if __name__ == "__main__":
    main()
