"""Environments that are watched: what goes wrong in them says where. Letters: T horizon, N environments, M agents."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..faults import EnvironmentFault
from ..trajectory import Trajectory, widen


def told_of_team(env: Any) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """What info may tell of a team: shape and dtype by name."""
    lead = (env.num_envs, env.num_agents)
    told = {"alive": (lead, torch.bool), "action_mask": ((*lead, env.action_dim), torch.bool)}
    told["global_state"] = ((env.num_envs, getattr(env, "global_dim", 0)), torch.float32)
    return told | {"win": (lead[:1], torch.bool)}


class WatchedEnv:
    """Environments with errors that say where they happened.

    steps: gives the number (N,) of the step that each is in. during: what that is counted in.
    """

    def __init__(self, env: Any, steps: Callable[[], Tensor], during: str = "process"):
        self.env, self.steps, self.during, self.calls = env, steps, during, 0
        self.told: set[str] | None = None  # what info tells of a team

    def reset(self, seed: int | None = None) -> Any:
        try:
            found = self.env.reset(seed=seed)
        except Exception as error:
            raise self.fault(error, f"in a reset of this {self.during}") from error
        self.check_team(*found)
        return found

    def step(self, action: Tensor) -> Any:
        self.calls += 1
        try:
            found = self.env.step(action)
        except Exception as error:
            first, *others = sorted(set(self.steps().tolist()))
            step = f"{first:,} to {others[-1]:,}" if others else f"{first:,}"  # which one raised is not known
            where = f"in its step {step} of this {self.during}, on the actions {action[:8].tolist()}"
            raise self.fault(error, where) from error
        self.check_team(found[0], found[-1], found[1:-1])
        return found

    def check_team(self, state: Any, info: dict[str, Any], others: tuple[Any, ...] = ()) -> None:
        """Raises EnvironmentFault where a team's environment returns what would be broadcast, or fail later on.

        others: reward, terminal, truncate.
        """
        env = self.env
        if not getattr(env, "num_agents", 0):
            return
        each = (env.num_envs, env.num_agents)
        wanted = {"state": ((*each, env.state_dim), getattr(env, "state_dtype", torch.float32)), **told_of_team(env)}
        known = {"state": state, **{name: info[name] for name in wanted if name in info}}
        for name, x in zip(("reward", "terminal", "truncate"), others, strict=False):
            is_own = name == "reward" and getattr(x, "ndim", 1) == 2
            wanted[name] = (each if is_own else each[:1], getattr(x, "dtype", None) if name == "reward" else torch.bool)
            known[name] = x
        for name, x in known.items():
            shape, dtype = wanted[name]
            if not isinstance(x, Tensor) or (x.shape, x.dtype) != (shape, dtype):
                got = f"{x.dtype} of shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
                raise EnvironmentFault(
                    f"{env.env_name} returned {name} as {got}; a tensor of {dtype} of shape {shape} is needed, for "
                    f"num_envs {each[0]}, num_agents {each[1]}, state_dim {env.state_dim}, action_dim "
                    f"{env.action_dim}, global_dim {getattr(env, 'global_dim', 0)}"
                )
        told = info.keys() & {"alive", "action_mask", "global_state"}
        missing = set() if self.told is None else self.told ^ told
        if ("global_state" in told) != bool(getattr(env, "global_dim", 0)):
            missing = {"global_state"}
        if missing:
            raise EnvironmentFault(
                f"{env.env_name} does not tell {', '.join(sorted(missing))} in info at each reset and step: it must, "
                "or never; of a global_state, global_dim says the width"
            )
        self.told = told

    def fault(self, error: Exception, where: str) -> EnvironmentFault:
        return EnvironmentFault(f"{self.env.env_name} raised {type(error).__name__} {where}: {error}")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    # what they returned in a rollout. worker: who collected it, and counts steps

    def check_finite(self, tr: Trajectory, worker: Any) -> None:
        """Raises EnvironmentFault that names tensor, step and environment of the first value that is not finite."""
        for name in ("states", "global_state", "rewards", "actions"):
            x: Tensor | None = getattr(tr, name)
            if x is None or not x.is_floating_point() or math.isfinite(x.sum()):  # no sum with a bad value is finite
                continue
            bad = (~torch.isfinite(x)).flatten(2).any(-1) if x.dim() > 2 else ~torch.isfinite(x)
            if bool(bad.any()):
                t, n = bad.nonzero()[0].tolist()
                row = t + (name in ("rewards", "actions"))  # row t's state came of the step before
                step = int(worker.steps_before(row)[n])
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
