"""Whether an environment keeps its word, before a run finds out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .single import GymEnv, make_env


def check_env(env: Any) -> None:
    """Plays a few random steps of a single environment (or of what builds one). ValueError: it breaks its own word."""
    env = env if isinstance(env, GymEnv) else make_env(env)
    state, _ = env.reset(seed=0)
    rng = np.random.default_rng(0)
    for step in range(16):
        if not np.isfinite(state).all():
            raise ValueError(f"{env.env_name}: the state at step {step} is not finite: {state}")
        drawn = rng.integers(env.action_dim, size=1) if env.if_discrete else rng.uniform(-1, 1, (1, env.action_dim))
        action = env.codec.decode(drawn.astype(np.int64 if env.if_discrete else np.float32))[0]
        state, reward, terminal, truncate, _ = env.step(action)
        if not math.isfinite(reward):
            raise ValueError(f"{env.env_name}: the reward at step {step} is not finite: {reward}")
        if terminal or truncate:
            state, _ = env.reset()
