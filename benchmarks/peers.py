"""Stable-Baselines3 in the matrix of learning.py: trained by its own loop, evaluated as our agents are.

A row's settings are the keywords of its algorithm, and four more: n_envs, normalize (VecNormalize), noise_type and
noise_std (of the exploration of TD3 and DDPG). Schedules are ours: of the share of the run that is done.
The evaluation uses our environments, their seeds and `play_episodes`: the same episodes that our agent meets.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import stable_baselines3 as sb3
import torch
from rows import EPISODES, Row
from stable_baselines3.common import callbacks, env_util, noise, vec_env

from elegantrl import Config
from elegantrl.agents import AgentPPO
from elegantrl.agents.functional import LinearSchedule
from elegantrl.train.config import build_vec_env
from elegantrl.train.evaluator import play_episodes

NOISES = {"normal": noise.NormalActionNoise, "ornstein-uhlenbeck": noise.OrnsteinUhlenbeckActionNoise}
COLUMNS = ("avgR", "stdR", "avgS", "stdS")


class Evaluate(callbacks.BaseCallback):
    """Rows of (step, *COLUMNS) and wall seconds since the start, at multiples of row.eval_per_step."""

    def __init__(self, row: Row, seed: int):
        super().__init__()
        n_envs = row.settings.get("n_envs", 1)
        self.row, self.args = row, Config(AgentPPO, row.task, random_seed=seed, eval_times=EPISODES, num_envs=n_envs)
        self.env = build_vec_env(self.args, if_eval=True)
        self.rows: list[list[float]] = []
        self.seconds: list[float] = []
        self.start = time.perf_counter()

    def _on_step(self) -> bool:
        due = (len(self.rows) + 1) * self.row.eval_per_step
        if due <= self.num_timesteps < self.row.break_step:
            self.evaluate()
        return True

    def _on_training_end(self) -> None:  # the last one is of the policy after its last update
        self.evaluate()

    def evaluate(self) -> None:
        episodes, seed = math.ceil(EPISODES / self.env.num_envs), self.args.seed_for("evaluate", len(self.rows))
        returns, lengths = play_episodes(self.env, self.policy, episodes, seed)
        self.rows.append([self.num_timesteps, returns.mean(), returns.std(), lengths.mean(), lengths.std()])
        self.seconds.append(time.perf_counter() - self.start)

    def policy(self, state: torch.Tensor, action_mask: torch.Tensor | None) -> torch.Tensor:
        """What the model does greedily in our units: an index, or numbers in [-1, 1]."""
        seen, normaliser = state.numpy(), self.model.get_vec_normalize_env()
        action, _ = self.model.predict(normaliser.normalize_obs(seen) if normaliser else seen, deterministic=True)
        space = self.model.action_space
        if hasattr(space, "n"):
            return torch.as_tensor(action)
        return torch.as_tensor(2 * (action - space.low) / (space.high - space.low) - 1, dtype=torch.float32)


def scheduled(value: Any) -> Any:
    """Stable-Baselines3's schedules are functions of the share of the run that remains."""
    return (lambda remaining: value(1 - remaining)) if isinstance(value, LinearSchedule) else value


def train(row: Row, seed: int) -> Evaluate:
    settings = {name: scheduled(value) for name, value in row.settings.items()}
    n_envs, normalize, noise_type, noise_std = (
        settings.pop(name, default)
        for name, default in (("n_envs", 1), ("normalize", False), ("noise_type", None), ("noise_std", 0.0))
    )
    env = env_util.make_vec_env(row.task, n_envs=n_envs, seed=seed)
    if normalize:
        env = vec_env.VecNormalize(env, gamma=settings.get("gamma", 0.99))
    if noise_type:
        zeros = np.zeros(env.action_space.shape)
        settings["action_noise"] = NOISES[noise_type](zeros, zeros + noise_std)
    algorithm = getattr(sb3, row.agent.removeprefix("sb3-"))
    model = algorithm("MlpPolicy", env, seed=seed, device="cpu", **settings)
    evaluate = Evaluate(row, seed)
    model.learn(row.break_step, callback=evaluate)
    return evaluate
