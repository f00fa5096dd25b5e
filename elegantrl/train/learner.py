"""Owns the agent and, off-policy, its replay buffer: stores trajectories and updates the networks. One, or several."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from torch import Tensor

from ..trajectory import Trajectory
from .processes import LOOK, Child, ProcessFault, listen
from .replay_buffer import ReplayBuffer, init_replay_buffer

CLOSE_SECONDS = 15.0  # that a Learner's process has for ending its Workers


class Learner:
    """agent: what learns. args: a Config. num_envs: environments of all Workers, of which it learns.

    `buffer` is None for an on-policy agent, which learns from the newest rollout alone.
    """

    def __init__(self, agent: Any, args: Any, num_envs: int | None = None):
        self.agent = agent
        self.buffer: ReplayBuffer | None = None
        if agent.if_off_policy:
            self.buffer = init_replay_buffer(args, args.gpu_id, num_envs)
        self.trajectory: Trajectory | None = None  # the newest, on the learning device
        self.clear_summary()

    def store(self, trajectory: Trajectory) -> None:
        """Brings a rollout to the learning device, the only time that it moves, and into the replay buffer."""
        self.trajectory = trajectory.to(self.agent.device)
        self.agent.observe(self.trajectory)
        if self.buffer is not None:
            self.buffer.update(self.trajectory)

    def cut(self, columns: Tensor) -> None:
        """The next trajectory does not continue these environments (n,)."""
        columns = columns.to(self.agent.device)
        if self.buffer is not None:
            self.buffer.cut(columns)
        self.agent.cut(columns)

    def update(self) -> dict[str, float]:
        """The updates that the newest rollout calls for, then the normalisers. Returns the logged means by name."""
        values = self.agent.update_net(self.trajectory if self.buffer is None else self.buffer)
        self.agent.update_statistics(self.trajectory)
        logs = dict(zip(self.agent.log_names, values, strict=True))
        for name, value in logs.items():
            if not math.isnan(value):  # nothing was updated
                total, count = self.sums.get(name, (0.0, 0))
                self.sums[name] = total + value, count + 1
        return logs

    def clear_summary(self) -> None:
        self.sums: dict[str, tuple[float, int]] = {}

    def summary(self) -> dict[str, float]:
        """Means of the logs over the rollouts since `clear_summary`; NaN where nothing was updated."""
        found = {name: total / count for name, (total, count) in self.sums.items()}
        return {name: found.get(name, math.nan) for name in self.agent.log_names}


class PipeLearner:
    """The Learner of another rank, with Workers of its own, in a process of its own: `job(link, *what)`.

    What it learns it shares through the gradients; here is only watched whether it lives.
    """

    def __init__(self, rank: int, job: Callable[..., None], what: tuple):
        self.child = Child(f"Learner {rank}", job, what)
        self.child.start()

    def wait_ready(self) -> None:
        while not self.child.is_ready:
            self.check(patience=1.0)

    def check(self, patience: float = 0.0) -> None:
        """Raises ProcessFault where it failed, or does so within `patience` seconds."""
        end = time.monotonic() + patience
        while True:
            for _, (kind, *values) in listen([self.child], timeout=min(LOOK, patience)):
                if kind == "lost":
                    raise ProcessFault(
                        f"{self.child.name} {values[0]}: a run cannot go on without one of its Learners."
                    )
            if time.monotonic() >= end:
                return

    def close(self) -> None:
        self.child.close(grace=CLOSE_SECONDS)
