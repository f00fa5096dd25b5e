"""The data that flows from the environment to the update. A leaf: everything may import it.

Letters: T horizon, N environments, B batch, K ensemble, M agents, S state, A action, L rows of a window.
A team has the axis M behind the others: states (N, M, S), actions (N, M, A) or (N, M), and rewards, undones, unmasks
of one shape, (N,) or (N, M), as the algorithm learns. A recurrent agent learns from windows of rows, (B, L, ...).
`undones` is False only where the task itself ended: it multiplies the bootstrapped value.
`unmasks` is False where a row is no transition (an auto-reset row) or its successor is not known: it weighs the row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor


@dataclass
class Record:
    """What a policy or a critic sees at one moment. The leading axes are free: (B, ...) or (T, N, ...).

    The one list of state-like fields: trajectory, ring and batch take theirs from here.
    """

    states: Tensor  # (B, S)
    action_mask: Tensor | None = None  # (B, A) bool, True where the action is allowed
    global_state: Tensor | None = None  # (B, G), what only learning may see of a team's world
    alive: Tensor | None = None  # (B, M) bool, which agents still take part: the others' rows have no weight

    @classmethod
    def of(cls, state: Tensor, info: Mapping[str, Any]) -> Record:
        """What an environment's reset or step returned."""
        return cls(state, **{name: info[name] for name in STATE_LIKE[1:] if name in info})

    @classmethod
    def final(cls, info: Mapping[str, Any]) -> Record | None:
        """What an episode ended with before its same-step reset: `final_obs`, `final_global_state`, ...

        None where the environment does not tell all that it tells of other moments.
        """
        if "final_obs" not in info or any(f"final_{name}" not in info for name in ("global_state",) if name in info):
            return None
        return cls.of(info["final_obs"], {n: info[f"final_{n}"] for n in STATE_LIKE[1:] if f"final_{n}" in info})

    def state_like(self) -> dict[str, Tensor]:
        """The state-like fields that are there, by name."""
        return {name: x for name in STATE_LIKE if (x := getattr(self, name)) is not None}

    def at(self, index: Any) -> Record:
        """The rows that an index or slice of the first axis names."""
        return Record(**{name: x[index] for name, x in self.state_like().items()})

    def seen_on(self, device: torch.device) -> Record:
        """The same on a device; itself if it is there."""
        if self.states.device == device:
            return self
        return Record(**{name: x.to(device) for name, x in self.state_like().items()})


STATE_LIKE = tuple(f.name for f in fields(Record))
OPTIONAL = ("cum_rewards",)  # further columns of a trajectory that the ring keeps where they are there


def widen(x: Tensor, like: Tensor) -> Tensor:
    """x (N, ...) with as many axes of size 1 behind it as it lacks of those of `like`."""
    return x if x.dim() >= like.dim() else x.view(*x.shape, *[1] * (like.dim() - x.dim()))


def loss_weight(unmasks: Tensor, alive: Tensor | None) -> Tensor:
    """The weight of each row, (B,) or (B, M) float: of the agents' rows, those of the dead have none."""
    return (unmasks if alive is None or unmasks.dim() < alive.dim() else unmasks & alive).float()


@dataclass(kw_only=True)
class Batch(Record):
    """Transitions drawn from the replay buffer."""

    actions: Tensor  # (B, A) float, or (B,) long
    rewards: Tensor  # (B,), the sum of n rewards for n-step returns
    undones: Tensor  # (B,) bool
    discount: Tensor  # (B,), gamma^m * undone for the m steps that were taken
    weight: Tensor  # (B,), unmask times the importance weight
    index: Tensor  # (B,) long, the rows in the buffer, for `feedback`
    next: Record
    cum_rewards: Tensor | None = None  # (B,), rewards up to the episode's end, for lambda_fit_cum_r
    keeps: Tensor | None = None  # (B, L) bool, of a window: whether the next row continues this row's episode

    def split(self, batch_size: int) -> Iterator[Batch]:
        """Batches of so many rows, as views."""
        columns = {f.name: x.split(batch_size) for f in fields(self) if isinstance(x := getattr(self, f.name), Tensor)}
        after = {name: x.split(batch_size) for name, x in self.next.state_like().items()}
        for i in range(len(columns["weight"])):
            own, later = ({name: parts[i] for name, parts in part.items()} for part in (columns, after))
            yield Batch(**own, next=Record(**later))


