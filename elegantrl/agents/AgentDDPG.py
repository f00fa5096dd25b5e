"""DDPG arXiv:1509.02971."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..trajectory import Batch, Record, widen
from .AgentBase import AgentOffPolicy
from .functional import LinearSchedule, at_progress, gaussian_logprob, weighted_mean
from .h_term import WithHTerm
from .net import Actor, Critic, CriticBase

LEAST_STD = 0.01  # of the density of a policy that hardly explores, so that it stays finite


class OrnsteinUhlenbeckNoise:
    """Noise that drifts back to 0: x <- x - theta x dt + sigma sqrt(dt) N(0, 1), one process for each environment."""

    def __init__(self, theta: float = 0.15, dt: float = 1e-2):
        self.theta, self.dt = theta, dt
        self.x: Tensor | None = None

    def __call__(self, like: Tensor, sigma: float, ended: Tensor | None = None) -> Tensor:
        """The next noise (N, A) in the shape of `like`; processes whose episode `ended` (N,) start again at 0."""
        if self.x is None or self.x.shape != like.shape:
            self.x = torch.zeros_like(like)
        if ended is not None:
            self.x = self.x * ~widen(ended, self.x)
        self.x = self.x - self.theta * self.dt * self.x + sigma * math.sqrt(self.dt) * torch.randn_like(like)
        return self.x


class AgentDDPG(WithHTerm, AgentOffPolicy):
    """A deterministic actor climbs the critic; Gaussian noise (or the paper's Ornstein-Uhlenbeck) explores."""

    explore_noise_std: float | LinearSchedule = 0.1  # std of the noise on actions in [-1, 1], a number or a schedule
    if_ou_noise: bool = False  # Ornstein-Uhlenbeck noise, as in the paper

    def build_nets(self) -> None:
        self.ou_noise = OrnsteinUhlenbeckNoise()
        self.act = Actor(self.net_dims, self.state_dim, self.action_dim, self.activation)
        self.cri = self.build_critic()

    def build_critic(self) -> CriticBase:
        return Critic(self.net_dims, self.state_dim, self.action_dim, self.activation)

    def begin(self, state: Tensor, info: Mapping[str, Any]) -> None:
        super().begin(state, info)
        self.ou_noise.x = None

    def explore_action(self, state: Tensor, action_mask: Tensor | None = None) -> Tensor:
        """1509.02971 eq. 7. (N, S) -> (N, A)"""
        action, std = self.act(state), at_progress(self.explore_noise_std, self.progress)
        noise = self.ou_noise(action, std, self.last_done) if self.if_ou_noise else std * torch.randn_like(action)
        return (action + noise).clamp(-1, 1)

    def log_density(self, record: Record, actions: Tensor) -> Tensor:
        """Of the Gaussian noise around the action, also where Ornstein-Uhlenbeck noise explores."""
        std = max(at_progress(self.explore_noise_std, self.progress), LEAST_STD)
        log_std = torch.full((self.action_dim,), math.log(std), device=actions.device)
        return gaussian_logprob((actions - self.act(record.states)) / std, log_std)

    def q_value(self, batch: Batch) -> Tensor:
        return self.cri(batch.states, batch.actions)

    def next_value(self, batch: Batch) -> Tensor:
        """Q'(s', mu'(s')), 1509.02971 eq. 5."""
        return self.cri_target(batch.next.states, self.act_target(batch.next.states))

    def actor_loss(self, batch: Batch) -> Tensor:
        """-Q(s, mu(s)), whose gradient is 1509.02971 eq. 6."""
        return -weighted_mean(self.cri(batch.states, self.act(batch.states)), batch.weight)
