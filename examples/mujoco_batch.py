"""MuJoCo in batches: PPO on 32 Hopper-v5 that MuJoCo's own threads step at once. 10 minutes; --quick: seconds.

Needs `pip install ".[mujoco]"`. States, rewards and ends are those of Gymnasium's tasks.
"""

from __future__ import annotations

import time

import torch

from elegantrl import Config, LinearSchedule, build_env, train_agent
from elegantrl.agents import AgentPPO
from quick import quick


def steps_per_second(**env_args) -> float:
    """Of all environments together, by random actions."""
    env = build_env("Hopper-v5", {"num_envs": 32, **env_args})
    env.reset(seed=0)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < 0.5:
        env.step(torch.rand(env.num_envs, env.action_dim) * 2 - 1)
        count += env.num_envs
    env.close()
    return count / 0.5


def main() -> None:
    print(
        f"in batches: {steps_per_second():,.0f} steps a second; one by one: {steps_per_second(if_batched=False):,.0f}"
    )
    args = Config(AgentPPO, "Hopper-v5", num_envs=32, break_step=1_000_000, eval_per_step=50_000)
    args.horizon_len, args.batch_size, args.repeat_times = 64, 256, 10
    args.learning_rate = LinearSchedule(1e-3)
    args.if_norm_state = args.if_norm_reward = True
    train_agent(quick(args), if_single_process=True)


if __name__ == "__main__":
    main()
