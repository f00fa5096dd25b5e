"""Does every agent learn? Each row of TASKS for several seeds, in one-thread processes; raw evaluations and a table.

    python benchmarks/learning.py --jobs 2                      # everything that is not finished yet (hours)
    python benchmarks/learning.py --tasks CartPole-v1 --agents AgentPPO AgentD3QN --seeds 3
    python benchmarks/learning.py --report                      # only rewrite the table from the raw rows

Protocol: the policy is evaluated greedily on its own environments and seeds every `eval_per_step` steps of training,
over EPISODES episodes. A run never stops early. Its score is the mean of its last ten evaluations, not its best one,
and it has solved the task if that score reaches the threshold.
Rows: TASKS below and rows.py, Stable-Baselines3's among them (`sb3-PPO`; needs benchmarks/requirements.txt).
Raw rows: results/learning/{task}/{agent}_{seed}.csv, one row per evaluation; its first line holds the settings and the
versions. A run whose file is there with the same settings is not repeated.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported; the processes of the pool inherit it

from rows import A2C, DQN, EPISODES, MORE, PEERS, PPO, H, Row, with_changes

from elegantrl.agents.functional import LinearSchedule

RESULTS = Path(__file__).resolve().parent / "results"
SCORE_EVALUATIONS = 10  # the score is the mean of so many last evaluations


THRESHOLDS = {
    "CartPole-v1": 475.0,
    "Acrobot-v1": -100.0,
    "Pendulum-v1": -200.0,
    "MountainCarContinuous-v0": 90.0,
    "LunarLander-v3": 200.0,
    "LunarLanderContinuous-v3": 200.0,
    "Hopper-v5": 2500.0,
    "HalfCheetah-v5": 1500.0,
    "Swimmer-v5": 200.0,
    "HopperBulletEnv-v0": 1000.0,
    "InvertedPendulumBulletEnv-v0": 950.0,
}

CARTPOLE_DQN = {  # many environments for few updates: rows from near the track's ends are rare, and gamma must see them
    "net_dims": (128, 128), "num_envs": 16, "learning_rate": LinearSchedule(1e-3, 2e-5, fraction=0.8), "gamma": 0.99,
    "batch_size": 128, "buffer_size": 600_000, "utd": 0.125, "explore_rate": LinearSchedule(1.0, 0.05, fraction=0.2),
}  # fmt: skip
CARTPOLE_PPO = {
    "net_dims": (64, 64), "num_envs": 32, "horizon_len": 64, "batch_size": 256, "learning_rate": 1e-3,
    "gamma": 0.98, "lambda_gae_adv": 0.9,
}  # fmt: skip
CARTPOLE_A2C = {"num_envs": 32, "horizon_len": 16, "learning_rate": LinearSchedule(2e-3), "if_norm_state": True}
PENDULUM_OFF = {"net_dims": (128, 128), "learning_rate": 1e-3, "batch_size": 128}
PENDULUM_MANY = PENDULUM_OFF | {"num_envs": 16, "utd": 0.25}  # as many updates for four times the steps
PENDULUM_PPO = {
    "num_envs": 4, "horizon_len": 1024, "batch_size": 64, "learning_rate": LinearSchedule(1e-3), "gamma": 0.9,
    "if_norm_reward": True,
}  # fmt: skip
PENDULUM_A2C = {
    "num_envs": 16, "horizon_len": 8, "learning_rate": LinearSchedule(1e-3), "gamma": 0.9, "lambda_gae_adv": 1.0,
    "activation": "relu", "if_norm_reward": True,
}  # fmt: skip
LUNAR_PPO = {
    "num_envs": 16, "horizon_len": 512, "batch_size": 256, "repeat_times": 5, "learning_rate": LinearSchedule(1e-3),
    "gamma": 0.999, "lambda_gae_adv": 0.98, "lambda_entropy": 0.01, "if_norm_reward": True,
}  # fmt: skip
LUNAR_D3QN = {
    "net_dims": (128, 128), "num_envs": 8, "learning_rate": LinearSchedule(1e-3), "batch_size": 128,
    "buffer_size": 400_000, "utd": 0.5, "n_step": 3, "if_norm_reward": True,
    "explore_rate": LinearSchedule(1.0, 0.02, fraction=0.2),
}  # fmt: skip
HOPPER_FAST = {
    "num_envs": 32, "horizon_len": 64, "batch_size": 256, "learning_rate": LinearSchedule(1e-3), "ratio_clip": 0.2,
    "if_norm_state": True, "if_norm_reward": True,
}  # fmt: skip
# steps as large as those end the exploration before every seed has learned to hop
HOPPER_PPO = HOPPER_FAST | {"batch_size": 64, "learning_rate": LinearSchedule(3e-4), "if_compile": True}
LUNAR_OFF = {  # the zoo's, on smaller networks
    "net_dims": (128, 128), "learning_rate": LinearSchedule(7.3e-4), "batch_size": 128, "buffer_init_size": 10_000,
    "soft_update_tau": 0.01, "if_compile": True,
}  # fmt: skip
BULLET_PPO = {
    "num_envs": 16, "horizon_len": 512, "batch_size": 256, "repeat_times": 10, "learning_rate": LinearSchedule(3e-4),
    "if_norm_state": True, "if_norm_reward": True,
}  # fmt: skip

TASKS = [
    *(Row("CartPole-v1", agent, 600_000, 12_000, CARTPOLE_DQN) for agent in DQN),
    *(Row("CartPole-v1", f"Agent{name}DQN", 600_000, 12_000, CARTPOLE_DQN, seeds=1) for name in ("Ensemble", "Embed")),
    *(Row("CartPole-v1", agent, 100_000, 2_500, CARTPOLE_PPO) for agent in PPO),
    *(Row("CartPole-v1", agent, 2_000_000, 40_000, CARTPOLE_A2C) for agent in A2C),
    *(Row("Pendulum-v1", f"Agent{name}", 20_000, 1_000, PENDULUM_OFF) for name in ("SAC", "ModSAC", "TD3", "DDPG")),
    *(Row("Pendulum-v1", f"Agent{name}", 80_000, 4_000, PENDULUM_MANY, 2, "@16_envs") for name in ("SAC", "TD3")),
    Row("Pendulum-v1", "AgentPPO", 150_000, 5_000, PENDULUM_PPO),
    Row("Pendulum-v1", "AgentA2C", 600_000, 15_000, PENDULUM_A2C),
    Row("LunarLander-v3", "AgentPPO", 800_000, 20_000, LUNAR_PPO),
    Row("LunarLander-v3", "AgentD3QN", 400_000, 10_000, LUNAR_D3QN),
    Row("LunarLanderContinuous-v3", "AgentSAC", 300_000, 6_000, LUNAR_OFF, seeds=3),
    Row("LunarLanderContinuous-v3", "AgentTD3", 300_000, 6_000, LUNAR_OFF, seeds=3),
    Row("Hopper-v5", "AgentPPO", 1_000_000, 50_000, HOPPER_PPO, seeds=8),
    Row("Hopper-v5", "AgentPPO", 1_000_000, 50_000, HOPPER_FAST, seeds=4, variant="@lr=1e-3"),
    Row("HopperBulletEnv-v0", "AgentPPO", 600_000, 20_000, BULLET_PPO, seeds=2),  # needs elegantrl[pybullet]
]
TASKS += [
    *MORE,
    *(Row("Hopper-v5", "AgentPPO", 1_000_000, 50_000, HOPPER_PPO | h, 8, variant) for variant, h in H.items()),
    Row("LunarLanderContinuous-v3", "AgentPPO", 800_000, 20_000, LUNAR_PPO, seeds=3),
    *PEERS,
]
TASKS += [
    changed
    for row in TASKS
    if row.name in ("AgentPPO", "AgentSAC", "sb3-PPO", "sb3-SAC") and row.task in ("Pendulum-v1", "CartPole-v1")
    for changed in with_changes(row)
]


def csv_path(row: Row, seed: int, results: Path) -> Path:
    return results / "learning" / row.task / f"{row.name}_{seed}.csv"


def read_run(path: Path) -> tuple[dict[str, Any], list[dict[str, float]]]:
    """The first line's facts and one dict per evaluation."""
    first, *lines = path.read_text().splitlines()
    rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(lines)]
    return json.loads(first.removeprefix("# ")), rows


