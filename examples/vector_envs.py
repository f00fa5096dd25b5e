"""Many environments side by side: PPO on 16 LunarLander-v3. 10 minutes; --quick: seconds.

Needs `pip install ".[box2d]"`.
"""

from __future__ import annotations

import torch

from elegantrl import Config, LinearSchedule, build_env, train_agent
from elegantrl.agents import AgentPPO
from quick import quick


def look() -> None:
    """What a vector environment is: tensors with the axis N, one row for each environment."""
    env = build_env("LunarLander-v3", {"num_envs": 4})
    state, _ = env.reset(seed=0)  # (N, S)
    action = torch.randint(env.action_dim, (env.num_envs,))  # (N,), or (N, A) in [-1, 1]
    state, reward, terminal, truncate, _ = env.step(action)  # (N, S), then (N,) three times
    print(f"states {tuple(state.shape)}, rewards {tuple(reward.shape)}, ended: {(terminal | truncate).tolist()}")
    print("an environment whose episode ended is reset by its next step, and that row is not learned from")
    env.close()


def main() -> None:
    look()
    args = Config(AgentPPO, "LunarLander-v3", num_envs=16, break_step=800_000, break_score=240)
    args.horizon_len, args.batch_size, args.repeat_times = 512, 256, 5  # rollouts of 512 * 16 steps
    args.learning_rate = LinearSchedule(1e-3)
    args.gamma, args.lambda_gae_adv, args.lambda_entropy = 0.999, 0.98, 0.01
    args.if_norm_reward = True
    train_agent(quick(args), if_single_process=True)


if __name__ == "__main__":
    main()
