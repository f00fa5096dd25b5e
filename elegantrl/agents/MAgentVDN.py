"""VDN, value decomposition networks, arXiv:1706.05296. state (B, M, S), action (B, M), reward (B,)."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..trajectory import Batch
from .AgentDQN import AgentDoubleDQN
from .functional import LinearSchedule
from .MAgentBase import TeamAgent
from .net import QNetTeam, VDNMixer


class AgentVDN(TeamAgent, AgentDoubleDQN):
    """Double DQN of a team whose value is the sum of its agents'. Each acts by its own part."""

    if_team_reward: ClassVar[bool] = True

    net_dims = (64,)
    batch_size = 256
    clip_grad_norm = 10.0
    utd = 0.03125  # an update every 32 transitions
    rnn_dim: int = 0  # width of the agents' memory (GRU); 0: none
    seq_len: int = 16  # rows of a window that carry loss, with a memory
    burn_in: int = 0  # rows before them that only fill the memory
    explore_rate: float | LinearSchedule = LinearSchedule(1.0, 0.05, fraction=0.25)

    def build_mixer(self) -> nn.Module:
        """What makes the team's value of the agents'."""
        return VDNMixer()

    def build_nets(self) -> None:
        if self.value_norm.learns:
            raise ValueError(f"{type(self).__name__} mixes values: leave if_norm_value and state_value_tau off.")
        dims, how = (self.net_dims, self.state_dim, self.action_dim), (self.build_mixer(), self.activation)
        self.cri = QNetTeam(*dims, self.team(self.rnn_dim), *how)

    @property
    def window(self) -> int:  # type: ignore[override]
        return self.burn_in + self.seq_len if self.rnn_dim else 1

    def recalled(self, net: QNetTeam, batch: Batch) -> Batch:
        """The batch with what a network remembers in place of states."""
        if not self.rnn_dim:
            return batch
        states = torch.cat([batch.states, batch.next.states[:, -1:]], 1)
        seen, _ = net.remember(states, None, batch.keeps)
        return replace(batch, states=seen[:, :-1], next=replace(batch.next, states=seen[:, 1:]))

    def critic_objective(self, batch: Batch) -> tuple[Tensor, ...]:
        if self.rnn_dim and self.burn_in:
            has_loss = torch.arange(self.window, device=self.device) >= self.burn_in
            batch = replace(batch, weight=batch.weight * has_loss)
        return super().critic_objective(batch)

    def q_value(self, batch: Batch) -> Tensor:
        """Q_tot(s, a) = sum_m Q_m(s_m, a_m), section 3."""
        q = self.cri.q_values(self.recalled(self.cri, batch).states).gather(-1, batch.actions[..., None]).squeeze(-1)
        return self.cri.mix(q, self.joint(batch), batch.alive)

    def next_value(self, batch: Batch) -> Tensor:
        """Q_tot'(s', argmax_a Q_m(s_m', a)): every agent chooses for itself, 1509.06461 eq. 4 for each."""
        after, online = batch.next, self.recalled(self.cri, batch).next
        best = self.cri.q_values(online.states, after.action_mask).argmax(-1, keepdim=True)
        q = self.cri_target.q_values(self.recalled(self.cri_target, batch).next.states).gather(-1, best).squeeze(-1)
        return self.cri_target.mix(q, self.joint(after), after.alive)
