"""Train DDPG, PPO and SAC to trade 20 US stocks, choose by validation years, and test on the years after them.

Neither training nor choosing sees the test years. We saw figures of them while we chose two settings of this script
(`max_trade`, SAC's first temperature), so for us they are no longer untouched; your own change makes them less so.

Three times, each for the five years that follow, with three seeds each: 27 trainings.

    python examples/finance/trade_stocks.py            # a few minutes on two cores
    python examples/finance/trade_stocks.py --quick    # seconds: everything runs, nothing is learned

Prints the test years in a row; writes runs/finance/backtest.md, with every training, and backtest.png.
Needs `pip install ".[finance]"`.
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
from backtest import Backtest, chain, equal_parts, play, table
from picture import draw

from elegantrl import Config, load_agent, train_agent
from elegantrl.agents import AgentDDPG, AgentPPO, AgentSAC
from elegantrl.envs.stock_data import Prices, indicators, load_prices
from elegantrl.envs.StockTradingEnv import StockTradingEnv, StockTradingVecEnv

SPLITS = {  # first days of training, validation, test, and of what comes after
    "2008 to 2012": ("1991-01-01", "2005-01-01", "2008-01-01", "2013-01-01"),
    "2013 to 2017": ("1991-01-01", "2010-01-01", "2013-01-01", "2018-01-01"),
    "2018 to 2022": ("1991-01-01", "2015-01-01", "2018-01-01", "2023-01-01"),
}
PERIODS = ("training", "validation", "test")
RULES = {"initial_amount": 1e6, "cost_pct": 1e-3, "max_trade": 0.02}  # an order is at most 2 % of the portfolio
CHOSEN, HELD, EQUAL = "chosen", "buy and hold", "equal weight"
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
    """256 portfolios trade years that begin on random days; an evaluation is one walk through the validation years."""
    args = Config(AGENTS[job.agent], StockTradingVecEnv, {**periods["training"], "max_step": 250}, num_envs=256)
    args.eval_env_args = {**periods["validation"], "max_step": 0, "if_random_reset": False, "num_envs": 1}
    args.eval_times, args.eval_per_step, args.break_step = 1, job.steps // 10, job.steps
    args.net_dims, args.gamma, args.learning_rate = (64, 64), 0.97, 1e-3
    args.horizon_len, args.random_seed = 32, job.seed
    if job.agent == "PPO":
        args.batch_size = 1024
    else:
        args.utd, args.buffer_size = 1 / 100, job.steps
    if job.agent == "SAC":
        args.alpha_init = 0.01  # rewards are small: from 1, randomness would outweigh them for the whole training
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


def compare(split: str, outcomes: list[Outcome]) -> tuple[dict[str, Backtest], str]:
    """Three rules to compare, and the table of these and of all that were trained (agent and seed)."""
    env = StockTradingEnv(**market(load_prices(), split)["test"], if_random_reset=False)
    best = max(outcomes, key=lambda outcome: outcome.validation)
    rules = {CHOSEN: best.test, HELD: equal_parts(env, every=None), EQUAL: equal_parts(env)}
    trained = {f"{o.job.agent} {o.job.seed}": o for o in outcomes}
    scores = ", ".join(f"{name} {o.validation:.1f}" for name, o in trained.items())
    columns = {**rules, **{name: o.test for name, o in trained.items()}}
    return rules, f"## Test years {split}\n\nValidation scores: {scores}\n\n{table(columns, HELD)}\n"


def summary(reports: dict[str, dict[str, Backtest]], outcomes: list[Outcome]) -> str:
    """The test years in a row, how far the trainings of an agent differ, and what may be concluded."""
    rules = {name: chain([report[name] for report in reports.values()]) for name in (CHOSEN, HELD, EQUAL)}
    lines = [f"## All test years in a row\n\n{table(rules, HELD)}\n"]
    for agent in AGENTS:
        gains = [o.test.beyond(reports[o.job.split][HELD])[0] for o in outcomes if o.job.agent == agent]
        ends = f"{np.mean(gains):+.1%} on average, {min(gains):+.1%} to {max(gains):+.1%}"
        lines.append(f"- {agent}, a year beyond {HELD}, {len(gains)} trainings: {ends}")
    _, low, high = rules[CHOSEN].beyond(rules[HELD])
    verdict = "no difference from chance" if low < 0 < high else "a difference, if these were the only rules ever tried"
    lines.append(f"\nThe chosen rules against {HELD}: {low:+.1%} to {high:+.1%} a year (95 %), so {verdict}.")
    lines.append("The stocks are survivors: no rule could have earned so much, and only the comparison means anything.")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one split, one seed, few steps")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100_000, help="days traded in one training, by all portfolios")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at a time")
    parser.add_argument("--folder", type=Path, default=Path("runs/finance"))
    args = parser.parse_args()
    splits, seeds, steps = (list(SPLITS)[-1:], 1, 8_200) if args.quick else (list(SPLITS), args.seeds, args.steps)
    jobs = [Job(s, agent, seed, steps, args.folder) for s in splits for agent in AGENTS for seed in range(seeds)]
    outcomes = list(map(run, jobs)) if args.quick else in_processes(jobs, args.jobs)
    of_split = {split: [outcome for outcome in outcomes if outcome.job.split == split] for split in splits}
    compared = {split: compare(split, of_split[split]) for split in splits}
    reports = {split: rules for split, (rules, _) in compared.items()}
    conclusion = summary(reports, outcomes)
    args.folder.mkdir(parents=True, exist_ok=True)
    (args.folder / "backtest.md").write_text("\n".join([conclusion, *(text for _, text in compared.values())]))
    dates = load_prices().dates
    days = {split: dates[int(np.searchsorted(dates, SPLITS[split][2])) :] for split in splits}
    trained = {split: [outcome.test for outcome in of_split[split]] for split in splits}
    draw(reports, trained, days, args.folder / "backtest.png")
    print(f"\n{conclusion}\nEvery training, and the picture: {args.folder.resolve()}")


if __name__ == "__main__":
    main()
