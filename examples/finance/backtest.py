"""What a trading rule would have earned on a price table, and the figures by which portfolio managers compare rules.

Every rule trades whole shares, pays for each trade, and has its order of one day executed at the next day's close.
Letters: D days, K stocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import empyrical
import numpy as np
from numpy.typing import NDArray

from elegantrl.envs.StockTradingEnv import StockTradingEnv, trade

YEAR = 252  # trading days
MONTH = 21
BEYOND = ("a year beyond {}", "lowest (95 %)", "highest (95 %)")


@dataclass
class Backtest:
    """Of each day, (D,): the portfolio's value at the close, the money of sales and purchases, the fees."""

    value: NDArray
    traded: NDArray
    cost: NDArray

    def figures(self) -> dict[str, float]:
        """Shares (0.1 is 10 %), but for Sharpe and Sortino ratio, risk-free rate 0. Turnover: sales and purchases."""
        returns = self.value[1:] / self.value[:-1] - 1
        years = len(returns) / YEAR
        return {
            "total return": float(empyrical.cum_returns_final(returns)),
            "return a year": float(empyrical.annual_return(returns)),
            "volatility": float(empyrical.annual_volatility(returns)),
            "Sharpe": float(empyrical.sharpe_ratio(returns)),
            "Sortino": float(empyrical.sortino_ratio(returns)),
            "max drawdown": float(empyrical.max_drawdown(returns)),
            "turnover a year": float((self.traded / self.value).sum() / years),
            "costs a year": float((self.cost / self.value).sum() / years),
        }

    def beyond(self, other: Backtest, draws: int = 2000) -> tuple[float, float, float]:
        """How much more it grew than another, in logarithms a year, and the ends of the 95 % interval.

        By a bootstrap of blocks of a month: what these days would have shown had they come in another mixture.
        """
        gain = np.diff(np.log(self.value / other.value))
        starts = np.random.default_rng(0).integers(len(gain) - MONTH + 1, size=(draws, len(gain) // MONTH, 1))
        low, high = np.quantile(gain[starts + np.arange(MONTH)].mean((1, 2)), (0.025, 0.975))
        return YEAR * float(gain.mean()), YEAR * float(low), YEAR * float(high)


def chain(parts: list[Backtest]) -> Backtest:
    """Periods one after the other: each begins with what the one before has left, in cash."""
    scales = np.cumprod([1.0] + [part.value[-1] / part.value[0] for part in parts[:-1]])
    columns = [
        np.concatenate(
            [getattr(part, name)[i > 0 :] * scale for i, (part, scale) in enumerate(zip(parts, scales, strict=True))]
        )
        for name in ("value", "traded", "cost")
    ]
    return Backtest(*columns)


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


def table(rules: dict[str, Backtest], other: str) -> str:
    """A Markdown table, a column for each rule; the last rows compare with the rule of that name."""
    columns = []
    for backtest in rules.values():
        figures = backtest.figures() | dict(zip(BEYOND, backtest.beyond(rules[other]), strict=True))
        columns.append([f"{x:.2f}" if name in ("Sharpe", "Sortino") else f"{x:.1%}" for name, x in figures.items()])
    names = [name.format(other) for name in figures]
    rows = [["", *rules], *(list(row) for row in zip(names, *columns, strict=True))]
    width = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, ["-" * width[0], *("-" * (w - 1) + ":" for w in width[1:])])
    lines = [[row[0].ljust(width[0]), *(x.rjust(w) for x, w in zip(row[1:], width[1:], strict=True))] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
