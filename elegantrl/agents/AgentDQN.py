"""DQN arXiv:1312.5602, Double DQN arXiv:1509.06461, Dueling DQN arXiv:1511.06581, D3QN: both."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from ..trajectory import Batch, Record
from .AgentBase import AgentOffPolicy
from .functional import LinearSchedule, at_progress
from .net import QNet, QNetDuel, QNetEmbed, QNetEnsemble


class AgentDQN(AgentOffPolicy):
    """Q-learning with a replay buffer and a target network, squared error (1312.5602 eq. 2). Its act is its cri."""

    target_nets = ("cri",)
    cri_needs: ClassVar[tuple[str, ...]] = ("q_values",)
    action_kinds = ("discrete",)
    log_names = ("objC",)
    unused = ("update_freq",)  # there is no actor
    net_class: ClassVar[type[QNet] | type[QNetDuel] | type[QNetEmbed]] = QNet

    if_discrete = True
    batch_size = 64
    learning_rate = 5e-4
    utd = 0.25  # an update every four transitions
    explore_rate: float | LinearSchedule = LinearSchedule(1.0, 0.05, fraction=0.1)  # share of random actions

    def build_nets(self) -> None:
        self.cri = self.net_class(self.net_dims, self.state_dim, self.action_dim, self.activation)

    def adopt(self, name: str, net: nn.Module) -> None:
        super().adopt("cri", net)
        for part in ("", "_target", "_optimizer"):
            self.__dict__[f"act{part}"] = self.__dict__[f"cri{part}"]

    def explore_action(self, state: Tensor, action_mask: Tensor | None = None) -> Tensor:
        """Epsilon-greedy over the allowed actions. (N, S) -> (N,)"""
        scores = self.cri.q_values(state, action_mask)
        random = torch.rand(scores.shape[:-1], device=scores.device) < at_progress(self.explore_rate, self.progress)
        return torch.where(random, self.random_action(Record(state, action_mask)), scores.argmax(-1))

    def q_value(self, batch: Batch) -> Tensor:
        return self.cri.q_values(batch.states).gather(-1, batch.actions[..., None]).squeeze(-1)

    def next_value(self, batch: Batch) -> Tensor:
        """max_a Q'(s', a), 1312.5602 eq. 3."""
        return self.cri_target.q_values(batch.next.states, batch.next.action_mask).amax(-1)

    def actor_due(self) -> bool:
        return False


class AgentDoubleDQN(AgentDQN):
    """The online network chooses the next action, the target network values it."""

    def next_value(self, batch: Batch) -> Tensor:
        """Q'(s', argmax_a Q(s', a)), 1509.06461 eq. 4."""
        best = self.cri.q_values(batch.next.states, batch.next.action_mask).argmax(-1, keepdim=True)
        return self.cri_target.q_values(batch.next.states).gather(-1, best).squeeze(-1)


class AgentDuelingDQN(AgentDQN):
    """DQN with one stream for the state's value and one for the actions' advantages."""

    net_class = QNetDuel


class AgentD3QN(AgentDoubleDQN):
    """Duelling double DQN."""

    net_class = QNetDuel


class AgentEnsembleDQN(AgentDQN):
    """DQN with several networks, arXiv:1611.01929 Algorithm 3: their mean acts and makes the label that each fits."""

    cri_needs = ("q_values", "q_members")

    num_ensembles: int = 4  # networks

    def build_nets(self) -> None:
        self.cri = QNetEnsemble(self.net_dims, self.state_dim, self.action_dim, self.num_ensembles, self.activation)

    def q_value(self, batch: Batch) -> Tensor:
        q = self.cri.q_members(batch.states)  # (K, B, A)
        return q.gather(-1, batch.actions[..., None].expand(len(q), -1, -1)).squeeze(-1)


class AgentEmbedDQN(AgentDQN):
    """DQN that learns a vector for each action and values it with the state."""

    cri_needs = ("q_values", "q_value")
    net_class = QNetEmbed

    def q_value(self, batch: Batch) -> Tensor:
        return self.cri.q_value(batch.states, batch.actions)
