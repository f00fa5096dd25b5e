"""Checks the tensor environments on a GPU, trains on thousands of them, and says where the time goes.

    python benchmarks/gpu/check.py            # on a machine with a GPU: under ten minutes
    python benchmarks/gpu/check.py --small    # the same on a CPU, in small and without goals: that the script works

Exit status 1 if anything failed: an environment that differs from its CPU form, a step that makes the host wait or that
a CUDA graph cannot hold, an error, a goal that was not reached.
Needed are Python 3.11 or newer, torch, NumPy, gymnasium and matplotlib. For a machine without a package index, bring
the wheels of the last two and of what they need, on a machine with one (here for Python 3.12 on Linux):

    pip download -d wheels --only-binary=:all: --python-version 3.12 --platform manylinux2014_x86_64 \\
        gymnasium matplotlib
    pip install --no-index --find-links wheels gymnasium matplotlib    # there

Printed for each training: environment steps per second on each device (evaluations apart), and the shares of a
rollout's time: environment, policy, update, transfer (into the buffer or to the learning device), rest. Shares are of
a few rollouts of their own, in which every part waits for the device; in them nothing overlaps.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch import Tensor

from elegantrl import Config, train_agent
from elegantrl.agents import AgentPPO, AgentSAC
from elegantrl.envs import TensorEnv
from elegantrl.envs.classic import (
    AcrobotVecEnv,
    CartPoleVecEnv,
    LQRVecEnv,
    MountainCarContinuousVecEnv,
    PendulumVecEnv,
)
from elegantrl.envs.pixels import CatchVecEnv
from elegantrl.envs.PointChasingEnv import PointChasingDiscreteVecEnv, PointChasingVecEnv

ENVIRONMENTS: list[type[TensorEnv]] = [
    *(CartPoleVecEnv, PendulumVecEnv, MountainCarContinuousVecEnv, AcrobotVecEnv, LQRVecEnv),
    *(PointChasingVecEnv, PointChasingDiscreteVecEnv, CatchVecEnv),
]
PARITY = 1e-5  # largest difference of a state or reward after one step, relative to its size or 1
BORDERLINE = 1e-3  # share of flags and pixels that may differ, where a number lies at a threshold within PARITY


@dataclass
class Training:
    agent_class: type
    env_class: type[TensorEnv]
    num_envs: int
    goal: float  # greedy return
    settings: dict[str, Any]
    seconds: float = 100.0  # after which it has failed

    @property
    def name(self) -> str:
        return f"{self.agent_class.__name__.removeprefix('Agent')} {self.env_class.__name__.removesuffix('VecEnv')}"


PPO = {"horizon_len": 16, "batch_size": 4096, "repeat_times": 8, "learning_rate": 1e-3, "eval_per_step": 500_000}
SAC = {"horizon_len": 4, "batch_size": 1024, "utd": 1 / 256, "learning_rate": 1e-3, "soft_update_tau": 0.02}
TRAININGS = [
    Training(AgentPPO, PendulumVecEnv, 4096, -200.0, {**PPO, "gamma": 0.9}),
    Training(AgentPPO, PointChasingVecEnv, 4096, 1.0, {**PPO, "if_norm_state": True}),
    Training(AgentPPO, CartPoleVecEnv, 4096, 475.0, PPO),
    Training(AgentSAC, PendulumVecEnv, 1024, -200.0, {**SAC, "gamma": 0.95, "eval_per_step": 100_000}),
]


@dataclass
class Report:
    failed: list[str] = field(default_factory=list)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """What goes wrong inside is told and counted, and the rest goes on."""
        start = time.perf_counter()
        try:
            yield
            print(f"ok      {name}   ({time.perf_counter() - start:.1f} s)", flush=True)
        except Exception as error:  # whatever it is
            self.failed.append(name)
            traceback.print_exc()
            print(f"FAILED  {name}: {error}", flush=True)


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# -- environments ----------------------------------------------------------------------------------------------------


def random_action(env: TensorEnv) -> Tensor:
    if env.if_discrete:
        return torch.randint(env.action_dim, (env.num_envs,))
    return torch.rand(env.num_envs, env.action_dim) * 2 - 1


def without_chance(env: TensorEnv) -> TensorEnv:
    """The environment with the middle of every distribution for its draws, so that devices can be compared."""
    env.uniform = lambda low, high, *size: torch.full_like(env._empty(size).movedim(-1, 0), (low + high) / 2)
    env.normal = lambda mean, std, *size: torch.full_like(env._empty(size).movedim(-1, 0), mean)
    return env


def check_alike(ours: tuple, theirs: tuple) -> None:
    """What two steps of the same worlds by the same actions returned. AssertionError: they differ."""
    names = ("state", "reward", "terminal", "truncate", "final_obs")
    pairs = zip(names, (*ours[:4], ours[4]["final_obs"]), (*theirs[:4], theirs[4]["final_obs"]), strict=True)
    moved = {name: (x.cpu(), y.cpu()) for name, x, y in pairs}
    same = moved["terminal"][0] == moved["terminal"][1]
    assert (~same).float().mean() <= BORDERLINE, "other episodes ended"
    assert torch.equal(*moved["truncate"]), "other episodes were truncated"
    for name in ("state", "reward", "final_obs"):
        x, y = (side[same] for side in moved[name])
        if x.dtype == torch.uint8:
            worst = (x != y).float().mean()
            assert worst <= BORDERLINE, f"{worst:.2%} of the pixels of {name} differ"
        else:
            worst = ((x - y).abs() / y.abs().clamp(min=1)).max()
            assert worst <= PARITY, f"{name} differs by {worst:.1e}"


def check_parity(env_class: type[TensorEnv], gpu_id: int, num_envs: int, steps: int) -> None:
    """The environment on the device takes the same steps as on the CPU, from the same worlds."""
    env, there = (env_class(num_envs=num_envs, max_step=steps // 3, gpu_id=device) for device in (-1, gpu_id))
    env.reset(seed=0)
    without_chance(env)
    without_chance(there)
    for _ in range(steps):
        there.world.copy_(env.world)
        there.steps.copy_(env.steps)
        action = random_action(env)
        check_alike(there.step(action.to(there.device)), env.step(action))


def check_no_wait(env_class: type[TensorEnv], num_envs: int) -> None:
    """A step on the GPU never makes the host wait. RuntimeError: it does."""
    env = env_class(num_envs=num_envs, gpu_id=0)
    env.reset(seed=0)
    action = random_action(env).to(env.device)
    env.step(action)  # what is made once is made here
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(5):
            env.step(action)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def captured(env: TensorEnv, function: Callable[[], Any]) -> tuple[Any, Any]:
    """A CUDA graph of function(), and what it writes its results to."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph: Any = torch.cuda.CUDAGraph()
    graph.register_generator_state(env.generator)
    with torch.cuda.graph(graph):
        result = function()
    return graph, result


