"""MAPPO arXiv:2103.01955: PPO with one actor for all agents and a value that sees the global state."""

from __future__ import annotations

from torch import Tensor

from ..trajectory import Record
from .AgentPPO import AgentPPO
from .MAgentBase import TeamAgent
from .net import CriticMAPPO


class AgentMAPPO(TeamAgent, AgentPPO):
    """Each agent has a probability ratio, an advantage and a value of its own; rows of the dead have no weight."""

    ratio_clip = 0.2
    lambda_entropy = 0.01
    learning_rate = 5e-4
    if_norm_value = True
    if_agent_value: bool = False  # each agent's value sees the global state, its own and its id

    def build_nets(self) -> None:
        own_dim = self.seen_dim if self.if_agent_value else 0
        self.act = self.build_team_actor(self.team(self.rnn_dim))
        self.cri = CriticMAPPO(self.net_dims, self.joint_dim, self.team(), self.activation, own_dim)

    @property
    def seen_dim(self) -> int:
        """Width of what an agent sees, or remembers."""
        assert isinstance(self.state_dim, int)
        return self.rnn_dim or self.state_dim

    @property
    def joint_dim(self) -> int:
        return self.global_dim or self.num_agents * self.seen_dim

    def value(self, record: Record) -> Tensor:
        """V_m(s) of every agent, (..., M). Memories are the policies' alone: values see them and do not shape them."""
        own = record.states.detach() if self.rnn_dim else self.state_norm(record.states)
        state = own.flatten(-2) if record.global_state is None else record.global_state
        return self.of_team(self.cri(state, own if self.if_agent_value else None), record.alive)
