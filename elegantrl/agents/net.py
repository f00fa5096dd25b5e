"""Every network, and the step of its parameters. Letters: B batch, K ensemble, M agents, S state, A action,
L rows of a window, H memory, G global state.

Leading axes are free: (T, N, S) works as (B, S) does.

An actor's `forward(state)` is the greedy action: in [-1, 1], or an index. A critic's is the value.
A state is (S,) features or an image (C, H, W) or (H, W, C) of uint8, which is scaled to [0, 1] once, here.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .functional import clip_by_norm, gaussian_entropy, gaussian_logprob, mask_illegal, squashed_gaussian

Dims = Sequence[int]
StateDim = int | tuple[int, ...]
LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0
TINY = 1e-12


# building blocks


class ReLU(nn.ReLU):
    """In place: what it takes is a layer's output, which no gradient needs."""

    def forward(self, x: Tensor) -> Tensor:
        return x.relu_()


class Tanh(nn.Tanh):
    """In place, as ReLU."""

    def forward(self, x: Tensor) -> Tensor:
        return x.tanh_()


ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": ReLU, "tanh": Tanh, "gelu": nn.GELU, "elu": nn.ELU}


class EnsembleLinear(nn.Module):
    """K independent linear layers in one batched product. (K, B, in) -> (K, B, out)"""

    def __init__(self, num: int, dim_in: int, dim_out: int):
        super().__init__()
        bound = 1 / math.sqrt(dim_in)  # each member starts as an nn.Linear does
        self.weight = nn.Parameter(torch.empty(num, dim_in, dim_out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(num, 1, dim_out).uniform_(-bound, bound))

    def forward(self, x: Tensor, members: slice | Tensor = slice(None)) -> Tensor:
        """members: which of the K layers to apply, before any of them is computed."""
        return torch.baddbmm(self.bias[members], x, self.weight[members])


class MemberLinear(EnsembleLinear):
    """The same with the members behind the batch, each with an input of its own. (..., K, in) -> (..., K, out)"""

    def forward(self, x: Tensor, members: slice | Tensor = slice(None)) -> Tensor:
        rows = x.reshape(-1, *x.shape[-2:]).transpose(0, 1)
        return super().forward(rows, members).transpose(0, 1).unflatten(0, x.shape[:-2])


class EnsembleMLP(nn.Module):
    """K independent perceptrons. (..., in) -> (K, ..., out)"""

    def __init__(self, num: int, dims: Dims, activation: str = "relu"):
        super().__init__()
        self.layers = nn.ModuleList(EnsembleLinear(num, i, o) for i, o in pairwise(dims))
        self.activation = ACTIVATIONS[activation]()
        self.num = num

    def forward(self, x: Tensor, members: slice | Tensor = slice(None)) -> Tensor:
        num = len(range(self.num)[members]) if isinstance(members, slice) else len(members)
        lead = x.shape[:-1]
        x = x.reshape(-1, x.shape[-1]).expand(num, -1, -1)
        for layer in self.layers[:-1]:
            x = self.activation(layer(x, members))
        return self.layers[-1](x, members).view(num, *lead, -1)


def build_mlp(dims: Dims, activation: str = "relu", members: int = 0) -> nn.Sequential:
    """dims [in, *hidden, out], no activation after the last layer.

    members: so many perceptrons, each with an input of its own, (..., K, in) -> (..., K, out); 0: a single one.
    """
    layers: list[nn.Module] = []
    for dim_in, dim_out in pairwise(dims):
        linear = MemberLinear(members, dim_in, dim_out) if members else nn.Linear(dim_in, dim_out)
        layers += [linear, ACTIVATIONS[activation]()]
    return nn.Sequential(*layers[:-1])


def layer_init_with_orthogonal(layer: Any, std: float = 1.0, bias_const: float = 0.0) -> Any:
    """Orthogonal weights with gain `std` and a constant bias, in place; each member's own."""
    for weight in layer.weight if layer.weight.dim() == 3 else [layer.weight]:
        nn.init.orthogonal_(weight, std)
    nn.init.constant_(layer.bias, bias_const)
    return layer


def init_orthogonal(net: nn.Sequential, last_std: float) -> nn.Sequential:
    """Orthogonal layers with gain sqrt(2), and `last_std` for the last, in place."""
    layers = [layer for layer in net if isinstance(layer, nn.Linear | EnsembleLinear)]
    for layer in layers[:-1]:
        layer_init_with_orthogonal(layer, math.sqrt(2))
    layer_init_with_orthogonal(layers[-1], last_std)
    return net


class Features(nn.Module):
    """Bytes become floats in [0, 1], everything else stays. The encoder of states that are no images."""

    def forward(self, x: Tensor) -> Tensor:
        return x.float() / 255 if x.dtype == torch.uint8 else x


class ConvNet(Features):
    """Image encoder. (..., C, H, W) or (..., H, W, C), uint8 in 0..255 or float -> (..., out_dim)

    From 64 pixels on the three layers of the DQN paper (Nature 2015), below that three 3 x 3 layers of stride 2.
    """

    def __init__(self, state_dim: tuple[int, ...], out_dim: int = 256):
        super().__init__()
        if len(state_dim) != 3:
            raise ValueError(f"ConvNet expects images (C, H, W) or (H, W, C), got a state of shape {state_dim}.")
        self.channel_last = state_dim[-1] < min(state_dim[:2])
        shape = (state_dim[2], *state_dim[:2]) if self.channel_last else tuple(state_dim)
        is_large = min(shape[1:]) >= 64
        sizes = [(32, 8, 4, 0), (64, 4, 2, 0), (64, 3, 1, 0)] if is_large else [(n, 3, 2, 1) for n in (32, 64, 64)]
        layers: list[nn.Module] = []
        channels = shape[0]
        for out, kernel, stride, padding in sizes:
            layers += [nn.Conv2d(channels, out, kernel, stride, padding), nn.ReLU()]
            channels = out
        self.conv = nn.Sequential(*layers, nn.Flatten())
        with torch.no_grad():
            flat = self.conv(torch.zeros(1, *shape)).shape[1]
        self.head = nn.Sequential(nn.Linear(flat, out_dim), nn.ReLU())

    def forward(self, image: Tensor) -> Tensor:
        x = super().forward(image)
        if self.channel_last:
            x = x.movedim(-1, -3)
        return self.head(self.conv(x.flatten(0, -4))).unflatten(0, x.shape[:-3])


def build_encoder(state_dim: StateDim, net_dims: Dims) -> tuple[nn.Module, int]:
    """What stands before the perceptron, and its width: nothing for features, a ConvNet for images."""
    if isinstance(state_dim, int):
        return Features(), state_dim
    return ConvNet(tuple(state_dim), net_dims[0]), net_dims[0]


# normalisers: one object of an agent, shared by its actor, critics and targets, saved with them, frozen in evaluation


class NoNormaliser(nn.Module):
    """The normaliser that changes nothing."""

    learns = False
    mean: Tensor
    std: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return x

    restore = shrink = forward

    def watch(self, x: Tensor, weight: Tensor | None = None) -> None:
        """Takes note of data."""


class Normaliser(NoNormaliser):
    """Shifts and scales to zero mean and unit variance. `watch` gathers data, `commit` moves the statistics.

    tau: None for running statistics over all data (parallel variance, Chan et al. 1979),
    or the weight of the newest data in an exponential average.
    """

    learns = True
    moments: Tensor
    pending: Tensor

    def __init__(self, shape: int | tuple[int, ...] = (), tau: float | None = None, clip: float = 10.0):
        super().__init__()
        self.tau, self.clip = tau, clip
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        moments = torch.zeros(3, *self.shape, dtype=torch.float64)
        # parameters that nothing trains, rather than buffers: FinRL copies a policy by its named_parameters alone
        self.mean = nn.Parameter(torch.zeros(self.shape), requires_grad=False)
        self.std = nn.Parameter(torch.ones(self.shape), requires_grad=False)
        self.moments = nn.Parameter(moments, requires_grad=False)  # count, mean, variance
        self.pending = nn.Parameter(moments.clone(), requires_grad=False)  # count, mean, sum of squares

    def forward(self, x: Tensor) -> Tensor:
        """(..., *shape) -> the same shape, clipped to `clip` standard deviations."""
        return ((x - self.mean) / self.std).clamp(-self.clip, self.clip)

    def restore(self, x: Tensor) -> Tensor:
        """The inverse of `forward` (without the clip)."""
        return x * self.std + self.mean

    def shrink(self, x: Tensor) -> Tensor:
        """A difference of values, in standard deviations."""
        return x / self.std

    @torch.no_grad()
    def watch(self, x: Tensor, weight: Tensor | None = None) -> None:
        """Merges x (R, *shape) into the data of the next `commit`.

        weight (R,): rows of weight 0 are left out, and so are rows that are not finite.
        """
        x = x.double()
        good = torch.isfinite(x).reshape(len(x), -1).all(1)
        weight = good.double() if weight is None else good * weight.double()
        w = weight.view(-1, *[1] * (x.dim() - 1))
        x, count = x.where(w > 0, 0.0), weight.sum()
        mean = (w * x).sum(0) / count.clamp(min=TINY)
        self.merge(self.pending, count.expand_as(mean), mean, (w * (x - mean).square()).sum(0))

    @torch.no_grad()
    def commit(self, gather: Callable[[Tensor], list[Tensor]] = lambda x: [x]) -> None:
        """Takes the data that came into the statistics. gather: from all Learners of the agent."""
        new, *others = gather(self.pending)
        for other in others:
            self.merge(new, *other)
        if not bool((new[0] > 0).all()):
            return
        count, mean, variance = self.moments
        if self.tau is None or not bool((count > 0).all()):
            squares = variance * count
            moments = torch.stack([count, mean, squares])
            self.merge(moments, *new)
            self.moments.copy_(torch.stack([moments[0], moments[1], moments[2] / moments[0]]))
        else:
            delta = new[1] - mean
            mean.add_(self.tau * delta)
            variance.mul_(1 - self.tau).add_(self.tau * (new[2] / new[0] + (1 - self.tau) * delta.square()))
            count.add_(new[0])
        self.pending.zero_()
        self.mean.copy_(self.moments[1])
        variance = self.moments[2]
        self.std.copy_(variance.sqrt().where(variance > 1e-8, 1.0))  # what has never moved is left as it is

    @staticmethod
    def merge(into: Tensor, count: Tensor, mean: Tensor, squares: Tensor) -> None:
        """Adds a sample's (count, mean, sum of squared deviations) to the ones in `into` (3, *shape)."""
        total, delta = (into[0] + count).clamp(min=TINY), mean - into[1]
        into[2] += squares + delta.square() * into[0] * count / total
        into[1] += delta * count / total
        into[0].copy_(total)


class NetBase(nn.Module):
    """What actors and critics share: the agent's normalisers. Derive your own networks from ActorBase or CriticBase."""

    members = 1  # K of a batched ensemble, whose parameters all have the axis K first
    copies = 0  # so many networks of one kind, (..., K, S) -> (..., K, A); 0: a single one without that axis
    encoder: nn.Module

    def __init__(self) -> None:
        super().__init__()
        self.state_norm: NoNormaliser = NoNormaliser()
        self.value_norm: NoNormaliser = NoNormaliser()

    def inputs(self, state: Tensor) -> Tensor:
        """What the first layer sees of a state."""
        return self.encoder(self.state_norm(state))

    def last_layer(self) -> Any:
        """The layer that makes the value; a value normaliser rescales it so that the outputs stay (PopArt)."""
        return [m for m in self.modules() if isinstance(m, nn.Linear | EnsembleLinear)][-1]

    @torch.no_grad()
    def keep_outputs(self, mean: Tensor, std: Tensor) -> None:
        """After value_norm moved away from (mean, std): the same values again, arXiv:1602.07714 eq. 12."""
        layer, norm = self.last_layer(), self.value_norm
        layer.weight.mul_(std / norm.std)
        layer.bias.mul_(std).add_(mean - norm.mean).div_(norm.std)


class ActorBase(NetBase):
    """A policy. `forward(state, action_mask=None)`: the greedy action."""

    def forget(self, ended: Tensor | None = None) -> None:
        """What `forward` remembers of the ended (N,) episodes, or of all, is void. Nothing without a memory."""


class CriticBase(NetBase):
    """A value. `forward(state, action)` -> (B,) or (K, B), or `forward(state)` -> (B,)."""


class QNetBase(ActorBase):
    """Values of all actions, and so the policy that takes the best: `q_values` (B, A), `forward` its argmax (B,)."""

    def q_values(self, state: Tensor, action_mask: Tensor | None = None) -> Tensor:
        """(B, S), with a mask (B, A) bool of what is allowed -> (B, A); forbidden actions far below every other."""
        raise NotImplementedError(f"{type(self).__name__} must define q_values(state, action_mask) -> (B, A).")

    def forward(self, state: Tensor, action_mask: Tensor | None = None) -> Tensor:
        return self.q_values(state, action_mask).argmax(-1)


# Q(s, .) of discrete actions


class QNet(QNetBase):
    """Q(s, .) of every action. (B, S) -> (B, A)"""

    def __init__(self, net_dims: Dims, state_dim: StateDim, action_dim: int, activation: str = "relu"):
        super().__init__()
        self.encoder, width = build_encoder(state_dim, net_dims)
        self.net = build_mlp([width, *net_dims, action_dim], activation, self.copies)

    def q_values(self, state: Tensor, action_mask: Tensor | None = None) -> Tensor:
        return mask_illegal(self.value_norm.restore(self.net(self.inputs(state))), action_mask)


class QNetDuel(QNetBase):
    """Q = V + A - mean(A), arXiv:1511.06581 eq. 9. (B, S) -> (B, A)"""

    def __init__(self, net_dims: Dims, state_dim: StateDim, action_dim: int, activation: str = "relu"):
        super().__init__()
        self.encoder, width = build_encoder(state_dim, net_dims)
        self.net = build_mlp([width, *net_dims], activation)
        self.activation = ACTIVATIONS[activation]()
        self.value, self.advantage = nn.Linear(net_dims[-1], 1), nn.Linear(net_dims[-1], action_dim)

    def q_values(self, state: Tensor, action_mask: Tensor | None = None) -> Tensor:
        x = self.activation(self.net(self.inputs(state)))
        advantage = self.advantage(x)
        q = self.value(x) + advantage - advantage.mean(-1, keepdim=True)
        return mask_illegal(self.value_norm.restore(q), action_mask)

    def last_layer(self) -> Any:
        return self.value

    @torch.no_grad()
    def keep_outputs(self, mean: Tensor, std: Tensor) -> None:
        super().keep_outputs(mean, std)
        self.advantage.weight.mul_(std / self.value_norm.std)
        self.advantage.bias.mul_(std / self.value_norm.std)


class QNetEnsemble(QNetBase):
    """K independent Q(s, .); the policy takes the best of their mean. `q_values` (B, A), `q_members` (K, B, A)"""

    duel = 0

    def __init__(
        self, net_dims: Dims, state_dim: StateDim, action_dim: int, num_ensembles: int = 4, activation: str = "relu"
    ):
        super().__init__()
        if not isinstance(state_dim, int):
            raise ValueError(f"{type(self).__name__} takes feature states, got the image shape {state_dim}; use QNet.")
        self.members = num_ensembles
        self.net = EnsembleMLP(num_ensembles, [state_dim, *net_dims, action_dim + self.duel], activation)

    def q_members(self, state: Tensor) -> Tensor:
        """(B, S) -> (K, B, A)"""
        return self.value_norm.restore(self.net(self.state_norm(state)))

    def q_values(self, state: Tensor, action_mask: Tensor | None = None) -> Tensor:
        return mask_illegal(self.q_members(state).mean(0), action_mask)


class QNetTwin(QNetEnsemble):
    """Two independent Q(s, .); the policy takes the best of their minimum. `q_values` (B, A), `q_members` (2, B, A)"""

    def __init__(self, net_dims: Dims, state_dim: StateDim, action_dim: int, activation: str = "relu"):
        super().__init__(net_dims, state_dim, action_dim, 2, activation)

    def q_values(self, state: Tensor, action_mask: Tensor | None = None) -> Tensor:
        return mask_illegal(self.q_members(state).amin(0), action_mask)


class QNetTwinDuel(QNetTwin):
    """Two independent duelling Q(s, .), arXiv:1511.06581 eq. 9."""

    duel = 1

    def q_members(self, state: Tensor) -> Tensor:
        out = self.net(self.state_norm(state))
        value, advantage = out[..., :1], out[..., 1:]
        return self.value_norm.restore(value + advantage - advantage.mean(-1, keepdim=True))


class QNetEmbed(QNetBase):
    """Q(s, e(a)) with a learned vector e for each action, for many actions that are alike. (B, S) -> (B, A)"""

    def __init__(self, net_dims: Dims, state_dim: StateDim, action_dim: int, activation: str = "relu"):
        super().__init__()
        self.encoder, width = build_encoder(state_dim, net_dims)
        self.embedding = nn.Embedding(action_dim, max(8, math.isqrt(action_dim)))
        self.net = build_mlp([width + self.embedding.embedding_dim, *net_dims, 1], activation)

    def q_of(self, x: Tensor, vector: Tensor) -> Tensor:
        """Encoded states (..., W), vectors of actions (..., E) -> (...)"""
        return self.value_norm.restore(self.net(torch.cat([x, vector], -1)).squeeze(-1))

    def q_value(self, state: Tensor, action: Tensor) -> Tensor:
        """Q of one action for each state, (B,) long -> (B,)"""
        return self.q_of(self.encoder(self.state_norm(state)), self.embedding(action))

    def q_values(self, state: Tensor, action_mask: Tensor | None = None) -> Tensor:
        x, vectors = self.encoder(self.state_norm(state))[..., None, :], self.embedding.weight
        lead = x.shape[:-2]
        q = self.q_of(x.expand(*lead, len(vectors), -1), vectors.expand(*lead, -1, -1))
        return mask_illegal(q, action_mask)


# policies


class Actor(ActorBase):
    """Deterministic policy. (B, S) -> (B, A) in [-1, 1]"""

    def __init__(self, net_dims: Dims, state_dim: StateDim, action_dim: int, activation: str = "relu"):
        super().__init__()
        self.encoder, width = build_encoder(state_dim, net_dims)
        self.net = build_mlp([width, *net_dims, action_dim], activation, self.copies)

    def forward(self, state: Tensor, action_mask: Tensor | None = None) -> Tensor:
        return self.net(self.inputs(state)).tanh()


class ActorSAC(ActorBase):
    """tanh of a Gaussian whose mean and std depend on the state, arXiv:1801.01290 appendix C. (B, S) -> (B, A)"""

    def __init__(self, net_dims: Dims, state_dim: StateDim, action_dim: int, activation: str = "relu"):
        super().__init__()
        self.encoder, width = build_encoder(state_dim, net_dims)
        self.net = build_mlp([width, *net_dims, 2 * action_dim], activation)

    def forward(self, state: Tensor, action_mask: Tensor | None = None) -> Tensor:
        return self.net(self.inputs(state)).chunk(2, -1)[0].tanh()

    def sample(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """An action (B, A) with gradient by reparametrisation, and its log-probability (B,)."""
        mean, log_std = self.net(self.inputs(state)).chunk(2, -1)
        return squashed_gaussian(mean, log_std.clamp(LOG_STD_MIN, LOG_STD_MAX), torch.randn_like(mean))

    def logprob(self, state: Tensor, action: Tensor) -> Tensor:
        """The log-probability of an action (B,), which is taken a hair inside of [-1, 1]."""
        mean, log_std = self.net(self.encoder(self.state_norm(state))).chunk(2, -1)
        log_std = log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)
        noise = (action.clamp(-1 + 1e-6, 1 - 1e-6).atanh() - mean) * (-log_std).exp()
        return squashed_gaussian(mean, log_std, noise)[1]


class ActorPPO(ActorBase):
    """Gaussian whose std does not depend on the state. (B, S) -> the mean, clipped to [-1, 1] (B, A)

    Samples are not clipped: the environment's adapter clips, so the log-probability is that of the action that is kept.
    """

    def __init__(
        self,
        net_dims: Dims,
        state_dim: StateDim,
        action_dim: int,
        activation: str = "tanh",
        log_std_init: float = 0.0,
    ):
        super().__init__()
        self.encoder, width = build_encoder(state_dim, net_dims)
        net = build_mlp([width, *net_dims, action_dim], activation, self.copies)
        self.net = init_orthogonal(net, last_std=0.01)
        self.log_std = nn.Parameter(torch.full((self.copies, action_dim)[not self.copies :], float(log_std_init)))

    def mean(self, state: Tensor) -> Tensor:
        """(B, S) -> (B, A), not clipped."""
        return self.net(self.inputs(state))

    def forward(self, state: Tensor, action_mask: Tensor | None = None) -> Tensor:
        return self.mean(state).clamp(-1, 1)

    def sample(self, state: Tensor, action_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """An action (B, A) and its log-probability (B,)."""
        mean = self.mean(state)
        noise = torch.randn_like(mean)
        return mean + self.log_std.exp() * noise, gaussian_logprob(noise, self.log_std)

    def logprob_entropy(
        self, state: Tensor, action: Tensor, action_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The log-probability of an action (B,), and the policy's entropy (), which no state changes."""
        noise = (action - self.mean(state)) * (-self.log_std).exp()
        return gaussian_logprob(noise, self.log_std), gaussian_entropy(self.log_std)


class ActorDiscretePPO(ActorBase):
    """Categorical policy. (B, S) -> the likeliest action (B,)"""

    def __init__(self, net_dims: Dims, state_dim: StateDim, action_dim: int, activation: str = "tanh"):
        super().__init__()
        self.encoder, width = build_encoder(state_dim, net_dims)
        net = build_mlp([width, *net_dims, action_dim], activation, self.copies)
        self.net = init_orthogonal(net, last_std=0.01)

    def logits(self, state: Tensor, action_mask: Tensor | None = None) -> Tensor:
        """(B, S), with a mask (B, A) bool of what is allowed -> (B, A); forbidden actions far below every other."""
        return mask_illegal(self.net(self.inputs(state)), action_mask)

    def forward(self, state: Tensor, action_mask: Tensor | None = None) -> Tensor:
        return self.logits(state, action_mask).argmax(-1)

    def sample(self, state: Tensor, action_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """An action (B,) long by the Gumbel-max rule, and its log-probability (B,)."""
        logprobs = self.logits(state, action_mask).log_softmax(-1)
        action = (logprobs - torch.empty_like(logprobs).exponential_().log()).argmax(-1)
        return action, logprobs.gather(-1, action[..., None]).squeeze(-1)

    def logprob_entropy(
        self, state: Tensor, action: Tensor, action_mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The log-probability of an action (B,), and the policy's entropy (B,)."""
        logprobs = self.logits(state, action_mask).log_softmax(-1)
        entropy = -(logprobs.exp() * logprobs).sum(-1)
        return logprobs.gather(-1, action[..., None]).squeeze(-1), entropy


# values


class Critic(CriticBase):
    """Q(s, a). (B, S), (B, A) -> (B,)"""

    def __init__(self, net_dims: Dims, state_dim: StateDim, action_dim: int, activation: str = "relu"):
        super().__init__()
        self.encoder, width = build_encoder(state_dim, net_dims)
        self.net = build_mlp([width + action_dim, *net_dims, 1], activation)

    def forward(self, state: Tensor, action: Tensor) -> Tensor:
        x = torch.cat([self.inputs(state), action], -1)
        return self.value_norm.restore(self.net(x).squeeze(-1))


class CriticEnsemble(CriticBase):
    """K independent Q_k(s, a) in one batched module. (B, S), (B, A) -> (K, B)

    members: a slice or an index tensor asks for some of the K before any is computed.
    """

    def __init__(
        self, net_dims: Dims, state_dim: StateDim, action_dim: int, num_ensembles: int = 2, activation: str = "relu"
    ):
        super().__init__()
        self.encoder, width = build_encoder(state_dim, net_dims)
        self.net = EnsembleMLP(num_ensembles, [width + action_dim, *net_dims, 1], activation)
        # the encoder of images is shared by the members, so their gradients are clipped as one
        self.members = num_ensembles if isinstance(state_dim, int) else 1

    def forward(self, state: Tensor, action: Tensor, members: slice | Tensor = slice(None)) -> Tensor:
        x = torch.cat([self.inputs(state), action], -1)
        return self.value_norm.restore(self.net(x, members).squeeze(-1))


class CriticREDQ(CriticEnsemble):
    """Ten of them. (B, S), (B, A) -> (10, B)"""

    def __init__(
        self, net_dims: Dims, state_dim: StateDim, action_dim: int, num_ensembles: int = 10, activation: str = "relu"
    ):
        super().__init__(net_dims, state_dim, action_dim, num_ensembles, activation)


def some_values(critic: nn.Module, state: Tensor, action: Tensor, members: slice | Tensor) -> Tensor:
    """Q(s, a) of some members of an ensemble, (k, B): of ours no other is computed, a user's own may answer (K, B)."""
    if isinstance(critic, CriticEnsemble):
        return critic(state, action, members)
    q = critic(state, action)
    return q[None] if q.dim() == 1 else q[members]


def first_value(critic: nn.Module, state: Tensor, action: Tensor) -> Tensor:
    """Q_1(s, a) (B,): of our ensembles only the first member is computed, a user's critic may answer (B,) or (K, B)."""
    if isinstance(critic, CriticEnsemble):
        return critic(state, action, slice(0, 1)).squeeze(0)
    q = critic(state, action)
    return q if q.dim() == 1 else q[0]


class CriticTwin(CriticEnsemble):
    """Two independent Q(s, a). (B, S), (B, A) -> (2, B)"""

    def __init__(self, net_dims: Dims, state_dim: StateDim, action_dim: int, activation: str = "relu"):
        super().__init__(net_dims, state_dim, action_dim, 2, activation)


class CriticPPO(CriticBase):
    """V(s). (B, S) -> (B,)"""

    def __init__(self, net_dims: Dims, state_dim: StateDim, action_dim: int = 0, activation: str = "tanh"):
        super().__init__()
        self.encoder, width = build_encoder(state_dim, net_dims)
        self.net = init_orthogonal(build_mlp([width, *net_dims, 1], activation), last_std=1.0)

    def forward(self, state: Tensor) -> Tensor:
        return self.value_norm.restore(self.net(self.inputs(state)).squeeze(-1))


# teams: states (..., M, S) in place of (..., S). A memory makes features of what was seen, for one agent as for many


@dataclass(frozen=True)
class Team:
    """How the networks of M agents hang together; the default is one agent without the axis M and without a memory."""

    num_agents: int = 0  # M
    if_share_params: bool = True  # one network for all
    if_agent_id: bool = True  # which then sees whom it acts for
    rnn_dim: int = 0  # H of the memory

    @property
    def ids(self) -> int:
        """Width of the one-hot id that each agent's state gets."""
        return self.num_agents if self.if_share_params and self.if_agent_id else 0

    @property
    def copies(self) -> int:
        """How many networks there are, 0 for a single one."""
        return 0 if self.if_share_params else self.num_agents


def with_ids(x: Tensor, ids: int) -> Tensor:
    """Each agent's state and its one-hot id, (..., M, S) -> (..., M, S + M); without ids the state alone."""
    return torch.cat([x, torch.eye(ids, device=x.device).expand(*x.shape[:-1], ids)], -1) if ids else x


class Memory(nn.Module):
    """A perceptron and behind it a gated recurrent unit, arXiv:1406.1078 eq. 5 to 8. (B, L, S) -> (B, L, H)"""

    def __init__(self, dim_in: int, net_dims: Dims, rnn_dim: int, activation: str = "relu", copies: int = 0):
        super().__init__()
        self.enter = build_mlp([dim_in, *net_dims, 3 * rnn_dim], activation, copies)
        self.recur = build_mlp([rnn_dim, 3 * rnn_dim], activation, copies)

    def forward(self, x: Tensor, hidden: Tensor | None, keeps: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """What is remembered after each row, and after the last (B, ..., H).

        hidden (B, ..., H): before the first row; None: nothing. keeps (B, L) or (B, L, M): where it is False, the next
        row begins with nothing remembered; what it says of the last row is not used.
        """
        entering = self.enter(x)
        h = torch.zeros_like(entering[:, 0, ..., : entering.shape[-1] // 3]) if hidden is None else hidden
        rows = []
        for t, gates in enumerate(entering.unbind(1)):
            if t and keeps is not None:
                keep = keeps[:, t - 1]
                h = h * keep.view(*keep.shape, *[1] * (h.dim() - keep.dim()))
            (reset_in, update_in, new_in), (reset, update, new) = gates.chunk(3, -1), self.recur(h).chunk(3, -1)
            new = (new_in + (reset_in + reset).sigmoid() * new).tanh()
            h = torch.lerp(new, h, (update_in + update).sigmoid())
            rows.append(h)
        return torch.stack(rows, 1), h


class TeamMember(NetBase):
    """Makes one agent's network that of M agents, shared by them or each its own, with a memory if asked.

    With a memory, `forward` takes states one after the other and remembers by itself until `forget`; every other
    method takes what `remember` makes of states.
    """

    def __init__(
        self, net_dims: Dims, state_dim: StateDim, action_dim: int, team: Team, activation: str = "relu", *how: Any
    ):
        if not isinstance(state_dim, int):
            raise ValueError(f"Teams and memories (rnn_dim) take feature states, got the image shape {state_dim}.")
        self.ids, self.copies, width = team.ids, team.copies, state_dim + team.ids
        head: tuple[Any, ...] = (net_dims, width) if not team.rnn_dim else ((), team.rnn_dim)
        super().__init__(*head, action_dim, activation, *how)  # type: ignore[call-arg]  # of the network it stands before
        memory = Memory(width, net_dims, team.rnn_dim, activation, team.copies) if team.rnn_dim else None
        self.memory, self.members = memory, team.copies or 1
        self.hidden: Tensor | None = None

    def inputs(self, state: Tensor) -> Tensor:
        return with_ids(self.state_norm(state), self.ids) if self.memory is None else state

    def remember(self, states: Tensor, hidden: Tensor | None, keeps: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Features of all that was seen up to each row (B, L, ..., H), and what is remembered then; see `Memory`."""
        assert self.memory is not None, "this network has no memory"
        return self.memory(with_ids(self.state_norm(states), self.ids), hidden, keeps)

    def forward(self, state: Tensor, action_mask: Tensor | None = None) -> Tensor:
        if self.memory is not None:
            if self.hidden is not None and self.hidden.shape[:-1] != state.shape[:-1]:
                self.hidden = None  # these are other environments
            rows, self.hidden = self.remember(state[:, None], self.hidden)
            state = rows[:, 0]
        return super().forward(state, action_mask)

    def forget(self, ended: Tensor | None = None) -> None:
        if self.hidden is not None:
            shape = (-1, *[1] * (self.hidden.dim() - 1))
            self.hidden = (
                None if ended is None else self.hidden.masked_fill(ended.to(self.hidden.device).view(shape), 0.0)
            )


class ActorTeam(TeamMember, Actor):
    """Deterministic policies. (B, M, S) -> (B, M, A) in [-1, 1]"""


class ActorMAPPO(TeamMember, ActorPPO):
    """Gaussian policies. (B, M, S) -> their means (B, M, A)"""


class ActorDiscreteMAPPO(TeamMember, ActorDiscretePPO):
    """Categorical policies. (B, M, S) -> the likeliest actions (B, M)"""


class VDNMixer(nn.Module):
    """Q_tot = sum_m Q_m, arXiv:1706.05296 section 3. (..., M), (..., G) -> (...)"""

    def forward(self, q: Tensor, state: Tensor) -> Tensor:
        return q.sum(-1)


class QMixer(nn.Module):
    """Q_tot that grows in every Q_m, with weights made from the global state, arXiv:1803.11485 section 4.1.

    (..., M), (..., G) -> (...). mixing_dim: width of the hidden layer. hyper_dim: width of the hidden layer of the
    network that makes the weights. Its units are bounded: weights that grow with the state make a value that grows with
    its square, and where states have no bounds, bootstrapping from the furthest ones then diverges.
    """

    def __init__(self, num_agents: int, global_dim: int, mixing_dim: int = 32, hyper_dim: int = 64):
        super().__init__()
        self.sizes = [num_agents * mixing_dim, mixing_dim, mixing_dim, 1]
        self.hyper = build_mlp([global_dim, hyper_dim, sum(self.sizes)], "tanh")

    def forward(self, q: Tensor, state: Tensor) -> Tensor:
        weight_in, bias_in, weight_out, bias_out = self.hyper(state).split(self.sizes, -1)
        weight_in = weight_in.abs().unflatten(-1, (q.shape[-1], -1))  # not negative: eq. 5
        hidden = nn.functional.elu((q[..., None, :] @ weight_in).squeeze(-2) + bias_in)
        return (hidden * weight_out.abs()).sum(-1) + bias_out.squeeze(-1)


class QNetTeam(TeamMember, QNet):
    """Q_m(s_m, .) of each agent (..., M, S) -> (..., M, A), and a mixer that makes Q_tot of those of their actions."""

    def __init__(
        self,
        net_dims: Dims,
        state_dim: StateDim,
        action_dim: int,
        team: Team,
        mixer: nn.Module,
        activation: str = "relu",
    ):
        super().__init__(net_dims, state_dim, action_dim, team, activation)
        self.mixer, self.members = mixer, 1  # clipped as one

    def mix(self, q: Tensor, state: Tensor, alive: Tensor | None) -> Tensor:
        """Q_tot. q (..., M), state (..., G) -> (...). The dead add nothing."""
        return self.mixer(q if alive is None else q * alive, state)


class CriticTeam(CriticBase):
    """K joint critics Q_m(x, a_1 .. a_M) of each agent, arXiv:1706.02275 eq. 5. (B, G), (B, M, A) -> (K, B, M)

    With actions (B, M, M, A), each agent's critics see joint actions of their own, those at its place on the first M.
    """

    def __init__(
        self,
        net_dims: Dims,
        global_dim: int,
        action_dim: int,
        team: Team,
        num_ensembles: int = 1,
        activation: str = "relu",
    ):
        super().__init__()
        self.num_agents, self.num_ensembles, self.ids = team.num_agents, num_ensembles, team.ids
        self.members = num_ensembles * (team.copies or 1)
        width = global_dim + team.num_agents * action_dim + team.ids
        self.net = build_mlp([width, *net_dims, 1], activation, self.members)

    def forward(self, state: Tensor, action: Tensor) -> Tensor:
        joint = action.flatten(-2)  # (B, MA) or (B, M, MA)
        joint = (
            joint
            if action.dim() > state.dim() + 1
            else joint[..., None, :].expand(*joint.shape[:-1], self.num_agents, -1)
        )
        x = torch.cat([state[..., None, :].expand(*joint.shape[:-1], -1), joint], -1)
        x = with_ids(x, self.ids).expand(self.num_ensembles, *joint.shape[:-1], -1)  # (K, B, M, in)
        if self.members == self.num_ensembles:  # shared by the agents
            return self.value_norm.restore(self.net(x.movedim(0, -2)).squeeze(-1).movedim(-1, 0))
        q = self.net(x.movedim(0, -3).flatten(-3, -2)).squeeze(-1)  # (B, K M)
        return self.value_norm.restore(q.unflatten(-1, (self.num_ensembles, -1)).movedim(-2, 0))


class CriticOfMemory(CriticPPO):
    """V of what a policy remembers, which has normalised states before and is not shaped by it. (B, H) -> (B,)"""

    def inputs(self, state: Tensor) -> Tensor:
        return state.detach()


class CriticMAPPO(CriticBase):
    """V_m of each agent from the global state, (B, G) -> (B, M).

    own_dim: width S of what each agent adds to that of its own, (B, G), (B, M, S) -> (B, M); 0: nothing.
    """

    def __init__(self, net_dims: Dims, global_dim: int, team: Team, activation: str = "tanh", own_dim: int = 0):
        super().__init__()
        self.ids = team.ids if own_dim else 0
        dims = [global_dim + own_dim + self.ids, *net_dims, 1 if own_dim else team.num_agents]
        self.net = init_orthogonal(build_mlp(dims, activation, team.copies if own_dim else 0), last_std=1.0)

    def forward(self, state: Tensor, own: Tensor | None = None) -> Tensor:
        if own is None:
            return self.value_norm.restore(self.net(state))
        both = torch.cat([state[..., None, :].expand(*own.shape[:-1], -1), own], -1)
        return self.value_norm.restore(self.net(with_ids(both, self.ids)).squeeze(-1))


# one step of a network's parameters
# An update of a small network is all overhead, so its parameters, gradients and moments are one matrix each, (K, P)
# with K members of an ensemble and P parameters of one.

Objective = Callable[[Any], tuple[Tensor, ...]]  # of a batch: what is minimised (), and what else is of interest
Gradients = tuple[tuple[Tensor, ...], tuple[Tensor, ...]]
MOMENTS = ("exp_avg", "exp_avg_sq")  # names in the state dict of torch.optim.Adam
fused_adam: Any = partial(torch._fused_adam_, weight_decay=0.0, amsgrad=False, maximize=False)
# As torch wraps them, their first call imports its compiler: most of a second, in every process of a run.
ADD_PARAM_GROUP, STATE_DICT, LOAD_STATE_DICT = (
    inspect.unwrap(getattr(Optimizer, name)) for name in ("add_param_group", "state_dict", "load_state_dict")
)


def gradients(objective: Objective, params: Sequence[Tensor], batch: Any) -> Gradients:
    """Of the first value of objective(batch) by each of params; and all its values, detached."""
    values = objective(batch)
    grads = torch.autograd.grad(values[0], params, allow_unused=True, materialize_grads=True)
    return grads, tuple([value.detach() for value in values])


def compiled_gradients() -> Callable[..., Gradients]:
    """`gradients` as one program for each objective and shape of batch. Needs a C++ compiler on the CPU.

    RuntimeError where this PyTorch's compiler does not trace torch.autograd.grad.
    """
    config = torch._dynamo.config
    if not hasattr(config, "trace_autograd_ops"):
        raise RuntimeError(f"if_compile needs a newer PyTorch than {torch.__version__}: leave it off or upgrade.")
    config.trace_autograd_ops = True
    # the compiler counts its programs by code object and stops at eight: each agent has a code object of its own
    own = FunctionType(gradients.__code__.replace(), globals())
    return torch.compile(own, dynamic=False)


class FlatParameters:
    """Parameters as views into one matrix (K, P): one call moves them all, and an ensemble's member is a row.

    The modules keep their parameters and notice nothing. Parameters that were moved since (`net.to`, a layer that a
    second optimizer shares) are taken back, with the values they then have, where the matrix is next asked for.
    """

    def __init__(self, params: Iterable[nn.Parameter], members: int = 1):
        self.params, self.members = list(params), members
        dtypes = {p.dtype for p in self.params}
        if len(dtypes) > 1:
            raise TypeError(f"A network's parameters must have one dtype, got {dtypes}.")
        self.sizes = [p.numel() // members for p in self.params]
        self.addresses: list[int] = []
        self.rows: Tensor
        self.matrix()

    @torch.no_grad()
    def matrix(self) -> Tensor:
        """The parameters themselves, (K, P)."""
        if [p.data_ptr() for p in self.params] != self.addresses:
            self.rows = self.flatten(self.params)
            for p, part in zip(self.params, self.split(self.rows), strict=True):
                p.data = part
            self.addresses = [p.data_ptr() for p in self.params]
        return self.rows

    def flatten(self, tensors: Sequence[Tensor]) -> Tensor:
        """A copy of tensors in the parameters' shapes as one matrix (K, P)."""
        return torch.cat([x.reshape(self.members, -1) for x in tensors], 1)

    def split(self, rows: Tensor) -> list[Tensor]:
        """Views of a matrix (K, P) in the parameters' shapes."""
        return [part.view(p.shape) for p, part in zip(self.params, rows.split(self.sizes, 1), strict=True)]


class FlatAdam(Optimizer):
    """Adam, arXiv:1412.6980, one fused call for each parameter group. State dicts are those of torch.optim.Adam.

    A group's "members" is the K of a batched ensemble, whose parameters all have the axis K first.
    """

    def __init__(
        self,
        groups: list[dict[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ):
        self.flats: list[FlatParameters] = []
        self.params: list[nn.Parameter] = []  # of all groups, in their order
        self.moments: list[list[Tensor]] = []  # running means of the gradient and of its square, (K, P) each
        self.steps: Tensor
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "members": 1})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        ADD_PARAM_GROUP(self, param_group)
        group = self.param_groups[-1]
        flat = FlatParameters(group["params"], group["members"])
        if not self.flats:
            self.steps = torch.zeros((), device=flat.rows.device)
        self.flats.append(flat)
        self.params += flat.params
        self.moments.append([torch.zeros_like(flat.rows) for _ in MOMENTS])
        self._name_state()

    def _name_state(self) -> None:
        """Shows the matrices as a state of each parameter."""
        for flat, moments in zip(self.flats, self.moments, strict=True):
            parts = [flat.split(moment) for moment in moments]
            for p, *own in zip(flat.params, *parts, strict=True):
                self.state[p] = {"step": self.steps, **dict(zip(MOMENTS, own, strict=True))}

    def descend(self, grads: Sequence[Tensor], max_norm: float = float("inf")) -> None:
        """One step along the gradients, one for each of `params`.

        Each group, and in it each member of an ensemble, is clipped to max_norm by itself. Where any of the gradients
        is not finite, nothing changes.
        """
        remaining = iter(grads)
        rows = [flat.flatten([next(remaining) for _ in flat.params]) for flat in self.flats]
        norms = torch.cat([clip_by_norm(grad, max_norm) for grad in rows])
        found_inf = norms.sum().mul_(0).ne_(0)  # inf * 0 and NaN * 0 are NaN, which is not 0
        self.steps.add_(1 - found_inf)
        for group, flat, grad, (mean, square) in zip(self.param_groups, self.flats, rows, self.moments, strict=True):
            beta1, beta2 = group["betas"]
            rates = {"lr": group["lr"], "beta1": beta1, "beta2": beta2, "eps": group["eps"]}
            fused_adam([flat.matrix()], [grad], [mean], [square], [], [self.steps], **rates, found_inf=found_inf)

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One step along the gradients that `loss.backward()` left."""
        self.descend([torch.zeros_like(p) if p.grad is None else p.grad for p in self.params])

    state_dict = STATE_DICT

    @torch.no_grad()
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        LOAD_STATE_DICT(self, dict(state_dict))
        for flat, moments in zip(self.flats, self.moments, strict=True):
            loaded = [self.state[p] for p in flat.params]
            self.steps.copy_(loaded[0]["step"])
            for name, moment in zip(MOMENTS, moments, strict=True):
                moment.copy_(flat.flatten([state[name] for state in loaded]))
        self._name_state()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()  # torch's own leaves out what a subclass adds


def register_networks() -> None:
    """Lets a bare torch.load('act.pth') build the library's networks without unpickling arbitrary code."""
    local: list[Any] = [c for c in globals().values() if isinstance(c, type) and issubclass(c, nn.Module)]
    parts = [
        nn.Sequential,
        nn.ModuleList,
        nn.Linear,
        nn.Embedding,
        nn.Identity,
        nn.Conv2d,
        nn.Flatten,
        nn.ReLU,  # ConvNet's; that of ACTIVATIONS is our own
        *ACTIVATIONS.values(),
    ]
    torch.serialization.add_safe_globals(local + parts)


register_networks()
