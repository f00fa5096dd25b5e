"""The environment: what an agent acts on. `reset()` begins an episode, `step(action)` goes on with it.

`step` returns five things: the next state, the reward, `terminal`, `truncate`, and a dict of extras. Both flags end the
episode, and they are not the same. `terminal`: the task itself is over (the pole fell), nothing can be earned any more.
`truncate`: somebody looked at the clock (500 steps are enough); the task would have gone on and paid.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class GymEnv:
    """A task of Gymnasium's as our agents see it: states (S,) float32, actions in [-1, 1] (A,) or an index from 0.

    Your own environment can stand in its place: it needs these methods and the attributes below.
    """

    def __init__(self, env_name: str, **settings: Any):
        """settings: what `gym.make` takes, such as render_mode="human" to watch."""
        self.env = gym.make(env_name, **settings)
        self.env_name, self.settings = env_name, settings
        space = self.env.action_space
        self.if_discrete = isinstance(space, gym.spaces.Discrete)
        self.state_dim = int(self.env.observation_space.shape[0])  # S
        self.action_dim = int(space.n if self.if_discrete else space.shape[0])  # A
        self.max_step = self.env.spec.max_episode_steps

    def reset(self, seed: int | None = None) -> tuple[NDArray, dict]:
        state, info = self.env.reset(seed=seed)
        return state.astype(np.float32), info

    def step(self, action: NDArray) -> tuple[NDArray, float, bool, bool, dict]:
        state, reward, terminal, truncate, info = self.env.step(self.to_units_of_task(action))
        return state.astype(np.float32), float(reward), terminal, truncate, info

    def to_units_of_task(self, action: NDArray) -> Any:
        """[-1, 1] (A,) becomes [low, high] (A,), an index stays: so one agent fits every task."""
        if self.if_discrete:
            return int(action)
        low, high = self.env.action_space.low, self.env.action_space.high  # (A,) each
        return low + (high - low) * (np.clip(action, -1, 1) + 1) / 2

    def random_action(self) -> Tensor:
        """() index, or (A,) in [-1, 1]"""
        return torch.randint(self.action_dim, ()) if self.if_discrete else torch.rand(self.action_dim) * 2 - 1

    def another(self) -> GymEnv:
        """A second environment of this kind: evaluating in the first would cut the episode that it is in."""
        return GymEnv(self.env_name, **self.settings)


def get_gym_env_args(env: GymEnv, if_print: bool = False) -> dict[str, Any]:
    """What there is to know of an environment before an agent is built for it."""
    names = ("env_name", "max_step", "state_dim", "action_dim", "if_discrete")
    env_args = {name: getattr(env, name) for name in names}
    if if_print:
        print("env_args =", env_args)
    return env_args