def check_graph(env_class: type[TensorEnv], num_envs: int) -> None:
    """A CUDA graph of a step takes the steps that the environment takes, and draws anew each time."""
    env, plain = (without_chance(env_class(num_envs=num_envs, gpu_id=0, max_step=20)) for _ in range(2))
    env.reset(seed=0)
    plain.reset(seed=0)
    action = random_action(env).to(env.device)
    graph, result = captured(env, lambda: env.step(action))
    for _ in range(50):
        action.copy_(random_action(env))
        plain.world.copy_(env.world)
        plain.steps.copy_(env.steps)
        expected = plain.step(action)
        graph.replay()
        check_alike(result, expected)
    other = env_class(num_envs=num_envs, gpu_id=0)
    graph, draws = captured(other, lambda: other.uniform(2.0, 3.0, 4))
    graph.replay()
    first = draws.clone()
    graph.replay()
    assert ((draws >= 2) & (draws < 3)).all() and not torch.equal(first, draws), "a graph draws the same each time"


# -- training --------------------------------------------------------------------------------------------------------


class Stopwatch:
    """A callback: environment steps per second, then the shares of time of some rollouts, then a limit in seconds."""

    PARTS: ClassVar = {
        "environment": ("env", "step"),
        "policy": ("agent", "decide"),
        "transfer": ("learner", "store"),
        "update": ("learner", "update"),
    }
    rates, shared = range(1, 4), range(4, 7)  # rollouts, counted from the second one; the first ones warm up

    def __init__(self, seconds: float):
        self.seconds, self.begun = seconds, time.perf_counter()
        self.rollout, self.steps, self.time = 0, 0, 0.0
        self.shares = dict.fromkeys((*self.PARTS, "rest"), 0.0)
        self.mark: float | None = None
        self.score = float("-inf")

    def on_update(self, run: Any) -> None:
        synchronize(run.agent.device)
        now = time.perf_counter()
        if self.mark is not None:
            elapsed, steps = now - self.mark, run.total_step - self.step_mark
            if self.rollout in self.rates:
                self.steps, self.time = self.steps + steps, self.time + elapsed
            if self.rollout in self.shared:
                self.shares["rest"] += elapsed
            self.rollout += 1
        if self.rollout == self.shared.start:
            self.watch(run)
        if self.rollout == self.shared.stop:
            self.unwatch(run)
        if now - self.begun > self.seconds:
            run.stop(f"{self.seconds:.0f} seconds are over")
        self.mark, self.step_mark = time.perf_counter(), run.total_step

    def on_evaluate(self, run: Any) -> None:
        self.score = run.evaluator.records.best_return
        self.mark = time.perf_counter()

    def watch(self, run: Any) -> None:
        for part, (owner, name) in self.PARTS.items():
            setattr(getattr(run, owner), name, self.timed(part, getattr(getattr(run, owner), name), run.agent.device))

    def unwatch(self, run: Any) -> None:
        for owner, name in self.PARTS.values():
            vars(getattr(run, owner)).pop(name, None)
        self.shares["rest"] -= sum(value for part, value in self.shares.items() if part != "rest")

    def timed(self, part: str, method: Callable[..., Any], device: torch.device) -> Callable[..., Any]:
        def call(*args: Any, **keywords: Any) -> Any:
            synchronize(device)
            start = time.perf_counter()
            result = method(*args, **keywords)
            synchronize(device)
            self.shares[part] += time.perf_counter() - start
            return result

        return call

    @property
    def rate(self) -> float:
        return self.steps / self.time


