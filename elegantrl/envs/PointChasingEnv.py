"""ElegantRL's task: a point chases another that drifts away at random, on a plane or in space. Letters: see tensor.py.

Its constants and dynamics are kept, with two faults mended: a time limit is a truncation, not a death, and the first
step after an automatic reset is paid by the new episode's distances.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ..compat import renamed_keywords
from .tensor import SingleEnv, TensorEnv


class PointChasingVecEnv(TensorEnv):
    """The chaser steers by a force of length 1 at most; it pays the metres gained minus 0.02 times the effort, which
    counts as 1 at least. The episode ends within `dim` metres of the runner.

    world = state: position and velocity of the runner, then of the chaser, (N, 4 * dim).
    """

    max_step = 1024
    start_distance = 8.0  # along each axis

    @renamed_keywords(env_num="num_envs", sim_gpu_id="gpu_id")
    def __init__(
        self,
        dim: int = 2,
        num_envs: int = 32,
        gpu_id: int = -1,
        max_step: int | None = None,
        dtype: torch.dtype = torch.float32,
    ):
        self.dim, self.state_dim, self.action_dim = dim, 4 * dim, 3**dim if self.if_discrete else dim
        super().__init__(num_envs, gpu_id, max_step, dtype)

    def fresh(self) -> Tensor:
        runner, chaser = self.normal(0.0, 1.0, self.dim), self.normal(-self.start_distance, 1.0, self.dim)
        still = torch.zeros_like(runner)
        return torch.cat((runner, still, chaser, still), -1)

    def advance(self, world: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        runner, runner_velocity, chaser, chaser_velocity = world.chunk(4, -1)
        distance = (runner - chaser).norm(dim=-1)
        effort = action.norm(dim=-1, keepdim=True).clamp(min=1.0)
        chaser_velocity = 0.75 * chaser_velocity + action / effort
        chaser = chaser + 0.01 * chaser_velocity
        runner_velocity = 0.5 * runner_velocity + self.uniform(0.0, 1.0, self.dim)
        runner = runner + 0.01 * runner_velocity
        new_distance = (runner - chaser).norm(dim=-1)
        world = torch.cat((runner, runner_velocity, chaser, chaser_velocity), -1)
        return world, distance - new_distance - 0.02 * effort[:, 0], new_distance < self.dim

    def observe(self, world: Tensor) -> Tensor:
        return world

    @staticmethod
    def get_action(state: Any) -> Any:
        """From the chaser towards the runner, (..., 4 * dim) -> (..., dim): a policy that catches it."""
        places = state.reshape(*state.shape[:-1], 4, -1)
        return places[..., 0, :] - places[..., 2, :]


class PointChasingDiscreteVecEnv(PointChasingVecEnv):
    """The same by 3 ** dim actions: digit k of the index to base 3, minus 1, is the force along axis k."""

    if_discrete = True

    def advance(self, world: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        digits = [action.div(3**k, rounding_mode="floor") % 3 for k in range(self.dim)]
        return super().advance(world, (torch.stack(digits, -1) - 1).to(self.dtype))


class PointChasingEnv(SingleEnv):
    """One PointChasingVecEnv with Gymnasium's interface. state (4 * dim,), action (dim,) in [-1, 1]."""

    vec_class: ClassVar[type[PointChasingVecEnv]] = PointChasingVecEnv
    get_action = staticmethod(PointChasingVecEnv.get_action)

    def __init__(self, dim: int = 2, max_step: int | None = None):
        super().__init__(self.vec_class(dim, 1, max_step=max_step))


class PointChasingDiscreteEnv(PointChasingEnv):
    """One PointChasingDiscreteVecEnv. action: an index below 3 ** dim."""

    vec_class = PointChasingDiscreteVecEnv


ChasingEnv = PointChasingEnv  # its older name, in the module elegantrl.envs.Chasing
