"""Tasks of the multi-agent particle environments, arXiv:1706.02275, as tensors: the numbers are those of mpe2.

Letters: N environments, W world, M agents, S state, A action.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .teams import TeamEnv

DT, DAMPING, SENSITIVITY = 0.1, 0.25, 5.0  # seconds of a step, share of the velocity lost in it, force of an action
CONTACT_FORCE, CONTACT_MARGIN = 1e2, 1e-3


def push(action: Tensor, if_discrete: bool) -> Tensor:
    """Force of an action: nothing, left, right, down, up, by index (...,) or by how much in [-1, 1], (..., 5)."""
    if if_discrete:
        action = torch.nn.functional.one_hot(action, 5)
    else:
        action = (action + 1) / 2
    return SENSITIVITY * torch.stack([action[..., 2] - action[..., 1], action[..., 4] - action[..., 3]], -1)


def contact(place: Tensor, reach: float) -> Tensor:
    """Forces between discs that touch at the distance `reach`, (N, M, 2) -> (N, M, 2)."""
    away = place[:, :, None] - place[:, None]  # (N, M, M, 2)
    same = torch.eye(place.shape[1], dtype=torch.bool, device=place.device)
    distance = away.square().sum(-1).sqrt().masked_fill(same, 1.0)
    depth = torch.logaddexp(torch.zeros_like(distance), (reach - distance) / CONTACT_MARGIN) * CONTACT_MARGIN
    return (CONTACT_FORCE * away / distance[..., None] * depth[..., None]).sum(2)


class SimpleSpread(TeamEnv):
    """M agents are to cover M landmarks and not to collide; mpe2's simple_spread_v3. Reward (N, M).

    local_ratio: share of an agent's own collisions in its reward, against the distances that all share.
    """

    action_dim, size = 5, 0.15

    def __init__(
        self,
        num_envs: int = 64,
        gpu_id: int = -1,
        num_agents: int = 3,
        if_discrete: bool = True,
        local_ratio: float = 0.5,
        max_step: int = 25,
        dtype: torch.dtype = torch.float32,
    ):
        self.num_agents, self.if_discrete, self.local_ratio = num_agents, if_discrete, local_ratio
        self.state_dim = 6 * num_agents
        m = range(num_agents)
        super().__init__(num_envs, gpu_id, max_step, dtype)
        self.others = torch.tensor([[j for j in m if j != i] for i in m], dtype=torch.long, device=self.device)

    def parts(self, world: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Places, velocities and landmarks, (N, M, 2) each."""
        place, velocity, landmark = world.unflatten(1, (3, self.num_agents, 2)).unbind(1)
        return place, velocity, landmark

    def fresh(self) -> Tensor:
        draws = self.uniform(-1, 1, 2, 2 * self.num_agents)
        return torch.cat([draws[:, 0], torch.zeros_like(draws[:, 0]), draws[:, 1]], 1)

    def advance(self, world: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        place, velocity, landmark = self.parts(world)
        force = push(action, self.if_discrete) + contact(place, 2 * self.size)
        place = place + velocity * DT
        velocity = velocity * (1 - DAMPING) + force * DT
        after = torch.cat([place.flatten(1), velocity.flatten(1), landmark.flatten(1)], 1)
        gaps = (place[:, :, None] - landmark[:, None]).square().sum(-1).sqrt()  # (N, M, landmarks)
        apart = (place[:, :, None] - place[:, None]).square().sum(-1).sqrt()
        collisions = (apart < 2 * self.size).sum(-1) - 1  # without itself
        shared = -gaps.amin(1).sum(-1, keepdim=True)
        reward = (1 - self.local_ratio) * shared - self.local_ratio * collisions
        return after, reward, torch.zeros_like(self.steps, dtype=torch.bool)

    def observe(self, world: Tensor) -> Tensor:
        """Own velocity and place, places of landmarks and of the others from there, and words that nobody says."""
        place, velocity, landmark = self.parts(world)
        to_landmarks = (landmark[:, None] - place[:, :, None]).flatten(2)
        to_others = (place[:, self.others] - place[:, :, None]).flatten(2)
        return torch.cat([velocity, place, to_landmarks, to_others, torch.zeros_like(to_others)], -1)


class SimpleSpeakerListener(TeamEnv):
    """The speaker sees which of three landmarks is the goal and says one of three words; the listener hears it a step
    later and is to go there. mpe2's simple_speaker_listener_v4. Reward (N, M), the same for both.

    The speaker's state and actions are padded to the listener's, 11 and 5; a mask forbids what it does not have.
    """

    num_agents, state_dim, action_dim = 2, 11, 5

    def __init__(
        self,
        num_envs: int = 64,
        gpu_id: int = -1,
        if_discrete: bool = True,
        max_step: int = 25,
        dtype: torch.dtype = torch.float32,
    ):
        self.if_discrete = if_discrete
        super().__init__(num_envs, gpu_id, max_step, dtype)
        self.colours = torch.full((3, 3), 0.15, dtype=dtype, device=self.device).fill_diagonal_(0.65)
        self.mask = torch.tensor([[1, 1, 1, 0, 0], [1] * 5], device=self.device).bool().expand(num_envs, -1, -1)

    def fresh(self) -> Tensor:
        """The listener's place and velocity, landmarks, the word that was said, the goal; (N, 2 + 2 + 6 + 3 + 3)."""
        places, still = self.uniform(-1, 1, 8), self.uniform(0, 0, 5)
        goal = torch.nn.functional.one_hot(self.uniform(0, 3, 1)[:, 0].long().clamp(max=2), 3).to(self.dtype)
        return torch.cat([places[:, :2], still[:, :2], places[:, 2:], still[:, 2:], goal], 1)

    def advance(self, world: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        place, velocity, landmark, _, goal = world.split([2, 2, 6, 3, 3], 1)
        if self.if_discrete:
            word = torch.nn.functional.one_hot(action[:, 0], 5)[:, :3].to(self.dtype)
        else:
            word = (action[:, 0, :3] + 1) / 2
        place = place + velocity * DT
        velocity = velocity * (1 - DAMPING) + push(action[:, 1], self.if_discrete) * DT
        target = (landmark.unflatten(1, (3, 2)) * goal[..., None]).sum(1)
        reward = -(place - target).square().sum(-1, keepdim=True).expand(-1, 2)
        return (
            torch.cat([place, velocity, landmark, word, goal], 1),
            reward,
            torch.zeros_like(self.steps, dtype=torch.bool),
        )

    def observe(self, world: Tensor) -> Tensor:
        place, velocity, landmark, word, goal = world.split([2, 2, 6, 3, 3], 1)
        to_landmarks = (landmark.unflatten(1, (3, 2)) - place[:, None]).flatten(1)
        listener = torch.cat([velocity, to_landmarks, word], 1)
        speaker = torch.nn.functional.pad(goal @ self.colours, (0, 8))
        return torch.stack([speaker, listener], 1)

    def tell(self, world: Tensor) -> dict[str, Tensor]:
        return {"action_mask": self.mask} if self.if_discrete else {}
