"""REDQ's updates per second: its critics as one batched module against as many separate critics in a loop.

    python benchmarks/redq_speed.py
    python benchmarks/redq_speed.py --repeats 11 --seconds 2

Both sides are AgentREDQ with the same batches and widths; the loop has a network, a target and an optimizer for each
critic, and computes the two of a label alone. One thread; the sides take turns, a ratio is the median of the repeats'
ratios with their least and greatest. Written to results/redq_speed.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from copy import deepcopy
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported

import torch
from torch import Tensor, nn

from elegantrl.agents import AgentREDQ
from elegantrl.agents.net import Critic, CriticBase
from elegantrl.train.replay_buffer import ReplayBuffer

torch.set_num_threads(1)
STATE_DIM, ACTION_DIM, ROWS = 11, 3, 10_000  # Hopper's
WIDTHS = (64, 256)


class Loop(CriticBase):
    """Separate critics, computed one after the other."""

    def __init__(self, critics: list[Critic]):
        super().__init__()
        self.critics = nn.ModuleList(critics)

    def forward(self, state: Tensor, action: Tensor) -> Tensor:
        return torch.stack([critic(state, action) for critic in self.critics])


class LoopREDQ(AgentREDQ):
    """REDQ whose critics each have an optimizer and a target of their own."""

    def build_critic(self) -> Any:
        dims = (self.net_dims, self.state_dim, self.action_dim, self.activation)
        critics = [Critic(*dims) for _ in range(self.num_ensembles)]
        self.targets = [deepcopy(critic).requires_grad_(False) for critic in critics]
        self.optimizers = [torch.optim.Adam(critic.parameters(), self.learning_rate, fused=True) for critic in critics]
        return Loop(critics)

    def target_value(self, state: Tensor, action: Tensor) -> Tensor:
        chosen = torch.randperm(self.num_ensembles)[: self.target_members].tolist()
        return torch.stack([self.targets[k](state, action) for k in chosen]).amin(0)

    def update_critic(self, batch: Any) -> Tensor:
        with torch.no_grad():
            label = batch.rewards + batch.discount * self.next_value(batch)
        for critic, optimizer in zip(self.cri.critics, self.optimizers, strict=True):
            loss = ((critic(batch.states, batch.actions) - label).square() * batch.weight).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(critic.parameters(), self.clip_grad_norm)
            optimizer.step()
        self.update_count += 1
        return label

    def update_targets(self) -> None:
        for target, critic in zip(self.targets, self.cri.critics, strict=True):
            self.soft_update(target, critic, self.soft_update_tau)


def updates_per_second(agent: AgentREDQ, buffer: ReplayBuffer, seconds: float) -> float:
    start, before = time.perf_counter(), agent.update_count
    while time.perf_counter() - start < seconds:
        buffer.add_size = 1  # as if a transition had come: utd updates of the critics, one of the actor
        agent.update_net(buffer)
    return (agent.update_count - before) / (time.perf_counter() - start)


def compare(width: int, repeats: int, seconds: float) -> dict[str, Any]:
    flags = torch.ones(ROWS, 1, dtype=torch.bool)
    rows = (
        torch.randn(ROWS, 1, STATE_DIM),
        torch.rand(ROWS, 1, ACTION_DIM) * 2 - 1,
        torch.randn(ROWS, 1),
        flags,
        flags,
    )
    buffer = ReplayBuffer(ROWS, STATE_DIM, ACTION_DIM, gpu_id=-1)
    buffer.update(rows)
    sides = {
        name: agent_class((width, width), STATE_DIM, ACTION_DIM, gpu_id=-1)
        for name, agent_class in (("batched", AgentREDQ), ("loop", LoopREDQ))
    }
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for i in range(repeats + 1):  # the first warms up
        for name, agent in sides.items():
            rate = updates_per_second(agent, buffer, seconds)
            if i:
                rates[name].append(rate)
    ratios = sorted(a / b for a, b in zip(rates["batched"], rates["loop"], strict=True))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    span = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    print(
        f"({width}, {width}): {medians['batched']:.1f} against {medians['loop']:.1f} updates/s, ratio {span}",
        flush=True,
    )
    return {"net": [width, width], "batch": sides["batched"].batch_size, **rates}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each side in each repeat")
    parser.add_argument("--results", type=Path, default=Path(__file__).resolve().parent / "results")
    options = parser.parse_args()
    rows = [compare(width, options.repeats, options.seconds) for width in WIDTHS]
    (options.results / "redq_speed.json").write_text(json.dumps({"torch": torch.__version__, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
