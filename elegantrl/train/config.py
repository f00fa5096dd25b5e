"""What a run is told: `Config`, `build_env`, and `Arguments`, which is Config with its older call styles."""

from __future__ import annotations

import copy
import difflib
import math
import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..compat import OLD_SETTINGS, warn_renamed
from ..device import device_of
from ..envs import ENV_ATTRIBUTES, GymEnv, is_instance, is_vec_env, kwargs_filter, make_env, vectorise

__all__ = [
    "Arguments",
    "Config",
    "build_env",
    "build_vec_env",
    "check_env",
    "get_gym_env_args",
    "kwargs_filter",
]
PROBED = (*ENV_ATTRIBUTES, "state_dtype", "codec")  # what the environment says unless the user does


@dataclass
class RunSettings:
    """The settings of a run and their defaults; those of learning are class attributes of the agents."""

    agent_class: type | None = None  # which algorithm
    env_class: Any = None  # id, gym.make (None), class, function that builds the environment, or the environment
    env_args: dict | None = None  # keywords for env_class, and what it does not say of itself (`state_dim`, ...)
    gpu_id: int = -1  # -1: the CPU
    num_workers: int = 2  # processes that explore
    num_threads: int | None = None  # of torch, in each process; None: by a rule
    random_seed: int = 0  # everything random in a run derives from it
    learner_gpu_ids: tuple[int, ...] = ()  # more than one: as many learners
    cwd: str | None = None  # folder of the run; None: ./{env_name}_{agent}_{seed}
    if_remove: bool = True  # move what an earlier run left in cwd to cwd/previous-N
    continue_train: bool = False  # resume from what cwd holds
    break_step: float = math.inf  # the run ends after so many environment steps
    break_score: float = math.inf  # ... or at this evaluation return
    break_patience: int = 0  # ... or when the greedy score has fallen for so many evaluations; 0: never
    if_keep_save: bool = True  # keep actors during the run
    if_over_write: bool = False  # keep only the newest of them
    if_save_buffer: bool = False  # the replay buffer goes into the checkpoint
    save_gap: int = 8  # keep the actor of every so manieth evaluation
    checkpoint_per_step: int = 0  # environment steps between checkpoints; 0: at the end only
    eval_times: int = 8  # episodes of one evaluation
    eval_per_step: int = 20_000  # environment steps between evaluations
    eval_gap: float = 0  # least seconds between evaluations
    eval_env_class: Any = None  # None: env_class
    eval_env_args: dict | None = None  # None: env_args
    eval_record_step: int = 0  # after so many steps, record an episode as a picture; 0: never
    if_tensorboard: bool = False  # write tensorboard/ as well
    if_use_per: bool = False  # prioritised replay
    per_alpha: float = 0.6  # exponent of the priorities
    per_beta: float = 0.4  # exponent of the importance weights at the start
    callbacks: Sequence[Any] = ()  # objects with on_rollout, on_update, on_evaluate, on_end
    max_restarts: int = 0  # of a worker that failed
    worker_timeout: float = 300  # seconds without a sign of life until a worker counts as hung
    worker_lag: int = 0  # rollouts that a worker may be behind the learner


RUN_DEFAULTS = {field.name: field.default for field in fields(RunSettings)}


