"""Your own networks: set `self.act` and `self.cri` where they are built; targets and optimizers follow. A minute.

An actor answers `forward(state)`, for SAC also `sample(state)`, for PPO `sample` and `logprob_entropy`. A critic
answers (B,), or (K, B) for an ensemble of K. Deriving from ActorBase and CriticBase gives them the normalisers.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from elegantrl import Config, train_agent
from elegantrl.agents import AgentTD3
from elegantrl.agents.net import ActorBase, CriticBase
from quick import quick


def build(dim_in: int, width: int, dim_out: int) -> nn.Sequential:
    layers = [nn.Linear(dim_in, width), nn.LayerNorm(width), nn.SiLU(), nn.Linear(width, width), nn.SiLU()]
    return nn.Sequential(*layers, nn.Linear(width, dim_out))


class MyActor(ActorBase):
    def __init__(self, state_dim: int, width: int, action_dim: int):
        super().__init__()
        self.net = build(state_dim, width, action_dim)

    def forward(self, state: Tensor, action_mask: Tensor | None = None) -> Tensor:
        """(B, S) -> (B, A) in [-1, 1]"""
        return self.net(self.state_norm(state)).tanh()


class MyTwinCritic(CriticBase):
    """Two critics with layer normalisation, which keeps their values from running away."""

    def __init__(self, state_dim: int, width: int, action_dim: int):
        super().__init__()
        self.nets = nn.ModuleList(build(state_dim + action_dim, width, 1) for _ in range(2))

    def forward(self, state: Tensor, action: Tensor) -> Tensor:
        """(B, S), (B, A) -> (2, B)"""
        x = torch.cat([self.state_norm(state), action], dim=-1)
        return self.value_norm.restore(torch.stack([net(x).squeeze(-1) for net in self.nets]))


class MyTD3(AgentTD3):
    def build_nets(self) -> None:
        super().build_nets()
        self.act = MyActor(self.state_dim, self.net_dims[0], self.action_dim)
        self.cri = MyTwinCritic(self.state_dim, self.net_dims[0], self.action_dim)


def main() -> None:
    args = Config(MyTD3, "Pendulum-v1", net_dims=(64,), learning_rate=1e-3, break_step=20_000, break_score=-160)
    args.eval_per_step, args.eval_times = 1_000, 16
    train_agent(quick(args), if_single_process=True)


if __name__ == "__main__":
    main()
