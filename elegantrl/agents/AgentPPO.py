"""PPO arXiv:1707.06347."""

from __future__ import annotations

from torch import Tensor

from .AgentBase import AgentOnPolicy
from .functional import clipped_surrogate
from .net import ActorDiscretePPO, ActorPPO, CriticPPO


class AgentPPO(AgentOnPolicy):
    """Many small steps on one rollout, none of which takes the policy far. Discrete or continuous by the environment."""

    action_kinds = ("continuous", "discrete")

    net_dims = (64, 64)
    activation = "tanh"
    adam_eps = 1e-5
    clip_grad_norm = 0.5
    ratio_clip: float = 0.25  # how far the probability ratio may go from 1 before its gradient ends
    log_std_init: float = 0.0  # log of the Gaussian's std at the start

    def build_nets(self) -> None:
        dims = (self.net_dims, self.state_dim, self.action_dim, self.activation)
        self.act = ActorDiscretePPO(*dims) if self.if_discrete else ActorPPO(*dims, self.log_std_init)
        self.cri = CriticPPO(*dims)

    def policy_loss(self, logratio: Tensor, advantages: Tensor) -> Tensor:
        return -clipped_surrogate(logratio, advantages, self.ratio_clip)


class AgentDiscretePPO(AgentPPO):
    """PPO for discrete actions, also where no Config says so."""

    action_kinds = ("discrete",)
    if_discrete = True