@dataclass(kw_only=True)
class Rollout(Record):
    """The rows of one on-policy trajectory with what the update needs, (R, ...) with R = T * N."""

    actions: Tensor  # (R, A) float, or (R,) long
    logprobs: Tensor  # (R,), of the actions under the policy that took them
    advantages: Tensor  # (R,)
    returns: Tensor  # (R,)
    weight: Tensor  # (R,), 0 where masked
    keeps: Tensor | None = None  # (R, L) bool, of windows: whether the next row continues this row's episode
    hidden: Tensor | None = None  # (R, ..., H), what a recurrent agent remembered at each window's first row

    def minibatches(self, batch_size: int | None) -> Iterator[Rollout]:
        """Every row once in a fresh order, in minibatches of equal size (the last is padded with rows of weight 0).

        batch_size: the wished size; the real one is the nearest that cuts the rows evenly. None: all rows at once.
        """
        rows = len(self.weight)
        count = max(1, round(rows / (batch_size or rows)))
        size = -(-rows // count)
        count = -(-rows // size)  # so that no minibatch is padding alone
        order = torch.randperm(rows, device=self.weight.device)
        padding = count * size - rows
        if padding:
            order = torch.cat([order, order[:padding]])
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        shuffled = {name: x[order] for name, x in columns.items() if x is not None}
        if padding:
            shuffled["weight"][-padding:] = 0.0
        for i in range(count):
            yield Rollout(**{name: x[i * size : (i + 1) * size] for name, x in shuffled.items()})


@dataclass(kw_only=True)
class Trajectory(Record):
    """What a Worker collects, time-major, allocated once. State-like fields have T + 1 rows, the successor's last."""

    actions: Tensor  # (T, N, A) float, or (T, N) long
    rewards: Tensor  # (T, N)
    undones: Tensor  # (T, N) bool
    unmasks: Tensor  # (T, N) bool
    dones: Tensor  # (T, N) bool, an episode ended here; for the log, never read by an update
    logprobs: Tensor | None = None  # (T, N), on-policy
    bootstraps: Tensor | None = None  # (T, N), gamma V(final) of rows that a time limit ended, on-policy, 'same_step'
    cum_rewards: Tensor | None = None  # (T, N), as in Batch
    hidden: Tensor | None = None  # (1, N, ..., H), what a recurrent agent remembered at row 0

    @property
    def horizon(self) -> int:
        return self.rewards.shape[0]

    @property
    def keeps(self) -> Tensor:
        """Whether the next row continues this row's episode, (T, N) bool: the only test for it."""
        return self.undones & self.unmasks

    def of_environments(self, x: Tensor) -> Tensor:
        """The mean over the agents, if x (T, N) or (T, N, M) has any, (T, N)."""
        return x if x.dim() == 2 else x.float().mean(-1).to(x.dtype)

    @classmethod
    def allocate(
        cls,
        horizon: int,
        first: Record,
        action_dim: int,
        if_discrete: bool,
        if_logprob: bool = False,
        team: tuple[int, ...] = (),
        if_team_reward: bool = False,
    ) -> Trajectory:
        """Tensors for `horizon` steps of the environments that returned `first` (N, ...).

        team: (M,), or () for one agent. if_team_reward: rewards, undones and unmasks have no agent axis.
        """
        each = () if if_team_reward else team
        num, device = first.states.shape[0], first.states.device

        def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(horizon, num, *shape, dtype=dtype, device=device)

        return cls(
            **{name: x.new_zeros(horizon + 1, *x.shape) for name, x in first.state_like().items()},
            actions=empty(*team, dtype=torch.long) if if_discrete else empty(*team, action_dim),
            rewards=empty(*each),
            **{name: empty(*each, dtype=torch.bool) for name in ("undones", "unmasks")},
            dones=empty(dtype=torch.bool),
            logprobs=empty(*team) if if_logprob else None,
        )

    def put(self, t: int, record: Record) -> None:
        """Writes the state-like fields of row t."""
        for name, x in record.state_like().items():
            getattr(self, name)[t] = x

    def to(self, device: torch.device) -> Trajectory:
        """The same on a device; itself if it is there."""
        if self.rewards.device == device:
            return self
        columns: dict[str, Any] = {f.name: x for f in fields(self) if (x := getattr(self, f.name)) is not None}
        return Trajectory(**{name: x.to(device, non_blocking=True) for name, x in columns.items()})

    def as_tuple(self) -> tuple[Tensor, ...]:
        """states, actions, [logprobs,] rewards, undones, unmasks, each (T, N, ...): the order third-party code knows.

        It has no place for `bootstraps`: their rows are masked, so that no time limit turns into an end.
        """
        logprobs = () if self.logprobs is None else (self.logprobs,)
        unmasks = self.unmasks if self.bootstraps is None else self.unmasks & (self.bootstraps == 0)
        return (self.states[:-1], self.actions, *logprobs, self.rewards, self.undones, unmasks)

    @classmethod
    def from_tuple(cls, items: Sequence[Tensor], last_state: Tensor) -> Trajectory:
        """The inverse of `as_tuple`; last_state (N, S) is the state after the last row."""
        states, actions, *logprobs, rewards, undones, unmasks = items
        return cls(
            states=torch.cat([states, last_state[None].to(states.dtype)]),
            actions=actions,
            rewards=rewards,
            undones=undones.bool(),
            unmasks=unmasks.bool(),
            dones=torch.zeros_like(undones, dtype=torch.bool),
            logprobs=logprobs[0] if logprobs else None,
        )
