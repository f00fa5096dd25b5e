"""The base of environments that are tensors on one device, thousands at once: subclass it to make your own.

Letters: N environments, W world, S state, A action.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..device import device_of
from .spaces import ActionCodec

World = Any  # Tensor (N, W), or a tuple of such


def columns(*parts: Tensor) -> Tensor:
    """Numbers of each environment, (N,) each, side by side: (N, W) with contiguous columns, the fast layout here."""
    return torch.stack(parts).T


def each(function: Callable[..., Tensor], *worlds: World) -> World:
    """Of each tensor that a world is made of, at the same places in all worlds."""
    if isinstance(worlds[0], Tensor):
        return function(*worlds)
    return tuple(map(function, *worlds))


def last(x: Tensor) -> Tensor:
    """(N, *any) -> (*any, N), the order in which columns are contiguous."""
    return x.movedim(0, -1)


class TensorEnv:
    """N copies of a task under the vector contract (docs/tutorials/vector_env.md), with same-step auto-reset.

    A subclass states its dims and three methods, each for all N environments at once:

        class Walk(TensorEnv):  # a step to the left or right; +-1 is the end
            state_dim, action_dim, if_discrete, max_step = 1, 2, True, 100

            def fresh(self):
                return self.uniform(-0.5, 0.5, 1)

            def advance(self, world, action):
                world = world + 0.1 * (2 * action[:, None] - 1)
                return world, (world > 1).any(-1).float(), (world.abs() > 1).any(-1)

            def observe(self, world):
                return world

    The methods return new tensors of fixed shapes, and neither loop over environments nor look at a value (`if`,
    `.item()`, boolean indexing): then a step never makes the host wait, and a CUDA graph can hold it. What is random
    comes from `uniform` and `normal`. `fresh` treats all rows alike: on a CPU its rows are kept in stock, and each goes
    to the environment that ends next. Attributes that the methods need are set before `super().__init__`. A world may
    also be a tuple of tensors (N, any), each of the dtype that it needs.

    gpu_id: -1 is the CPU. max_step: steps (None: the class's own). dtype: of the world; float64 is for comparisons.
    """

    autoreset: ClassVar[str] = "same_step"
    state_dtype: torch.dtype = torch.float32
    state_dim: int | tuple[int, ...]
    action_dim: int  # A, or the number of actions
    if_discrete: bool = False
    max_step: int  # steps after which an episode is truncated

    def __init__(
        self, num_envs: int = 64, gpu_id: int = -1, max_step: int | None = None, dtype: torch.dtype = torch.float32
    ):
        self.env_name = type(self).__name__
        self.num_envs, self.device, self.dtype = num_envs, device_of(gpu_id), dtype
        self.max_step = max_step or self.max_step
        if num_envs < 1 or self.max_step < 1:
            raise ValueError(f"num_envs={num_envs}, max_step={self.max_step}: {self.env_name} needs at least 1 of each")
        self.codec = ActionCodec.plain(self.action_dim, self.if_discrete)
        self.generator = torch.Generator(self.device)
        self.generator.seed()
        self.steps = torch.zeros(num_envs, dtype=torch.int32, device=self.device)  # of the episodes under way
        self.limit = torch.full((), self.max_step, dtype=torch.int32, device=self.device)
        self.world = self.fresh()
        self.never_waits = self.device.type != "cpu"  # on a CPU looking is cheaper than starts that nobody needs:
        self.stock, self.used = self.world, num_envs  # of them N are drawn at once, and so many are used up

    # what a subclass says

    def fresh(self) -> World:
        """The world at the start of N new episodes, (N, W)."""
        raise NotImplementedError(f"{type(self).__name__} must define fresh() -> world (N, W).")

    def advance(self, world: World, action: Tensor) -> tuple[World, Tensor, Tensor]:
        """The world one step later (N, W), reward (N,), and whether the task itself ended (N,) bool.

        action: (N, A) in [-1, 1], or (N,) long. Neither argument may be changed in place.
        """
        raise NotImplementedError(f"{type(self).__name__} must define advance(world, action).")

    def observe(self, world: World) -> Tensor:
        """What the policy sees of a world, (N, W) -> (N, S)."""
        raise NotImplementedError(f"{type(self).__name__} must define observe(world) -> state (N, S).")

    def tensor(self, *numbers: float) -> Tensor:
        """Constants, (k,), or () of one."""
        return torch.tensor(numbers if len(numbers) > 1 else numbers[0], dtype=self.dtype, device=self.device)

    def uniform(self, low: float, high: float, *size: int) -> Tensor:
        """Independent draws for each environment, (N, *size)."""
        return self._empty(size).uniform_(low, high, generator=self.generator).movedim(-1, 0)

    def normal(self, mean: float, std: float, *size: int) -> Tensor:
        """Independent draws for each environment, (N, *size)."""
        return self._empty(size).normal_(mean, std, generator=self.generator).movedim(-1, 0)

    def _empty(self, size: tuple[int, ...]) -> Tensor:
        """(*size, N), so that columns are contiguous, as in `columns`."""
        return torch.empty(*size, self.num_envs, dtype=self.dtype, device=self.device)

    # the contract

    def reset(self, seed: int | None = None) -> tuple[Tensor, dict[str, Any]]:
        """N new episodes: states (N, S). seed: of everything that is random from here on."""
        if seed is not None:
            self.generator.manual_seed(seed)
            self.used = self.num_envs
        each(Tensor.copy_, self.world, world := self.fresh())
        self.steps.zero_()
        return self._state(world), {}

    def step(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        """State (N, S), reward (N,) float32, terminal (N,) bool, truncate (N,) bool; info["final_obs"] (N, S).

        Where an episode ended the state is the next one's first, and `final_obs` the true successor, as in all rows.
        On a CPU the two are one tensor where none ended.
        """
        expected = (self.num_envs,) if self.if_discrete else (self.num_envs, self.action_dim)
        if action.shape != expected:
            raise ValueError(f"{self.env_name} expects actions {expected} and got shape {tuple(action.shape)}")
        if not self.if_discrete:
            action = action.to(self.dtype).clamp(-1, 1)
        world, reward, terminal = self.advance(self.world, action)
        steps = self.steps + 1
        truncate = steps >= self.limit
        done = terminal | truncate
        state = final = self._state(world)
        if self.never_waits:  # always N new starts
            world = each(lambda new, old: torch.where(done, last(new), last(old)).movedim(-1, 0), self.fresh(), world)
            state = self._state(world)
        elif len(ended := done.nonzero()[:, 0]):
            world = self._restarted(world, ended)
            state = self._state(world)
        each(Tensor.copy_, self.world, world)  # in place, so that addresses are fixed
        self.steps.copy_(steps * ~done)
        return state, reward.float(), terminal, truncate, {"final_obs": final}

    def _restarted(self, world: World, rows: Tensor) -> World:
        """The world with the next starts of the stock in these rows, (k,) long."""
        if self.used + len(rows) > self.num_envs:
            self.stock, self.used = self.fresh(), 0
        start, self.used = self.used, self.used + len(rows)
        taken = each(lambda new: last(new[start : self.used]), self.stock)
        return each(lambda new, old: last(old).index_copy(-1, rows, new).movedim(-1, 0), taken, world)

    def _state(self, world: World) -> Tensor:
        return self.observe(world).to(self.state_dtype)

    def get_state(self) -> dict[str, Any]:
        """All that decides what comes next, as new tensors: `world` (N, W), `steps` (N,), the stock, `generator`."""
        return {
            "world": each(Tensor.clone, self.world),
            "stock": each(Tensor.clone, self.stock),
            "used": torch.tensor(self.used),
            "steps": self.steps.clone(),
            "generator": self.generator.get_state(),
        }

    def set_state(self, state: Mapping[str, Any]) -> Tensor:
        """Goes back to what `get_state` gave; returns the states (N, S) there."""
        each(Tensor.copy_, self.world, state["world"])
        self.stock, self.used = each(Tensor.clone, state["stock"]), int(state["used"])
        self.steps.copy_(state["steps"])
        self.generator.set_state(state["generator"])
        return self._state(each(Tensor.clone, self.world))

    def close(self) -> None:
        """Nothing to release: part of the contract."""


class SingleEnv(gym.Env):
    """One environment of a TensorEnv with Gymnasium's interface, in NumPy. vec: a TensorEnv with num_envs=1."""

    def __init__(self, vec: TensorEnv):
        self.vec, self.num_envs, self.env_name, self.max_step = vec, 1, type(self).__name__, vec.max_step
        self.state_dim, self.action_dim, self.if_discrete = vec.state_dim, vec.action_dim, vec.if_discrete
        shape = (vec.state_dim,) if isinstance(vec.state_dim, int) else vec.state_dim
        is_image = vec.state_dtype == torch.uint8
        low, high, dtype = (0, 255, np.uint8) if is_image else (-np.inf, np.inf, np.float32)
        self.observation_space = gym.spaces.Box(low, high, shape, dtype)
        self.action_space = vec.codec.to_space()
        self._next: Tensor | None = None  # the first state of the episode that the vector environment began by itself

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[NDArray, dict[str, Any]]:
        state = self._next
        if state is None or seed is not None:
            state, _ = self.vec.reset(seed)
        self._next = None
        return state[0].numpy(), {}

    def step(self, action: Any) -> tuple[NDArray, float, bool, bool, dict[str, Any]]:
        state, reward, terminal, truncate, info = self.vec.step(torch.as_tensor(np.asarray(action))[None])
        self._next = state if bool(terminal | truncate) else None
        return info["final_obs"][0].numpy(), float(reward), bool(terminal), bool(truncate), {}
