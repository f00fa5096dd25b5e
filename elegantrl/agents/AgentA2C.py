"""A2C, the synchronous form of A3C arXiv:1602.01783."""

from __future__ import annotations

from torch import Tensor

from .AgentPPO import AgentPPO


class AgentA2C(AgentPPO):
    """One step of the policy gradient on each short rollout. Discrete or continuous by the environment."""

    horizon_len = 16
    batch_size = None  # the whole rollout
    repeat_times = 1
    learning_rate = 7e-4

    def policy_loss(self, logratio: Tensor, advantages: Tensor) -> Tensor:
        """-A log pi, whose gradient is 1602.01783 section 4; the old log-probability in logratio is a constant."""
        return -logratio * advantages


class AgentDiscreteA2C(AgentA2C):
    """A2C for discrete actions, also where no Config says so."""

    action_kinds = ("discrete",)
    if_discrete = True
