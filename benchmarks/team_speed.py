"""Agents' steps per CPU second of a whole training on simple_spread: ours, a loop over environments, EPyMARL, in turn.

    python benchmarks/team_speed.py                                            # ours and the loop
    python benchmarks/team_speed.py --epymarl ../epymarl --python ../venv/bin/python

`ours`: the tensor-native task, NUM_ENVS at a time. `loop`: the same agent with the same settings on as many
environments of mpe2, which are stepped one after the other. `epymarl`: a checkout of github.com/uoe-agents/epymarl with
its own settings (QMIX: one environment; MAPPO: ten in processes of their own), on mpe2 as well, by a Python that has
`sacred`. Every step of an environment is three agents' steps. From the first update to the last, so start-up is not
counted; no evaluation. CPU time is that of the process that learns, so that a busy machine does not matter; EPyMARL's
ten processes are not counted. Ratios: median over the repeats (least to greatest). Written to results/team_speed.md.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported

import torch
from learning import RESULTS

from elegantrl import Config, agents, train_agent
from elegantrl.envs.mpe import SimpleSpread
from teams import MPE2, rows

NUM_ENVS, NUM_AGENTS = 64, 3
STEPS = {"ours": 32_000, "loop": 6_400, "epymarl": 2_000}  # of environments, in one repeat
IN_EPYMARL = """
import atexit, json, runpy, sys, time, types
import gymnasium, mpe2.simple_spread_v3
sys.modules["pettingzoo.mpe.simple_spread_v3"] = mpe2.simple_spread_v3  # PettingZoo has moved these tasks to mpe2
sys.modules.setdefault("smaclite", types.ModuleType("smaclite"))  # tasks that are not played here
sys.path.insert(0, "src")
import envs, learners
from envs.pz_wrapper import PettingZooWrapper
gymnasium.register(
    "spread-v3", entry_point=PettingZooWrapper, kwargs={"lib_name": "mpe", "env_name": "simple_spread_v3"}
)
marks = []
for kind in set(learners.REGISTRY.values()):
    def train(self, batch, t_env, episode, learn=kind.train):
        learn(self, batch, t_env, episode)
        marks.append((time.process_time(), t_env))
    kind.train = train
atexit.register(lambda: print("marks", json.dumps([marks[0], marks[-1]]), flush=True))
sys.argv[0] = "src/main.py"
runpy.run_path("src/main.py", run_name="__main__")
"""


class Clock:
    """A callback of train_agent: when, and after how many environment steps, each update ended."""

    def __init__(self) -> None:
        self.marks: list[tuple[float, int]] = []

    def on_update(self, run: Any) -> None:
        self.marks.append((time.process_time(), run.total_step))


def per_second(marks: list[tuple[float, int]]) -> float:
    (start, first), *_, (end, last) = marks
    return NUM_AGENTS * (last - first) / (end - start)


def ours(name: str, side: str) -> float:
    """One training with the settings of benchmarks/teams.py."""
    row = next(row for row in rows() if (row.task, row.agent) == ("spread", name))
    env = SimpleSpread if side == "ours" else __import__(f"mpe2.{MPE2['spread']}", fromlist=["x"]).parallel_env
    clock, steps = Clock(), STEPS[side]
    settings = row.settings | {"break_step": steps, "eval_per_step": 10 * steps, "eval_times": 1, "num_threads": 1}
    settings.pop("num_envs")
    with tempfile.TemporaryDirectory() as cwd, contextlib.redirect_stdout(io.StringIO()):
        agent_class = getattr(agents, f"Agent{name}")
        args = Config(agent_class, env, {"num_envs": NUM_ENVS}, **settings, cwd=cwd, callbacks=[clock])
        train_agent(args, if_single_process=True)
    return per_second(clock.marks)


def epymarl(name: str, checkout: Path, python: str) -> float:
    said = ["env_args.time_limit=25", "env_args.key=spread-v3", f"t_max={STEPS['epymarl']}", "use_cuda=False"]
    said += ["test_interval=1000000", "test_nepisode=10"]
    with tempfile.TemporaryDirectory() as folder:
        said.append(f"local_results_path={folder}")
        command = [python, "-W", "ignore", "-c", IN_EPYMARL, f"--config={name.lower()}", "--env-config=gymma", "with"]
        out = subprocess.run([*command, *said], cwd=checkout, capture_output=True, text=True, timeout=900, check=False)
    lines = [line for line in out.stdout.splitlines() if line.startswith("marks ")]
    if not lines:
        raise RuntimeError(f"EPyMARL failed:\n{out.stdout[-2000:]}\n{out.stderr[-2000:]}")
    return per_second(json.loads(lines[-1].removeprefix("marks ")))


def report(measured: dict[str, dict[str, list[float]]]) -> str:
    repeats = len(next(iter(measured.values()))["ours"])
    about = f"torch {torch.__version__}, python {platform.python_version()}, {os.cpu_count()} cores, repeats {repeats}"
    lines = ["# Speed of teams", "", *(__doc__ or "").splitlines(), "", f"{about}.", ""]
    lines += ["| agent | side | agents' steps per CPU second | ours is so many times as fast |", "|---|---|---|---|"]
    for name, sides in measured.items():
        for side, rates in sides.items():
            ratios = sorted(a / b for a, b in zip(sides["ours"], rates, strict=True))
            times = f"{statistics.median(ratios):.1f} ({ratios[0]:.1f} to {ratios[-1]:.1f})" if side != "ours" else ""
            lines.append(f"| {name} | {side} | {statistics.median(rates):,.0f} | {times} |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", nargs="+", choices=["QMix", "MAPPO"], default=["QMix", "MAPPO"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--epymarl", type=Path, help="a checkout; without it this side is left out")
    parser.add_argument("--python", default="python", help="of EPyMARL's environment")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    measured: dict[str, dict[str, list[float]]] = {}
    for name in options.agents:
        sides: dict[str, Callable[[], float]] = {
            "ours": lambda name=name: ours(name, "ours"),
            "loop": lambda name=name: ours(name, "loop"),
        }
        if options.epymarl:
            sides["epymarl"] = lambda name=name: epymarl(name, options.epymarl, options.python)
        measured[name] = {side: [] for side in sides}
        for _ in range(options.repeats):
            for side, rate in sides.items():
                measured[name][side].append(rate())
                print(f"{name} {side}: {measured[name][side][-1]:.0f} agents' steps per CPU second", flush=True)
    (options.results / "team_speed.json").write_text(json.dumps(measured) + "\n")
    (options.results / "team_speed.md").write_text(report(measured))


if __name__ == "__main__":
    main()
