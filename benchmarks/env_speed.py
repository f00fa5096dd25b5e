"""Environment steps per second: our vector environments against Gymnasium's, as ratios measured in turn in one run.

    python benchmarks/env_speed.py
    python benchmarks/env_speed.py --only mujoco --repeats 9

Each side steps its environments with random actions that were drawn before, without a policy, on one thread where the
row says no other number. Seconds are those of the process on a core, so that a busy machine counts little; where there
are two threads, those of the clock. The sides take turns within each repeat; a ratio is the median of the repeats'
ratios, with their least and greatest. Written to results/env_speed.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported

import gymnasium as gym
import torch

import elegantrl
from elegantrl.agents import AgentPPO, AgentSAC
from elegantrl.envs import MujocoVecEnv, vectorise
from elegantrl.envs.classic import AcrobotVecEnv, CartPoleVecEnv, PendulumVecEnv
from elegantrl.train.config import Config
from elegantrl.train.run import build_agent
from elegantrl.train.worker import Worker

torch.set_num_threads(1)

RESULTS = Path(__file__).resolve().parent / "results"
ROLLOUT = 32  # steps of each environment in a rollout of a Worker
POOL = 16  # sets of random actions that the sides play in a circle

Step = Callable[[], int]  # steps all environments once; how many did more than to reset themselves


def ours(env: Any) -> Step:
    """A step of an environment under the vector contract."""
    env.reset(seed=0)
    shape = (POOL, env.num_envs)
    if env.if_discrete:
        actions = torch.randint(env.action_dim, shape, device=env.device)
    else:
        actions = torch.rand(*shape, env.action_dim, device=env.device) * 2 - 1
    return counted(env.step, list(actions), env.num_envs, env.autoreset == "next_step")


def theirs(env: gym.vector.VectorEnv) -> Step:
    """A step of a vector environment of Gymnasium's."""
    env.action_space.seed(0)
    env.reset(seed=0)
    next_step = env.metadata["autoreset_mode"] == gym.vector.AutoresetMode.NEXT_STEP
    return counted(env.step, [env.action_space.sample() for _ in range(POOL)], env.num_envs, next_step)


def counted(step: Callable[[Any], Any], actions: list[Any], num_envs: int, has_reset_rows: bool) -> Step:
    calls = reset_rows = 0

    def play() -> int:
        nonlocal calls, reset_rows
        _, _, terminal, truncate, _ = step(actions[calls % POOL])
        steps, calls = num_envs - reset_rows, calls + 1
        reset_rows = int((terminal | truncate).sum()) if has_reset_rows else 0
        return steps

    return play


@dataclass(frozen=True)
class Row:
    """One comparison. what, against: how the table calls the sides. at_least: the ratio to reach, 0 for none."""

    group: str
    task: str
    num_envs: int
    what: str
    against: str
    make: Callable[[], Step]
    make_peer: Callable[[], Step]
    at_least: float = 0.0
    clock: Callable[[], float] = time.process_time


def mujoco(task: str, num_envs: int, num_threads: int = 1, at_least: float = 0.0) -> Row:
    name = f"`MujocoVecEnv`, {num_threads} thread" + "s" * (num_threads > 1)
    return Row(
        "mujoco", task, num_envs, name, "`SyncVectorEnv`", lambda: ours(MujocoVecEnv(task, num_envs, -1, num_threads)),
        lambda: theirs(gym.make_vec(task, num_envs, vectorization_mode="sync")), at_least,
        time.process_time if num_threads == 1 else time.perf_counter,
    )  # fmt: skip


def gym_loop(task: str, num_envs: int) -> Row:
    make = lambda: ours(vectorise(task, {"if_batched": False}, num_envs))  # noqa: E731
    peer = lambda: theirs(gym.make_vec(task, num_envs, vectorization_mode="sync"))  # noqa: E731
    return Row("gym", task, num_envs, "`vectorise` in a loop", "`SyncVectorEnv`", make, peer)


def tensor(env_class: Any, task: str, num_envs: int, mode: str = "sync", at_least: float = 0.0) -> Row:
    against = "`CartPoleVectorEnv`" if mode == "vector_entry_point" else "`SyncVectorEnv`"
    make = lambda: ours(env_class(num_envs=num_envs))  # noqa: E731
    peer = lambda: theirs(gym.make_vec(task, num_envs, vectorization_mode=mode))  # noqa: E731
    return Row("tensor", task, num_envs, f"`{env_class.__name__}`", against, make, peer, at_least)