class Config:
    """The settings of one run: `Config(AgentSAC, "Pendulum-v1", gamma=0.98)`, or attributes set one by one.

    Only what the user gave, and what the environment said, is in `vars(config)`. Everything else is looked up when it
    is asked for: in the environment (built once, at the first question), the agent's hyper-parameters, `RunSettings`.
    TypeError: an unknown keyword. ValueError: a value that makes no sense. A warning: an unknown attribute set later.
    """

    def __init__(self, agent_class: Any = None, env_class: Any = None, env_args: dict | None = None, **settings: Any):
        self._from_env: set[str] = set()  # names in vars(self) that the environment said
        given = {"agent_class": agent_class, "env_class": env_class, "env_args": env_args}
        for name, value in {**{k: v for k, v in given.items() if v is not None}, **settings}.items():
            if not self._knows(name):
                raise TypeError(f"{type(self).__name__} has no setting {name!r}{self._nearest(name)}")
            setattr(self, name, value)

    # looking up and storing

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in OLD_SETTINGS or name in _OLD_GET:
            warn_renamed(name, OLD_SETTINGS.get(name, "net_dims"))
            return _OLD_GET[name](self) if name in _OLD_GET else getattr(self, OLD_SETTINGS[name])
        if name in PROBED and (self.env_class is not None or self.env_args):
            return self._ask_environment(name)
        if name in (hyper_parameters := self._hyper_parameters()):
            return hyper_parameters[name]
        if name == "cwd":
            agent = self.agent_class.__name__.removeprefix("Agent") if self.agent_class else None
            return f"./{self.env_name}_{agent}_{self.random_seed}".replace("/", "_").replace("._", "./", 1)
        if name in RUN_DEFAULTS:
            return RUN_DEFAULTS[name]
        if name == "num_envs":
            return 1
        if name == "if_off_policy":
            return self.agent_class.if_off_policy
        raise AttributeError(f"{type(self).__name__} has no setting {name!r}{self._nearest(name)}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            return super().__setattr__(name, value)
        if name in OLD_SETTINGS or name in _OLD_SET:
            return _set_older(self, name, value)
        if name == "agent_class" and value is not None and not isinstance(value, type):
            value = type(value)
        if name in ("env_class", "env_args"):
            for stale in self._from_env:
                self.__dict__.pop(stale, None)
            self._from_env.clear()
        elif name == "if_off_policy":
            return None  # the agent class knows
        elif not self._knows(name) and self.agent_class is not None:
            warnings.warn(f"{name!r} is no setting of this run{self._nearest(name)}; it is kept", stacklevel=2)
        self._from_env.discard(name)
        super().__setattr__(name, self._checked(name, value))
        return None

    def _hyper_parameters(self) -> dict[str, Any]:
        agent_class = self.__dict__.get("agent_class")
        if not hasattr(agent_class, "hyper_parameters"):
            from ..agents import AgentBase  # here, so that importing a Config does not import every agent

            agent_class = AgentBase
        return agent_class.hyper_parameters()

    def _known(self) -> set[str]:
        return {*RUN_DEFAULTS, *PROBED, "if_off_policy", *self._hyper_parameters()}

    def _knows(self, name: str) -> bool:
        return name in self._known() or name in OLD_SETTINGS or name in _OLD_SET

    def _nearest(self, name: str) -> str:
        near = difflib.get_close_matches(name, [*self._known(), *OLD_SETTINGS, *_OLD_SET], 1)
        return f", did you mean {near[0]!r}?" if near else ""

    def _checked(self, name: str, value: Any) -> Any:
        """The value in the type of its default. ValueError: it has another type, or is below zero."""
        if name == "net_dims":
            dims = (value,) if isinstance(value, Integral) else value
            if not isinstance(dims, Sequence) or not all(isinstance(d, Integral) and d > 0 for d in dims):
                raise ValueError(f"net_dims={value!r}: a positive integer, or a list or tuple of them, is needed")
            return tuple(int(d) for d in dims)
        default = self._hyper_parameters().get(name, RUN_DEFAULTS.get(name))
        if isinstance(default, bool):
            if value not in (True, False):
                raise ValueError(f"{name}={value!r}: True or False is needed")
            return bool(value)
        if not isinstance(default, int | float) and name not in ("num_envs", "max_step", "action_dim", "num_threads"):
            return value
        is_float, may_be_below_zero = isinstance(default, float), name in ("gpu_id", "break_score", "target_entropy")
        if not isinstance(value, Real):
            if value is None or (is_float and not isinstance(value, str | Sequence | dict | Tensor)):
                return value  # None: the agent's own rule; an object: a schedule
            raise ValueError(f"{name}={value!r}: a number is needed")
        if math.isnan(value) or (value < 0 and not may_be_below_zero):
            raise ValueError(f"{name}={value!r}: a number from 0 on is needed")
        is_whole = not is_float or (name == "break_step" and math.isfinite(value))
        if is_whole and value != int(value):
            raise ValueError(f"{name}={value!r}: a whole number is needed")
        return int(value) if is_whole else float(value)

    # the environment

    def _ask_environment(self, name: str) -> Any:
        value = (self.env_args or {}).get(name)
        if value is None:
            env = make_env(self.env_class, self._env_args(), self.gpu_id)
            self._learn_from(env)
            if not is_instance(self.env_class):
                env.close()
            return self.__dict__[name]
        self._from_env.add(name)
        self.__dict__[name] = value = self._checked(name, value)
        return value

    def _learn_from(self, env: Any) -> None:
        """Stores what `env` says. ValueError: the user said something else."""
        said = {name: getattr(env, name) for name in PROBED if name != "num_envs"}
        given = {**(self.env_args or {}), **self.__dict__}
        names = ("state_dim", "action_dim", "if_discrete", "max_step")
        wrong = [n for n in names if given.get(n) is not None and np.any(np.ravel(given[n]) != np.ravel(said[n]))]
        if wrong:
            lines = "; ".join(f"{n} is {said[n]!r}, not {given[n]!r}" for n in wrong)
            raise ValueError(f"the settings contradict the environment {env.env_name}: {lines}")
        for name, value in {**said, "num_envs": 1}.items():
            if name not in self.__dict__:
                self.__dict__[name] = (self.env_args or {}).get(name, value)
                self._from_env.add(name)

    def _env_args(self, if_eval: bool = False) -> dict[str, Any]:
        set_here = {n: self.__dict__[n] for n in ENV_ATTRIBUTES if n in self.__dict__ and n not in self._from_env}
        return {**(self.env_args or {}), **set_here, **((self.eval_env_args or {}) if if_eval else {})}

    # for the parts of a run

    @property
    def device(self) -> torch.device:
        return device_of(self.gpu_id)

    def init_before_training(self) -> None:
        """Asks the environment for all it says and settles `cwd`. ValueError: something is missing or contradictory."""
        if self.agent_class is None or (self.env_class is None and not self.env_args):
            raise ValueError("a run needs an agent_class, and an env_class or env_args with an env_name")
        for name in PROBED:
            getattr(self, name)
        self.cwd = self.cwd

    def seed_for(self, *key: str | int) -> int:
        """A seed for one purpose, such as ("worker", 0) or ("evaluate", 3), that shares nothing with other purposes."""
        spawn_key = [zlib.crc32(part.encode()) if isinstance(part, str) else part for part in key]
        return int(np.random.SeedSequence(self.random_seed, spawn_key=spawn_key).generate_state(1)[0])

    def to_dict(self) -> dict[str, Any]:
        """All settings as plain data for a checkpoint: classes and functions are named "module:qualname"."""
        return {name: _plain(value) for name, (value, _) in self._settled().items()}

    def _settled(self) -> dict[str, tuple[Any, str]]:
        """name -> (value, who said so)."""
        sources = {}
        for name in [*RUN_DEFAULTS, *PROBED, *self._hyper_parameters(), *self.__dict__]:
            if name.startswith("_") or name in sources:
                continue
            value = getattr(self, name, None)
            is_given = name in self.__dict__ and name not in self._from_env
            by_default = "agent" if name in self._hyper_parameters() else "default"
            sources[name] = value, "user" if is_given else "environment" if name in self._from_env else by_default
        return sources

    def __str__(self) -> str:
        rows = [(name, repr(_plain(value)), source) for name, (value, source) in self._settled().items()]
        width = max(len(name) for name, _, _ in rows)
        return "\n".join(f"{name:<{width}}  {source:<11}  {value}" for name, value, source in rows)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str | Tensor):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value)) if type(value) in (list, tuple) else [*map(_plain, value)]
    if hasattr(value, "to_dict"):
        return value.to_dict()
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}:{named.__qualname__}"


