"""Collects trajectories. Letters: T horizon, N environments, S state."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..trajectory import Trajectory, widen


class EnvironmentFault(RuntimeError):
    """The environment raised, or returned what is no number; the message says where."""


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


class Worker:
    """Steps the environments with the agent's policy and counts what happens.

    env: a vector environment (DESIGN.md section 3). Rows are written into the same tensors each time: what `explore`
    returns is valid until its next call.
    """

    def __init__(self, env: Any, agent: Any, args: Any):
        self.env, self.agent = WatchedEnv(env, lambda: self.steps_before(self.env.calls - 1) + 1), agent
        self.horizon_len = int(args.horizon_len)
        self.total_step = 0  # env.step calls times environments, without reset rows
        self.reset_rows = 0  # rows in which an environment only reset itself
        self.steps = torch.zeros(env.num_envs, dtype=torch.long)  # of each environment, in this process
        self.running = torch.zeros(env.num_envs, dtype=torch.float64)  # return so far of the episodes under way
        self.clear_summary()
        self.trajectory: Trajectory | None = None

    def restart(self, seed: int) -> None:
        """Resets every environment by a seed; the episodes under way are dropped."""
        self.agent.begin(*self.env.reset(seed=seed))
        self.running.zero_()

    def explore(self, if_random: bool = False) -> Trajectory:
        """One rollout of horizon_len steps in each environment. Raises EnvironmentFault."""
        if self.trajectory is None:
            self.trajectory = self.agent.new_trajectory(self.env, self.horizon_len)
        tr = self.trajectory
        tr.rewards.zero_()
        tr.actions.zero_()
        self.env.calls = 0
        try:
            self.agent.explore(self.env, tr, if_random)
        except EnvironmentFault:
            self.check_finite(tr)  # a NaN that went before is the cause, not the exception that came of it
            raise
        self.check_finite(tr)
        self.check_masks(tr)
        self.count(tr)
        return tr

    def check_finite(self, tr: Trajectory) -> None:
        """Raises EnvironmentFault that names tensor, step and environment of the first value that is not finite."""
        for name in ("states", "rewards", "actions"):
            x: Tensor = getattr(tr, name)
            if x.is_floating_point() and not bool(torch.isfinite(x).all()):
                bad = (~torch.isfinite(x)).flatten(2).any(-1) if x.dim() > 2 else ~torch.isfinite(x)
                t, n = bad.nonzero()[0].tolist()
                step = int(self.steps_before(t + (name != "states"))[n])  # row t's state came of the step before
                source = "the policy chose" if name == "actions" else f"{self.env.env_name} returned"
                raise EnvironmentFault(
                    f"{source} a value that is not finite in {name} at step {step} of environment {n} (row {t} of the "
                    f"rollout that began at step {self.total_step:,} of training): {x[t, n].tolist()}"
                )

    def check_masks(self, tr: Trajectory) -> None:
        """Raises EnvironmentFault where a mask allows nothing although an action is used."""
        if tr.action_mask is not None:
            stuck = ~tr.action_mask[:-1].any(-1)  # (T, N) or (T, N, M)
            stuck &= widen(self.is_step(tr), stuck)
            if tr.alive is not None:
                stuck &= tr.alive[:-1]
            if bool(stuck.any()):
                t, n, *agent = stuck.nonzero()[0].tolist()
                whose = f" of agent {agent[0]}" if agent else ""
                raise EnvironmentFault(
                    f"{self.env.env_name} returned an action_mask{whose} that allows no action at step "
                    f"{int(self.steps_before(t)[n])} of environment {n}: allow at least one where an action is used"
                )

    def is_step(self, tr: Trajectory) -> Tensor:
        """Where an environment did not only reset itself, (T, N) bool."""
        return tr.of_environments(tr.unmasks) if self.env.autoreset == "next_step" else torch.ones_like(tr.dones)

    def steps_before(self, row: int) -> Tensor:
        """Steps of each environment before a row of this rollout, (N,) on the CPU."""
        assert self.trajectory is not None
        return self.steps + self.is_step(self.trajectory)[:row].sum(0).cpu()

    def count(self, tr: Trajectory) -> None:
        """Steps, rewards and the returns of finished episodes, exactly, whatever the rollout's length."""
        self.steps += (new_steps := self.is_step(tr).sum(0).cpu())
        steps = int(new_steps.sum())
        self.total_step += steps
        self.reset_rows += tr.dones.numel() - steps
        rewards, dones = tr.of_environments(tr.rewards).cpu().double(), tr.dones.cpu()
        self.reward_sum += float(rewards.sum())
        self.reward_count += steps
        step = torch.arange(1, tr.horizon + 1)[:, None]
        last_end = (dones * step).amax(0)  # (N,), 0 where no episode ended
        total = self.running + rewards.sum(0)
        self.running = torch.where(last_end > 0, (rewards * (step > last_end)).sum(0), total)
        self.return_sum += float((total - self.running).sum())
        self.return_count += int(dones.sum())

    def clear_summary(self) -> None:
        self.reward_sum, self.reward_count = 0.0, 0
        self.return_sum, self.return_count = 0.0, 0

    def summary(self) -> tuple[float, float]:
        """Mean reward of a step, and mean return of the episodes that ended, since `clear_summary`; NaN if none."""
        reward = self.reward_sum / self.reward_count if self.reward_count else math.nan
        return reward, self.return_sum / self.return_count if self.return_count else math.nan

    def state_dict(self) -> dict[str, Any]:
        sums = ("reward_sum", "reward_count", "return_sum", "return_count")
        return {name: getattr(self, name) for name in ("total_step", "reset_rows", "running", *sums)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
