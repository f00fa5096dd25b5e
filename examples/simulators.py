"""Isaac Gym and its successors: PPO on whatever steps many environments at once. --quick: seconds.

    python simulators.py gymnasium      # Gymnasium's own vector environments, also what EnvPool makes
    python simulators.py isaac_gym      # Preview 4 and IsaacGymEnvs, where they run under Python 3.11: task Ant
    python simulators.py isaac_lab      # Isaac Lab 3: Isaac-Ant
    python simulators.py mjlab          # mjlab: Mjlab-Cartpole-Balance

`env_class` is a function that builds the simulator: what it gives is recognised, its resets and time limits are
understood, tensors stay on the GPU. This file is tested with Gymnasium's alone; what was run of the others is in
benchmarks/results/simulators.md.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

with contextlib.suppress(ImportError):
    import isaacgym  # noqa: F401, must come before torch

import gymnasium as gym
import torch

from elegantrl import Config, train_agent
from elegantrl.agents import AgentPPO
from quick import quick

GPU = 0 if torch.cuda.is_available() else -1


def gymnasium(num_envs: int) -> Any:
    return gym.make_vec("CartPole-v1", num_envs, vectorization_mode="sync")


def isaac_gym(num_envs: int) -> Any:
    from elegantrl.envs.IsaacGym import IsaacVecEnv

    return IsaacVecEnv("Ant", num_envs, headless=True)


def isaac_lab(num_envs: int) -> Any:
    from isaaclab.app import AppLauncher

    AppLauncher(headless=True)  # must come before the other imports of Isaac Lab
    import isaaclab_tasks  # noqa: F401, registers the tasks
    from isaaclab_tasks.utils import parse_env_cfg

    cfg = parse_env_cfg("Isaac-Ant", device=f"cuda:{GPU}", num_envs=num_envs)
    return gym.make("Isaac-Ant", cfg=cfg)


def mjlab(num_envs: int) -> Any:
    from mjlab.envs import ManagerBasedRlEnv
    from mjlab.tasks.registry import load_env_cfg

    cfg = load_env_cfg("Mjlab-Cartpole-Balance")
    cfg.scene.num_envs = num_envs
    cfg.auto_reset = False  # the library resets, so that the last observation is known
    return ManagerBasedRlEnv(cfg=cfg, device="cpu" if GPU < 0 else f"cuda:{GPU}")


def main() -> None:
    chosen = [name for name in sys.argv[1:] if not name.startswith("-")] or ["gymnasium"]
    build = {"gymnasium": gymnasium, "isaac_gym": isaac_gym, "isaac_lab": isaac_lab, "mjlab": mjlab}[chosen[0]]
    num_envs = 4096 if GPU >= 0 else 16
    args = Config(AgentPPO, build, {"num_envs": num_envs}, gpu_id=GPU, cwd=f"{chosen[0]}_PPO")
    args.horizon_len, args.batch_size, args.repeat_times = 32, 8 * num_envs, 5
    args.gamma, args.learning_rate = 0.98, 1e-3
    args.break_step, args.eval_per_step = 100 * 32 * num_envs, 10 * 32 * num_envs
    train_agent(quick(args), if_single_process=True)


if __name__ == "__main__":
    main()
