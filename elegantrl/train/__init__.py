"""Training: configuration, collection, storage, updates, evaluation. Names are imported when first asked for."""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "Config": "config",
    "build_env": "config",
    "get_gym_env_args": "config",
    "train_agent": "run",
    "train_and_evaluate": "run",
    "train_and_evaluate_mp": "run",
    "train_agent_single_process": "run",
    "train_agent_multiprocessing": "run",
    "train_agent_multiprocessing_multi_gpu": "run",
    "Evaluator": "evaluator",
    "ReplayBuffer": "replay_buffer",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
