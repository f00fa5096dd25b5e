"""Owns the agent and, off-policy, its replay buffer: stores trajectories and updates the networks."""

from __future__ import annotations

from typing import Any

from ..trajectory import Trajectory
from .replay_buffer import ReplayBuffer, init_replay_buffer


class Learner:
    """agent: what learns. args: a Config. `buffer` is None for an on-policy agent, which learns from the newest rollout."""

    def __init__(self, agent: Any, args: Any):
        self.agent = agent
        self.buffer: ReplayBuffer | None = init_replay_buffer(args, args.gpu_id) if agent.if_off_policy else None

    def store(self, trajectory: Trajectory) -> None:
        """Takes a rollout into the replay buffer."""
        if self.buffer is not None:
            self.buffer.update(trajectory)

    def update(self, trajectory: Trajectory) -> dict[str, float]:
        """The updates that this rollout calls for, then the normalisers. Returns the logged means by name."""
        values = self.agent.update_net(trajectory if self.buffer is None else self.buffer)
        self.agent.update_statistics(trajectory)
        return dict(zip(self.agent.log_names, values, strict=True))
