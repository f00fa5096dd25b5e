"""Older import paths and names of settings, and nothing else. Each works, and warns with today's name."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeVar

from .warn import warn

Function = TypeVar("Function", bound=Callable[..., Any])

OLD_SETTINGS = {
    "agent": "agent_class",
    "env": "env_class",
    "env_func": "env_class",
    "eval_env": "eval_env_class",
    "eval_env_func": "eval_env_class",
    "env_num": "num_envs",
    "net_dim": "net_dims",
    "num_layer": "net_dims",
    "layer_num": "net_dims",
    "target_step": "horizon_len",
    "max_memo": "buffer_size",
    "replay_buffer_size": "buffer_size",
    "explore_noise": "explore_noise_std",
    "if_use_vtrace": "if_use_v_trace",
    "if_per_or_gae": "if_use_per",
    "if_use_gae": "lambda_gae_adv",
    "h_term_lambda": "lambda_h_term",
    "learner_gpus": "gpu_id",
    "worker_num": "num_workers",
    "thread_num": "num_threads",
    "seed": "random_seed",
    "target_return": "break_score",
    "if_allow_break": "break_score",
    "eval_times1": "eval_times",
    "eval_times2": "eval_times",
}

OLD_MODULES = {
    "elegantrl.run": "elegantrl.train.run",
    "elegantrl.config": "elegantrl.train.config",
    "elegantrl.agent": "elegantrl.agents",
    "elegantrl.env": "elegantrl.train.config",
    "elegantrl.envs.Gym": "elegantrl.train.config",
    "elegantrl.envs.Chasing": "elegantrl.envs.PointChasingEnv",
    "elegantrl.train.demo": "elegantrl.train.run",
}


def warn_renamed(old: str, new: str) -> None:
    """Shown at the user's line that uses the older name."""
    warn(f"{old} is now called {new}", DeprecationWarning)


def renamed_keywords(**names: str) -> Callable[[Function], Function]:
    """Lets a function be called by older keywords too: older=today's."""

    def decorate(function: Function) -> Function:
        @wraps(function)
        def call(*args: Any, **keywords: Any) -> Any:
            for old in names.keys() & keywords.keys():
                warn_renamed(old, names[old])
                keywords[names[old]] = keywords.pop(old)
            return function(*args, **keywords)

        return call  # type: ignore[return-value]

    return decorate


def newer_env_args(env_args: dict[str, Any]) -> dict[str, Any]:
    """Says num_envs where it said env_num, in a copy. The older keys stay, for constructors that name them."""
    if "env_num" not in env_args:
        return env_args
    warn_renamed("env_num", "num_envs")
    return {"num_envs": env_args["env_num"], **env_args}


def translate(args: Any, name: str, value: Any) -> dict[str, Any]:
    """What setting `name` means today: {today's name: value}. args: the Config, for what it holds already."""
    match name:
        case "net_dim":  # width and number of layers each keep what the other one said
            return {"net_dims": value if isinstance(value, Sequence) else (value,) * len(args.net_dims)}
        case "num_layer" | "layer_num":
            return {"net_dims": args.net_dims[:1] * value}
        case "learner_gpus":
            ids = (value,) if isinstance(value, int) else tuple(value)
            return {"gpu_id": ids[0], "learner_gpu_ids": ids if len(ids) > 1 else ()} if ids else {}
        case "if_allow_break":
            args._may_break = bool(value)
            return {} if value else {"break_score": math.inf}
        case "target_return":
            return {"break_score": value if getattr(args, "_may_break", True) else math.inf}
        case "if_per_or_gae":  # PER off-policy; on-policy GAE, which is always on
            return {} if args.if_off_policy is False else {"if_use_per": value}
        case "if_use_gae":
            return {}
    return {OLD_SETTINGS[name]: value}


def read_older(args: Any, name: str) -> Any:
    """The value of an older setting."""
    match name:
        case "net_dim":
            return args.net_dims[0]
        case "num_layer" | "layer_num":
            return len(args.net_dims)
        case "if_allow_break":
            return args.break_score < math.inf
        case "if_use_gae":
            return True
    return getattr(args, OLD_SETTINGS[name])


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
        warn_renamed(old, new)
        if old.startswith("elegantrl.agents."):
            sys.modules["elegantrl.agents"].__class__ = _KeepsClasses
        sys.modules[old] = importlib.import_module(new)


def install() -> None:
    """Makes the older import paths work. Called once, by the package itself."""
    if not any(isinstance(finder, _OldModules) for finder in sys.meta_path):
        sys.meta_path.append(_OldModules())