class Arguments(Config):
    """Config under its older name and call styles: `Arguments(env, agent)`, `agent=`, `env=`, `env_func=`, in any order
    of the first two, with agents as classes or instances."""

    def __init__(self, agent_class: Any = None, env_class: Any = None, env_args: dict | None = None, **settings: Any):
        if is_instance(agent_class) or (hasattr(env_class, "update_net") and agent_class is not env_class):
            agent_class, env_class = env_class, agent_class
        super().__init__(agent_class, env_class, env_args, **settings)


# Older settings that are more than another name. `net_dim` and `num_layer` each keep what the other one said.
_OLD_GET: dict[str, Callable[[Config], Any]] = {
    "net_dim": lambda args: args.net_dims[0],
    "num_layer": lambda args: len(args.net_dims),
    "layer_num": lambda args: len(args.net_dims),
}
_OLD_SET: dict[str, tuple[str, Callable[[Config, Any], dict[str, Any]]]] = {
    "net_dim": ("net_dims", lambda args, dim: {"net_dims": (dim,) * len(args.net_dims)}),
    "num_layer": ("net_dims", lambda args, num: {"net_dims": args.net_dims[:1] * num}),
    "layer_num": ("net_dims", lambda args, num: {"net_dims": args.net_dims[:1] * num}),
    "learner_gpus": ("gpu_id", lambda args, ids: _learner_gpus(ids)),
    "if_allow_break": ("break_score", lambda args, may: {} if may else {"break_score": math.inf}),
    "if_per_or_gae": ("if_use_per", lambda args, on: {"if_use_per": on} if args.if_off_policy else {}),
    "if_use_gae": ("nothing (it is always on)", lambda args, on: {}),
}


