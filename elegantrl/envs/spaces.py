"""From a policy's actions, [-1, 1] or an index from 0, to an environment's action space and back.

Spaces are recognised by class name and attributes, so that those of the old `gym` package work too.
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

MAX_JOINT_ACTIONS = 2**16
ONE, MINUS_ONE = np.float32(1), np.float32(-1)  # NumPy is faster with its own scalars


class ActionCodec:
    """An invertible map `decode`: policy's action -> environment's action, for N environments at once.

    Continuous: finite bounds are reached at -1 and 1, [l, inf) becomes l + 1 + a (mirrored for (-inf, h]), an unbounded
    dimension stays as it is. Discrete: index + start; several discrete choices are one joint index.

    shape, dtype: of one action in the environment.
    low, high: bounds of each dimension, flat; nvec, start: number of choices and the first of each, flat.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: str,
        low: list[float] | None = None,
        high: list[float] | None = None,
        nvec: list[int] | None = None,
        start: list[int] | None = None,
    ):
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        self.low, self.high, self.nvec, self.start = low, high, nvec, start
        self.if_discrete = nvec is not None
        if nvec is not None:
            self.action_dim = math.prod(nvec)
            if self.action_dim > MAX_JOINT_ACTIONS:
                raise ValueError(f"{nvec} choices make {self.action_dim} joint actions, more than {MAX_JOINT_ACTIONS}")
            self._offset: Any = np.reshape(start or [0] * len(nvec), self.shape).astype(self.dtype)
            self._is_plain = not self.shape and not self._offset.any() and self.dtype == np.int64
        else:
            work = self.dtype if self.dtype.kind == "f" else np.dtype(np.float64)
            self._low, self._high = np.asarray(low, work), np.asarray(high, work)
            self.action_dim = self._low.size
            largest = float(np.finfo(np.float32).max) if self.dtype.kind == "f" else 2.0**63  # they count as infinity
            scale, offset = _affine(self._low.astype(np.float64), self._high.astype(np.float64), largest)
            scale, offset = scale.astype(work), offset.astype(work)
            self._overshoots = bool(((offset + scale > self._high) | (offset - scale < self._low)).any())  # by rounding
            is_uniform = self.action_dim > 0 and bool((scale == scale[0]).all() and (offset == offset[0]).all())
            self._scale: Any = scale[0] if is_uniform else scale  # scalars are faster
            self._offset = offset[0] if is_uniform else offset
            self._is_plain = bool((scale == 1).all() and not offset.any())
            self._map = (self._scale, self._offset, self._low, self._high)

    @classmethod
    def from_space(cls, space: Any) -> ActionCodec:
        """ValueError: a kind of space that has no codec."""
        kind = type(space).__name__
        if kind == "Box":
            dtype = np.dtype(space.dtype or np.float32).name
            low, high = (_flat(np.broadcast_to(bound, space.shape), float) for bound in (space.low, space.high))
            return cls(space.shape, dtype, low, high)
        if kind == "Discrete":
            dtype = np.dtype(getattr(space, "dtype", None) or np.int64).name
            return cls((), dtype, nvec=[int(space.n)], start=[int(getattr(space, "start", 0))])
        if kind in ("MultiDiscrete", "MultiBinary"):
            shape, dtype = tuple(space.shape), np.dtype(space.dtype or np.int64).name
            nvec = _flat(space.nvec, int) if kind == "MultiDiscrete" else [2] * int(np.prod(shape))
            start = _flat(np.broadcast_to(getattr(space, "start", 0), shape), int)
            return cls(shape, dtype, nvec=nvec, start=start)
        raise ValueError(f"an action space of kind {kind} is not supported: {space}")

    @classmethod
    def plain(cls, action_dim: int, if_discrete: bool) -> ActionCodec:
        """For an environment that already speaks the policy's language."""
        action_dim = int(action_dim)
        if if_discrete:
            return cls((), "int64", nvec=[action_dim], start=[0])
        return cls((action_dim,), "float32", [-1.0] * action_dim, [1.0] * action_dim)

    def decode(self, action: NDArray) -> NDArray:
        """(N, A) float, clamped to [-1, 1], or (N,) index -> (N, *shape) of the space's dtype."""
        if self.nvec is not None:
            if self.shape:
                action = np.stack(np.unravel_index(action, self.nvec), axis=-1).reshape(-1, *self.shape)
            return action if self._is_plain else (action + self._offset).astype(self.dtype)
        action = np.minimum(np.maximum(action, MINUS_ONE), ONE)  # half the time of np.clip on small arrays
        if not self._is_plain:
            action = action * self._scale + self._offset
            if self._overshoots:
                action = np.clip(action, self._low, self._high)
        if action.dtype != self.dtype:
            action = (np.rint(action) if self.dtype.kind in "biu" else action).astype(self.dtype)
        return action if len(self.shape) == 1 else action.reshape(-1, *self.shape)

    def decode_tensor(self, action: Tensor) -> Tensor:
        """`decode` without leaving the action's device. (N, A) or (N,) -> (N, *shape)"""
        dtype: torch.dtype = getattr(torch, self.dtype.name)
        if self.nvec is not None:
            if self.shape:
                sizes = torch.Size(self.nvec)
                action = torch.stack(torch.unravel_index(action, sizes), dim=-1).reshape(-1, *self.shape)
            return action.to(dtype) + torch.as_tensor(self._offset, device=action.device)
        action = action.clamp(-1, 1).to(dtype if dtype.is_floating_point else torch.float64)
        if not self._is_plain:
            scale, offset, low, high = (torch.as_tensor(x).to(action) for x in self._map)
            action = (action * scale + offset).clamp(low, high)
        return (action if dtype.is_floating_point else action.round()).to(dtype).reshape(-1, *self.shape)

    def encode(self, action: NDArray) -> NDArray:
        """The inverse of `decode`: (N, *shape) -> (N, A) float32 or (N,) int64."""
        if self.nvec is not None:
            index = np.asarray(action) - self._offset
            if not self.shape:
                return index.astype(np.int64)
            return np.ravel_multi_index(tuple(index.reshape(len(index), -1).T.astype(np.int64)), self.nvec)
        action = np.asarray(action, np.float64).reshape(-1, self.action_dim) - self._offset
        return (action / np.where(self._scale == 0, 1, self._scale)).astype(np.float32)

    def to_space(self) -> gym.Space:
        """The environment's action space, as one of Gymnasium's."""
        if self.nvec is None:
            low, high = (bound.reshape(self.shape).astype(self.dtype) for bound in (self._low, self._high))
            return gym.spaces.Box(low, high, self.shape, self.dtype.type)
        if not self.shape:
            return gym.spaces.Discrete(self.action_dim, start=int(self._offset))
        return gym.spaces.MultiDiscrete(np.reshape(self.nvec, self.shape), self.dtype.type, start=self._offset)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for a checkpoint."""
        kind = {"nvec": self.nvec, "start": self.start} if self.if_discrete else {"low": self.low, "high": self.high}
        return {"shape": list(self.shape), "dtype": self.dtype.name, **kind}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ActionCodec:
        return cls(**data)


def _flat(values: Any, kind: type) -> list:
    return [kind(value) for value in np.ravel(values)]


def _affine(low: NDArray, high: NDArray, largest: float) -> tuple[NDArray, NDArray]:
    """Bounds (A,) -> scale (A,), offset (A,) of the map. largest: counts as infinity, as float32's in old spaces."""
    has_low, has_high = low > -largest, high < largest
    low, high = np.where(has_low, low, 0.0), np.where(has_high, high, 0.0)
    both = has_low & has_high
    scale = np.where(both, high / 2 - low / 2, 1.0)
    offset = np.where(both, high / 2 + low / 2, np.where(has_low, low + 1, np.where(has_high, high - 1, 0.0)))
    return scale, offset
