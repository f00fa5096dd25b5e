"""What a trading rule would have earned on a price table, and the figures by which portfolio managers compare rules.

Every rule trades whole shares, pays for each trade, and has its order of one day executed at the next day's close.
Letters: D days, K stocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import empyrical
import numpy as np
from numpy.typing import NDArray

from elegantrl.envs.StockTradingEnv import StockTradingEnv, trade

YEAR = 252  # trading days
MONTH = 21


@dataclass
class Backtest:
    """Of each day, (D,): the portfolio's value at the close, the money of sales and purchases, the fees."""

    value: NDArray
    traded: NDArray
    cost: NDArray

    def figures(self) -> dict[str, float]:
        """Shares (0.1 is 10 %), except Sharpe and Sortino ratio; a risk-free rate of 0."""
        returns = self.value[1:] / self.value[:-1] - 1
        years = len(returns) / YEAR
        volatility = float(empyrical.annual_volatility(returns))
        return {
            "total return": float(empyrical.cum_returns_final(returns)),
            "return a year": float(empyrical.annual_return(returns)),
            "+- (95 %)": 1.96 * volatility / math.sqrt(years),  # of the mean of so many years, if they were independent
            "volatility": volatility,
            "Sharpe": float(empyrical.sharpe_ratio(returns)),
            "Sortino": float(empyrical.sortino_ratio(returns)),
            "max drawdown": float(empyrical.max_drawdown(returns)),
            "turnover a year": float(self.traded.sum() / self.value.mean() / years),
            "costs a year": float(self.cost.sum() / self.value.mean() / years),
        }


def play(env: StockTradingEnv, policy: Callable[[NDArray], Any]) -> Backtest:
    """One episode of an environment whose start is fixed. policy: state (S,) -> action (K,)."""
    state, _ = env.reset()
    value, traded, cost, is_over = [env.total_asset], [0.0], [0.0], False
    while not is_over:
        state, _, _, is_over, info = env.step(policy(state))
        value.append(env.total_asset)
        traded.append(info["traded"])
        cost.append(info["cost"])
    return Backtest(np.array(value), np.array(traded), np.array(cost))


def equal_parts(env: StockTradingEnv, every: int | None = MONTH) -> Backtest:
    """As much money in each stock, restored `every` so many days; None: bought once and held."""
    prices, amount = env.prices, env.initial_amount
    cash, shares = np.array([float(amount)]), np.zeros(prices.shape[1])
    value, traded, cost = [float(amount)], [0.0], [0.0]
    for day in range(1, len(prices)):
        order = np.zeros_like(shares)
        if day == 1 or (every and (day - 1) % every == 0):
            known = prices[day - 1]
            wealth = cash[0] + shares @ known
            order = np.floor(wealth / len(known) / known) - shares
        cash, shares, money = trade(np, cash, shares, prices[day], order, env.cost_pct)
        value.append(float(cash[0] + shares @ prices[day]))
        traded.append(float(money[0]))
        cost.append(float(money[0]) * env.cost_pct)
    return Backtest(np.array(value), np.array(traded), np.array(cost))


def table(backtests: dict[str, Backtest]) -> str:
    """The figures of several rules as a Markdown table."""
    rows = {name: backtest.figures() for name, backtest in backtests.items()}
    names = list(next(iter(rows.values())))
    lines = ["| | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    for rule, figures in rows.items():
        cells = [f"{x:.2f}" if name in ("Sharpe", "Sortino") else f"{100 * x:.1f} %" for name, x in figures.items()]
        lines.append(f"| {rule} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
