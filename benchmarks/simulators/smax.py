"""QMIX wins battles of SMAX: smax.py 0 1 2 [--map 3m] [--steps 1000000] [--num-envs 64], seeds one after the other.

To be run in the virtual environment that setup.sh makes. Score: the mean share of battles won against the scripted
enemies in a run's last EVALUATIONS evaluations. Exits with 1 where one is below 80 %.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported

import torch
from jaxmarl.environments.smax import HeuristicEnemySMAX, map_name_to_scenario

from elegantrl import Config, build_env, check_vec_env, train_agent
from elegantrl.agents import AgentQMix
from elegantrl.agents.functional import LinearSchedule

EVALUATIONS = 3
SETTINGS = {
    "net_dims": (64, 64), "horizon_len": 25, "batch_size": 256, "utd": 1 / 32, "buffer_size": 200_000,
    "learning_rate": LinearSchedule(1e-3), "soft_update_tau": 0.01,
}  # fmt: skip


class Told:
    """Prints every evaluation."""

    def on_evaluate(self, run: Any) -> None:
        row = run.evaluator.records.rows[-1]
        print(
            f"{run.total_step:>9,} steps  {run.evaluator.elapsed:>5.0f} s  wins {100 * row['winrate']:5.1f} %  "
            f"return {row['avgR']:.2f}  length {row['avgS']:.1f}",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--map", default="3m")
    parser.add_argument("--steps", type=int, default=1_000_000, help="environment steps of a run")
    parser.add_argument("--num-envs", type=int, default=64)
    told = parser.parse_args()

    torch.set_num_threads(1)
    env_args = {"num_envs": told.num_envs, "scenario": map_name_to_scenario(told.map)}
    began = time.monotonic()
    env, eval_env = (build_env(HeuristicEnemySMAX, env_args) for _ in range(2))  # compiled once, for all seeds
    check_vec_env(env, steps=20)
    print(f"{told.map}: check_vec_env finds nothing wrong, {time.monotonic() - began:.0f} s", flush=True)
    scores = []
    for seed in told.seeds:
        began, cpu = time.monotonic(), time.process_time()
        with tempfile.TemporaryDirectory() as cwd:
            args = Config(AgentQMix, env, eval_env_class=lambda: eval_env, **SETTINGS, random_seed=seed, cwd=cwd)
            args.break_step, args.eval_per_step, args.eval_times = told.steps, told.steps // 10, 128
            args.callbacks = [Told()]
            rows = train_agent(args, if_single_process=True).evaluator.records.rows
        scores.append(statistics.fmean(row["winrate"] for row in rows[-EVALUATIONS:]))
        print(
            f"seed {seed}: wins {100 * scores[-1]:.1f} %, {rows[-1]['total_step']:,.0f} steps, "
            f"{time.monotonic() - began:.0f} s, {time.process_time() - cpu:.0f} CPU s",
            flush=True,
        )
    return 0 if min(scores) >= 0.8 else 1


if __name__ == "__main__":
    sys.exit(main())
