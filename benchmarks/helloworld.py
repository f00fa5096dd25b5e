"""Does each tutorial of helloworld/ learn its task? Three seeds each, one thread; raw rows and the table of docs.

    python benchmarks/helloworld.py             # every run that has no row yet
    python benchmarks/helloworld.py --only DQN  # of one tutorial
    python benchmarks/helloworld.py --report    # only rewrite the table from the raw rows

Raw rows: results/helloworld.jsonl. A run that is to be repeated: delete its row.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
SEEDS = (0, 1, 2)
TUTORIALS = {
    "DQN on CartPole-v1": ("tutorial_DQN", "train_dqn_for_cartpole"),
    "DDPG on Pendulum-v1": ("tutorial_DDPG", "train_ddpg_for_pendulum"),
    "PPO on CartPole-v1": ("tutorial_PPO", "train_ppo_for_cartpole"),
    "PPO on Pendulum-v1": ("tutorial_PPO", "train_ppo_for_pendulum"),
}


def measure(name: str, seed: int) -> dict:
    """One run of a tutorial as a reader would start it, and the learning curve that its `train` returns."""
    file, function = TUTORIALS[name]
    module = importlib.import_module(file)
    curves = []
    train, module.train = module.train, lambda *given: curves.append(train(*given))
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        score = float(getattr(module, function)(seed=seed))
    module.train = train
    last = [value for _, value in curves[0][-10:]]
    return {
        "tutorial": name,
        "seed": seed,
        "score": round(score, 1),
        "last_ten": round(sum(last) / len(last), 1),
        "steps": curves[0][-1][0],
        "cpu_seconds": round(time.process_time() - start),
        "commit": subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True).strip(),
    }


def table(rows: list[dict]) -> str:
    """One line for each tutorial, its seeds in order."""
    lines = [
        "| tutorial | 20 fresh episodes | last ten evaluations | steps | seconds of one core | commit |",
        "|---|---|---|---|---|---|",
    ]
    for name in TUTORIALS:
        if runs := sorted((row for row in rows if row["tutorial"] == name), key=lambda row: row["seed"]):
            columns = [
                ", ".join(str(run[key]) for run in runs) for key in ("score", "last_ten", "steps", "cpu_seconds")
            ]
            commits = ", ".join(dict.fromkeys(run["commit"] for run in runs))
            lines.append(f"| {name} | {' | '.join(columns)} | {commits} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a part of a tutorial's name, such as DQN or Pendulum")
    parser.add_argument("--report", action="store_true")
    told = parser.parse_args()
    sys.path.insert(0, str(ROOT / "helloworld"))
    raw = RESULTS / "helloworld.jsonl"
    rows = [json.loads(line) for line in raw.read_text().splitlines()] if raw.exists() else []
    done = {(row["tutorial"], row["seed"]) for row in rows}
    for name in TUTORIALS:
        for seed in SEEDS:
            if not told.report and told.only in name and (name, seed) not in done:
                rows.append(measure(name, seed))
                with raw.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    (RESULTS / "helloworld.md").write_text(table(rows))


if __name__ == "__main__":
    main()
