"""TD3 arXiv:1802.09477: twin critics, smoothed target actions, delayed actor and targets."""

from __future__ import annotations

import torch
from torch import Tensor

from ..trajectory import Batch
from .AgentDDPG import AgentDDPG, OrnsteinUhlenbeckNoise
from .functional import least, weighted_mean
from .net import CriticEnsemble, first_value

__all__ = ["AgentDDPG", "AgentTD3", "OrnsteinUhlenbeckNoise"]


class AgentTD3(AgentDDPG):
    """DDPG that learns from the smaller of two critics, Algorithm 1."""

    update_freq = 2
    target_delay = 2
    num_ensembles: int = 2  # critics
    policy_noise_std: float = 0.2  # std of the noise on target actions
    policy_noise_clip: float = 0.5  # its largest size

    def build_critic(self) -> CriticEnsemble:
        return CriticEnsemble(self.net_dims, self.state_dim, self.action_dim, self.num_ensembles, self.activation)

    def next_value(self, batch: Batch) -> Tensor:
        """min_k Q'_k(s', mu'(s') + clipped noise), Algorithm 1."""
        action = self.act_target(batch.next.states)
        clip = self.policy_noise_clip
        noise = (self.policy_noise_std * torch.randn_like(action)).clamp(-clip, clip)
        return least(self.cri_target(batch.next.states, (action + noise).clamp(-1, 1)))

    def actor_loss(self, batch: Batch) -> Tensor:
        """-Q_1(s, mu(s))."""
        return -weighted_mean(first_value(self.cri, batch.states, self.act(batch.states)), batch.weight)
