"""Tensors that several processes see: one block of shared memory, laid out by name. Messages carry numbers of slots.

Nothing is locked: who writes a slot has heard of every reader that it is done with it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from ..trajectory import Trajectory

SHARED_MEMORY = "/dev/shm"
ALIGNMENT = 64  # bytes, a cache line
Spec = tuple[tuple[int, ...], torch.dtype]


class SharedTensors:
    """`slots` sets of tensors with the same names, shapes and dtypes. It travels to a process that is being started.

    MemoryError, before it allocates, where the machine has not so much shared memory.
    """

    def __init__(self, specs: Mapping[str, Spec], slots: int = 1):
        self.specs, self.slots = dict(specs), slots
        self.size = sum(map(aligned_bytes, self.specs.values()))  # bytes of a slot
        check_shared_memory(self.size * slots)
        self.block = torch.zeros(slots, self.size, dtype=torch.uint8).share_memory_()

    @classmethod
    def like(cls, tensors: Mapping[str, Tensor], slots: int = 1) -> SharedTensors:
        return cls({name: (tuple(x.shape), x.dtype) for name, x in tensors.items()}, slots)

    def views(self, slot: int = 0) -> dict[str, Tensor]:
        """The tensors of a slot, by name."""
        found, start = {}, 0
        for name, (shape, dtype) in self.specs.items():
            part = self.block[slot, start : start + math.prod(shape) * dtype.itemsize]
            found[name] = part.view(dtype).view(shape)
            start += aligned_bytes((shape, dtype))
        return found

    @torch.no_grad()
    def write(self, slot: int, tensors: Mapping[str, Tensor]) -> None:
        for name, view in self.views(slot).items():
            view.copy_(tensors[name])

    @torch.no_grad()
    def read(self, slot: int, tensors: Mapping[str, Tensor]) -> None:
        """Copies a slot into tensors of these names, in place."""
        for name, view in self.views(slot).items():
            tensors[name].copy_(view)


class SharedTrajectories:
    """Trajectories of all Workers, side by side: each Worker writes its own columns, the Learner reads them as one.

    one: a Trajectory of one Worker, whose axis 1 is its environments.
    """

    def __init__(self, one: Trajectory, workers: int, slots: int):
        columns = {f.name: x for f in fields(one) if (x := getattr(one, f.name)) is not None}
        self.num = one.rewards.shape[1]  # environments of a Worker
        self.shared = SharedTensors(
            {name: ((x.shape[0], x.shape[1] * workers, *x.shape[2:]), x.dtype) for name, x in columns.items()}, slots
        )

    def slot(self, slot: int, worker: int | None = None) -> Trajectory:
        """The trajectory (T, W * N, ...) of a slot, or one Worker's columns of it (T, N, ...)."""
        columns: dict[str, Any] = self.shared.views(slot)
        if worker is not None:
            columns = {name: x[:, self.columns(worker)] for name, x in columns.items()}
        return Trajectory(**columns)

    def columns(self, worker: int) -> slice:
        return slice(worker * self.num, (worker + 1) * self.num)


def aligned_bytes(spec: Spec) -> int:
    shape, dtype = spec
    return -(-math.prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT


def check_shared_memory(need: int) -> None:
    if not os.path.isdir(SHARED_MEMORY):
        return  # not Linux: the system says so itself
    stats = os.statvfs(SHARED_MEMORY)
    free = stats.f_bavail * stats.f_frsize
    if need > free:
        raise MemoryError(
            f"The processes of a run need {need / 2**20:.0f} MiB of shared memory, {SHARED_MEMORY} has "
            f"{free / 2**20:.0f} free: enlarge it (docker run --shm-size=...), lower horizon_len or num_envs, or train "
            "in one process, train_agent(args, if_single_process=True)."
        )
