"""What a run is told: `Config`, `build_env`, and `Arguments`, which is Config with its older call styles."""

from __future__ import annotations

import copy
import difflib
import inspect
import math
import random
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from .. import agents
from ..agents.functional import LinearSchedule
from ..compat import OLD_SETTINGS, newer_env_args, read_older, translate, warn_renamed
from ..device import device_of
from ..envs import (
    ENV_ATTRIBUTES,
    ActionCodec,
    GymEnv,
    check_env,
    is_instance,
    is_vec_env,
    kwargs_filter,
    make_env,
    vectorise,
)
from ..warn import warn
from .checks import check_together, checked, plain

__all__ = [
    "Arguments",
    "Config",
    "SubEnv",
    "VecEnv",
    "build_agent",
    "build_env",
    "build_vec_env",
    "check_env",
    "get_gym_env_args",
    "kwargs_filter",
]
PROBED = (
    *ENV_ATTRIBUTES,
    "num_agents",
    "global_dim",
    "state_dtype",
    "codec",
)  # what the environment says unless the user does
PROBED_TYPES = {"num_envs": int, "max_step": int, "action_dim": int, "if_discrete": bool}


@dataclass
class RunSettings:
    """The settings of a run and their defaults; those of learning are class attributes of the agents."""

    agent_class: type | None = None  # which algorithm
    env_class: Any = None  # id, gym.make (None), class, function that builds the environment, or the environment
    env_args: dict | None = None  # keywords for env_class, and what it does not say of itself (`state_dim`, ...)
    gpu_id: int = -1  # -1: the CPU
    num_workers: int = 2  # processes that explore, each in num_envs environments; 0: the learner's own process does
    num_threads: int | None = None  # of torch, in each process; None: by a rule
    random_seed: int = 0  # everything random in a run derives from it
    learner_gpu_ids: tuple[int, ...] = ()  # more than one: as many learners
    cwd: str | None = None  # folder of the run; None: ./{env_name}_{agent}_{seed}
    if_remove: bool = True  # move what an earlier run left in cwd to cwd/previous-N
    continue_train: bool = False  # resume from what cwd holds
    break_step: float = math.inf  # the run ends after so many environment steps
    break_score: float = math.inf  # ... or at this evaluation return
    break_patience: int = 0  # ... or when so many evaluations in a row stayed below the best; 0: never
    if_keep_save: bool = True  # keep actors during the run
    if_over_write: bool = False  # keep only the newest of them
    if_save_buffer: bool = False  # the replay buffer goes into the checkpoint
    save_gap: int = 8  # keep the actor of every so manieth evaluation
    checkpoint_per_step: int = 0  # environment steps between checkpoints; 0: at the end only
    eval_times: int = 8  # episodes of one evaluation
    eval_per_step: int = 20_000  # environment steps between evaluations
    eval_gap: float = 0.0  # least seconds between evaluations
    eval_env_class: Any = None  # None: env_class
    eval_env_args: dict | None = None  # None: env_args; without an eval_env_class, only what differs from them
    eval_record_step: int = 0  # after so many steps, record an episode as a picture; 0: never
    if_tensorboard: bool = False  # write tensorboard/ as well
    if_use_per: bool = False  # prioritised replay
    per_alpha: float = 0.6  # exponent of the priorities
    per_beta: float | LinearSchedule = 0.4  # exponent of the importance weights at the start; 1 at the end of the run
    callbacks: Sequence[Any] = ()  # objects with on_rollout, on_update, on_evaluate, on_end
    max_restarts: int = 0  # of workers that were killed or hang; an exception always ends the run
    worker_timeout: float = 300.0  # seconds without a sign of life, after its first step, until a worker counts as hung
    worker_lag: int | None = None  # rollouts that workers are ahead of the learner; None: 1 off-policy, else 0


