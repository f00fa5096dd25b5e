"""Steps per second of StockTradingVecEnv against StockTradingEnv, in one run: python benchmarks/stock_trading.py

Random actions on the real prices of the package skfolio, all 20 stocks. One CPU thread and its own time; the best of
several rounds each, in turn, so that all meet the machine in the same state.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
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


def best(rounds: int, *measures: Callable[[], float]) -> list[float]:
    """The highest of several measurements of each, taken in turn."""
    return np.max([[measure() for measure in measures] for _ in range(rounds)], axis=0).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-envs", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=10)
    args = parser.parse_args()
    torch.set_num_threads(1)
    plain = StockTradingEnv(max_step=DAYS)
    single = vectorise(StockTradingEnv, {"max_step": DAYS})
    vector = StockTradingVecEnv(max_step=DAYS, num_envs=args.num_envs)
    single.reset()
    actions = np.random.default_rng(0).uniform(-1, 1, (DAYS, plain.action_dim)).astype(np.float32)
    action = torch.rand(args.num_envs, vector.action_dim) * 2 - 1
    rates = best(
        args.rounds,
        lambda: plain_rate(plain, actions),
        lambda: vector_rate(single, action[:1]),
        lambda: vector_rate(vector, action),
    )
    names = ("StockTradingEnv, bare loop", "StockTradingEnv, vector contract", f"StockTradingVecEnv, {args.num_envs:,}")
    print(f"{vector.action_dim} stocks, one CPU thread, steps per second:")
    for name, rate in zip(names, rates, strict=True):
        print(f"{name:<34} {rate:12,.0f}   the last is {rates[-1] / rate:6.1f} times as fast")


if __name__ == "__main__":
    main()
