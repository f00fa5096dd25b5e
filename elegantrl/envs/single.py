"""One environment of any age and origin, tamed to Gymnasium's interface."""

from __future__ import annotations

import difflib
import importlib
import inspect
import math
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray

from ..device import device_of
from ..warn import warn
from .multi import as_teams
from .spaces import ActionCodec

ENV_ATTRIBUTES = ("env_name", "num_envs", "max_step", "state_dim", "action_dim", "if_discrete")
OLD_KEYS = ("env_num", "target_return", "id", "if_batched")  # of env_args, for constructors that name them
VECTOR_KEYS = ("vectorization_mode", "vector_kwargs")  # of env_args, for `vectorise`
NO_LIMIT = 12345  # max_step of an environment that states none
TASK_PACKAGES = ((r"ALE/", "ale_py", "atari"), (r"\w+BulletEnv-", "pybullet_envs_gymnasium", "pybullet"))
_MISSING = object()


FLATTENED = (  # spaces whose observations gymnasium.spaces.flatten makes into one row of numbers
    gym.spaces.Dict, gym.spaces.Tuple, gym.spaces.Discrete, gym.spaces.MultiDiscrete, gym.spaces.MultiBinary
)  # fmt: skip


class GymEnv(gym.Env):
    """Wraps a single environment: Gymnasium's or the old interface, with spaces or with attributes only.

    Actions are in the environment's own units. States are float32 (S,), or uint8 / (C, H, W)-like arrays as they come.
    Attributes: `env_name, num_envs (1), max_step, state_dim, action_dim, if_discrete, state_dtype, codec`; all others
    are the wrapped environment's. An episode of `max_step` steps is truncated here, where nothing else ends it.

    given: attributes for what the environment itself does not say; a smaller `max_step` than its own is obeyed.
    ValueError: no spaces and no attributes, or a state of another shape than announced.
    """

    num_envs = 1

    def __init__(self, env: Any, **given: Any):
        self.env = env
        self.spec, self.render_mode = getattr(env, "spec", None), getattr(env, "render_mode", None)
        self.metadata = getattr(env, "metadata", {})

        names = (_find(env, "env_name", None), getattr(self.spec, "id", None), given.get("env_name"))
        self.env_name = str(next(filter(None, names), type(env).__name__))
        limits = (_find(env, "_max_episode_steps", None), _find(env, "max_step", None))  # TimeLimit's, the attribute
        own_limit = next(filter(None, (*limits, *_limits_of_spec(env, self.spec))), math.inf)
        wanted = given.get("max_step") or math.inf
        for limit in (wanted, own_limit):
            if np.asarray(limit).dtype.kind not in "iuf" or not limit > 0:
                raise ValueError(f"{self.env_name} has max_step={limit!r}: a positive number of steps is needed")
        self._limit = min(wanted, own_limit)  # kept here too: an attribute alone ends no episode
        self.max_step = int(min(wanted, own_limit, NO_LIMIT if math.inf == wanted == own_limit else math.inf))

        space, dim = _own_space(env, "observation_space", "state_dim")
        dim = given.get("state_dim") if dim is None else dim
        self._parts = space if isinstance(space, FLATTENED) else None
        if self._parts is not None and self._parts.is_np_flattenable:
            space = gym.spaces.flatten_space(self._parts)
            warn(f"{self.env_name}: observations {self._parts} are flattened to {space.shape} numbers")
        if type(space).__name__ == "Box":
            self._native_shape, dtype = tuple(space.shape), np.dtype(space.dtype)
        elif space is None and dim is not None:
            self._native_shape, dtype = _sizes("state_dim", dim, self.env_name), np.dtype(np.float32)
        else:
            said = "no observation_space and no state_dim" if space is None else f"observation_space {space}"
            raise ValueError(
                f"{self.env_name} has {said}: give it an observation_space that is a Box (gymnasium.wrappers."
                "FlattenObservation makes one), or the attributes state_dim, action_dim, if_discrete, max_step"
            )
        is_image = dtype == np.uint8 or len(self._native_shape) == 3
        self._dtype = np.dtype(np.uint8 if dtype == np.uint8 else np.float32)
        self.state_dtype = torch.uint8 if dtype == np.uint8 else torch.float32
        self._shape = self._native_shape if is_image else (int(np.prod(self._native_shape)),)
        self.state_dim: int | tuple[int, ...] = self._shape[0] if len(self._shape) == 1 else self._shape
        if isinstance(space, gym.Space) and (self._shape, self._dtype) == (space.shape, space.dtype):
            self.observation_space = space
        else:
            low, high = (0, 255) if self._dtype == np.uint8 else (-np.inf, np.inf)
            self.observation_space = gym.spaces.Box(low, high, self._shape, self._dtype.type)

        space, dim = _own_space(env, "action_space", "action_dim")
        dim = given.get("action_dim") if dim is None else dim
        if space is not None:
            self.codec = ActionCodec.from_space(space)
        elif dim is not None:
            dim = math.prod(_sizes("action_dim", dim, self.env_name))
            self.codec = ActionCodec.plain(dim, _find(env, "if_discrete", given.get("if_discrete", False)))
        else:
            raise ValueError(
                f"{self.env_name} has no action_space: give it one, or the attributes action_dim, if_discrete"
            )
        self.action_dim, self.if_discrete = self.codec.action_dim, self.codec.if_discrete
        self.action_space = space if isinstance(space, gym.Space) else self.codec.to_space()
        self._reset_keywords = tuple(kwargs_filter(env.reset, {"seed": None, "options": None}))
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[NDArray, dict]:
        if seed is not None and "seed" not in self._reset_keywords and hasattr(self.env, "seed"):
            self.env.seed(seed)  # the old interface
        given = {"seed": seed, "options": options}
        result = self.env.reset(**{name: given[name] for name in self._reset_keywords if given[name] is not None})
        is_new = isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)
        state, info = result if is_new else (result, {})
        self._steps = 0
        return self._checked(state), info

    def step(self, action: Any) -> tuple[NDArray, float, bool, bool, dict]:
        result = self.env.step(action)
        if len(result) == 5:
            state, reward, terminal, truncate, info = result
        else:  # the old interface: a time limit is known by this key only
            state, reward, terminal, info = result
            truncate = (info or {}).get("TimeLimit.truncated", False)
            terminal = terminal and not truncate
        self._steps += 1
        if self._steps >= self._limit and not terminal:
            truncate = True
        reward = float(reward.item() if isinstance(reward, np.ndarray) else reward)
        return self._checked(state), reward, bool(terminal), bool(truncate), info or {}

    def _checked(self, state: Any) -> NDArray:
        if self._parts is not None:
            state = gym.spaces.flatten(self._parts, state)
        state = np.asarray(state)
        if self._dtype == np.uint8 and state.dtype != np.uint8 and not _holds_bytes(state):
            raise ValueError(
                f"{self.env_name} announced states of bytes (uint8) and gave one of {state.dtype}, "
                f"from {state.min()} to {state.max()}"
            )
        state = state.astype(self._dtype, copy=False)
        if state.shape != self._native_shape:
            raise ValueError(
                f"{self.env_name} announced states of shape {self._native_shape} and gave one of shape {state.shape}"
            )
        return state if self._shape is self._native_shape else state.reshape(self._shape)

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        if hasattr(self.env, "close"):
            self.env.close()

    @cached_property
    def vector(self) -> Any:
        """This environment under the vector contract: one object, since it knows where the episode stands."""
        from .vector import as_vec_env  # here, because it imports this file

        return as_vec_env(self)

    @property
    def unwrapped(self) -> Any:
        return getattr(self.env, "unwrapped", self.env)

    def __getattr__(self, name: str) -> Any:
        value = _MISSING if name.startswith("_") or name == "env" else _find(self.env, name)
        if value is _MISSING:
            raise AttributeError(f"neither GymEnv nor the environment in it has an attribute {name!r}")
        return value


