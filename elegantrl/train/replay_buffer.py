"""The contiguous ring that lies between collecting and learning. Letters: T horizon, N sequences, B batch, R rows."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..agents.functional import LinearSchedule
from ..device import device_of
from ..trajectory import OPTIONAL, STATE_LIKE, Batch, Record, Trajectory, loss_weight, widen

PER_AGENT = ("rewards", "undones", "unmasks")  # for some algorithms one of each agent
PRIORITY_EPS = 1e-6  # no transition's priority falls to 0
FAN_OUT = 64  # leaves in a block of the sum tree
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
    args: a Config. With prioritised replay its per_beta rises to 1 over the run, unless it is a schedule.
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
            self.beta_schedule = beta if isinstance(beta, LinearSchedule) else LinearSchedule(beta, 1.0)
            self.tree = SumTree(self.rows * self.num_seqs, alpha, self.beta_schedule(0.0), self.device)

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
        found = {name: x for name in (*self.columns, *STATE_LIKE, *OPTIONAL) if (x := getattr(tr, name)) is not None}
        for name, x in found.items():
            self.make_room(name, x.shape[2:], x.dtype)
        cols = torch.arange(n, device=self.device) if columns is None else columns
        skip = max(0, tr.horizon - self.rows)  # rows that this same trajectory would overwrite
        steps = torch.arange(skip, tr.horizon, device=self.device)[:, None]
        index = ((self.head[cols] + steps) % self.rows * n + cols).flatten()  # (T * n,)
        newest = (self.head[cols] - 1) % self.rows * n + cols  # before this update
        for name, column in self.columns.items():
            if (source := getattr(tr, name)) is not None:
                column.index_copy_(0, index, source[skip : tr.horizon].flatten(0, 1))
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

    def by_row(self, x: Tensor, index: Tensor) -> Tensor:
        """Whether x (*index.shape) or (*index.shape, M) bool holds for a row: for any of its agents."""
        return x if x.dim() == index.dim() else x.any(-1)

    def is_row(self, index: Tensor) -> Tensor:
        """Which rows are transitions, (B,) bool."""
        return self.by_row(self.columns["unmasks"][index], index)

    def take(self, name: str, index: Tensor) -> Tensor:
        """Rows of a column by index (B,) or (B, L)."""
        return self.columns[name].index_select(0, index.flatten()).unflatten(0, index.shape)

    def sample(self, batch_size: int, gamma: float = 0.99, n_step: int = 1, length: int = 1) -> Batch:
        """Transitions drawn uniformly, or by their priority: (B, ...).

        n_step: rewards that are summed, see `look_ahead`. length: above 1, windows of so many rows that follow each
        other, (B, L, ...), drawn uniformly. They may hold the end of an episode: `keeps` says where.
        """
        if length > 1 and (self.tree is not None or n_step > 1):
            raise ValueError(
                "Windows (rnn_dim > 0) are drawn uniformly, of single steps: leave if_use_per, n_step alone."
            )
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
        unmasks = self.take("unmasks", index)
        rewards, undones, discount, after = self.look_ahead(index, gamma, n_step)
        state_like = [name for name in STATE_LIKE if name in self.columns]
        now = {name: self.take(name, index) for name in state_like}
        weight = loss_weight(unmasks, now.get("alive"))
        return Batch(
            **now,
            **{name: self.take(name, index) for name in OPTIONAL if name in self.columns},
            actions=self.take("actions", index),
            rewards=rewards,
            undones=undones,
            discount=discount,
            weight=weight if importance is None else weight * widen(importance, weight),
            index=index,
            next=Record(**{name: self.take(name, after) for name in state_like}),
            keeps=undones & unmasks if length > 1 else None,
        )

    def look_ahead(self, index: Tensor, gamma: float, n_step: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """n-step returns, 1602.01783 section 4.2: sums of the discounted rewards of m steps, the last of their undones,
        gamma^m * undone, and the row whose state comes then, each (B,). index (B,): the rows where they begin.

        m is n_step, or less: no step is taken into a masked row or into the newest one, whose successor is not known.
        """
        rewards, undones, unmasks = (self.columns[name] for name in ("rewards", "undones", "unmasks"))
        total, undone, after = rewards[index], undones[index], self.following(index)
        discount, keep = gamma * undone, undone & unmasks[index]
        for _ in range(n_step - 1):
            beyond = self.following(after)
            keep = keep & unmasks[after] & widen(beyond // self.num_seqs != self.head[after % self.num_seqs], keep)
            total = total + discount * keep * rewards[after]
            undone = torch.where(keep, undones[after], undone)
            discount = torch.where(keep, gamma * discount * undone, discount)
            after, keep = torch.where(self.by_row(keep, index), beyond, after), keep & undone
        return total, undone, discount, after

    def following(self, index: Tensor) -> Tensor:
        """The rows that come next in their sequences."""
        return (index + self.num_seqs) % (self.rows * self.num_seqs)

    def batches(
        self, count: int, batch_size: int, gamma: float = 0.99, n_step: int = 1, length: int = 1
    ) -> Iterator[Batch]:
        """`count` samples for as many updates. Uniform ones are drawn several at once: no feedback changes them.

        batch_size: rows of one sample; of windows there are batch_size // length.
        """
        batch_size = max(1, batch_size // length)
        bytes_each = 2 * batch_size * length * self.bytes_per_transition
        while count > 0:
            together = 1 if self.tree is not None else min(count, max(1, DRAW_BYTES // bytes_each))
            yield from self.sample(together * batch_size, gamma, n_step, length).split(batch_size)
            count -= together

    def anneal(self, progress: float) -> None:
        """Moves beta along its schedule. progress: the share of the run that is done. Nothing without PER."""
        if self.tree is not None:
            self.tree.beta = self.beta_schedule(progress)

    def feedback(self, batch: Batch, td: Tensor) -> None:
        """Sets the priorities of a batch from its temporal differences (B,) or (K, B). Nothing without PER.

        A row whose leaf is 0, because it is masked or the newest of its sequence, keeps that.
        """
        if self.tree is not None:
            size = td.abs()
            for _ in range(batch.rewards.dim() - 1):  # the agents'
                size = size.mean(-1)
            size = size if size.dim() == 1 else size.mean(0)
            priority = (size + PRIORITY_EPS) ** self.tree.alpha
            self.tree.update(batch.index, priority * (self.tree.leaves[batch.index] > 0))

    def cut(self, columns: Tensor | None = None) -> None:
        """The next trajectory does not continue these sequences: their newest row has no successor any more."""
        cols = torch.arange(self.num_seqs, device=self.device) if columns is None else columns
        cols = cols[self.size[cols] > 0]
        self.columns["unmasks"][(self.head[cols] - 1) % self.rows * self.num_seqs + cols] = False

    def state_dict(self) -> dict[str, Any]:
        used = self.rows * self.num_seqs if int(self.size.max()) == self.rows else int(self.head.max()) * self.num_seqs
        columns = {name: column[:used].to("cpu", copy=True) for name, column in self.columns.items()}
        tree = None if self.tree is None else self.tree.state_dict()
        return {"columns": columns, "head": self.head.cpu(), "size": self.size.cpu(), "tree": tree, "rows": self.rows}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state["rows"] != self.rows or state["head"].shape != self.head.shape:
            raise ValueError(
                f"The saved buffer has {len(state['head'])} sequences of {state['rows']} rows, this one has "
                f"{self.num_seqs} of {self.rows}: keep buffer_size, num_envs and num_workers, or start "
                "without the buffer."
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
    """Sums of priorities; updates and samples are batched on the device. PER, arXiv:1511.05952.

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
        return {"leaves": self.leaves[: self.capacity].cpu(), "max_priority": self.max_priority.cpu()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.blocks.zero_()
        self.sums.zero_()
        self.update(torch.arange(len(state["leaves"]), device=self.leaves.device), state["leaves"])
        self.max_priority = state["max_priority"].to(self.leaves.device)


def chosen(running: Tensor, point: Tensor) -> tuple[Tensor, Tensor]:
    """The first whose running sum (..., n) exceeds the point, so that its own part is above 0; and the point.

    A point that rounding has moved to the whole sum is moved before it.
    """
    point = torch.minimum(point, running[..., -1:].nextafter(running.new_zeros(())))
    return torch.searchsorted(running, point, right=True), point


BinarySearchTree = SumTree


class ReplayBufferMP(ReplayBuffer):
    """The older spelling of a buffer with several sequences."""

    def __init__(self, gpu_id: int, max_len: int, state_dim: Any, action_dim: int, buffer_num: int, if_use_per: bool):
        super().__init__(max_len, state_dim, action_dim, gpu_id, num_seqs=buffer_num, if_use_per=if_use_per)


def init_replay_buffer(args: Any, gpu_id: int, num_seqs: int | None = None) -> ReplayBuffer:
    """The buffer that a Config asks for. num_seqs: environments of all Workers, where there are several."""
    return ReplayBuffer(
        args.buffer_size,
        args.state_dim,
        args.action_dim,
        gpu_id,
        num_seqs=num_seqs or args.num_envs,
        if_use_per=args.if_use_per,
        if_discrete=args.if_discrete,
        args=args,
        num_agents=args.num_agents,
    )
