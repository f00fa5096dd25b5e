"""QMIX arXiv:1803.11485."""

from __future__ import annotations

from torch import nn

from .MAgentVDN import AgentVDN
from .net import QMixer


class AgentQMix(AgentVDN):
    """VDN with a team value that is any increasing function of the agents', one for each global state, eq. 4 to 6."""

    mixing_dim: int = 32  # width of the mixer's hidden layer

    def build_mixer(self) -> nn.Module:
        return QMixer(self.num_agents, self.joint_dim, self.mixing_dim)
