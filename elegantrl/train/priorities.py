"""Prioritised replay, arXiv:1511.05952: what `if_use_per` makes of a buffer. Letters: B batch, K ensemble."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..agents.functional import LinearSchedule
from ..trajectory import Batch

PRIORITY_EPS = 1e-6  # no transition's priority falls to 0
FAN_OUT = 64  # leaves in a block of the sum tree
NO_WINDOWS = (
    "Windows (rnn_dim > 0) are drawn uniformly, of single steps: leave if_use_per, n_step, lambda_fit_cum_r alone."
)


class SumTree:
    """Sums of priorities; updates and samples are batched on the device.

    A tree of two levels: blocks of FAN_OUT leaves, and the sums of the blocks, over which one running sum is fast.
    Twenty levels of two children each take ten times as many calls, and calls are what a batch costs.
    """

    def __init__(self, capacity: int, alpha: float, beta: float, device: torch.device):
        self.capacity, self.alpha, self.beta = capacity, alpha, beta
        # double, so that a sum of millions of leaves keeps the small ones
        self.blocks = torch.zeros(-(-capacity // FAN_OUT), FAN_OUT, dtype=torch.float64, device=device)
        self.leaves = self.blocks.view(-1)
        self.sums = self.blocks.sum(1)
        self.max_priority = torch.ones((), dtype=torch.float64, device=device)

    @property
    def total(self) -> Tensor:
        return self.sums.sum()

    def update(self, index: Tensor, priority: Tensor) -> None:
        """Sets leaves (B,) long to priorities (B,); of a repeated index one of its priorities stays."""
        priority = priority.double()
        self.leaves[index] = priority
        self.max_priority = torch.maximum(self.max_priority, priority.max())
        block = index // FAN_OUT
        self.sums[block] = self.blocks.index_select(0, block).sum(1)

    def sample(self, batch_size: int) -> tuple[Tensor, Tensor]:
        """Leaves (B,) with probability p_i / sum p, stratified, and importance weights (B,) of maximum 1."""
        running = F.pad(self.sums.cumsum(0), (1, 0))  # running[i]: of all blocks before i
        random = torch.rand(batch_size, dtype=torch.float64, device=running.device)
        strata = torch.arange(batch_size, device=running.device) + random
        block, rest = chosen(running[1:], strata * (running[-1] / batch_size))
        leaves = self.blocks.index_select(0, block)
        leaf, _ = chosen(leaves.cumsum(1), (rest - running[block])[:, None])
        index = block * FAN_OUT + leaf[:, 0]
        priority = self.leaves[index]
        return index, ((priority.min() / priority) ** self.beta).float()  # (P_i / min P)^-beta

    def state_dict(self) -> dict[str, Tensor]:
        return {"leaves": self.leaves[: self.capacity], "max_priority": self.max_priority}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.blocks.zero_()
        self.sums.zero_()
        self.update(torch.arange(len(state["leaves"]), device=self.leaves.device), state["leaves"])
        self.max_priority = state["max_priority"].to(self.leaves.device)


def of_row(x: Tensor, index: Tensor) -> Tensor:
    """Whether x (*index.shape) or (*index.shape, M) bool holds for a row: for any of its agents."""
    return x if x.dim() == index.dim() else x.any(-1)


def chosen(running: Tensor, point: Tensor) -> tuple[Tensor, Tensor]:
    """The first whose running sum (..., n) exceeds the point, so that its own part is above 0; and the point.

    A point that rounding has moved to the whole sum is moved before it.
    """
    point = torch.minimum(point, running[..., -1:].nextafter(running.new_zeros(())))
    return torch.searchsorted(running, point, right=True), point


BinarySearchTree = SumTree


class Priorities(SumTree):
    """One leaf for each row of a buffer, whose equal chances give way to the leaves. Masked and newest rows have 0.

    beta: exponent of the importance weights; a number rises to 1 over the run.
    """

    def __init__(self, buffer: Any, alpha: float, beta: float | LinearSchedule):
        self.schedule = beta if isinstance(beta, LinearSchedule) else LinearSchedule(beta, 1.0)
        super().__init__(buffer.rows * buffer.num_seqs, alpha, self.schedule(0.0), buffer.device)
        self.buffer = buffer
        buffer.tree, buffer.draw_bytes = self, 0  # each batch by itself: the feedback of one changes the next
        buffer.draw, buffer.anneal = self.draw, self.anneal
        buffer.written, buffer.feedback = self.written, self.feedback

    def draw(self, batch_size: int, length: int = 1) -> tuple[Tensor, Tensor]:
        if length > 1:
            raise ValueError(NO_WINDOWS)
        return self.sample(batch_size)

    def written(self, index: Tensor, cols: Tensor, horizon: int) -> None:
        """New rows, and those that now have a successor, get the largest priority so far."""
        buffer = self.buffer
        newest = (buffer.head[cols] - 1) % buffer.rows * buffer.num_seqs + cols  # before these came
        had_rows = (buffer.size[cols] > 0) & (horizon < buffer.rows)  # else that row is overwritten by now
        index = torch.cat([newest[had_rows], index])
        is_row = of_row(buffer.columns["unmasks"][index], index)
        priority = torch.where(is_row, self.max_priority, 0.0)
        priority[-len(cols) :] = 0.0  # the newest rows
        self.update(index, priority)

    def feedback(self, batch: Batch, td: Tensor) -> None:
        """Priorities from temporal differences (B,) or (K, B), of the living. A row whose leaf is 0 keeps that."""
        size = td.abs() * (batch.weight > 0)
        for _ in range(batch.rewards.dim() - 1):  # the agents'
            size = size.mean(-1)
        size = size if size.dim() == 1 else size.mean(0)
        priority = (size.nan_to_num() + PRIORITY_EPS) ** self.alpha  # the log tells what is not finite, not the tree
        self.update(batch.index, priority * (self.leaves[batch.index] > 0))

    def anneal(self, progress: float) -> None:
        """Moves beta along its schedule."""
        self.beta = self.schedule(progress)
