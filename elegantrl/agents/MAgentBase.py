"""What the agents of teams share. state (N, M, S), action (N, M, A) or (N, M), reward (N,) of the team or (N, M)."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from ..trajectory import Record
from .AgentBase import AgentBase
from .net import Team


class TeamAgent(AgentBase):
    """Put it before a template: a class of M agents that share one network, or have one each."""

    if_team: ClassVar[bool] = True

    if_share_params: bool = True  # one network for all agents instead of one for each
    if_agent_id: bool = True  # a shared network sees for whom it acts

    def team(self, rnn_dim: int = 0) -> Team:
        return Team(self.num_agents, self.if_share_params, self.if_agent_id, rnn_dim)

    @property
    def joint_dim(self) -> int:
        """G, the width of `joint`."""
        assert isinstance(self.state_dim, int)
        return self.global_dim or self.num_agents * self.state_dim

    def joint(self, record: Record) -> Tensor:
        """What a centralised network sees: the global state, or what all agents see, side by side. (..., G)"""
        return self.state_norm(record.states).flatten(-2) if record.global_state is None else record.global_state

    def credit(self, reward: Tensor) -> Tensor:
        """Everybody's own reward (N, M), none for the dead, or the team's; for a team, the mean of its agents' (N,)."""
        if reward.dim() == 1:
            return reward if self.if_team_reward else reward[:, None].expand(-1, self.num_agents)
        if self.last is not None and self.last.alive is not None:
            reward = reward.where(self.last.alive, 0.0)
        return reward.mean(-1) if self.if_team_reward else reward

    def of_team(self, values: Tensor, alive: Tensor | None) -> Tensor:
        """Values (..., M) with the mean of the living's for the dead, who learn none; 0 where nobody lives.

        For what a team is paid after an agent's death; what it lives on alone has ended there by `undone`.
        """
        if alive is None:
            return values
        mean = (values * alive).sum(-1, keepdim=True) / alive.sum(-1, keepdim=True).clamp(min=1)
        return values.where(alive, mean)

    def undone(self, terminal: Tensor, reward: Tensor) -> Tensor:
        """Who lives on rewards of its own is done when it dies; who lives on the team's when the team's task ends."""
        alive = self.last.alive if self.last is not None else None
        if alive is None or self.if_team_reward or reward.dim() == 1:
            return ~terminal
        return ~terminal[:, None] & alive