def plain(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings as a file's first line gives them back: lists for tuples, text for schedules."""
    return json.loads(json.dumps(settings, default=str))


def is_finished(row: Row, seed: int, results: Path) -> bool:
    path = csv_path(row, seed, results)
    return path.exists() and read_run(path)[0]["settings"] == plain(row.told())


def finished_seeds(row: Row, results: Path) -> list[int]:
    paths = csv_path(row, 0, results).parent.glob(f"{row.name}_[0-9]*.csv")
    seeds = sorted(int(path.stem.rsplit("_", 1)[1]) for path in paths)
    return [seed for seed in seeds if is_finished(row, seed, results)]


def run_row(row: Row, seed: int, results: Path) -> tuple[float, int]:
    """Train one agent with one seed and write its raw rows; wall seconds and the number of evaluations.

    Runs in a process of its own, so that no run sees another's random state.
    """
    import gymnasium
    import torch

    torch.set_num_threads(1)
    start = time.process_time()
    if row.agent.startswith("sb3-"):
        import peers
        import stable_baselines3 as library

        run = peers.train(row, seed)
        names, rows, seconds = list(peers.COLUMNS), run.rows, run.seconds
    else:
        import elegantrl as library

        names, rows, seconds = run_ours(row, seed)
    facts = {
        "settings": row.told(),
        "wall_seconds": round(seconds[-1], 1),
        "cpu_seconds": round(time.process_time() - start, 1),
        "versions": {
            library.__name__: library.__version__,
            "torch": torch.__version__,
            "gymnasium": gymnasium.__version__,
            "python": platform.python_version(),
        },
    }
    write_csv(csv_path(row, seed, results), facts, names, rows, seconds)
    return seconds[-1], len(rows)


def run_ours(row: Row, seed: int) -> tuple[list[str], Any, list[float]]:
    """Names of the columns after the step, the rows, and wall seconds at each."""
    import elegantrl.agents
    from elegantrl import Config, train_agent

    with tempfile.TemporaryDirectory(prefix="learning_") as folder:
        args = Config(getattr(elegantrl.agents, row.agent), row.task, random_seed=seed, cwd=folder, **row.told())
        clock = EvaluationClock()
        args.num_threads, args.if_keep_save, args.callbacks = 1, False, (clock,)
        # the tables of several runs at once are of no use in one terminal
        with open(Path(folder) / "console.txt", "w") as console, contextlib.redirect_stdout(console):
            train_agent(args, if_single_process=True)
        return *recorded(Path(folder)), clock.seconds


class EvaluationClock:
    """A callback of train_agent: wall seconds since the start at each evaluation."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.seconds: list[float] = []

    def on_evaluate(self, run: Any) -> None:
        self.seconds.append(time.perf_counter() - self.start)


def recorded(cwd: Path) -> tuple[list[str], Any]:
    """Names of the columns after the step, and the rows of recorder.npy."""
    import numpy as np

    _, *names = json.loads((cwd / "recorder.json").read_text())
    return names, np.load(cwd / "recorder.npy")


def write_run(path: Path, facts: dict[str, Any], cwd: Path, seconds: list[float]) -> int:
    """Copy recorder.npy, with its columns' names and the seconds, into a csv file; the number of evaluations."""
    names, rows = recorded(cwd)
    write_csv(path, facts, names, rows, seconds)
    return len(rows)


def write_csv(path: Path, facts: dict[str, Any], names: list[str], rows: Any, seconds: list[float]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")  # only a complete file bears the name that counts as finished
    with open(unfinished, "w", newline="") as file:
        file.write(f"# {json.dumps(facts, default=str)}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["step", "seconds", *names])
        for (step, *values), second in zip(rows, seconds, strict=True):
            writer.writerow([int(step), f"{second:.1f}", *(f"{value:.6g}" for value in values)])
    unfinished.replace(path)


def run_all(rows: list[Row], seeds: int | None, jobs: int, results: Path) -> int:
    """Run what is not finished; the number of runs that failed."""
    wanted = [(row, seed) for row in rows for seed in range(seeds or row.seeds)]
    due = [(row, seed) for row, seed in wanted if not is_finished(row, seed, results)]
    print(f"{len(due)} runs to do, {len(wanted) - len(due)} finished before", flush=True)
    failed = 0
    spawn = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=spawn, max_tasks_per_child=1)
    try:
        futures = {pool.submit(run_row, row, seed, results): (row, seed) for row, seed in due}
        for number, future in enumerate(as_completed(futures), 1):
            row, seed = futures[future]
            label = f"{number}/{len(due)} {row.task} {row.name} seed {seed}"
            try:
                seconds, evaluations = future.result()
            except Exception:
                failed += 1
                print(f"{label}: FAILED\n{traceback.format_exc()}", flush=True)
                continue
            score = summarise(row, seed, results).score
            print(f"{label}: score {score:.1f}, {evaluations} evaluations, {seconds:.0f} s", flush=True)
    finally:  # after Ctrl-C no further run begins
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            child.terminate()
    return failed


@dataclass(frozen=True)
class Summary:
    """One run: score, the step of the first evaluation at the threshold (None: never), wall seconds."""

    score: float
    reached: int | None
    seconds: float


def summarise(row: Row, seed: int, results: Path) -> Summary:
    facts, evaluations = read_run(csv_path(row, seed, results))
    threshold = THRESHOLDS[row.task]
    reached = next((int(e["step"]) for e in evaluations if e["avgR"] >= threshold), None)
    score = statistics.fmean(e["avgR"] for e in evaluations[-SCORE_EVALUATIONS:])
    return Summary(score, reached, facts["wall_seconds"])


def report(rows: list[Row], results: Path) -> str:
    """The table of all finished runs as Markdown."""
    lines = [
        "# Learning",
        "",
        "Made by `python benchmarks/learning.py` (its first lines give the protocol); raw evaluations per seed are in",
        f"`learning/`. Score: mean of a run's last {SCORE_EVALUATIONS} greedy evaluations, {EPISODES} episodes each.",
        "Solved: runs whose score reaches the threshold. Reached: training steps at the first evaluation that did",
        "(–: never). Seconds: wall time of a run with its evaluations, one thread, on a shared machine.",
    ]
    versions: dict[str, set[str]] = {}
    for task, threshold in THRESHOLDS.items():
        lines += ["", f"## {task}: {threshold:.0f}", ""]
        lines += ["| agent | steps | solved | median | score per seed | reached per seed | median seconds |"]
        lines += ["|---|---|---|---|---|---|---|"]
        for row in (row for row in rows if row.task == task):
            seeds = finished_seeds(row, results)
            if not seeds:
                lines.append(f"| {row.name} | {row.break_step} | not run | | | | |")
                continue
            for seed in seeds:
                for name, version in read_run(csv_path(row, seed, results))[0]["versions"].items():
                    versions.setdefault(name, set()).add(version)
            runs = [summarise(row, seed, results) for seed in seeds]
            lines.append(
                f"| {row.name} | {row.break_step} | {sum(run.score >= threshold for run in runs)}/{len(runs)} "
                f"| {statistics.median(run.score for run in runs):.1f} "
                f"| {', '.join(f'{run.score:.1f}' for run in runs)} "
                f"| {', '.join('–' if run.reached is None else str(run.reached) for run in runs)} "
                f"| {statistics.median(run.seconds for run in runs):.0f} |"
            )
    lines += ["", "## Settings", "", "What `Config` was told; everything else is the agent's default.", ""]
    for row in rows:
        lines.append(f"- {row.task}, {row.name}: " + ", ".join(f"`{k}={v}`" for k, v in row.told().items()))
    if versions:
        lines += ["", "Versions: " + ", ".join(f"{k} {'/'.join(sorted(v))}" for k, v in versions.items()) + "."]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=list(THRESHOLDS), default=list(THRESHOLDS))
    parser.add_argument("--agents", nargs="+", choices=sorted({row.name for row in TASKS}))
    parser.add_argument("--seeds", type=int, help="seeds 0..n-1 of every row (default: each row's own number)")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1)))
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the table and the raw rows")
    parser.add_argument("--report", action="store_true", help="run nothing, only write the table")
    options = parser.parse_args()

    failed = 0
    if not options.report:
        rows = [row for row in TASKS if row.task in options.tasks and row.name in (options.agents or [row.name])]
        failed = run_all(rows, options.seeds, options.jobs, options.results)
    options.results.mkdir(parents=True, exist_ok=True)
    table = options.results / "learning.md"
    table.write_text(report(TASKS, options.results))
    print(f"table: {table}")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
