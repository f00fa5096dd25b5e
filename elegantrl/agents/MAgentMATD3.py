"""MATD3 arXiv:1910.01465: MADDPG with twin critics, smoothed target actions, delayed actors and targets."""

from __future__ import annotations

import torch
from torch import Tensor

from ..trajectory import Record
from .MAgentMADDPG import AgentMADDPG


class AgentMATD3(AgentMADDPG):
    """MADDPG that learns from the smaller of two critics, Algorithm 1."""

    update_freq = 2
    target_delay = 2
    num_ensembles = 2
    policy_noise_std: float = 0.2  # std of the noise on target actions in [-1, 1]
    policy_noise_clip: float = 0.5  # its largest size

    def target_action(self, record: Record) -> Tensor:
        """mu'(s) with clipped noise, eq. 7; of discrete actions a draw from the target policies."""
        if self.if_discrete:
            return self.vectors(self.act_target.sample(record.states, record.action_mask)[0])
        action = self.act_target(record.states)
        clip = self.policy_noise_clip
        noise = (self.policy_noise_std * torch.randn_like(action)).clamp(-clip, clip)
        return (action + noise).clamp(-1, 1)
