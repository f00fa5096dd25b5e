"""The contiguous ring that lies between collecting and learning. Letters: T horizon, N sequences, B batch, R rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..device import available_memory, device_of
from ..trajectory import OPTIONAL, STATE_LIKE, Batch, Record, Trajectory, loss_weight, widen
from .priorities import NO_WINDOWS, Priorities, SumTree, of_row
from .priorities import BinarySearchTree as BinarySearchTree

PER_AGENT = ("rewards", "undones", "unmasks")  # for some algorithms one of each agent
DRAW_BYTES = 2**20  # what uniform samples that are drawn together may take: it should stay in a core's cache


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
            **{"states": (state_shape, state_dtype), "actions": action, "rewards": ((), torch.float32)},
            **{"undones": ((), torch.bool), "unmasks": ((), torch.bool)},
        }
        self.check_memory()
        self.columns: dict[str, Tensor] = {name: self.allocate(*spec) for name, spec in self.shapes.items()}
        self.head = torch.zeros(self.num_seqs, dtype=torch.long, device=self.device)  # next row to write
        self.size = torch.zeros(self.num_seqs, dtype=torch.long, device=self.device)  # rows written
        self.cur_size = 0  # the least of them, as a plain number
        self.add_size = 0  # transitions that came since the agent's last update_net
        self.draw_bytes = DRAW_BYTES  # of samples that are drawn together
        self.tree: SumTree | None = None
        if if_use_per:
            Priorities(self, *((0.6, 0.4) if args is None else (args.per_alpha, args.per_beta)))

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
        cols = torch.arange(n, device=self.device) if columns is None else columns
        skip = max(0, tr.horizon - self.rows)  # rows that this same trajectory would overwrite
        steps = torch.arange(skip, tr.horizon, device=self.device)[:, None]
        index = ((self.head[cols] + steps) % self.rows * n + cols).flatten()  # (T * n,)
        for name in dict.fromkeys((*self.columns, *STATE_LIKE, *OPTIONAL)):
            if (x := getattr(tr, name)) is not None:
                self.make_room(name, x.shape[2:], x.dtype)
                self.columns[name].index_copy_(0, index, x[skip : tr.horizon].flatten(0, 1))
        self.written(index, cols, tr.horizon)
        self.head[cols] = (self.head[cols] + tr.horizon) % self.rows
        self.size[cols] = (self.size[cols] + tr.horizon).clamp(max=self.rows)
        self.cur_size = int(self.size.min())
        self.add_size += tr.horizon * len(cols)

    def written(self, index: Tensor, cols: Tensor, horizon: int) -> None:
        """Told of the rows that came (T * n,), before the heads of their sequences (n,) move."""

    def take(self, name: str, index: Tensor) -> Tensor:
        """Rows of a column by index (B,) or (B, L)."""
        return self.columns[name].index_select(0, index.flatten()).unflatten(0, index.shape)

    def sample(self, batch_size: int, gamma: float = 0.99, n_step: int = 1, length: int = 1) -> Batch:
        """Transitions drawn uniformly, or by their priority: (B, ...).

        n_step: rewards that are summed, see `look_ahead`. length: above 1, windows of so many rows that follow each
        other, (B, L, ...), drawn uniformly. They may hold the end of an episode: `keeps` says where.
        """
        if self.cur_size < length + 1:
            raise ValueError(f"Each sequence needs {length + 1} rows before a sample, this buffer has {self.cur_size}.")
        index, importance = self.draw(batch_size, length)
        rewards, undones, discount, after = self.look_ahead(index, gamma, n_step)
        names, unmasks = [name for name in STATE_LIKE if name in self.columns], self.take("unmasks", index)
        now, then = ({name: self.take(name, rows) for name in names} for rows in (index, after))
        others = {name: self.take(name, index) for name in ("actions", *OPTIONAL) if name in self.columns}
        weight = loss_weight(unmasks, now.get("alive"))
        others["weight"] = weight if importance is None else weight * widen(importance, weight)
        others |= {"rewards": rewards, "undones": undones, "discount": discount, "index": index}
        keeps = undones & unmasks if length > 1 else None
        return Batch(**now, **others, next=Record(**then), keeps=keeps)

    def draw(self, batch_size: int, length: int = 1) -> tuple[Tensor, Tensor | None]:
        """Rows (B,), or windows (B, L), with equal chances; and importance weights (B,) where chances are not equal."""
        col = torch.randint(self.num_seqs, (batch_size,), device=self.device)
        size = self.size[col]
        age = torch.randint(2**62, (batch_size,), device=self.device) % (size - length)  # without the newest row
        if length > 1:
            age, size, col = age[:, None] + torch.arange(length, device=self.device), size[:, None], col[:, None]
        return (self.head[col] - size + age) % self.rows * self.num_seqs + col, None

    def look_ahead(self, index: Tensor, gamma: float, n_step: int = 1) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Rewards, undones, gamma * undone, and the rows whose states come next, each (B,), of rows (B,)."""
        rewards, undones = self.columns["rewards"][index], self.columns["undones"][index]
        step = rewards, undones, gamma * undones, self.following(index)
        return step if n_step == 1 else self.look_further(index, gamma, n_step, *step)

    def look_further(
        self, index: Tensor, gamma: float, n_step: int, total: Tensor, undone: Tensor, discount: Tensor, after: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """n-step returns, 1602.01783 section 4.2: sums of the discounted rewards of m steps, the last of their undones,
        gamma^m * undone, and the row whose state comes then, each (B,). index (B,): the rows where they begin.

        m is n_step, or less: no step is taken into a masked row or into the newest one, whose successor is not known.
        """
        if index.dim() > 1:
            raise ValueError(NO_WINDOWS)
        rewards, undones, unmasks = (self.columns[name] for name in ("rewards", "undones", "unmasks"))
        keep = undone & unmasks[index]
        for _ in range(n_step - 1):
            beyond = self.following(after)
            keep = keep & unmasks[after] & widen(beyond // self.num_seqs != self.head[after % self.num_seqs], keep)
            total = total + discount * keep * rewards[after]
            undone = torch.where(keep, undones[after], undone)
            discount = torch.where(keep, gamma * discount * undone, discount)
            after, keep = torch.where(of_row(keep, index), beyond, after), keep & undone
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
            together = min(count, max(1, self.draw_bytes // bytes_each))
            yield from self.sample(together * batch_size, gamma, n_step, length).split(batch_size)
            count -= together

    def anneal(self, progress: float) -> None:
        """Told the share of the run that is done."""

    def feedback(self, batch: Batch, td: Tensor) -> None:
        """Told the temporal differences of a batch, (B,) or (K, B)."""

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
        elif self.tree is not None:  # to a buffer without priorities all rows are new
            steps, cols = (torch.arange(count, device=self.device) for count in (self.rows, self.num_seqs))
            self.written(((self.head + steps[:, None]) % self.rows * self.num_seqs + cols).flatten(), cols, self.rows)


class ReplayBufferMP(ReplayBuffer):
    """The older spelling of a buffer with several sequences."""

    def __init__(self, gpu_id: int, max_len: int, state_dim: Any, action_dim: int, buffer_num: int, if_use_per: bool):
        super().__init__(max_len, state_dim, action_dim, gpu_id, num_seqs=buffer_num, if_use_per=if_use_per)


def init_replay_buffer(args: Any, gpu_id: int, num_seqs: int | None = None) -> ReplayBuffer:
    """The buffer that a Config asks for. num_seqs: environments of all Workers, where there are several."""
    how = {"if_use_per": args.if_use_per, "if_discrete": args.if_discrete, "num_agents": args.num_agents}
    sizes = (args.buffer_size, args.state_dim, args.action_dim)
    return ReplayBuffer(*sizes, gpu_id, num_seqs=num_seqs or args.num_envs, args=args, **how)
