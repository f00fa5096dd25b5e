"""REDQ arXiv:2101.05982: many updates for each step, made safe by a large ensemble of critics."""

from __future__ import annotations

import torch
from torch import Tensor

from .AgentSAC import AgentSAC
from .functional import least
from .net import CriticREDQ, some_values


class AgentREDQ(AgentSAC):
    """SAC whose target is the least of a random few of its critics, and whose actor climbs the mean of all of them."""

    num_ensembles = 10
    utd = 20.0
    update_freq = 20  # so one actor update for each step, Algorithm 1
    target_members: int = 2  # critics that make a label, drawn anew for each update

    def build_critic(self) -> CriticREDQ:
        return CriticREDQ(self.net_dims, self.state_dim, self.action_dim, self.num_ensembles, self.activation)

    def target_value(self, state: Tensor, action: Tensor) -> Tensor:
        """min over the random subset M of Q'_k(s, a), eq. 1. (B, S), (B, A) -> (B,)"""
        members = torch.randperm(self.num_ensembles, device=state.device)[: self.target_members]
        return least(some_values(self.cri_target, state, action, members))

    def pooled(self, q: Tensor) -> Tensor:
        return q if q.dim() == 1 else q.mean(0)
