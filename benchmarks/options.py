"""What options of the agents cost: updates per second with and without, in turn in one run, with one thread.

    python benchmarks/options.py                        # everything, about four minutes
    python benchmarks/options.py --only redq --repeats 11

`per`: prioritised replay in a ring of a million rows against the uniform one. `n_step`: returns of 5 steps against 1.
`h_term`: the Hamiltonian term, on at each update, against off. `redq`: ten critics as one batched module against ten
separate networks in a loop, each with an optimizer and a target of its own.
Seconds are those of this thread on a core, so that a busy machine counts little; a ratio is the median of the repeats'
ratios, with their least and greatest. Written to results/options.md and, raw, results/options.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported

import torch
from torch import Tensor, nn

from elegantrl import agents
from elegantrl.agents.net import Critic, CriticBase
from elegantrl.train.replay_buffer import ReplayBuffer
from elegantrl.trajectory import Record, Trajectory

torch.set_num_threads(1)
STATE_DIM, ACTION_DIM = 11, 3  # Hopper's
NUM_ENVS, HORIZON, EPISODE = 32, 64, 32  # of the rollouts, random numbers in episodes of 32 steps
CAPACITY = 1_000_000

Side = tuple[Any, Callable[[], None]]  # an agent, and what makes it update


def rollout(if_discrete: bool = False) -> Trajectory:
    first = Record(torch.zeros(NUM_ENVS, STATE_DIM))
    rows = Trajectory.allocate(HORIZON, first, ACTION_DIM, if_discrete, if_logprob=True)
    rows.states.normal_()
    rows.rewards.normal_()
    if if_discrete:
        rows.actions.random_(ACTION_DIM)
    else:
        rows.actions.uniform_(-1, 1)
    rows.unmasks[:] = rows.undones[:] = True
    rows.undones[EPISODE - 1 :: EPISODE] = False
    return rows


def side(name: str, width: int, updates: int, **settings: Any) -> Side:
    """An agent by its class's name, with settings of its own and, off-policy, of its buffer."""
    return side_of(getattr(agents, f"Agent{name}"), width, updates, **settings)


def side_of(agent_class: Any, width: int, updates: int, if_use_per: bool = False, **settings: Any) -> Side:
    agent = agent_class((width, width), STATE_DIM, ACTION_DIM, -1, SimpleNamespace(**settings))
    rows = [rollout(agent.if_discrete) for _ in range(4)]
    for one in rows:
        agent.observe(one)
    if not agent.if_off_policy:
        agent.begin(rows[0].states[0], {})
        return agent, lambda: agent.update_net(rows[0])
    buffer = ReplayBuffer(CAPACITY, STATE_DIM, ACTION_DIM, -1, NUM_ENVS, if_use_per, agent.if_discrete)
    for _ in range(12):  # about 100 000 rows
        for one in rows:
            buffer.update(one)

    def update() -> None:
        buffer.add_size = round(updates / agent.utd)  # as if so many transitions had come
        agent.update_net(buffer)

    return agent, update


class Loop(CriticBase):
    """Separate critics, computed one after the other."""

    def __init__(self, critics: list[Critic]):
        super().__init__()
        self.critics = nn.ModuleList(critics)

    def forward(self, state: Tensor, action: Tensor) -> Tensor:
        return torch.stack([critic(state, action) for critic in self.critics])


class LoopREDQ(agents.AgentREDQ):
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
            if self.clip_grad_norm < math.inf:
                nn.utils.clip_grad_norm_(critic.parameters(), self.clip_grad_norm)
            optimizer.step()
        self.update_count += 1
        return label

    def update_targets(self) -> None:
        for target, critic in zip(self.targets, self.cri.critics, strict=True):
            self.soft_update(target, critic, self.soft_update_tau)


ON = {"lambda_h_term": 2**-5}
PARTS: dict[str, list[tuple[str, Callable[[], Side], Callable[[], Side]]]] = {
    "per": [
        ("D3QN (128, 128)", lambda: side("D3QN", 128, 100, if_use_per=True), lambda: side("D3QN", 128, 100)),
        ("SAC (64, 64)", lambda: side("SAC", 64, 60, if_use_per=True), lambda: side("SAC", 64, 60)),
        ("SAC (256, 256)", lambda: side("SAC", 256, 30, if_use_per=True), lambda: side("SAC", 256, 30)),
    ],
    "n_step": [
        ("D3QN (128, 128)", lambda: side("D3QN", 128, 100, n_step=5), lambda: side("D3QN", 128, 100)),
        ("SAC (256, 256)", lambda: side("SAC", 256, 30, n_step=5), lambda: side("SAC", 256, 30)),
    ],
    "h_term": [
        ("PPO (64, 64)", lambda: side("PPO", 64, 80, **ON), lambda: side("PPO", 64, 80)),
        ("SAC (256, 256)", lambda: side("SAC", 256, 30, **ON), lambda: side("SAC", 256, 30)),
        ("TD3 (256, 256)", lambda: side("TD3", 256, 30, **ON), lambda: side("TD3", 256, 30)),
    ],
    "redq": [
        (f"REDQ ({width}, {width})", lambda w=width: side("REDQ", w, 20), lambda w=width: side_of(LoopREDQ, w, 20))
        for width in (64, 256)
    ],
}
SIDES = {
    "per": ("PER", "uniform"),
    "n_step": ("5 steps", "1 step"),
    "h_term": ("on", "off"),
    "redq": ("batched", "loop"),
}


def rate(one: Side) -> float:
    agent, update = one
    before, start = agent.update_count, time.thread_time()
    update()
    return (agent.update_count - before) / (time.thread_time() - start)


def compare(repeats: int, makers: tuple[Callable[[], Side], Callable[[], Side]]) -> list[list[float]]:
    sides = [make() for make in makers]
    for one in sides:
        rate(one)  # the first calls allocate and warm caches
    rates = [[rate(one) for one in sides] for _ in range(repeats)]
    return [list(column) for column in zip(*rates, strict=True)]


def report(result: dict[str, Any]) -> str:
    lines = [
        "# What options cost",
        "",
        "Made by `python benchmarks/options.py` (its first lines say how); raw rates are in",
    ]
    lines += [
        "`options.json`. Updates per second of one thread, and their ratio, median of the repeats (least to greatest)."
    ]
    lines += [", ".join(f"{name} {value}" for name, value in result["about"].items()) + "."]
    for part, rows in result["parts"].items():
        first, second = SIDES[part]
        lines += ["", f"## {part}", "", f"| agent | {first} | {second} | ratio |", "|---|---|---|---|"]
        for name, (ours, theirs) in rows.items():
            ratios = sorted(a / b for a, b in zip(ours, theirs, strict=True))
            medians = f"{statistics.median(ours):.0f} | {statistics.median(theirs):.0f}"
            span = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
            lines.append(f"| {name} | {medians} | {span} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--results", type=Path, default=Path(__file__).resolve().parent / "results")
    options = parser.parse_args()
    about = {"torch": torch.__version__, "python": platform.python_version(), "repeats": options.repeats}
    result: dict[str, Any] = {"about": about, "parts": {}}
    for part in options.only:
        result["parts"][part] = {name: compare(options.repeats, makers) for name, *makers in PARTS[part]}
    (options.results / "options.json").write_text(json.dumps(result, indent=1) + "\n")
    (options.results / "options.md").write_text(report(result))
    print(report(result))


if __name__ == "__main__":
    main()
