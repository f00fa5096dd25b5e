"""Small tasks for teams, tensors on one device, thousands at once; and the base to make your own.

Letters: N environments, W world, M agents, E enemies, S state, A action, G global state.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .tensor import TensorEnv


class TeamEnv(TensorEnv):
    """A TensorEnv with an agent axis: state (N, M, S), action (N, M, A) or (N, M), reward (N,) of the team or (N, M).

    A subclass states `num_agents` and TensorEnv's three methods, and in `tell` what else there is to know.
    """

    num_agents: int  # M
    global_dim: int = 0  # G, 0: `tell` gives no global state

    def __init__(
        self, num_envs: int = 64, gpu_id: int = -1, max_step: int | None = None, dtype: torch.dtype = torch.float32
    ):
        if self.num_agents < 1:
            raise ValueError(f"num_agents={self.num_agents}: {type(self).__name__} needs at least 1")
        super().__init__(num_envs, gpu_id, max_step, dtype)

    def tell(self, world: Tensor) -> dict[str, Tensor]:
        """Any of action_mask (N, M, A) bool, global_state (N, G), alive (N, M) bool, win (N,) bool, of a world."""
        return {}

    def reset(self, seed: int | None = None) -> tuple[Tensor, dict[str, Any]]:
        state, _ = super().reset(seed)
        return state, self.tell(self.world.clone())

    def step(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        """As TensorEnv's; info has `final_obs`, and `final_global_state`, ... beside what `tell` says. win: that of the
        episode that ended."""
        lead = (self.num_envs, self.num_agents)
        expected = lead if self.if_discrete else (*lead, self.action_dim)
        if action.shape != expected:
            raise ValueError(f"{self.env_name} expects actions {expected} and got shape {tuple(action.shape)}")
        after, reward, terminal = self.advance(self.world, action if self.if_discrete else action.clamp(-1, 1))
        truncate = self.steps + 1 >= self.max_step
        done = terminal | truncate
        told = self.tell(after)
        info: dict[str, Any] = {"final_obs": self._state(after), **{f"final_{name}": x for name, x in told.items()}}
        self.world.copy_(torch.where(done[:, None], self.fresh(), after))
        self.steps.add_(1).mul_(~done)
        info |= self.tell(self.world.clone())
        if "win" in told:
            info["win"] = told["win"]
        return self._state(self.world.clone()), reward.float(), terminal, truncate, info


class Rendezvous(TeamEnv):
    """M agents on a line see where they are and where the middle of all is, and are to meet. Solved: above -2.

    if_discrete: left, stay, right instead of a velocity. if_own_reward: reward (N, M), each agent's distance from the
    middle, instead of their mean (N,).
    """

    state_dim, max_step = 2, 10

    def __init__(
        self,
        num_envs: int = 64,
        gpu_id: int = -1,
        num_agents: int = 3,
        if_discrete: bool = False,
        if_own_reward: bool = False,
    ):
        self.num_agents, self.if_discrete, self.if_own_reward = num_agents, if_discrete, if_own_reward
        self.action_dim = 3 if if_discrete else 1
        super().__init__(num_envs, gpu_id)

    def fresh(self) -> Tensor:
        return self.uniform(-1, 1, self.num_agents)

    def advance(self, world: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        world = world + 0.2 * (action - 1 if self.if_discrete else action[..., 0])
        reward = -(world - world.mean(-1, keepdim=True)).abs()
        return world, reward if self.if_own_reward else reward.mean(-1), torch.zeros_like(self.steps, dtype=torch.bool)

    def observe(self, world: Tensor) -> Tensor:
        return torch.stack([world, world.mean(-1, keepdim=True).expand_as(world)], -1)


class TwoStepGame(TeamEnv):
    """The matrix game of QMIX, arXiv:1803.11485 section 5: the first agent's first action chooses the second matrix.

    Pays 7 for any action in the one, 0 1 1 8 in the other: a sum of two values cannot tell 8 from less than 7.
    """

    state_dim, action_dim, if_discrete, max_step, num_agents, global_dim = 3, 2, True, 2, 2, 3

    def fresh(self) -> Tensor:
        return torch.eye(3, device=self.device)[:1].repeat(self.num_envs, 1)

    def advance(self, world: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ends = world[:, 0] == 0
        chosen = torch.eye(3, device=self.device)[1 + action[:, 0]]
        unsafe = torch.tensor([[0.0, 1.0], [1.0, 8.0]], device=self.device)[action[:, 0], action[:, 1]]
        reward = 7 * world[:, 1] + unsafe * world[:, 2]
        return torch.where(ends[:, None], world, chosen), reward, ends

    def observe(self, world: Tensor) -> Tensor:
        return world[:, None].expand(-1, self.num_agents, -1)

    def tell(self, world: Tensor) -> dict[str, Tensor]:
        return {"global_state": world}


class Battle(TeamEnv):
    """A skirmish on a square: M agents against as many scripted enemies, who go for the nearest agent and shoot it.

    Actions: 0 nothing (the dead have no other), 1 to 4 move, 5 + e shoot enemy e, if alive and in range. An agent sees
    what is in its sight. The team is paid for damage, for each enemy that falls, and for the win; at most 10.
    info["win"]: all enemies have fallen. To win, agents must shoot at one enemy together and keep their distance.
    """

    if_discrete, max_step = True, 60
    reach, enemy_reach, sight = 0.6, 0.55, 1.0  # on a square of -1 to 1
    speed, enemy_speed, damage = 0.15, 0.1, 0.25  # of a step and of a shot; everybody's health is 1

    def __init__(self, num_envs: int = 64, gpu_id: int = -1, num_agents: int = 3):
        self.num_agents = m = num_agents
        self.action_dim = 5 + m
        self.state_dim, self.global_dim = 4 + 5 * m + 4 * (m - 1), 6 * m
        super().__init__(num_envs, gpu_id)
        self.moves = torch.tensor([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1], *[[0, 0]] * m], device=self.device) * 1.0
        others = [[j for j in range(m) if j != i] for i in range(m)]
        self.others = torch.tensor(others, dtype=torch.long, device=self.device)

    def fresh(self) -> Tensor:
        """Places of agents (left) and enemies (right), then their healths."""
        places = self.uniform(-0.4, 0.4, 2 * self.num_agents, 2)
        side = torch.tensor([-0.5, 0.5], device=self.device).repeat_interleave(self.num_agents)
        places = torch.stack([places[..., 0] + side, places[..., 1]], -1)
        return torch.cat([places.flatten(1), torch.ones(self.num_envs, 2 * self.num_agents, device=self.device)], 1)

    def parts(self, world: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Places (N, M, 2) and healths (N, M) of agents, then of enemies (N, E, 2), (N, E)."""
        m = self.num_agents
        places, health = world[:, : 4 * m].unflatten(1, (2 * m, 2)), world[:, 4 * m :]
        return places[:, :m], health[:, :m], places[:, m:], health[:, m:]

    def advance(self, world: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        place, health, foe_place, foe_health = self.parts(world)
        allowed = self.tell(world)["action_mask"]
        action = action * allowed.gather(-1, action[..., None]).squeeze(-1)  # what is not allowed is nothing
        shots = torch.nn.functional.one_hot(action, self.action_dim)[..., 5:].sum(1)  # (N, E)
        new_foe_health = (foe_health - self.damage * shots).clamp(min=0)

        away = place[:, None] - foe_place[:, :, None]  # (N, E, M, 2)
        distance = away.norm(dim=-1).masked_fill(health[:, None] <= 0, 9.0)
        nearest, target = distance.min(-1)  # (N, E)
        shoots = (nearest <= self.enemy_reach) & (foe_health > 0)
        hits = torch.nn.functional.one_hot(target, self.num_agents) * shoots[..., None]
        new_health = (health - self.damage * hits.sum(1)).clamp(min=0)
        step = away.gather(2, target[..., None, None].expand(-1, -1, 1, 2)).squeeze(2) / nearest[..., None].clamp(
            min=1e-6
        )
        goes = ~shoots & (foe_health > 0)

        place = (place + self.speed * self.moves[action]).clamp(-1, 1)
        foe_place = foe_place + self.enemy_speed * step * goes[..., None]
        after = torch.cat([place.flatten(1), foe_place.flatten(1), new_health, new_foe_health], 1)
        won, lost = (new_foe_health <= 0).all(-1), (new_health <= 0).all(-1)
        fallen = ((foe_health > 0) & (new_foe_health <= 0)).sum(-1)
        gain = (foe_health - new_foe_health).sum(-1) + fallen
        return after, 5 * gain / (2 * self.num_agents) + 5 * won, won | lost

    def observe(self, world: Tensor) -> Tensor:
        place, health, foe_place, foe_health = self.parts(world)
        to_foe = foe_place[:, None] - place[:, :, None]  # (N, M, E, 2)
        far = to_foe.norm(dim=-1)
        foe = torch.cat(
            [
                to_foe,
                far[..., None],
                (far <= self.reach)[..., None],
                foe_health[:, None, :, None].expand(-1, self.num_agents, -1, 1),
            ],
            -1,
        )
        foe = foe * ((far <= self.sight) & (foe_health > 0)[:, None])[..., None]
        to_friend = place[:, self.others] - place[:, :, None]  # (N, M, M - 1, 2)
        near = to_friend.norm(dim=-1)
        friend_health = health[:, self.others]
        friend = torch.cat([to_friend, near[..., None], friend_health[..., None]], -1)
        friend = friend * ((near <= self.sight) & (friend_health > 0))[..., None]
        own = torch.cat([place, health[..., None], torch.ones_like(health)[..., None]], -1)
        return torch.cat([own, foe.flatten(2), friend.flatten(2)], -1) * (health > 0)[..., None]

    def tell(self, world: Tensor) -> dict[str, Tensor]:
        place, health, foe_place, foe_health = self.parts(world)
        alive = health > 0
        in_range = (place[:, :, None] - foe_place[:, None]).norm(dim=-1) <= self.reach
        shoot = in_range & (foe_health > 0)[:, None] & alive[..., None]
        move = alive[..., None].expand(-1, -1, 4)
        mask = torch.cat([torch.ones_like(alive)[..., None], move, shoot], -1)
        return {"action_mask": mask, "global_state": world, "alive": alive, "win": (foe_health <= 0).all(-1)}
