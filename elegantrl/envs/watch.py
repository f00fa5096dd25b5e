"""Environments that are watched: what goes wrong in them says where. Letters: T horizon, N environments, M agents."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..faults import EnvironmentFault
from ..trajectory import Trajectory, widen


class WatchedEnv:
    """Environments with errors that say where they happened.

    steps: gives the number (N,) of the step that each is in. during: what that is counted in.
    """

    def __init__(self, env: Any, steps: Callable[[], Tensor], during: str = "process"):
        self.env, self.steps, self.during, self.calls = env, steps, during, 0

    def reset(self, seed: int | None = None) -> Any:
        try:
            return self.env.reset(seed=seed)
        except Exception as error:
            raise self.fault(error, f"in a reset of this {self.during}") from error

    def step(self, action: Tensor) -> Any:
        self.calls += 1
        try:
            return self.env.step(action)
        except Exception as error:
            first, *others = sorted(set(self.steps().tolist()))
            step = f"{first:,} to {others[-1]:,}" if others else f"{first:,}"  # which one raised is not known
            where = f"in its step {step} of this {self.during}, on the actions {action[:8].tolist()}"
            raise self.fault(error, where) from error

    def fault(self, error: Exception, where: str) -> EnvironmentFault:
        return EnvironmentFault(f"{self.env.env_name} raised {type(error).__name__} {where}: {error}")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    # what they returned in a rollout. worker: who collected it, and counts steps

    def check_finite(self, tr: Trajectory, worker: Any) -> None:
        """Raises EnvironmentFault that names tensor, step and environment of the first value that is not finite."""
        for name in ("states", "rewards", "actions"):
            x: Tensor = getattr(tr, name)
            if not x.is_floating_point() or math.isfinite(x.sum()):  # a quick look: no sum with a bad value is finite
                continue
            bad = (~torch.isfinite(x)).flatten(2).any(-1) if x.dim() > 2 else ~torch.isfinite(x)
            if bool(bad.any()):
                t, n = bad.nonzero()[0].tolist()
                step = int(worker.steps_before(t + (name != "states"))[n])  # row t's state came of the step before
                source = "the policy chose" if name == "actions" else f"{self.env.env_name} returned"
                raise EnvironmentFault(
                    f"{source} a value that is not finite in {name} at step {step} of environment {n} (row {t} of the "
                    f"rollout that began at step {worker.total_step:,} of training): {x[t, n].tolist()}"
                )

    def check_masks(self, tr: Trajectory, worker: Any) -> None:
        """Raises EnvironmentFault where a mask allows nothing although an action is used."""
        if tr.action_mask is not None:
            stuck = ~tr.action_mask[:-1].any(-1)  # (T, N) or (T, N, M)
            stuck &= widen(worker.is_step(tr), stuck)
            if tr.alive is not None:
                stuck &= tr.alive[:-1]
            if bool(stuck.any()):
                t, n, *agent = stuck.nonzero()[0].tolist()
                whose = f" of agent {agent[0]}" if agent else ""
                raise EnvironmentFault(
                    f"{self.env.env_name} returned an action_mask{whose} that allows no action at step "
                    f"{int(worker.steps_before(t)[n])} of environment {n}: allow at least one where an action is used"
                )
