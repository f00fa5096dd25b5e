"""A task in the form of a user's own environment: attributes, no spaces, actions in [-1, 1]."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray


class PendulumEnv:
    """Gymnasium's Pendulum-v1 with its torque of 2 scaled to [-1, 1]. state (3,), action (1,)."""

    env_name = "Pendulum-v1"
    max_step = 200
    state_dim = 3
    action_dim = 1
    if_discrete = False

    def __init__(self, render_mode: str | None = None):
        self.env = gym.make(self.env_name, render_mode=render_mode)

    def reset(self, *, seed: int | None = None) -> tuple[NDArray, dict[str, Any]]:
        return self.env.reset(seed=seed)

    def step(self, action: NDArray) -> tuple[NDArray, float, bool, bool, dict[str, Any]]:
        state, reward, terminal, truncate, info = self.env.step(np.asarray(action, np.float32) * 2)
        return state, float(reward), terminal, truncate, info

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()
