"""PPO arXiv:1707.06347."""

from __future__ import annotations

from torch import Tensor

from ..trajectory import Rollout
from .AgentBase import AgentOnPolicy
from .functional import clipped_surrogate


class AgentPPO(AgentOnPolicy):
    """Many small steps on one rollout, none of which takes the policy far."""

    ratio_clip: float = 0.25  # how far the probability ratio may go from 1 before its gradient ends

    def policy_loss(self, logprobs: Tensor, batch: Rollout) -> Tensor:
        """-min(rA, clip(r) A) with r = pi / pi_old, eq. 7."""
        return -clipped_surrogate(logprobs - batch.logprobs, batch.advantages, self.ratio_clip)


class AgentDiscretePPO(AgentPPO):
    """PPO for discrete actions, also where no Config says so."""

    action_kinds = ("discrete",)
    if_discrete = True