def collected(agent_class: Any, env_class: Any, num_envs: int, if_worker: bool, settings: dict[str, Any]) -> Step:
    """A rollout of ROLLOUT steps by a Worker, or by its policy alone on its environment."""
    args = Config(agent_class, env_class, {"num_envs": num_envs}, horizon_len=ROLLOUT, **settings)
    env, agent = env_class(num_envs=num_envs), build_agent(args)
    worker = Worker(env, agent, args)
    worker.restart(seed=0)
    state, _ = env.reset(seed=0)

    @torch.no_grad()
    def bare() -> int:
        nonlocal state
        for _ in range(ROLLOUT):
            action = agent.explore_action(state)
            state, *_ = env.step(action if agent.if_off_policy else action[0])
        return ROLLOUT * num_envs

    def explore() -> int:
        worker.explore()
        return ROLLOUT * num_envs

    return explore if if_worker else bare


def worker(agent_class: Any, env_class: Any, at_least: float = 0.0, **settings: Any) -> Row:
    make, peer = (partial(collected, agent_class, env_class, 1024, side, settings) for side in (True, False))
    task = f"{env_class.__name__}, {agent_class.__name__} {settings.get('net_dims', agent_class.net_dims)}"
    return Row("worker", task, 1024, "`Worker.explore`", "policy and environment", make, peer, at_least)


ROWS = [
    mujoco("Hopper-v5", 64, at_least=2.0),
    mujoco("HalfCheetah-v5", 64, at_least=2.0),
    mujoco("Hopper-v5", 64, num_threads=2),
    mujoco("HalfCheetah-v5", 64, num_threads=2),
    mujoco("Walker2d-v5", 64),
    mujoco("Ant-v5", 64),
    mujoco("Humanoid-v5", 64),
    gym_loop("CartPole-v1", 4),
    tensor(CartPoleVecEnv, "CartPole-v1", 4096, "vector_entry_point", at_least=1.0),
    tensor(PendulumVecEnv, "Pendulum-v1", 64),
    tensor(AcrobotVecEnv, "Acrobot-v1", 64),
    worker(AgentPPO, CartPoleVecEnv, at_least=0.85),
    worker(AgentPPO, CartPoleVecEnv, at_least=0.85, net_dims=(256, 256)),
    worker(AgentSAC, PendulumVecEnv, at_least=0.85),
]


def steps_per_second(step: Step, seconds: float, clock: Callable[[], float]) -> float:
    start, steps = clock(), 0
    while (spent := clock() - start) < seconds:
        steps += step()
    return steps / spent


def measure(row: Row, repeats: int, seconds: float) -> tuple[list[float], list[float]]:
    """Rates of both sides; one warm-up each, then the sides alternate."""
    sides = row.make(), row.make_peer()
    rates: tuple[list[float], list[float]] = [], []
    for repeat in range(repeats + 1):
        for side, found in zip(sides, rates, strict=True):
            rate = steps_per_second(side, seconds, row.clock)
            if repeat:
                found.append(rate)
    return rates


def line(row: Row, rates: tuple[list[float], list[float]]) -> str:
    ratios = sorted(a / b for a, b in zip(*rates, strict=True))
    median = statistics.median(ratios)
    target = f"{row.at_least:g}, {'reached' if median >= row.at_least else 'missed'}" if row.at_least else ""
    first, second = (f"{statistics.median(side):.0f}" for side in rates)
    spread = f"{median:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    return f"| {row.task} | {row.num_envs} | {row.what} | {first} | {row.against} | {second} | {spread} | {target} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    groups = sorted({row.group for row in ROWS})
    parser.add_argument("--only", nargs="+", choices=groups, default=groups)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each side in each repeat")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()

    versions = f"elegantrl {elegantrl.__version__}, torch {torch.__version__}, gymnasium {gym.__version__}"
    lines = [
        "# Environment steps per second",
        "",
        "Made by `python benchmarks/env_speed.py` (its first lines say how). The ratio is that of the two rates to its",
        "left; rows that only reset an environment are no steps.",
        f"{versions}, python {platform.python_version()}, cores {os.cpu_count()}, repeats {options.repeats}.",
        "",
        "| task | environments | ours | steps/s | against | steps/s | ratio | target |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        if row.group in options.only:
            lines.append(line(row, measure(row, options.repeats, options.seconds)))
            print(lines[-1], flush=True)
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "env_speed.md").write_text("\n".join(lines) + "\n")
    print(f"table: {options.results / 'env_speed.md'}")


if __name__ == "__main__":
    main()
