"""A lightweight, readable and fast library for deep reinforcement learning in PyTorch.

The public names are imported when they are first asked for, so that importing one does not import everything; only
the networks are there at once.
"""

from __future__ import annotations

import importlib
from typing import Any

from . import compat

__version__ = "0.4.0"

_HOMES = {
    "Config": "train.config",
    "Arguments": "train.config",
    "get_gym_env_args": "train.config",
    "build_env": "train.config",
    "check_env": "train.config",
    "check_vec_env": "envs",
    "train_agent": "train.run",
    "train_and_evaluate": "train.run",
    "train_and_evaluate_mp": "train.run",
    "train_agent_single_process": "train.run",
    "train_agent_multiprocessing": "train.run",
    "train_agent_multiprocessing_multi_gpu": "train.run",
    "valid_agent": "train.run",
    "load_agent": "train.run",
    "Evaluator": "train.evaluator",
    "LinearSchedule": "agents.functional",
}
__all__ = list(_HOMES)

compat.install()
importlib.import_module(".agents.net", __name__)  # registers the networks, so that torch.load("act.pth") works


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
