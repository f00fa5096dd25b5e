"""The H-term: PPO that also learns from whole windows of its best episodes. Hopper-v5; --quick: seconds.

Needs `pip install ".[mujoco]"`. PPO without and with the term, three seeds each, half an hour for each pair: look at
the spread between seeds too. What the term is: docs/tutorials/h_term.md.
"""

from __future__ import annotations

from elegantrl import Config, LinearSchedule, train_agent
from elegantrl.agents import AgentPPO
from quick import IS_QUICK, quick


def main() -> None:
    for seed in range(1 if IS_QUICK else 3):
        for lambda_h_term in (0.0, 2**-5):
            args = Config(AgentPPO, "Hopper-v5", random_seed=seed, lambda_h_term=lambda_h_term, break_step=1_000_000)
            args.h_term_k_step = 4  # steps of a window
            args.num_envs, args.horizon_len, args.batch_size, args.repeat_times = 16, 128, 64, 10
            args.learning_rate = LinearSchedule(3e-4)
            args.if_norm_state = args.if_norm_reward = True
            args.cwd = f"Hopper-v5_PPO_h{lambda_h_term:g}_{seed}"
            run = train_agent(quick(args), if_single_process=True)
            print(f"seed {seed}, lambda_h_term {lambda_h_term:g}: best {run.evaluator.records.best_return:.0f}")


if __name__ == "__main__":
    main()