# What `Config.seed_for` is asked for. "learner": the Learner's process; "learner", r: that of rank r > 0. "worker", i:
# the environments of Worker i, each sub-environment's seed derives from it; "worker", i, n: after the n-th replacement
# of a Worker; "checkpoint", c, i: after checkpoint c. "explore", s: the process of a Worker whose environments have the
# seed s. "evaluate", n: environments and process of evaluation n.

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
        settings = {**{name: value for name, value in given.items() if value is not None}, **settings}
        for name in sorted(settings, key=lambda name: name not in ("agent_class", "agent")):
            if name not in self._known():
                raise TypeError(f"{type(self).__name__} has no setting {name!r}{self._hint(name)}")
            setattr(self, name, settings[name])

    # looking up and storing

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in OLD_SETTINGS:
            warn_renamed(name, OLD_SETTINGS[name])
            return read_older(self, name)
        if name in PROBED and (self.env_class is not None or self.env_args):
            return self._ask_environment(name)
        if name in (defaults := self._hyper_parameters()):
            return defaults[name]
        if name in PROBED:
            raise AttributeError(f"{name} is not set, and there is no environment to ask: set env_class")
        if name == "cwd":
            env_name, agent = self.env_name.replace("/", "_"), getattr(self.agent_class, "__name__", "")
            return f"./{env_name}_{agent.removeprefix('Agent')}_{self.random_seed}"
        if name in RUN_DEFAULTS:
            return RUN_DEFAULTS[name]
        if name == "if_off_policy":
            return getattr(self.agent_class, name, None)
        raise AttributeError(f"{type(self).__name__} has no setting {name!r}{self._hint(name)}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
        elif name in OLD_SETTINGS:
            warn_renamed(name, OLD_SETTINGS[name])
            for new_name, new_value in translate(self, name, value).items():
                setattr(self, new_name, new_value)
        elif name != "if_off_policy":  # that is the agent's to say
            is_known = name in self._known() or _owners(name)  # scripts set what some other agent has
            if self.agent_class is not None and not is_known:
                warn(f"{name!r} is no setting of this run{self._hint(name)}; it is kept")
            value = self._checked(name, value)
            if name == "cwd" and value is None:  # the default, which follows the other settings
                self.__dict__.pop(name, None)
                return
            if name in ("env_args", "eval_env_args") and value:
                value = newer_env_args(value)
                if name == "env_args" and value.get("target_return") is not None and "break_score" not in vars(self):
                    self.target_return = value["target_return"]
            given: dict[str, Any] = {}
            if name == "agent_class" and not isinstance(value, type | None):  # what an instance was told is a setting
                given, value = vars(value), type(value)
            self._from_env.discard(name)
            super().__setattr__(name, value)
            if name in ("env_class", "env_args"):  # what the one before said is void
                for stale in self._from_env:
                    del self.__dict__[stale]
                self._from_env = set()
            elif name == "agent_class":  # what was set before can be checked now
                for other in self.__dict__.keys() - RUN_DEFAULTS.keys() - self._from_env:
                    setattr(self, other, self.__dict__[other])
                for other in given.keys() & self._hyper_parameters().keys() - PROBED:
                    setattr(self, other, given[other])

    def _agent(self) -> Any:
        return self.__dict__.get("agent_class") or agents.AgentBase

    def _hyper_parameters(self) -> dict[str, Any]:
        return self._agent().hyper_parameters()

    def _known(self) -> set[str]:
        return {*RUN_DEFAULTS, *PROBED, *OLD_SETTINGS, "if_off_policy", *self._hyper_parameters()}

    def _hint(self, name: str) -> str:
        """Who has the setting, or the nearest of today's names."""
        if owners := _owners(name):
            others = " and others" if len(owners) > 3 else ""
            return f" for {self._agent().__name__} ({', '.join(owners[:3])}{others} have)"
        if isinstance(getattr(self._agent(), name, None), int | float | str | tuple):
            return f": annotate it in {self._agent().__name__} ({name}: float = ...), and it is one"
        near = difflib.get_close_matches(name, self._known() - OLD_SETTINGS.keys(), 1, cutoff=0.75)
        return f", did you mean {near[0]!r}?" if near else ""

    def _checked(self, name: str, value: Any) -> Any:
        """The value in the type of its annotation, or of its default. ValueError: it makes no sense."""
        for owner in (*self._agent().__mro__, RunSettings):
            if name in (annotations := inspect.get_annotations(owner)):
                return checked(name, value, annotations[name])
        return checked(name, value, PROBED_TYPES.get(name, type(self._hyper_parameters().get(name))))

    # the environment

    def _ask_environment(self, name: str) -> Any:
        value = (self.env_args or {}).get(name)
        if value is None and name == "num_envs":  # nothing needs to be built to know
            value = getattr(self.env_class, name, 1) if is_instance(self.env_class) else 1
        if value is None:
            env = make_env(self.env_class, self._env_args(), self.gpu_id)
            self._learn_from(env)
            if not is_instance(self.env_class):
                env.close()
            return self.__dict__[name]
        told = {n: v for n in PROBED if (v := {**(self.env_args or {}), name: value}.get(n)) is not None}
        for other in told.keys() - self.__dict__.keys():  # all at once, so that vars(self) holds what agents look for
            self._from_env.add(other)
            self.__dict__[other] = self._checked(other, told[other])
        return self.__dict__[name]

    def _learn_from(self, env: Any) -> None:
        """Stores what `env` says, where the user did not. ValueError: the user said something else."""
        plain: dict[str, Any] = {"state_dtype": torch.float32, "num_agents": 0, "global_dim": 0}
        plain["codec"] = ActionCodec.plain(env.action_dim, env.if_discrete)
        said: dict[str, Any] = {name: getattr(env, name, plain.get(name)) for name in PROBED if name != "num_envs"}
        told = {name: value for name, value in {**(self.env_args or {}), **self.__dict__}.items() if value is not None}
        given: dict[str, Any] = {name: told.get(name, said[name]) for name in said}
        if isinstance(said["state_dim"], int) and np.prod(given["state_dim"]) == said["state_dim"]:
            given["state_dim"] = said["state_dim"]  # states that are no images are flattened
        names = ("state_dim", "action_dim", "if_discrete", "max_step")
        wrong = [name for name in names if not np.array_equal(np.ravel(given[name]), np.ravel(said[name]))]
        if wrong:
            lines = "; ".join(f"{n} is {said[n]!r}, not {given[n]!r}" for n in wrong)
            raise ValueError(f"the settings contradict the environment {env.env_name}: {lines}")
        new = given.keys() - self.__dict__.keys()
        self.__dict__.update({name: given[name] for name in new}, state_dim=said["state_dim"])
        self._from_env |= new

    def _env_args(self, if_eval: bool = False) -> dict[str, Any]:
        set_here = {n: self.__dict__[n] for n in ENV_ATTRIBUTES if n in self.__dict__ and n not in self._from_env}
        env_args = {**(self.env_args or {}), **set_here}
        if not if_eval or self.eval_env_args is None:
            return env_args
        return {**(env_args if self.eval_env_class is None else {}), **self.eval_env_args}

    # for the parts of a run

    @property
    def device(self) -> torch.device:
        return device_of(self.gpu_id)

    def init_before_training(self) -> None:
        """Asks the environment for all it says. ValueError: something is missing or contradictory."""
        if self.agent_class is None or (self.env_class is None and not self.env_args):
            raise ValueError("a run needs an agent_class, and an env_class or env_args with an env_name")
        for name in PROBED:
            getattr(self, name)
        check_together(self, (*self._hyper_parameters(), "per_beta"))

    def seed_for(self, *key: str | int) -> int:
        """A seed for one purpose, that shares nothing with other purposes: NumPy's SeedSequence, spawned by the key."""
        spawn_key = [zlib.crc32(part.encode()) if isinstance(part, str) else part for part in key]
        return int(np.random.SeedSequence(self.random_seed, spawn_key=spawn_key).generate_state(1)[0])

    def for_children(self, gpu_id: int = -1) -> Config:
        """A copy for another process: without callbacks, and on the CPU unless it has a Learner."""
        twin = copy.copy(self)
        vars(twin).update(callbacks=(), gpu_id=gpu_id)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        """With what Gymnasium knows of its ids: a process that unpickles it has not run the script that told."""
        sources = (self.env_class, self.eval_env_class, *(self.env_args or {}).values())
        sources = (*sources, *(self.eval_env_args or {}).values())
        ids = {source for source in sources if isinstance(source, str)} & gym.registry.keys()
        return {**vars(self), "_specs": [gym.registry[name] for name in ids]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for spec in state.pop("_specs"):
            gym.registry.setdefault(spec.id, spec)
        vars(self).update(state, _from_env=set(state["_from_env"]))  # also of a shallow copy its own

    def to_dict(self) -> dict[str, Any]:
        """All settings as plain data for a checkpoint: classes and functions are named "module:qualname"."""
        names = dict.fromkeys([*RUN_DEFAULTS, *PROBED, *self._hyper_parameters(), *self.__dict__])
        return {name: plain(getattr(self, name, None)) for name in names if not name.startswith("_")}  # may ask the env

    def _source(self, name: str) -> str:
        """Who said a setting."""
        if name in (self.env_args or {}) or name in self.__dict__.keys() - self._from_env:
            return "user"
        return "environment" if name in self._from_env else "agent" if name in self._hyper_parameters() else "default"

    def __str__(self) -> str:
        settings = self.to_dict()
        width = max(map(len, settings))
        return "\n".join(f"{name:<{width}}  {self._source(name):<11}  {value!r}" for name, value in settings.items())


def _owners(name: str) -> list[str]:
    """The library's agents that have a hyper-parameter of this name."""
    return [agent for agent in agents.__all__ if name in getattr(agents, agent).hyper_parameters()]


class Arguments(Config):
    """Config under its older name and call styles: `Arguments(env, agent)` too, with classes or instances of both.

    An environment's own `target_return` ends the run, as it did.
    """

    def __init__(self, agent_class: Any = None, env_class: Any = None, env_args: dict | None = None, **settings: Any):
        if is_instance(agent_class) or hasattr(env_class, "update_net"):
            agent_class, env_class = env_class, agent_class
        super().__init__(agent_class, env_class, env_args, **settings)

    def __getattr__(self, name: str) -> Any:
        if name == "break_score" and is_instance(self.env_class):
            return float(getattr(self.env_class, "target_return", math.inf))
        return super().__getattr__(name)


def build_env(env_class: Any = None, env_args: dict[str, Any] | None = None, gpu_id: int = -1) -> Any:
    """One environment with Gymnasium's interface, or under the vector contract if env_args["num_envs"] is above 1.

    env_class: an id, `gym.make` (None), a class, a function, or an environment. env_args: see `Config`; not changed.
    """
    env_args = newer_env_args(env_args or {})
    num_envs = int(env_args.get("num_envs") or 1)
    if num_envs > 1:
        return vectorise(env_class, env_args, num_envs, device_of(gpu_id))
    return make_env(env_class, env_args, gpu_id)


class VecEnv:
    """`VecEnv(env_class, env_args, num_envs)` gives that many environments under the vector contract."""

    def __new__(cls, env_class: Any, env_args: dict[str, Any], num_envs: int, gpu_id: int = -1) -> Any:
        return vectorise(env_class, newer_env_args(env_args), num_envs, device_of(gpu_id))


class SubEnv:
    """`SubEnv(env_class, env_args)` gives one environment under the vector contract."""

    def __new__(cls, env_class: Any, env_args: dict[str, Any], gpu_id: int = -1) -> Any:
        return VecEnv(env_class, env_args, 1, gpu_id)


def build_vec_env(args: Config, num_envs: int | None = None, if_eval: bool = False) -> Any:
    """The run's environments under the vector contract, on `args.device`; for evaluation never the ones that learn.

    ValueError: the environment is not what `args` say, or the one for evaluation is of another kind.
    """
    env_class, num_envs = args.env_class, num_envs or args.num_envs
    if if_eval:
        env_class = args.eval_env_class or env_class
        num_envs = int((args.eval_env_args or {}).get("num_envs") or min(num_envs, max(1, args.eval_times)))
        if is_instance(env_class):  # evaluating the environment itself would cut the episode that it is in
            env_class = _copy_of(env_class)
    env = vectorise(env_class, args._env_args(if_eval), num_envs, args.device)
    if not if_eval:
        args._learn_from(env)
        if "num_envs" in args._from_env:  # nobody asked for a number, so the environment's own holds
            args.__dict__["num_envs"] = env.num_envs
        if env.num_envs != args.num_envs:
            raise ValueError(f"num_envs={args.num_envs} was asked for, {env.env_name} has {env.num_envs} environments")
    for name in ("state_dim", "action_dim", "if_discrete", "num_agents"):  # the actor is one and the same
        if getattr(env, name, 0) != getattr(args, name):
            told = f"{name} is {getattr(env, name, 0)!r}, not {getattr(args, name)!r}"
            raise ValueError(f"{env.env_name}, the environment for evaluation, is unlike the one that trains: {told}")
    return env


def seed_everything(seed: int) -> None:
    """Seeds the global generators of this process: torch's (of every device), NumPy's and Python's."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def build_agent(args: Config) -> Any:
    """A new agent for a Config, with the environment's codec."""
    assert args.agent_class is not None
    agent: Any = args.agent_class(args.net_dims, args.state_dim, args.action_dim, gpu_id=args.gpu_id, args=args)
    agent.codec = args.codec
    return agent


def _copy_of(env: Any) -> Any:
    try:
        return copy.deepcopy(env)
    except Exception as error:
        raise ValueError(f"{env} cannot be copied for evaluation: give its class, or an eval_env_class") from error


def get_gym_env_args(env: Any, if_print: bool = False) -> dict[str, Any]:
    """What an environment says of itself, as a dict for `env_args`."""
    env = env if is_vec_env(env) or isinstance(env, GymEnv) else make_env(env)
    env_args = {name: getattr(env, name) for name in ENV_ATTRIBUTES}
    if if_print:
        print("env_args = {" + "".join(f"\n    {name!r}: {value!r}," for name, value in env_args.items()) + "\n}")
    return env_args
