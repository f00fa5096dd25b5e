"""Kills at random moments: does every run end right or resume right, and is nothing left?

    python benchmarks/kills.py                  # 60 kills in 12 runs, about ten minutes on two free cores
    python benchmarks/kills.py --runs 2 --seed 3

A run is a script that trains SAC for ever with two Workers and an Evaluator. Five times, after a random time, a Worker,
the Evaluator or the whole process group gets SIGKILL. A lost Worker or Evaluator must be replaced; after a lost group
nothing may be alive, every file must load, and the same script resumes from the last checkpoint. Then a `stop` file
ends the run: exit code 0, every file there and whole, the counters beyond those of every checkpoint before, no process
and no shared memory left. One line of JSON for each run is added to results/kills.jsonl; a failure is exit code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import elegantrl

RESULTS = Path(__file__).resolve().parent / "results" / "kills.jsonl"
KILLS = 5  # in each run
FILES = ["act.pth", "actor.pth", "cri.pth", "checkpoint.pth", "recorder.npy", "recorder.json", "LearningCurve.jpg"]
PATIENCE = 300.0  # seconds for whatever is waited for
SCRIPT = """
import json, os, time
import gymnasium as gym
from elegantrl import Config, train_agent
from elegantrl.agents import AgentSAC

class Pids:
    def on_rollout(self, run):
        children = [*run.worker.children, run.evaluator.child]
        pids = {child.name: child.process.pid for child in children if child.is_ready}
        if len(pids) == len(children):
            with open("pids.tmp", "w") as file:
                json.dump({"step": run.total_step, "restarts": run.worker.restarts, **pids}, file)
            os.replace("pids.tmp", "pids.json")

class Slow(gym.Wrapper):
    def __init__(self):
        super().__init__(gym.make("Pendulum-v1"))
    def step(self, action):
        time.sleep(0.001)  # the kills are of interest, not the speed
        return super().step(action)

args = Config(AgentSAC, Slow, net_dims=(32, 32), batch_size=64, horizon_len=16, buffer_size=20_000, utd=0.1)
args.eval_per_step, args.eval_times, args.checkpoint_per_step, args.if_save_buffer = 500, 1, 500, True
args.cwd, args.callbacks, args.max_restarts, args.continue_train = "run", [Pids()], 100, os.path.exists("run")
print(train_agent(args).stop_reason, flush=True)
"""


class Trial:
    """One run in a folder of its own, and what it has suffered."""

    def __init__(self, folder: Path, rng: random.Random):
        self.folder, self.rng = folder, rng
        self.kills: list[str] = []
        self.groups: list[int] = []
        self.step = 0  # of the newest checkpoint that was seen
        self.memory = shared_memory()

    def start(self) -> None:
        (self.folder / "pids.json").unlink(missing_ok=True)
        path = os.pathsep.join([str(Path(elegantrl.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        self.log = open(self.folder / "log.txt", "a")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT],
            cwd=self.folder,
            env=environment,
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.groups.append(self.process.pid)

    def pids(self) -> dict[str, int]:
        """Of the processes of the run, as soon as all are at work."""
        wait(lambda: (self.folder / "pids.json").exists() or self.process.poll() is not None, "the run to begin")
        check(self.process.poll() is None, f"the run died: {self.tail()}")
        found = json.loads((self.folder / "pids.json").read_text())
        return {name: pid for name, pid in found.items() if name not in ("step", "restarts")}

    def kill(self) -> None:
        self.pids()
        time.sleep(self.rng.uniform(0.0, 4.0))
        victim = self.rng.choice(["Worker 0", "Worker 1", "Evaluator", "group"])
        self.kills.append(victim)
        if victim == "group":
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            wait(lambda: not of_groups(self.groups), "the group to be gone")
            self.look_at_files()
            self.start()
        else:
            wait(lambda: is_alive(self.pids()[victim]), f"another {victim}")
            os.kill(self.pids()[victim], signal.SIGKILL)

    def look_at_files(self) -> None:
        """What is there is whole."""
        for file in self.folder.glob("run/*"):
            if file.name.startswith(".tmp"):
                continue  # what a killed writer left: nobody reads it
            if file.suffix in (".pth", ".pt"):
                torch.load(file, weights_only=True)
            elif file.name == "recorder.npy":
                steps = np.load(file)[:, 0]
                check(bool((np.diff(steps) > 0).all()), f"steps of the records: {steps}")
        if (self.folder / "run/checkpoint.pth").exists():
            step = torch.load(self.folder / "run/checkpoint.pth", weights_only=True)["worker"]["total_step"]
            check(step >= self.step, f"the checkpoint went back from step {self.step} to {step}")
            self.step = step

    def end(self) -> None:
        self.pids()
        (self.folder / "run/stop").touch()
        wait(lambda: self.process.poll() is not None, "the run to stop")
        check(self.process.returncode == 0, f"exit code {self.process.returncode}: {self.tail()}")
        self.look_at_files()
        missing = [file for file in FILES if not (self.folder / "run" / file).exists()]
        check(not missing, f"missing: {missing}")
        wait(lambda: not of_groups(self.groups), "all processes to be gone")
        check(shared_memory() <= self.memory, "shared memory is left")

    def tail(self) -> str:
        return (self.folder / "log.txt").read_text()[-2000:]

    def clean_up(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.log.close()


def check(is_right: bool, told: str) -> None:
    if not is_right:
        raise AssertionError(told)


def wait(condition: Any, what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        check(time.monotonic() < end, f"waited {PATIENCE:.0f} seconds for {what}")
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def of_groups(groups: list[int]) -> list[int]:
    """Processes of process groups, zombies that nobody has reaped left out."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group, *_ = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(group) in groups and state != "Z":
            found.append(int(stat.parent.name))
    return found


def shared_memory() -> set[str]:
    """Torch's segments that dead processes left; their names hold the process's id."""
    names = [name for name in os.listdir("/dev/shm") if name.startswith("torch_")]
    return {name for name in names if not Path(f"/proc/{name.split('_')[1]}").exists()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    options.results.parent.mkdir(parents=True, exist_ok=True)
    failures = 0
    for seed in range(options.seed, options.seed + options.runs):
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            trial = Trial(Path(folder), random.Random(seed))
            trial.start()
            try:
                for _ in range(KILLS):
                    trial.kill()
                trial.end()
                result = "right"
            except Exception as error:
                result, failures = f"{type(error).__name__}: {error}", failures + 1
            finally:
                trial.clean_up()
            row = {"seed": seed, "kills": trial.kills, "step": trial.step, "result": result}
        row["seconds"] = round(time.monotonic() - start)
        print(json.dumps(row), flush=True)
        with open(options.results, "a") as file:
            file.write(json.dumps(row) + "\n")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
