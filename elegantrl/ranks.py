"""Learners that work on one agent together, each a rank: what they average and what they agree on. A leaf."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

PATIENCE = timedelta(minutes=30)  # that a rank waits for the others: their Workers start, their environments are slow
SECONDS_TO_TELL = 10.0  # that a Learner has for saying why it failed


class Ranks:
    """One of several Learners: NCCL carries what is on GPUs, Gloo what is on CPUs.

    store: where they find each other; None: by the environment variables that torchrun sets. here: how many of them
    are on this machine; None: all.
    `watched`: called where the others cannot be reached any more; each raises what it knows to be the cause.
    """

    def __init__(self, rank: int, size: int, device: torch.device, store: Any = None, here: int | None = None):
        self.rank, self.size, self.here = rank, size, here or size
        self.watched: list[Callable[[float], None]] = []
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=PATIENCE)

    def join(self, agent: Any) -> None:
        """Makes an agent's gradients and statistics those of all ranks."""
        alone = agent.gradients

        def together(objective: Any, params: Any, batch: Any) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
            grads, values = alone(objective, params, batch)
            return self.mean_each(grads), values

        agent.ranks, agent.gradients, agent.summed, agent.averaged = self, together, self.sum, self.mean
        for option in agent.options:
            option.gather = self.gather

    def together(self, collective: Callable[..., Any], *what: Any, **how: Any) -> None:
        try:
            collective(*what, **how)
        except RuntimeError:
            for check in self.watched:
                check(SECONDS_TO_TELL)
            raise

    def sum(self, x: Tensor) -> Tensor:
        x = x.clone()
        self.together(dist.all_reduce, x)
        return x

    def mean(self, x: Tensor) -> Tensor:
        """The mean over all ranks, of the same shape."""
        return self.sum(x) / self.size

    def mean_each(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        flat = self.mean(torch.cat([x.reshape(-1) for x in tensors]))
        parts = flat.split([x.numel() for x in tensors])
        return tuple(part.view(x.shape) for part, x in zip(parts, tensors, strict=True))

    def gather(self, x: Tensor) -> list[Tensor]:
        """Every rank's tensor, in their order."""
        found = [torch.empty_like(x) for _ in range(self.size)]
        self.together(dist.all_gather, found, x.contiguous())
        return found

    def agree(self, value: Any) -> Any:
        """Rank 0's value, which can be pickled, on every rank."""
        box = [value]
        self.together(dist.broadcast_object_list, box, src=0, device=torch.device("cpu"))
        return box[0]

    def collect(self, value: Any) -> list[Any]:
        """On rank 0 every rank's value, which can be pickled, in their order; nothing on the others."""
        found = [None] * self.size if self.rank == 0 else None
        self.together(dist.gather_object, value, found, dst=0)
        return found or []

    def deal(self, values: Sequence[Any]) -> Any:
        """To each rank its own of rank 0's values; None where there are not so many."""
        box, padded = [None], [*values, *[None] * self.size][: self.size]
        self.together(dist.scatter_object_list, box, padded, src=0)
        return box[0]

    def equal(self, tensors: Sequence[Tensor]) -> None:
        """Gives rank 0's values to the tensors of all, in place."""
        for x in tensors:
            self.together(dist.broadcast, x.detach(), src=0)

    def close(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()
