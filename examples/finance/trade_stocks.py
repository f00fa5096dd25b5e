"""Train DDPG, PPO and SAC to trade 20 US stocks, choose by validation years, and look at test years once.

    python examples/finance/trade_stocks.py            # a few minutes on two cores
    python examples/finance/trade_stocks.py --quick    # seconds: everything runs, nothing is learned

Writes runs/finance/backtest.md and backtest.png. Needs `pip install elegantrl[finance]`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from backtest import Backtest, equal_parts, play, table
from picture import draw

from elegantrl import Config, load_agent, train_agent
from elegantrl.agents import AgentDDPG, AgentPPO, AgentSAC
from elegantrl.envs.stock_data import Prices, indicators, load_prices
from elegantrl.envs.StockTradingEnv import StockTradingEnv, StockTradingVecEnv

SPLITS = {  # first days of training, validation, test, and of what comes after
    "2013 to 2017": ("1995-01-01", "2010-01-01", "2013-01-01", "2018-01-01"),
    "2018 to 2022": ("1995-01-01", "2015-01-01", "2018-01-01", "2023-01-01"),
}
PERIODS = ("training", "validation", "test")
RULES = {"initial_amount": 1e6, "cost_pct": 1e-3, "max_trade": 0.05}  # an order is at most 5 % of the portfolio
AGENTS = {"DDPG": AgentDDPG, "PPO": AgentPPO, "SAC": AgentSAC}


@dataclass
class Job:
    """One training: everything that a process needs to know."""

    split: str
    agent: str
    seed: int
    steps: int
    folder: Path


@dataclass
class Outcome:
    """What came of it: the best score on the validation years, and the test years by that policy."""

    job: Job
    validation: float
    test: Backtest


def market(prices: Prices, split: str) -> dict[str, dict[str, Any]]:
    """Arguments of an environment for training, validation and test: arrays end where the period ends."""
    tech = indicators(prices.close)
    days = [int(np.searchsorted(prices.dates, date)) for date in SPLITS[split]]
    return {
        period: {**RULES, "price_array": prices.close[:end], "tech_array": tech[:end], "beg_idx": start}
        for period, (start, end) in zip(PERIODS, pairwise(days), strict=True)
    }


def settings(job: Job, periods: dict[str, dict[str, Any]]) -> Config:
    """64 portfolios trade years that begin on random days; an evaluation is one walk through the validation years."""
    args = Config(AGENTS[job.agent], StockTradingVecEnv, {**periods["training"], "max_step": 250}, num_envs=64)
    args.eval_env_args = {**periods["validation"], "max_step": 0, "if_random_reset": False, "num_envs": 1}
    args.eval_times, args.eval_per_step, args.break_step = 1, job.steps // 10, job.steps
    args.net_dims, args.gamma, args.learning_rate = (64, 64), 0.97, 3e-4
    args.horizon_len, args.random_seed = 32, job.seed
    if job.agent != "PPO":
        args.utd, args.buffer_init_size = 1 / 32, 2048
    args.cwd = str(job.folder / f"{job.split} {job.agent} {job.seed}".replace(" ", "_"))
    return args


def run(job: Job) -> Outcome:
    periods = market(load_prices(), job.split)
    args = settings(job, periods)
    Path(args.cwd).mkdir(parents=True, exist_ok=True)
    with open(Path(args.cwd) / "log.txt", "w") as log, redirect_stdout(log):
        train_agent(args, if_single_process=True)
    scores = np.load(Path(args.cwd) / "recorder.npy")[:, 1]
    agent = load_agent(args.cwd, best=True)
    env = StockTradingEnv(**periods["test"], if_random_reset=False)
    return Outcome(job, float(scores.max()), play(env, agent.select_action))


def in_processes(jobs: list[Job], num: int) -> list[Outcome]:
    """`num` trainings at a time, with a line for each that has ended."""
    outcomes = []
    with ProcessPoolExecutor(num, multiprocessing.get_context("spawn")) as pool:
        for outcome in pool.map(run, jobs):
            name, percent = outcome.job, 100 * outcome.test.figures()["return a year"]
            print(f"{name.agent:<5} seed {name.seed}, test {name.split}: {percent:5.1f} % a year", flush=True)
            outcomes.append(outcome)
    return outcomes


def report(split: str, outcomes: list[Outcome]) -> tuple[str, dict[str, Backtest]]:
    """The table of one split, and the rules to draw."""
    env = StockTradingEnv(**market(load_prices(), split)["test"], if_random_reset=False)
    chosen = max(outcomes, key=lambda outcome: outcome.validation)
    rules = {
        f"chosen by validation: {chosen.job.agent}, seed {chosen.job.seed}": chosen.test,
        "buy and hold": equal_parts(env, every=None),
        "equal weight, monthly": equal_parts(env),
    }
    others = {f"{o.job.agent}, seed {o.job.seed} (validation {o.validation:.1f})": o.test for o in outcomes}
    return f"## {split}\n\n{table({**rules, **others})}\n", rules


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one split, one seed, few steps")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=60_000, help="days traded in one training, by all portfolios")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at a time")
    parser.add_argument("--folder", type=Path, default=Path("runs/finance"))
    args = parser.parse_args()
    splits, seeds, steps = (list(SPLITS)[-1:], 1, 2_100) if args.quick else (list(SPLITS), args.seeds, args.steps)
    jobs = [Job(s, agent, seed, steps, args.folder) for s in splits for agent in AGENTS for seed in range(seeds)]
    outcomes = list(map(run, jobs)) if args.quick else in_processes(jobs, args.jobs)
    reports = {split: report(split, [o for o in outcomes if o.job.split == split]) for split in splits}
    text = "\n".join(part for part, _ in reports.values())
    args.folder.mkdir(parents=True, exist_ok=True)
    (args.folder / "backtest.md").write_text(text)
    prices = load_prices()
    dates = [prices.dates[np.searchsorted(prices.dates, SPLITS[split][2]) :] for split in splits]
    draw({split: rules for split, (_, rules) in reports.items()}, dates, args.folder / "backtest.png")
    print(f"\n{text}\nTable and picture: {args.folder.resolve()}")


if __name__ == "__main__":
    main()