def _learner_gpus(ids: int | Sequence[int]) -> dict[str, Any]:
    ids = (ids,) if isinstance(ids, Integral) else tuple(ids)
    return {"gpu_id": ids[0], "learner_gpu_ids": ids if len(ids) > 1 else ()}


def _set_older(args: Config, name: str, value: Any) -> None:
    new, translate = _OLD_SET.get(name) or (OLD_SETTINGS[name], None)
    warn_renamed(name, new, stacklevel=4)
    for new_name, new_value in (translate(args, value) if translate else {new: value}).items():
        setattr(args, new_name, new_value)


def build_env(env_class: Any = None, env_args: dict[str, Any] | None = None, gpu_id: int = -1) -> Any:
    """One environment with Gymnasium's interface, or under the vector contract if env_args["num_envs"] is above 1.

    env_class: an id, `gym.make` (None), a class, a function, or an environment. env_args: see `Config`; not changed.
    """
    num_envs = int((env_args or {}).get("num_envs") or 1)
    if num_envs > 1:
        return vectorise(env_class, env_args, num_envs, device_of(gpu_id))
    return make_env(env_class, env_args, gpu_id)


def build_vec_env(args: Config, num_envs: int | None = None, if_eval: bool = False) -> Any:
    """The run's environments under the vector contract, on `args.device`; for evaluation never the ones that learn.

    ValueError: the environment is not what `args` say.
    """
    env_class = (args.eval_env_class if if_eval else None) or args.env_class
    if if_eval and is_instance(env_class):
        env_class = copy.deepcopy(env_class)  # evaluating the environment itself would cut the training episode
    env = vectorise(env_class, args._env_args(if_eval), num_envs or args.num_envs, args.device)
    if not if_eval:
        args._learn_from(env)
    return env


def get_gym_env_args(env: Any, if_print: bool = False) -> dict[str, Any]:
    """What an environment says of itself, as a dict for `env_args`."""
    env = env if is_vec_env(env) or isinstance(env, GymEnv) else make_env(env)
    env_args = {name: getattr(env, name) for name in ENV_ATTRIBUTES}
    if if_print:
        print("env_args = {" + "".join(f"\n    {name!r}: {value!r}," for name, value in env_args.items()) + "\n}")
    return env_args


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
