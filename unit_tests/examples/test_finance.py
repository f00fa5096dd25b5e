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
        "volatility": spread,
        "Sharpe": 0.005 * YEAR / spread,
        "Sortino": 0.005 * YEAR / ((0.01**2 / 2) ** 0.5 * YEAR**0.5),
        "max drawdown": -0.01,
        "turnover a year": (3.0 / value).sum() / 2,
        "costs a year": (0.5 / value).sum() / 2,
    }
    assert figures == pytest.approx(expected)


def growing(returns: np.ndarray):
    from backtest import Backtest

    value = np.exp(np.concatenate([[0.0], returns.cumsum()]))
    return Backtest(value, np.zeros(len(value)), np.zeros(len(value)))


def test_beyond_is_the_difference_in_growth_with_the_interval_of_its_mean() -> None:
    days, noise = 2520, np.random.default_rng(1).normal(0, 0.01, 2520)
    other = growing(noise)
    assert growing(noise + 0.001).beyond(other) == pytest.approx((0.252, 0.252, 0.252))
    mean, low, high = growing(2 * noise).beyond(other)  # independent days: 1.96 standard errors
    assert mean == pytest.approx(noise.mean() * 252) and low < mean < high
    assert high - low == pytest.approx(2 * 1.96 * noise.std() * 252 / days**0.5, rel=0.1)
    in_months = np.repeat(np.random.default_rng(2).normal(0, 0.01, 120), 21)  # the same in all days of a month
    _, low, high = (growing(in_months)).beyond(growing(np.zeros(days)))
    assert high - low > 3 * 2 * 1.96 * in_months.std() * 252 / days**0.5  # 120 draws, not 2520: up to 21**0.5 as wide


def test_chain_by_hand() -> None:
    from backtest import Backtest, chain

    parts = [Backtest(np.array([10.0, 20]), np.array([0, 1.0]), np.array([0, 0.5]))]
    parts += [Backtest(np.array([10.0, 5, 15]), np.array([0, 2.0, 4]), np.array([0, 1.0, 0]))]
    whole = chain(parts)
    assert whole.value.tolist() == [10, 20, 10, 30] and whole.traded.tolist() == [0, 1, 4, 8]
    assert whole.cost.tolist() == [0, 0.5, 2, 0]


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


def test_the_quick_form_ends_with_table_and_picture(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    import trade_stocks

    monkeypatch.setattr(sys, "argv", ["trade_stocks.py", "--quick", "--folder", "out"])
    trade_stocks.main()
    text, told = Path("out/backtest.md").read_text(), capsys.readouterr().out
    for word in ("All test years in a row", "chosen", "buy and hold", "equal weight", "Sortino", "highest (95 %)"):
        assert word in text and word in told
    for word in ("Test years 2018 to 2022", "DDPG 0", "PPO 0", "SAC 0", "Validation scores"):
        assert word in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert len({len(line) for line in tables}) == 2  # in columns: the table of all and that of the years
    assert Path("out/backtest.png").stat().st_size > 10_000
