"""The contiguous ring that lies between collecting and learning. Letters: T horizon, N sequences, B batch, R rows."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..device import device_of
from ..trajectory import STATE_LIKE, Batch, Record, Trajectory, loss_weight, widen

PER_AGENT = ("rewards", "undones", "unmasks")  # for some algorithms one of each agent
PRIORITY_EPS = 1e-6  # no transition's priority falls to 0
DRAW_BYTES = 2**20  # what uniform samples that are drawn together may take: it should stay in a core's cache


def available_memory(device: torch.device) -> int:
    """Bytes that a new tensor on this device may take."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        with open("/proc/meminfo") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class ReplayBuffer:
    """A ring of contiguous rows: row i's next state is row i + 1's state, so no state is stored twice.

    max_size: transitions in all; each of the num_seqs environments has max_size // num_seqs rows and its own head.
    num_agents: M of a team, 0 for one agent without that axis.
    The newest row of a sequence is never sampled, because its successor has not been written.
    Raises MemoryError, before it allocates, where the ring does not fit, with the size that would.
    """

    def __init__(
        self,
        max_size: int,
        state_dim: int | tuple[int, ...],
        action_dim: int,
        gpu_id: int = 0,
        num_seqs: int = 1,
        if_use_per: bool = False,
        if_discrete: bool = False,
        args: Any = None,
        num_agents: int = 0,
    ):
        self.device = device_of(gpu_id)
        self.max_size, self.num_seqs = int(max_size), int(num_seqs)
        self.rows = self.max_size // self.num_seqs
        if self.rows < 2:
            raise ValueError(
                f"buffer_size {max_size} leaves {self.rows} rows for each of {num_seqs} environments; at least 2 are "
                f"needed: set buffer_size to {2 * num_seqs} or more."
            )
        team = (num_agents,) if num_agents else ()
        state_shape = (*team, state_dim) if isinstance(state_dim, int) else (*team, *state_dim)
        state_dtype = torch.float32 if args is None else args.state_dtype
        action = (team, torch.long) if if_discrete else ((*team, action_dim), torch.float32)
        self.shapes: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
            "states": (state_shape, state_dtype),
            "actions": action,
            "rewards": ((), torch.float32),
            "undones": ((), torch.bool),
            "unmasks": ((), torch.bool),
        }
        self.check_memory()
        self.columns: dict[str, Tensor] = {name: self.allocate(*spec) for name, spec in self.shapes.items()}
        self.head = torch.zeros(self.num_seqs, dtype=torch.long, device=self.device)  # next row to write
        self.size = torch.zeros(self.num_seqs, dtype=torch.long, device=self.device)  # rows written
        self.cur_size = 0  # the least of them, as a plain number
        self.add_size = 0  # transitions that came since the agent's last update_net
        self.tree: SumTree | None = None
        if if_use_per:
            alpha, beta = (0.6, 0.4) if args is None else (args.per_alpha, args.per_beta)
            self.tree = SumTree(self.rows * self.num_seqs, alpha, beta, self.device)

    def allocate(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return torch.zeros((self.rows * self.num_seqs, *shape), dtype=dtype, device=self.device)

    def make_room(self, name: str, shape: Sequence[int], dtype: torch.dtype) -> None:
        """A column for what is not known before the first rows come: state-like fields, rewards of each agent."""
        is_first = name in PER_AGENT and self.cur_size == 0 and self.shapes[name][0] != tuple(shape)
        if name not in self.columns or is_first:
            self.shapes[name] = (tuple(shape), dtype)
            self.columns[name] = self.allocate(*self.shapes[name])

    @property
    def bytes_per_transition(self) -> int:
        return sum(math.prod(shape) * dtype.itemsize for shape, dtype in self.shapes.values())

    def check_memory(self) -> None:
        need, free = self.rows * self.num_seqs * self.bytes_per_transition, available_memory(self.device)
        if need > 0.9 * free:
            fits = int(0.9 * free / self.bytes_per_transition)
            raise MemoryError(
                f"A replay buffer of {self.max_size:,} transitions takes {need / 2**30:.1f} GiB "
                f"({self.bytes_per_transition:,} bytes each), {free / 2**30:.1f} GiB are free on {self.device}: "
                f"set buffer_size to {fits:,} or less."
            )

    def update(self, items: Trajectory | Sequence[Tensor], columns: Tensor | None = None) -> None:
        """Appends a trajectory to its sequences. items: a Trajectory, or the tuple of explore_env, (T, N, ...).

        columns: which sequences (n,) long the trajectory belongs to; None for all.
        """
        if not isinstance(items, Trajectory):
            items = Trajectory.from_tuple(items, items[0][-1])
        tr, n = items.to(self.device), self.num_seqs
        for name in [*self.columns, *(name for name in tr.state_like() if name not in self.columns)]:
            self.make_room(name, getattr(tr, name).shape[2:], getattr(tr, name).dtype)
        cols = torch.arange(n, device=self.device) if columns is None else columns
        skip = max(0, tr.horizon - self.rows)  # rows that this same trajectory would overwrite
        steps = torch.arange(skip, tr.horizon, device=self.device)[:, None]
        index = ((self.head[cols] + steps) % self.rows * n + cols).flatten()  # (T * n,)
        newest = (self.head[cols] - 1) % self.rows * n + cols  # before this update
        for name, column in self.columns.items():
            source = getattr(tr, name)[skip : tr.horizon]
            column.index_copy_(0, index, source.flatten(0, 1))
        if self.tree is not None:
            had_rows = (self.size[cols] > 0) & (tr.horizon < self.rows)  # else that row is overwritten by now
            index_all = torch.cat([newest[had_rows], index])
            priority = torch.where(self.is_row(index_all), self.tree.max_priority, 0.0)
            priority[-len(cols) :] = 0.0  # the newest rows
            self.tree.update(index_all, priority)
        self.head[cols] = (self.head[cols] + tr.horizon) % self.rows
        self.size[cols] = (self.size[cols] + tr.horizon).clamp(max=self.rows)
        self.cur_size = int(self.size.min())
        self.add_size += tr.horizon * len(cols)

    def is_row(self, index: Tensor) -> Tensor:
        """Which rows are transitions, (B,) bool."""
        unmasks = self.columns["unmasks"][index]
        return unmasks if unmasks.dim() == index.dim() else unmasks.any(-1)

    def take(self, name: str, index: Tensor) -> Tensor:
        """Rows of a column by index (B,) or (B, L)."""
        return self.columns[name].index_select(0, index.flatten()).unflatten(0, index.shape)

    def sample(self, batch_size: int, gamma: float = 0.99, length: int = 1) -> Batch:
        """Transitions drawn uniformly, or by their priority: (B, ...).

        length: above 1, windows of so many rows that follow each other, (B, L, ...), drawn uniformly. They may hold
        the end of an episode: `keeps` says where.
        """
        if length > 1 and self.tree is not None:
            raise ValueError("Windows (rnn_dim > 0) are drawn uniformly: turn if_use_per off.")
        if self.cur_size < length + 1:
            raise ValueError(f"Each sequence needs {length + 1} rows before a sample, this buffer has {self.cur_size}.")
        if self.tree is None:
            col = torch.randint(self.num_seqs, (batch_size,), device=self.device)
            size = self.size[col]
            age = torch.randint(2**62, (batch_size,), device=self.device) % (size - length)  # without the newest row
            if length > 1:
                age, size, col = (age[:, None] + torch.arange(length, device=self.device), size[:, None], col[:, None])
            index = (self.head[col] - size + age) % self.rows * self.num_seqs + col
            importance = None
        else:
            index, importance = self.tree.sample(batch_size)
        after = (index + self.num_seqs) % (self.rows * self.num_seqs)
        undones, unmasks = self.take("undones", index), self.take("unmasks", index)
        state_like = [name for name in STATE_LIKE if name in self.columns]
        now = {name: self.take(name, index) for name in state_like}
        weight = loss_weight(unmasks, now.get("alive"))
        return Batch(
            **now,
            actions=self.take("actions", index),
            rewards=self.take("rewards", index),
            undones=undones,
            discount=gamma * undones,
            weight=weight if importance is None else weight * widen(importance, weight),
            index=index,
            next=Record(**{name: self.take(name, after) for name in state_like}),
            keeps=undones & unmasks if length > 1 else None,
        )

    def batches(self, count: int, batch_size: int, gamma: float = 0.99, length: int = 1) -> Iterator[Batch]:
        """`count` samples for as many updates. Uniform ones are drawn several at once: no feedback changes them.

        batch_size: rows of one sample; of windows there are batch_size // length.
        """
        batch_size = max(1, batch_size // length)
        bytes_each = 2 * batch_size * length * self.bytes_per_transition
        while count > 0:
            together = 1 if self.tree is not None else min(count, max(1, DRAW_BYTES // bytes_each))
            yield from self.sample(together * batch_size, gamma, length).split(batch_size)
            count -= together

    def feedback(self, batch: Batch, td: Tensor) -> None:
        """Sets the priorities of a batch from its temporal differences (B,) or (K, B). Nothing without PER."""
        if self.tree is not None:
            size = td.abs()
            for _ in range(batch.rewards.dim() - 1):  # the agents'
                size = size.mean(-1)
            size = size if size.dim() == 1 else size.mean(0)
            priority = (size + PRIORITY_EPS) ** self.tree.alpha
            newest = (self.head - 1) % self.rows * self.num_seqs + torch.arange(self.num_seqs, device=self.device)
            valid = self.is_row(batch.index) & ~torch.isin(batch.index, newest)
            self.tree.update(batch.index, priority * valid)

    def cut(self, columns: Tensor | None = None) -> None:
        """The next trajectory does not continue these sequences: their newest row has no successor any more."""
        cols = torch.arange(self.num_seqs, device=self.device) if columns is None else columns
        cols = cols[self.size[cols] > 0]
        self.columns["unmasks"][(self.head[cols] - 1) % self.rows * self.num_seqs + cols] = False

    def state_dict(self) -> dict[str, Any]:
        used = self.rows * self.num_seqs if int(self.size.max()) == self.rows else int(self.head.max()) * self.num_seqs
        columns = {name: column[:used].clone() for name, column in self.columns.items()}
        tree = None if self.tree is None else self.tree.state_dict()
        return {"columns": columns, "head": self.head, "size": self.size, "tree": tree, "rows": self.rows}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state["rows"] != self.rows or state["head"].shape != self.head.shape:
            raise ValueError(
                f"The saved buffer has {len(state['head'])} sequences of {state['rows']} rows, this one has "
                f"{self.num_seqs} of {self.rows}: keep buffer_size and num_envs, or start without the buffer."
            )
        for name, saved in state["columns"].items():
            self.make_room(name, saved.shape[1:], saved.dtype)
            self.columns[name][: len(saved)] = saved.to(self.device)
        self.head.copy_(state["head"])
        self.size.copy_(state["size"])
        self.cur_size = int(self.size.min())
        if self.tree is not None and state["tree"] is not None:
            self.tree.load_state_dict(state["tree"])


class SumTree:
    """A binary tree of priority sums; updates and samples are batched on the device. PER, arXiv:1511.05952."""

    def __init__(self, capacity: int, alpha: float, beta: float, device: torch.device):
        self.capacity, self.alpha, self.beta = capacity, alpha, beta
        self.depth = max(1, math.ceil(math.log2(capacity)))
        self.leaves = 2**self.depth
        # double, so that the root stays the sum of millions of leaves
        self.sums = torch.zeros(2 * self.leaves, dtype=torch.float64, device=device)  # node i's children: 2i, 2i + 1
        self.max_priority = torch.ones((), dtype=torch.float64, device=device)

    def update(self, index: Tensor, priority: Tensor) -> None:
        """Sets leaves (B,) long to priorities (B,); of a repeated index one of its priorities stays."""
        node = index + self.leaves
        self.sums[node] = priority.double()
        self.max_priority = torch.maximum(self.max_priority, priority.double().max())
        for _ in range(self.depth):
            node = node // 2
            self.sums[node] = self.sums[2 * node] + self.sums[2 * node + 1]

    def sample(self, batch_size: int) -> tuple[Tensor, Tensor]:
        """Leaves (B,) with probability p_i / sum p, stratified, and importance weights (B,) of maximum 1."""
        device, total = self.sums.device, self.sums[1]
        strata = torch.arange(batch_size, device=device) + torch.rand(batch_size, dtype=torch.float64, device=device)
        rest = strata * (total / batch_size)
        node = torch.ones(batch_size, dtype=torch.long, device=device)
        for _ in range(self.depth):
            left = self.sums[2 * node]
            right = (rest >= left) & (self.sums[2 * node + 1] > 0)
            rest = torch.where(right, rest - left, rest)
            node = 2 * node + right
        weight = (self.sums[node] / total) ** -self.beta
        return node - self.leaves, (weight / weight.max()).float()

    def state_dict(self) -> dict[str, Tensor]:
        return {"leaves": self.sums[self.leaves :][: self.capacity], "max_priority": self.max_priority}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.sums.zero_()
        self.update(torch.arange(len(state["leaves"]), device=self.sums.device), state["leaves"])
        self.max_priority = state["max_priority"].to(self.sums.device)


BinarySearchTree = SumTree


class ReplayBufferMP(ReplayBuffer):
    """The older spelling of a buffer with several sequences."""

    def __init__(self, gpu_id: int, max_len: int, state_dim: Any, action_dim: int, buffer_num: int, if_use_per: bool):
        super().__init__(max_len, state_dim, action_dim, gpu_id, num_seqs=buffer_num, if_use_per=if_use_per)


def init_replay_buffer(args: Any, gpu_id: int) -> ReplayBuffer:
    """The buffer that a Config asks for."""
    return ReplayBuffer(
        args.buffer_size,
        args.state_dim,
        args.action_dim,
        gpu_id,
        num_seqs=args.num_envs,
        if_use_per=args.if_use_per,
        if_discrete=args.if_discrete,
        args=args,
        num_agents=args.num_agents,
    )
