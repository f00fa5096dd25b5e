"""Older import paths and names of settings, and nothing else. Each works, and warns with today's name."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

OLD_SETTINGS = {
    "target_step": "horizon_len",
    "max_memo": "buffer_size",
    "replay_buffer_size": "buffer_size",
    "worker_num": "num_workers",
    "thread_num": "num_threads",
    "seed": "random_seed",
    "env_num": "num_envs",
    "env": "env_class",
    "env_func": "env_class",
    "eval_env": "eval_env_class",
    "eval_env_func": "eval_env_class",
    "agent": "agent_class",
    "target_return": "break_score",
    "if_use_vtrace": "if_use_v_trace",
    "explore_noise": "explore_noise_std",
    "eval_times1": "eval_times",
    "eval_times2": "eval_times",
    "h_term_lambda": "lambda_h_term",
}

OLD_MODULES = {
    "elegantrl.run": "elegantrl.train.run",
    "elegantrl.config": "elegantrl.train.config",
    "elegantrl.agent": "elegantrl.agents",
    "elegantrl.env": "elegantrl.train.config",
    "elegantrl.envs.Gym": "elegantrl.train.config",
    "elegantrl.train.demo": "elegantrl.train.run",
}


def warn_renamed(old: str, new: str, stacklevel: int = 3) -> None:
    warnings.warn(f"{old} is now called {new}", DeprecationWarning, stacklevel=stacklevel)


class _KeepsClasses(ModuleType):
    """The package `elegantrl.agents`: importing an agent's module does not hide the class of that name."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and name in vars(self)):
            super().__setattr__(name, value)


class _OldModules(MetaPathFinder, Loader):
    """Finds what the usual finders did not: a module under an older name is today's module."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        is_old = fullname in OLD_MODULES or self._agent_module(fullname) is not None
        return ModuleSpec(fullname, self) if is_old else None

    @staticmethod
    def _agent_module(fullname: str) -> str | None:
        """elegantrl.agents.AgentXxx -> the module that defines the class AgentXxx."""
        package, _, name = fullname.rpartition(".")
        if package != "elegantrl.agents" or not name.startswith("Agent"):
            return None
        agent_class = vars(sys.modules[package]).get(name)
        return agent_class.__module__ if isinstance(agent_class, type) else None

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__
        new = OLD_MODULES.get(old) or self._agent_module(old) or ""
        warn_renamed(old, new, stacklevel=7)  # above the frames of the import system
        if old.startswith("elegantrl.agents."):
            sys.modules["elegantrl.agents"].__class__ = _KeepsClasses
        sys.modules[old] = importlib.import_module(new)


def install() -> None:
    """Makes the older import paths work. Called once, by the package itself."""
    if not any(isinstance(finder, _OldModules) for finder in sys.meta_path):
        sys.meta_path.append(_OldModules())