def train(job: Training, gpu_id: int, folder: str, rollouts: int | None = None, **settings: Any) -> tuple[Any, Any]:
    """The finished run and its Stopwatch. rollouts: only so many, without evaluations but the last."""
    watch = Stopwatch(job.seconds)
    settings = {"break_score": job.goal, "eval_times": 64, **job.settings, **settings, "callbacks": [watch]}
    if rollouts is not None:
        rows = job.num_envs * settings["horizon_len"]
        first = max(rows, job.agent_class.buffer_init_size) if job.agent_class.if_off_policy else 0  # at random
        settings["break_step"] = first + rollouts * rows
        settings |= {"eval_per_step": 10**9, "break_score": float("inf"), "eval_times": 1, "if_keep_save": False}
    cwd = f"{folder}/{job.name.replace(' ', '_')}_{gpu_id}"
    args = Config(job.agent_class, job.env_class, {"num_envs": job.num_envs}, gpu_id=gpu_id, cwd=cwd, **settings)
    return train_agent(args, if_single_process=True), watch


def line(name: str, device: str, watch: Stopwatch, note: str) -> str:
    total = sum(watch.shares.values())
    shares = "  ".join(f"{part} {value / total:4.0%}" for part, value in watch.shares.items())
    return f"{name:<18} {device:<5} {watch.rate:>12,.0f} steps/s   {shares}   {note}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Checks tensor environments and trainings on a GPU.")
    parser.add_argument("--small", action="store_true", help="on the CPU, in small, without goals")
    small = parser.parse_args(argv).small
    if not small and not torch.cuda.is_available():
        print("No CUDA here: --small runs the checks on the CPU.")
        return 1
    gpu_id = -1 if small else 0
    where = "CPU" if small else torch.cuda.get_device_name(0)
    print(f"torch {torch.__version__}, Python {sys.version.split()[0]}, {where}, {torch.get_num_threads()} threads")
    report, lines, begun = Report(), [], time.perf_counter()

    for env_class in ENVIRONMENTS:
        name, num_envs = env_class.__name__, 16 if small else 1024
        with report.part(f"{name}: as on the CPU"):
            check_parity(env_class, gpu_id, num_envs, steps=30 if small else 150)
        if not small:
            with report.part(f"{name}: the host never waits"):
                check_no_wait(env_class, num_envs)
            with report.part(f"{name}: in a CUDA graph"):
                check_graph(env_class, num_envs)

    with tempfile.TemporaryDirectory() as folder:
        for job in TRAININGS:
            if small:
                job = Training(job.agent_class, job.env_class, 8, job.goal, {**job.settings, "batch_size": 32})
            with report.part(f"{job.name}, {job.num_envs} environments"):
                run, watch = train(job, gpu_id, folder, rollouts=8 if small else None)
                _, slow = (run, watch) if small else train(job, -1, folder, rollouts=8)
                note = f"{run.total_step:,} steps, {run.evaluator.elapsed:.0f} s, best {watch.score:.1f}"
                lines.append(line(job.name, "cpu" if small else "cuda", watch, note))
                if not small:
                    lines.append(line(job.name, "cpu", slow, f"the GPU is {watch.rate / slow.rate:.1f} times as fast"))
                    assert watch.score >= job.goal, f"best return {watch.score:.1f}, {job.goal:g} was the goal"

    print("\n".join(["", *lines, ""]))
    print(
        f"{time.perf_counter() - begun:.0f} s. "
        + ("FAILED: " + "; ".join(report.failed) if report.failed else "PASSED")
    )
    return int(bool(report.failed))


if __name__ == "__main__":
    sys.exit(main())
