"""The networks.

Letters in shapes: B batch, S numbers in a state, A numbers in an action (or how many actions there are).
A shape (B, S) -> (B, A) also holds for a single state: (S,) -> (A,).
An actor's `forward(state)` is the greedy action, the one it holds for best: in [-1, 1], or an index from 0.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Dims = tuple[int, ...]  # widths of the hidden layers


def build_mlp(dims: list[int], activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Linear layers of the widths [in, hidden, ..., out] with an activation between them, none after the last."""
    layers: list[nn.Module] = []
    for dim_in, dim_out in pairwise(dims):
        layers += [nn.Linear(dim_in, dim_out), activation()]
    return nn.Sequential(*layers[:-1])


# DQN


class QNet(nn.Module):
    """What every action is worth in a state, Q(s, .)."""

    def __init__(self, net_dims: Dims, state_dim: int, action_dim: int):
        super().__init__()
        self.net = build_mlp([state_dim, *net_dims, action_dim])

    def q_values(self, state: Tensor) -> Tensor:
        """(B, S) -> (B, A)"""
        return self.net(state)

    def forward(self, state: Tensor) -> Tensor:
        """argmax_a Q(s, a). (B, S) -> (B,) index"""
        return self.q_values(state).argmax(dim=-1)


# DDPG


class Actor(nn.Module):
    """What to do in a state, mu(s)."""

    def __init__(self, net_dims: Dims, state_dim: int, action_dim: int):
        super().__init__()
        self.net = build_mlp([state_dim, *net_dims, action_dim])

    def forward(self, state: Tensor) -> Tensor:
        """(B, S) -> (B, A) in [-1, 1]"""
        return self.net(state).tanh()


class Critic(nn.Module):
    """What an action is worth in a state, Q(s, a)."""

    def __init__(self, net_dims: Dims, state_dim: int, action_dim: int):
        super().__init__()
        self.net = build_mlp([state_dim + action_dim, *net_dims, 1])

    def forward(self, state: Tensor, action: Tensor) -> Tensor:
        """(B, S), (B, A) -> (B,). Without the squeeze it would be (B, 1), and (B, 1) - (B,) is a (B, B) of nonsense."""
        return self.net(torch.cat([state, action], dim=-1)).squeeze(-1)


# SAC


class ActorSAC(nn.Module):
    """A random action that stays in [-1, 1]: tanh of a Gaussian, arXiv:1801.01290 appendix C."""

    def __init__(self, net_dims: Dims, state_dim: int, action_dim: int):
        super().__init__()
        self.net = build_mlp([state_dim, *net_dims, 2 * action_dim])

    def forward(self, state: Tensor) -> Tensor:
        """(B, S) -> (B, A)"""
        return self.net(state).chunk(2, dim=-1)[0].tanh()

    def sample(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """a = tanh(u) with u = mean + std * noise, and log pi(a|s), eq. 21. (B, S) -> (B, A), (B,)"""
        mean, log_std = self.net(state).chunk(2, dim=-1)  # (B, A) each
        log_std = log_std.clamp(-20, 2)
        noise = torch.randn_like(mean)  # (B, A); random numbers come from outside, so gradients pass through u
        u = mean + log_std.exp() * noise  # (B, A)
        log_slope = 2 * (math.log(2) - u - F.softplus(-2 * u))  # (B, A), log(1 - tanh(u)^2) that never overflows
        return u.tanh(), gaussian_logprob(noise, log_std) - log_slope.sum(-1)


def gaussian_logprob(noise: Tensor, log_std: Tensor) -> Tensor:
    """log N(x; mean, std) with noise = (x - mean) / std, summed over the action. (B, A), (B, A) or (A,) -> (B,)"""
    return (-0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)


# PPO


def init_orthogonal(net: nn.Sequential, last_gain: float) -> nn.Sequential:
    """Layers that neither shrink nor stretch their input at the start; PPO learns more reliably from there."""
    layers = [layer for layer in net if isinstance(layer, nn.Linear)]
    for layer in layers:
        nn.init.orthogonal_(layer.weight, last_gain if layer is layers[-1] else math.sqrt(2))
        nn.init.zeros_(layer.bias)
    return net


class ActorPPO(nn.Module):
    """A Gaussian around the best action; its std is learned, and the same in every state."""

    def __init__(self, net_dims: Dims, state_dim: int, action_dim: int):
        super().__init__()
        self.net = init_orthogonal(build_mlp([state_dim, *net_dims, action_dim], nn.Tanh), last_gain=0.01)
        self.log_std = nn.Parameter(torch.zeros(action_dim))  # (A,)

    def forward(self, state: Tensor) -> Tensor:
        """(B, S) -> (B, A)"""
        return self.net(state).clamp(-1, 1)

    def get_action(self, state: Tensor) -> Tensor:
        """A sample, which may leave [-1, 1]: the environment clips, its probability is Gaussian. (B, S) -> (B, A)"""
        mean = self.net(state)  # (B, A)
        return mean + self.log_std.exp() * torch.randn_like(mean)

    def get_logprob_entropy(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """How likely the action is, log pi(a|s), and how random the policy. (B, S), (B, A) -> (B,), ()"""
        noise = (action - self.net(state)) / self.log_std.exp()  # (B, A)
        entropy = (self.log_std + 0.5 + 0.5 * math.log(2 * math.pi)).sum()  # (), of a Gaussian
        return gaussian_logprob(noise, self.log_std), entropy


class ActorDiscretePPO(nn.Module):
    """A probability for every action."""

    def __init__(self, net_dims: Dims, state_dim: int, action_dim: int):
        super().__init__()
        self.net = init_orthogonal(build_mlp([state_dim, *net_dims, action_dim], nn.Tanh), last_gain=0.01)

    def forward(self, state: Tensor) -> Tensor:
        """(B, S) -> (B,) index"""
        return self.net(state).argmax(dim=-1)

    def get_action(self, state: Tensor) -> Tensor:
        """(B, S) -> (B,) index"""
        return torch.distributions.Categorical(logits=self.net(state)).sample()

    def get_logprob_entropy(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """(B, S), (B,) -> (B,), (B,)"""
        policy = torch.distributions.Categorical(logits=self.net(state))
        return policy.log_prob(action), policy.entropy()


class CriticPPO(nn.Module):
    """What a state is worth under today's policy, V(s)."""

    def __init__(self, net_dims: Dims, state_dim: int):
        super().__init__()
        self.net = init_orthogonal(build_mlp([state_dim, *net_dims, 1], nn.Tanh), last_gain=1.0)

    def forward(self, state: Tensor) -> Tensor:
        """(B, S) -> (B,)"""
        return self.net(state).squeeze(-1)
