"""The backtest against numbers by hand, no look-ahead in the example's split, and the whole of it in its quick form."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from elegantrl.envs.stock_data import load_prices
from elegantrl.envs.StockTradingEnv import StockTradingEnv

FOLDER = Path(__file__).parents[2] / "examples" / "finance"


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch):
    """The example's modules import each other as a script's folder allows."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield
    for name in ("backtest", "picture", "trade_stocks"):
        sys.modules.pop(name, None)


def test_the_figures_are_those_of_their_definition() -> None:
    from backtest import YEAR, Backtest

    returns = np.tile([0.02, -0.01], YEAR)  # two years
    value = np.concatenate([[100.0], 100 * np.cumprod(1 + returns)])
    figures = Backtest(value, np.full(len(value), 3.0), np.full(len(value), 0.5)).figures()
    spread = returns.std(ddof=1) * YEAR**0.5
    expected = {
        "total return": value[-1] / 100 - 1,
        "return a year": (1.02 * 0.99) ** (YEAR / 2) - 1,
        "+- (95 %)": 1.96 * spread / 2**0.5,
        "volatility": spread,
        "Sharpe": 0.005 * YEAR / spread,
        "Sortino": 0.005 * YEAR / ((0.01**2 / 2) ** 0.5 * YEAR**0.5),
        "max drawdown": -0.01,
        "turnover a year": 3.0 * len(value) / value.mean() / 2,
        "costs a year": 0.5 * len(value) / value.mean() / 2,
    }
    assert figures == pytest.approx(expected)


def test_equal_parts_by_hand() -> None:
    """1000 at 1 % costs; at day 0 prices are 10 and 20, so 50 and 25 shares are ordered."""
    from backtest import equal_parts

    env = StockTradingEnv(
        1000, cost_pct=0.01, price_array=[[10, 20], [10, 25], [12, 25], [12, 30]], if_random_reset=False
    )
    held = equal_parts(env, every=None)
    # 50 * 10 + 25 * 25 is 1136.25 with costs: both are cut by 1000 / 1136.25, to 44 and 22; 1000 - 999.9 remain
    assert held.value == pytest.approx([1000, 0.1 + 990, 0.1 + 44 * 12 + 550, 0.1 + 528 + 660])
    assert held.traded.tolist() == [0, 990, 0, 0] and held.cost == pytest.approx([0, 9.9, 0, 0])
    kept = equal_parts(env, every=1)  # day 2, by day 1's prices: 999.9 / 2 is 49 and 19 shares: sells 3, buys 5
    assert kept.traded[2] == 3 * 25 + 5 * 12 and kept.value[2] == pytest.approx(0.1 + 44 * 12 + 550 - 1.35)


def test_play_follows_the_environment() -> None:
    from backtest import play

    env = StockTradingEnv(1000, 10, 0.01, price_array=[[10], [10], [20]], if_random_reset=False)
    result = play(env, lambda state: [1.0] if state[0] == 1 else [-1.0])
    assert result.value.tolist() == [1000, 999, 1000 - 101 + 198]
    assert result.traded.tolist() == [0, 100, 200] and result.cost.tolist() == [0, 1, 2]


def test_training_and_validation_see_nothing_of_what_comes_after() -> None:
    """The days after validation shuffled: the training and validation environments are the same to the last bit."""
    from trade_stocks import SPLITS, market

    prices = load_prices()
    for split, dates in SPLITS.items():
        before = market(prices, split)
        start, end = (int(np.searchsorted(prices.dates, date)) for date in dates[2:])
        shuffled = prices.close.copy()
        np.random.default_rng(0).shuffle(shuffled[start:])
        after = market(type(prices)(prices.dates, prices.names, shuffled), split)
        for period, stop in (("training", None), ("validation", start)):
            envs = [StockTradingEnv(**periods[period]) for periods in (before, after)]
            for name in ("prices", "features"):
                assert np.array_equal(getattr(envs[0], name), getattr(envs[1], name))
            assert stop is None or len(before[period]["price_array"]) == stop
        test = StockTradingEnv(**before["test"])
        assert np.array_equal(test.prices, prices.close[start:end])
        assert not np.array_equal(test.features, StockTradingEnv(**after["test"]).features)


def test_the_quick_form_ends_with_table_and_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    import trade_stocks

    monkeypatch.setattr(sys, "argv", ["trade_stocks.py", "--quick", "--folder", "out"])
    trade_stocks.main()
    text = Path("out/backtest.md").read_text()
    for rule in ("chosen by validation", "buy and hold", "equal weight", "DDPG, seed 0", "PPO, seed 0", "SAC, seed 0"):
        assert rule in text
    assert Path("out/backtest.png").stat().st_size > 10_000
