"""A2C, the synchronous form of A3C arXiv:1602.01783."""

from __future__ import annotations

from torch import Tensor

from ..trajectory import Rollout
from .AgentBase import AgentOnPolicy


class AgentA2C(AgentOnPolicy):
    """One step of the policy gradient on each short rollout."""

    horizon_len = 16
    batch_size = None  # the whole rollout
    repeat_times = 1
    learning_rate = 7e-4

    def standardised(self, advantages: Tensor, weight: Tensor) -> Tensor:
        """As they are: few rows have no moments to speak of, and where all goes well only noise would be left."""
        return advantages

    def policy_loss(self, logprobs: Tensor, batch: Rollout) -> Tensor:
        """-rho A log pi, whose gradient is section 4's.

        rho = min(1, pi / mu), 1802.01561 section 4.2, is 1 unless the rows are an older policy's.
        """
        rho = (logprobs.detach() - batch.logprobs).exp().clamp(max=1.0)
        return -rho * batch.advantages * logprobs


class AgentDiscreteA2C(AgentA2C):
    """A2C for discrete actions, also where no Config says so."""

    action_kinds = ("discrete",)
    if_discrete = True
