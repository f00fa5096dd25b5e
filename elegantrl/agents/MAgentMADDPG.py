"""MADDPG arXiv:1706.02275. state (B, M, S), action (B, M, A) or (B, M), reward (B, M)."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ..trajectory import Batch, Record
from .AgentDDPG import AgentDDPG, OrnsteinUhlenbeckNoise
from .functional import least, weighted_mean
from .MAgentBase import TeamAgent
from .net import ActorDiscreteMAPPO, ActorTeam, CriticTeam


class AgentMADDPG(TeamAgent, AgentDDPG):
    """Each agent's actor climbs a critic of its own, which sees everybody's states and actions.

    Discrete actions are one-hot vectors, through which gradients flow by the Gumbel-softmax, arXiv:1611.01144.
    """

    action_kinds: ClassVar[tuple[str, ...]] = ("continuous", "discrete")

    if_share_params: bool = False
    clip_grad_norm = 3.0  # the authors' code clips too
    num_ensembles: int = 1  # critics of each agent
    gumbel_tau: float = 1.0  # temperature of the Gumbel-softmax
    lambda_logit: float = 1e-3  # weight of the logits' mean square in the actor's loss

    def build_nets(self) -> None:
        self.ou_noise = OrnsteinUhlenbeckNoise()
        dims = (self.net_dims, self.state_dim, self.action_dim, self.team(), self.activation)
        self.act = ActorDiscreteMAPPO(*dims) if self.if_discrete else ActorTeam(*dims)
        critic_dims = (self.net_dims, self.joint_dim, self.action_dim, self.team())
        self.cri = CriticTeam(*critic_dims, self.num_ensembles, self.activation)

    def explore_action(self, state: Tensor, action_mask: Tensor | None = None) -> Tensor:
        """Noise on actions in [-1, 1]; discrete ones are drawn from the policy. (N, M, S) -> (N, M, A) or (N, M)"""
        if self.if_discrete:
            return self.act.sample(state, action_mask)[0]
        return super().explore_action(state, action_mask)

    def vectors(self, actions: Tensor) -> Tensor:
        """Stored actions as vectors, (B, M, A)."""
        return F.one_hot(actions, self.action_dim).float() if self.if_discrete else actions

    def target_action(self, record: Record) -> Tensor:
        """mu'(s) of every agent, (B, M, A)."""
        best = self.act_target(record.states, record.action_mask)
        return self.vectors(best)

    def q_value(self, batch: Batch) -> Tensor:
        """Q_m(x, a_1 .. a_M), (K, B, M)"""
        return self.cri(self.joint(batch), self.vectors(batch.actions))

    def next_value(self, batch: Batch) -> Tensor:
        """Q_m'(x', mu_1'(s_1') .. mu_M'(s_M')), eq. 6. (B, M)"""
        value = least(self.cri_target(self.joint(batch.next), self.target_action(batch.next)))
        return self.of_team(value, batch.next.alive)

    def actor_loss(self, batch: Batch) -> Tensor:
        """-Q_m(x, a_1 .. mu_m(s_m) .. a_M), eq. 5: the others' actions are those of the batch."""
        loss = torch.zeros((), device=self.device)
        if self.if_discrete:
            logits = self.act.logits(batch.states)
            loss = self.lambda_logit * weighted_mean(logits.square().mean(-1), batch.weight)
            noise = -torch.empty_like(logits).exponential_().log()
            soft = ((self.act.logits(batch.states, batch.action_mask) + noise) / self.gumbel_tau).softmax(-1)
            chosen = self.vectors(soft.argmax(-1)) + soft - soft.detach()  # one-hot, with the gradient of the softmax
        else:
            chosen = self.act(batch.states)
        own = torch.eye(self.num_agents, dtype=torch.bool, device=self.device)[..., None]  # (M, M, 1)
        actions = torch.where(own, chosen[:, None], self.vectors(batch.actions)[:, None])  # (B, M, M, A)
        return loss - weighted_mean(self.cri(self.joint(batch), actions)[0], batch.weight)
