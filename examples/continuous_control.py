"""Off-policy agents for continuous actions, on Pendulum-v1. A few minutes each; --quick: seconds."""

from __future__ import annotations

from elegantrl import Config, train_agent
from elegantrl.agents import AgentDDPG, AgentModSAC, AgentREDQ, AgentSAC, AgentTD3
from quick import quick


def main() -> None:
    for agent_class in (AgentDDPG, AgentTD3, AgentSAC, AgentModSAC, AgentREDQ):
        args = Config(agent_class, "Pendulum-v1", break_step=20_000, break_score=-150, eval_per_step=1_000)
        args.net_dims = (128, 128)
        args.learning_rate = 1e-3
        args.batch_size = 128
        args.eval_times = 16
        if agent_class is AgentDDPG:
            args.explore_noise_std = 0.2  # its policy is deterministic: noise explores
        if agent_class is AgentREDQ:  # twenty updates of ten critics for each step: few steps, each of them slow
            args.break_step, args.eval_per_step = 4_000, 500
        run = train_agent(quick(args), if_single_process=True)
        print(f"{agent_class.__name__}: best greedy return {run.evaluator.records.best_return:.0f}, random about -1200")


if __name__ == "__main__":
    main()