def _holds_bytes(state: NDArray) -> bool:
    return state.dtype.kind in "biu" and bool(((state >= 0) & (state < 256)).all())


def _find(env: Any, name: str, default: Any = _MISSING) -> Any:
    """The attribute of the outermost wrapper that has it (Gymnasium's wrappers do not hand attributes on)."""
    while env is not None:
        value = getattr(env, name, _MISSING)
        if value is not _MISSING:
            return value
        env = getattr(env, "env", None)
    return default


def _limits_of_spec(env: Any, spec: Any) -> Iterator[int]:
    """Steps of the longest episode by Gymnasium's spec; Atari's counts frames, of which a step skips some."""
    yield getattr(spec, "max_episode_steps", None) or 0
    told = getattr(spec, "kwargs", {})
    skip = int(np.min(told.get("frameskip", 1))) * int(_find(env, "frame_skip", 1))
    yield -(-int(told.get("max_num_frames_per_episode") or 0) // skip)


def _own_space(env: Any, space_name: str, dim_name: str) -> tuple[Any, Any]:
    """(space, None) or (None, dim), as the outermost wrapper says that states one of the two itself.

    A wrapper with `action_dim` around an environment with a space speaks the policy's language: its space is only
    inherited.
    """
    while env is not None:
        inherits = isinstance(env, gym.Wrapper) and vars(env).get("_" + space_name) is None
        inherits = inherits and getattr(type(env), space_name) is getattr(gym.Wrapper, space_name)
        if not inherits and getattr(env, space_name, None) is not None:
            return getattr(env, space_name), None
        if getattr(env, dim_name, None) is not None:
            return None, getattr(env, dim_name)
        env = getattr(env, "env", None)
    return None, None


def _sizes(name: str, dim: Any, env_name: str) -> tuple[int, ...]:
    sizes = np.ravel(dim)
    if sizes.dtype.kind not in "iuf" or not (sizes > 0).all() or not (sizes == np.rint(sizes)).all():
        raise ValueError(f"{env_name} has {name}={dim!r}: a positive whole number, or several for a shape, is needed")
    return tuple(int(size) for size in sizes)


def is_vec_env(env: Any) -> bool:
    """Whether `env` keeps the vector contract by itself."""
    return hasattr(env, "autoreset")


def is_instance(env_class: Any) -> bool:
    """Whether this is an environment rather than something that makes one."""
    return hasattr(env_class, "step") and not isinstance(env_class, type)


def make_env(env_class: Any = None, env_args: dict[str, Any] | None = None, gpu_id: int = -1) -> Any:
    """GymEnv, or what `env_class` builds where that keeps the vector contract itself.

    env_class: an id of Gymnasium's, `gym.make` (None means it), a class, a function or an environment.
    env_args: what its constructor names is handed on, attributes such as `state_dim` describe the environment.
    """
    env_args = dict(env_args or {})
    if isinstance(env_class, str):
        env_class, env_args = gym.make, {**env_args, "env_name": env_class}
    env_class = env_class or gym.make
    keywords = {} if is_instance(env_class) else constructor_keywords(env_class, env_args, gpu_id)
    env = env_class if is_instance(env_class) else env_class(**keywords)
    if isinstance(env, GymEnv) or is_vec_env(env):
        return env
    num_envs = 1 if is_instance(env_class) else int(env_args.get("num_envs") or 1)
    teams = as_teams(env, lambda: env_class(**keywords), num_envs, env_args.get("max_step"), device_of(gpu_id))
    if teams is not None:
        return teams
    from .simulators import adapted  # here, because it imports this file

    if (many := adapted(env, device_of(gpu_id))) is not None:
        many.env_name = env_args.get("env_name", many.env_name)
        return many
    if (number := int(getattr(env, "num_envs", 1))) > 1:
        raise ValueError(
            f"{type(env).__name__} has num_envs={number} and no autoreset, so that what follows an episode's end is "
            "not known: set autoreset to 'next_step' or 'same_step' (check_vec_env tells what else the contract asks)"
        )
    if missing := [name for name in ("reset", "step") if not hasattr(env, name)]:
        raise ValueError(f"{type(env).__name__} has no {' and no '.join(missing)}: an environment needs both")
    return GymEnv(env, **{name: env_args[name] for name in ENV_ATTRIBUTES if name in env_args})


def constructor_keywords(env_class: Callable, env_args: dict[str, Any], gpu_id: int = -1) -> dict[str, Any]:
    """What of `env_args` its constructor takes, and what else it asks for by a known name; the rest is warned about."""
    named = inspect.signature(env_class).parameters
    keywords = kwargs_filter(env_class, env_args)
    described = (*ENV_ATTRIBUTES, *OLD_KEYS, *VECTOR_KEYS)
    maker = getattr(env_class, "__name__", env_class)
    for name in env_args.keys() - keywords.keys() - {*described, "gpu_id", "render_mode"}:  # the library's own
        near = difflib.get_close_matches(name, named, 1, cutoff=0.7)
        hint = f", did you mean {near[0]!r}?" if near else ""
        warn(f"env_args[{name!r}] has no effect: {maker} takes no such argument{hint}")
    keywords = {name: value for name, value in keywords.items() if name in named or name not in described}
    if "gpu_id" in named:
        keywords.setdefault("gpu_id", gpu_id)
    for name in ("id", "task_id"):
        if name in named and "env_name" in env_args:
            keywords.setdefault(name, env_args["env_name"])
    if "task_id" in named and "num_envs" in env_args:  # EnvPool, which names no other argument
        keywords["num_envs"] = env_args["num_envs"]
    if "env_num" in named and env_args.get("num_envs", 1) > 1:
        keywords.setdefault("env_num", env_args["num_envs"])
    if "device" in named and named["device"].default is inspect.Parameter.empty:
        keywords.setdefault("device", str(device_of(gpu_id)))
    if env_class is gym.make and "id" not in keywords:
        raise ValueError("which environment? gym.make needs its id: env_args={'env_name': 'Pendulum-v1'}, for instance")
    if env_class is gym.make and isinstance(keywords.get("id"), str):
        keywords["id"] = _registered_id(keywords["id"])
        max_step = env_args.get("max_step")
        if max_step and max_step != gym.spec(keywords["id"]).max_episode_steps:
            keywords.setdefault("max_episode_steps", int(max_step))
    return keywords


def _registered_id(env_id: str) -> str:
    """`env_id`, or the newest registered version of one that is gone, with a warning."""
    base = re.sub(r"-v\d+$", "", env_id)
    if env_id not in gym.registry:
        _import_tasks(env_id)
    if env_id in gym.registry or ":" in env_id or base == env_id:
        return env_id
    versions = [int(m[1]) for name in gym.registry if (m := re.fullmatch(re.escape(base) + r"-v(\d+)", name))]
    if not versions:
        return env_id  # gym.make has the better message
    newest = f"{base}-v{max(versions)}"
    if int(env_id.removeprefix(f"{base}-v")) > max(versions):
        return env_id  # not one that is gone
    warn(f"{env_id} is not registered, {newest} is used")
    return newest


def _import_tasks(env_id: str) -> None:
    """Imports the package that registers a task, where the id tells which. ImportError: it is not there."""
    for pattern, package, extra in TASK_PACKAGES:
        if re.match(pattern, env_id):
            try:
                importlib.import_module(package)
            except ImportError as error:
                raise ImportError(f"{env_id} needs {package}: pip install 'elegantrl[{extra}]'") from error


def kwargs_filter(function: Callable, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The items of `kwargs` that `function` can take by keyword."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return dict(kwargs)
    return {name: value for name, value in kwargs.items() if name in parameters}
