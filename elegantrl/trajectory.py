"""The data that flows from the environment to the update. A leaf: everything may import it.

Letters: T horizon, N environments, B batch, K ensemble, S state, A action.
`undones` is False only where the task itself ended: it multiplies the bootstrapped value.
`unmasks` is False where a row is no transition (an auto-reset row) or its successor is not known: it weighs the row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass
class Record:
    """What a policy or a critic sees at one moment. The leading axes are free: (B, ...) or (T, N, ...)."""

    states: Tensor  # (B, S)
    action_mask: Tensor | None = None  # (B, A) bool, True where the action is allowed


STATE_LIKE = tuple(f.name for f in fields(Record))


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


@dataclass(kw_only=True)
class Rollout(Record):
    """The rows of one on-policy trajectory with what the update needs, (R, ...) with R = T * N."""

    actions: Tensor  # (R, A) float, or (R,) long
    logprobs: Tensor  # (R,), of the actions under the policy that took them
    advantages: Tensor  # (R,)
    returns: Tensor  # (R,)
    weight: Tensor  # (R,), 0 where masked

    def minibatches(self, batch_size: int | None) -> Iterator[Rollout]:
        """Every row once in a fresh order, in minibatches of equal size (the last is padded with rows of weight 0).

        batch_size: the wished size; the real one is the nearest that cuts the rows evenly. None: all rows at once.
        """
        rows = len(self.weight)
        count = max(1, round(rows / (batch_size or rows)))
        size = -(-rows // count)
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


@dataclass
class Trajectory:
    """What a Worker collects, time-major, allocated once. States have T + 1 rows: the last is the successor."""

    states: Tensor  # (T + 1, N, S)
    actions: Tensor  # (T, N, A) float, or (T, N) long
    rewards: Tensor  # (T, N)
    undones: Tensor  # (T, N) bool
    unmasks: Tensor  # (T, N) bool
    dones: Tensor  # (T, N) bool, an episode ended here; for the log, never read by an update
    logprobs: Tensor | None = None  # (T, N), on-policy
    action_mask: Tensor | None = None  # (T + 1, N, A) bool
    bootstraps: Tensor | None = None  # (T, N), gamma V(final) of rows that a time limit ended, on-policy, 'same_step'

    @property
    def horizon(self) -> int:
        return self.rewards.shape[0]

    @classmethod
    def allocate(
        cls,
        horizon: int,
        state: Tensor,
        action_dim: int,
        if_discrete: bool,
        if_logprob: bool = False,
        if_action_mask: bool = False,
        if_bootstrap: bool = False,
    ) -> Trajectory:
        """Empty tensors for `horizon` steps of the environments that returned `state` (N, S)."""
        num, device = state.shape[0], state.device

        def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        flags = [empty(horizon, num, dtype=torch.bool) for _ in range(3)]
        return cls(
            empty(horizon + 1, *state.shape, dtype=state.dtype),
            empty(horizon, num, dtype=torch.long) if if_discrete else empty(horizon, num, action_dim),
            empty(horizon, num),
            *flags,
            logprobs=empty(horizon, num) if if_logprob else None,
            action_mask=empty(horizon + 1, num, action_dim, dtype=torch.bool) if if_action_mask else None,
            bootstraps=empty(horizon, num) if if_bootstrap else None,
        )

    def record(self, t: int | slice) -> Record:
        """The state-like fields at row t, (N, ...); a slice keeps the time axis."""
        return Record(self.states[t], None if self.action_mask is None else self.action_mask[t])

    def set_record(self, t: int, record: Record) -> None:
        self.states[t] = record.states
        if self.action_mask is not None:
            self.action_mask[t] = record.action_mask

    def to(self, device: torch.device) -> Trajectory:
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        return Trajectory(**{name: x if x is None else x.to(device, non_blocking=True) for name, x in columns.items()})

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
            torch.cat([states, last_state[None].to(states.dtype)]),
            actions,
            rewards,
            undones.bool(),
            unmasks.bool(),
            torch.zeros_like(undones, dtype=torch.bool),
            logprobs=logprobs[0] if logprobs else None,
        )
