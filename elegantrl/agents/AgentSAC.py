"""SAC with a learned temperature arXiv:1812.05905, and ModSAC, which updates the actor by the critic's reliability."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..trajectory import Batch, Record
from .AgentBase import AgentOffPolicy
from .functional import least, weighted_mean
from .h_term import WithHTerm
from .net import ActorSAC, CriticEnsemble, FlatAdam


class AgentSAC(WithHTerm, AgentOffPolicy):
    """Maximises return plus temperature times entropy. Its act_target is its act."""

    target_nets = ("cri",)
    act_needs = ("sample",)
    log_names = ("objC", "objA", "alpha", "entropy")

    num_ensembles: int = 2  # critics
    alpha_init: float = 1.0  # temperature at the start
    target_entropy: float | None = None  # entropy that the temperature steers to; None: -action_dim

    def build_nets(self) -> None:
        if self.target_entropy is None:
            self.target_entropy = -float(self.action_dim)
        self.log_alpha = nn.Parameter(torch.tensor(math.log(self.alpha_init), device=self.device))
        self.act = ActorSAC(self.net_dims, self.state_dim, self.action_dim, self.activation)
        self.cri = self.build_critic()

    def build_critic(self) -> CriticEnsemble:
        return CriticEnsemble(self.net_dims, self.state_dim, self.action_dim, self.num_ensembles, self.activation)

    def build_optimizer(self, name: str, net: nn.Module) -> FlatAdam:
        optimizer = super().build_optimizer(name, net)
        if name == "act":
            optimizer.add_param_group({"params": [self.log_alpha]})
        return optimizer

    def explore_action(self, state: Tensor, action_mask: Tensor | None = None) -> Tensor:
        return self.act.sample(state)[0]

    def log_density(self, record: Record, actions: Tensor) -> Tensor:
        return self.act.logprob(record.states, actions)

    def q_value(self, batch: Batch) -> Tensor:
        return self.cri(batch.states, batch.actions)

    def next_value(self, batch: Batch) -> Tensor:
        """Q'(s', a') - alpha log pi(a'|s') with a' from the current actor, eq. 3."""
        action, logprob = self.act.sample(batch.next.states)
        return self.target_value(batch.next.states, action) - self.log_alpha.exp() * logprob

    def target_value(self, state: Tensor, action: Tensor) -> Tensor:
        """What the target critics make of an action, (B, S), (B, A) -> (B,): min_k Q'_k."""
        return least(self.cri_target(state, action))

    def pooled(self, q: Tensor) -> Tensor:
        """What the actor climbs of the critics' values, (K, B) -> (B,): min_k Q_k."""
        return least(q)

    def actor_objective(self, batch: Batch) -> tuple[Tensor, ...]:
        """alpha log pi - Q (eq. 7) plus the temperature's loss (eq. 18); neither has gradient in the other."""
        action, logprob = self.act.sample(batch.states)
        q = self.pooled(self.cri(batch.states, action))
        alpha, entropy = self.log_alpha.detach().exp(), -logprob.detach()
        policy_loss = weighted_mean(alpha * logprob - q, batch.weight)
        temperature_loss = self.log_alpha * weighted_mean(entropy - self.target_entropy, batch.weight)
        return policy_loss + temperature_loss, -policy_loss, alpha, entropy.mean()

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "log_alpha": self.log_alpha.detach()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.log_alpha.data.copy_(state["log_alpha"])


class AgentModSAC(AgentSAC):
    """SAC whose actor is updated the less often the less its critic can be trusted.

    With c the running mean of the critic's loss and lambda = exp(-c^2), the actor learns only while
    actor updates / critic updates < 1 / (2 - lambda).
    """

    unused = ("update_freq",)
    loss_tau: float = 5e-3  # weight of the newest critic loss in the running mean

    saved = (*AgentSAC.saved, "critic_loss")

    def build_nets(self) -> None:
        super().build_nets()
        self.critic_loss: float = 1.0

    def update_critic(self, batch: Batch) -> Tensor:
        td = super().update_critic(batch)
        loss = float(self.averaged(weighted_mean(self.value_norm.shrink(td).square(), batch.weight).mean()))
        self.critic_loss += self.loss_tau * (loss - self.critic_loss)
        return td

    def actor_due(self) -> bool:
        reliability = math.exp(-(self.critic_loss**2))
        return self.actor_count / self.update_count < 1 / (2 - reliability)
