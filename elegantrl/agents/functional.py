"""The mathematics that more than one agent uses, as pure functions of tensors.

Letters: T horizon, N environments, B batch, K ensemble, A action.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
ILLEGAL = -1e8  # the value of an action that the mask forbids: finite, so that 0 * ILLEGAL is no NaN


@dataclass(frozen=True)
class LinearSchedule:
    """A number that goes from `start` to `end` over the first `fraction` of the run and stays there.

    For `learning_rate, explore_rate, explore_noise_std, per_beta`: `learning_rate=LinearSchedule(3e-4)` anneals to 0.
    """

    start: float
    end: float = 0.0
    fraction: float = 1.0

    def __call__(self, progress: float) -> float:
        """progress: the share of the run that is done, 0 to 1."""
        return self.start + (self.end - self.start) * min(1.0, progress / max(self.fraction, 1e-9))


torch.serialization.add_safe_globals([LinearSchedule])


def at_progress(value: float | LinearSchedule, progress: float) -> float:
    """The value of a number or schedule at this share of the run."""
    return value(progress) if callable(value) else value


def weighted_mean(x: Tensor, weight: Tensor) -> Tensor:
    """sum(weight * x) / B, over the axes of weight. weight (B,) or (B, M), x (..., *those).

    Divides by the constant count, not by the sum of the weights, which differs between machines.
    """
    return (x * weight).mean(tuple(range(-weight.dim(), 0)))


def gae(rewards: Tensor, undones: Tensor, unmasks: Tensor, values: Tensor, gamma: float, lam: float) -> Tensor:
    """Generalised advantage estimate, arXiv:1506.02438 eq. 16. values (T + 1, N), the others and the result (T, N).

    An undone of 0 stops the bootstrap; a masked row has advantage 0, which also cuts the trace before it.
    """
    deltas = (rewards + gamma * undones * values[1:] - values[:-1]) * unmasks
    return backward_sums(deltas, gamma * lam * (undones & unmasks))


def vtrace(
    rewards: Tensor, undones: Tensor, unmasks: Tensor, values: Tensor, logratios: Tensor, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """Advantages and value targets (T, N) of another policy's rows, arXiv:1802.01561 eq. 1 and remark 2.

    logratios (T, N): log pi - log mu of the actions, today's policy against the one that acted. values (T + 1, N), the
    others (T, N). rho and c are cut at 1. Where the policies agree, the advantage is `gae`'s; with lam 1 it is that of
    section 4.2, r + gamma v(s') - V(s), without the factor rho, which is the policy loss's. Ends and masks as in `gae`.
    """
    rho = logratios.exp().clamp(max=1.0)
    deltas = (rewards + gamma * undones * values[1:] - values[:-1]) * unmasks
    keeps = gamma * lam * (undones & unmasks)
    corrections = backward_sums(rho * deltas, rho * keeps)  # v - V
    advantages = deltas.clone()
    advantages[:-1].addcmul_(keeps[:-1], corrections[1:])
    return advantages, values[:-1] + corrections


def cumulative_rewards(rewards: Tensor, undones: Tensor, unmasks: Tensor, values: Tensor, gamma: float) -> Tensor:
    """G_t = r_t + gamma * undone_t * G_{t+1}, up to the episode's end. values (T + 1, N), the others and G (T, N).

    A masked row, and the state after the last row, have the value of their state: there G is bootstrapped.
    """
    terms, keeps = torch.where(unmasks, rewards, values[:-1]), gamma * (undones & unmasks)
    terms[-1] += keeps[-1] * values[-1]
    return backward_sums(terms, keeps)


def backward_sums(terms: Tensor, keeps: Tensor) -> Tensor:
    """y_t = x_t + keep_t * y_{t+1}, backwards in time. terms, keeps, result (T, N)."""
    carry, sums = torch.zeros_like(terms[0]), torch.empty_like(terms)
    for t in range(terms.shape[0] - 1, -1, -1):
        torch.addcmul(terms[t], keeps[t], carry, out=sums[t])
        carry = sums[t]
    return sums


def discounted_sums(rewards: Tensor, keeps: Tensor, start: Tensor, gamma: float) -> Tensor:
    """G_t = gamma * keep_{t-1} * G_{t-1} + r_t, forwards in time. rewards, keeps, result (T, N), start (N,).

    `start` is gamma * keep * G of the row before. It is what reward normalisation takes the spread of.
    """
    sums, carry = torch.empty_like(rewards), start
    for t in range(rewards.shape[0]):
        sums[t] = carry + rewards[t]
        carry = gamma * keeps[t] * sums[t]
    return sums


def clipped_surrogate(logratio: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """PPO's objective to maximise, min(rA, clip(r) A), arXiv:1707.06347 eq. 7. logratio, advantages, result (B,)."""
    ratio = logratio.exp()
    return torch.min(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages)


def gaussian_logprob(noise: Tensor, log_std: Tensor) -> Tensor:
    """log N(x; mean, std) for noise = (x - mean) / std. (..., A) -> (...)"""
    return (-0.5 * noise.square() - log_std - LOG_SQRT_2PI).sum(-1)


def gaussian_entropy(log_std: Tensor) -> Tensor:
    """Entropy of a diagonal Gaussian. (..., A) -> (...)"""
    return (log_std + (0.5 + LOG_SQRT_2PI)).sum(-1)


def squashed_gaussian(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """a = tanh(u) with u = mean + std * noise, and log pi(a), arXiv:1801.01290 eq. 21. (..., A) -> (..., A), (...)

    log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2u)), a form that never overflows. All terms are summed at once.
    """
    u = mean + log_std.exp() * noise
    terms = 2 * (u + F.softplus(-2 * u)) - 0.5 * noise.square() - log_std
    return u.tanh(), terms.sum(-1) - mean.shape[-1] * (LOG_SQRT_2PI + 2 * math.log(2))


def mask_illegal(values: Tensor, action_mask: Tensor | None) -> Tensor:
    """Values or logits (..., A) with the forbidden actions far below every other.

    A mask that allows nothing forbids nothing: at the end of an episode no action is asked for, yet a value may be.
    """
    if action_mask is None:
        return values
    return values.masked_fill(~action_mask & action_mask.any(-1, keepdim=True), ILLEGAL)


def clip_by_norm(grads: Tensor, max_norm: float) -> Tensor:
    """Scales each row of the gradients (K, P) in place to a norm of at most max_norm; returns the norms before, (K, 1).

    A row is a member of an ensemble: each is clipped by itself.
    """
    norms = torch.linalg.vector_norm(grads, dim=1, keepdim=True)
    grads.div_(norms.div(max_norm).clamp_(min=1.0))
    return norms


def least(q: Tensor) -> Tensor:
    """The smallest of an ensemble's values, (K, B) -> (B,); a single critic's (B,) stay as they are."""
    return q if q.dim() == 1 else q.amin(0)


@torch.no_grad()
def soft_update(target: nn.Module, net: nn.Module, tau: float) -> None:
    """target <- (1 - tau) * target + tau * net."""
    torch._foreach_lerp_(list(target.parameters()), list(net.parameters()), tau)


def alone(x: Tensor) -> Tensor:
    """The sum, and the mean, over all Learners, of one that is alone."""
    return x
