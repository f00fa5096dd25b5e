"""Agents with a memory (`rnn_dim`). Letters: T horizon, N environments, L rows of a window, H memory, S state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..trajectory import Record, Rollout, Trajectory, widen
from .options import Option


def check_windows(horizon_len: int, seq_len: int) -> None:
    """ValueError: a rollout is not cut into windows of this length without a rest."""
    if horizon_len % seq_len:
        raise ValueError(f"horizon_len {horizon_len} is no multiple of seq_len {seq_len}: change one of them")


class Recurrence(Option):
    """What act remembers of the episodes under way, and how an agent that learns from rollouts recalls it in windows.

    Instead of states, act's and cri's other methods then take features of all that was seen, (N, ..., H).
    """

    def __init__(self, agent: Any):
        super().__init__(agent)
        self.hidden: Tensor | None = None  # (N, ..., H), what act remembers; None: nothing
        self.before: Tensor | None = None  # the same before the newest look
        agent.look, agent.recurrence = self.look, self
        self.plain_trajectory, agent.new_trajectory = agent.new_trajectory, self.new_trajectory
        if not agent.if_off_policy:
            agent.window, agent.rows = agent.seq_len, self.rows
            self.objective_of_features, agent.objective = agent.objective, self.objective

    def new_trajectory(self, env: Any, horizon_len: int) -> Trajectory:
        """The agent's own, with a place for what it remembers at row 0."""
        tr = self.plain_trajectory(env, horizon_len)
        lead = tr.dones.shape[1:] if not self.agent.num_agents else (*tr.dones.shape[1:], self.agent.num_agents)
        tr.hidden = torch.zeros(1, *lead, self.agent.rnn_dim, device=tr.dones.device)
        return tr

    def look(self, record: Record, is_next: bool = True) -> Record:
        """Features of all that was seen in place of states. is_next: it is remembered that this was seen too."""
        record = record.seen_on(self.agent.device)
        seen, hidden = self.agent.act.remember(record.states[:, None], self.hidden)
        if is_next:
            self.before, self.hidden = self.hidden, hidden
        return replace(record, states=seen[:, 0])

    def acted(self, trajectory: Trajectory, t: int) -> None:
        tr = trajectory
        if self.hidden is not None and tr.hidden is not None:  # else the actions were random
            if t == 0:
                tr.hidden[0] = 0.0 if self.before is None else self.before
            self.hidden = self.hidden * widen((tr.undones[t] & tr.unmasks[t]).to(self.agent.device), self.hidden)

    def cut(self, columns: Tensor | None = None) -> None:
        if columns is None:
            self.hidden = self.before = None

    # learning from rollouts

    @torch.no_grad()
    def rows(self, trajectory: Trajectory) -> Rollout:
        """The trajectory as windows, (T * N / L, L, ...)."""
        tr, length = trajectory, self.agent.window
        seen, before = self.recalled(tr)
        columns = {**self.agent.columns(tr, replace(tr, states=seen)), "keeps": tr.keeps}
        windows = {name: x.unflatten(0, (-1, length)).transpose(1, 2) for name, x in columns.items()}
        return Rollout(**{name: x.flatten(0, 1) for name, x in windows.items()}, hidden=before)

    def recalled(self, trajectory: Trajectory) -> tuple[Tensor, Tensor]:
        """Features of what was seen (T + 1, N, ..., H), and what was remembered before each window's first row,
        (T * N / L, ..., H).
        """
        tr, length = trajectory, self.agent.window
        check_windows(tr.horizon, length)
        first = None if tr.hidden is None else tr.hidden[0]
        seen = self.agent.act.remember(tr.states.transpose(0, 1), first, tr.keeps.transpose(0, 1))[0].transpose(0, 1)
        before = torch.zeros_like(seen[:-1])
        if first is not None:
            before[0] = first
        before[1:] = seen[:-2] * widen(tr.keeps[:-1], seen)
        return seen, before[::length].flatten(0, 1)

    def objective(self, batch: Rollout) -> tuple[Tensor, ...]:
        """The agent's own, of features that are made anew, with gradient through the rows of a window."""
        seen, _ = self.agent.act.remember(batch.states, batch.hidden, batch.keeps)
        return self.objective_of_features(replace(batch, states=seen))
