"""Steps per second of StockTradingVecEnv against StockTradingEnv, in one run: python benchmarks/stock_trading.py

Random actions on the real prices of the package skfolio, all 20 stocks. One CPU thread and its own time; several rounds
in turn, so that all meet the machine in the same state. What else runs there empties the caches, which slows a thousand
portfolios more than one: the load is told. A ratio is that of the best rounds, then the median of the rounds' ratios,
with their least and greatest. Written to results/stock_trading.md.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elegantrl.envs import vectorise
from elegantrl.envs.StockTradingEnv import StockTradingEnv, StockTradingVecEnv

DAYS = 250  # of an episode
clock = time.process_time  # of this process alone, whatever else the machine does


def plain_rate(env: StockTradingEnv, actions: np.ndarray) -> float:
    """Steps per second of an episode in a bare loop, its reset included."""
    start = clock()
    env.reset()
    for action in actions:
        env.step(action)
    return DAYS / (clock() - start)


def vector_rate(env: Any, action: torch.Tensor) -> float:
    """Steps of all portfolios per second under the vector contract, as a training run takes them, resets included."""
    start = clock()
    with torch.no_grad():
        for _ in range(DAYS + 1):
            env.step(action)
    return DAYS * env.num_envs / (clock() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-envs", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--results", type=Path, default=Path(__file__).resolve().parent / "results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    plain = StockTradingEnv(max_step=DAYS)
    single = vectorise(StockTradingEnv, {"max_step": DAYS})
    vector = StockTradingVecEnv(max_step=DAYS, num_envs=options.num_envs)
    single.reset()
    actions = np.random.default_rng(0).uniform(-1, 1, (DAYS, plain.action_dim)).astype(np.float32)
    action = torch.rand(options.num_envs, vector.action_dim) * 2 - 1
    load = os.getloadavg()[0]
    rates = np.array(
        [
            (plain_rate(plain, actions), vector_rate(single, action[:1]), vector_rate(vector, action))
            for _ in range(options.rounds)
        ]
    )
    best, ratios = rates.max(0), rates[:, 2:] / rates
    names = ("`StockTradingEnv`, bare loop", "`StockTradingEnv`, vector contract")
    lines = [
        f"# Portfolios: {options.num_envs} in `StockTradingVecEnv` against one",
        "",
        "Made by `python benchmarks/stock_trading.py` (its first lines say how).",
        f"{vector.action_dim} stocks, one thread, torch {torch.__version__}, {os.cpu_count()} cores, {options.rounds} "
        f"rounds, load {load:.1f} before. `StockTradingVecEnv`: {best[2]:,.0f} portfolio days a second.",
        "",
        "| one portfolio | days a second | the many are faster by | of the rounds |",
        "|---|---|---|---|",
        *(
            f"| {name} | {best[i]:,.0f} | {best[2] / best[i]:.0f} | {np.median(ratios[:, i]):.0f} "
            f"({ratios[:, i].min():.0f} to {ratios[:, i].max():.0f}) |"
            for i, name in enumerate(names)
        ),
    ]
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "stock_trading.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
