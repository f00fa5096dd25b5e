"""The real prices, and what is computed from a price table: known values, and nothing from the future."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from elegantrl.envs import stock_data
from elegantrl.envs.stock_data import indicators, load_prices, price_table, turbulence
from elegantrl.envs.StockTradingEnv import StockTradingEnv

CLOSES = np.exp(np.random.default_rng(0).normal(0, 0.02, (120, 3)).cumsum(0)) * [10, 50, 200]


def test_the_real_prices() -> None:
    prices = load_prices()
    assert prices.close.shape == (8313, 20) and prices.names[:2] == ["AAPL", "AMD"]
    assert (prices.dates[0], prices.dates[-1]) == ("1990-01-02", "2022-12-28")
    assert prices.close[-1, 0] == 125.674
    days = prices.between("2022-12-01", "2022-12-31")
    assert prices.dates[days][0] == "2022-12-01" and days.stop == 8313
    assert StockTradingEnv().prices is not None and StockTradingEnv().action_dim == 20


def test_without_the_package_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stock_data, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"elegantrl\[finance\].*skfolio==1.12.2"):
        StockTradingEnv()


def test_a_price_table_is_an_array_or_a_frame_wide_or_long() -> None:
    dates, names = pd.bdate_range("2020-01-01", periods=120), ["A", "B", "C"]
    wide = pd.DataFrame(CLOSES, dates, names)
    long = wide.rename_axis("date").reset_index().melt("date", var_name="tic", value_name="close")
    for table in (CLOSES, CLOSES.tolist(), wide, long, long.sample(frac=1, random_state=0)):
        assert np.array_equal(price_table(table), CLOSES)
    wide.iloc[7, 1] = np.nan
    with pytest.raises(ValueError, match=r"1 of 360 prices .* day 7, stock 1 \(2020-01-10 00:00:00, B\)"):
        price_table(wide)
    hole = long.drop(index=5)  # day 5 of A is not there
    with pytest.raises(ValueError, match=r"1 of 360 prices .* day 5, stock 0 \(2020-01-08 00:00:00, A\)"):
        price_table(hole)
    for bad, word in (([[1.0, 2.0]], "at least 2 days"), ([1.0, 2.0], "shape"), ([[1.0], [0.0]], "first 0.0 at day 1")):
        with pytest.raises(ValueError, match=word):
            price_table(bad)
    for bad, word in (
        (CLOSES[:, :0], r"1 stock, are needed, not \(120, 0\)"),
        (CLOSES * 1e37, r"no positive number, first .*e\+38 at day 0, stock 1"),  # beyond float32
        ([["a", "b"], ["c", "d"]], "must be numbers"),
        (wide.rename_axis("date").reset_index(), "must be numbers.* dates as the index"),
        (pd.concat([long, long.iloc[:1]]), "a date and tic twice: .*2020-01-01.*, 'A'"),
    ):
        with pytest.raises(ValueError, match=word):
            price_table(bad)
    missing = wide.bfill().astype("Float64")
    missing.iloc[7, 1] = pd.NA
    with pytest.raises(ValueError, match="first nan at day 7, stock 1"):
        price_table(missing)


def test_a_frame_that_is_not_in_the_order_of_time_is_refused() -> None:
    """The newest day first, as many sites deliver it, would be trading backwards in time."""
    dates = pd.bdate_range("2020-01-01", periods=120)
    wide = pd.DataFrame(CLOSES, dates)
    for bad in (wide[::-1], wide.sample(frac=1, random_state=0), pd.concat([wide, wide.iloc[-1:]])):
        with pytest.raises(ValueError, match="prices must be in the order of time, each date once"):
            StockTradingEnv(price_array=bad)
    with pytest.raises(ValueError, match="tech_array must be in the order of time"):
        StockTradingEnv(price_array=wide, tech_array=wide[::-1])
    assert np.array_equal(StockTradingEnv(price_array=wide, tech_array=wide).prices, CLOSES)


def test_indicators_are_those_of_their_definition() -> None:
    table = indicators(CLOSES, ("close_30_sma", "rsi_30", "boll_ub")).reshape(120, 3, 3)  # days, indicators, stocks
    day, stock = 80, 1
    past = CLOSES[: day + 1, stock]
    assert table[day, 0, stock] == pytest.approx(past[-30:].mean() / past[-1] - 1, abs=1e-6)
    assert table[day, 2, stock] == pytest.approx(
        (past[-20:].mean() + 2 * past[-20:].std(ddof=1)) / past[-1] - 1, abs=1e-6
    )
    rising = np.outer(1.01 ** np.arange(60), [1.0, 2.0])
    assert indicators(rising, ("rsi_30",))[-1] == pytest.approx(1)  # an RSI of 100
    for name in ("atr", "nonsense"):  # the first needs highs and lows
        with pytest.raises(ValueError, match=f"no indicator '{name}' from closes alone"):
            indicators(rising, (name,))


def test_turbulence_is_the_distance_of_a_day_from_the_days_before() -> None:
    """Of one stock: the squared deviation in standard deviations."""
    index = turbulence(CLOSES[:, :1], window=20)
    change = CLOSES[1:, 0] / CLOSES[:-1, 0] - 1
    day = 50
    past = change[day - 21 : day - 1]
    assert index[day] == pytest.approx((change[day - 1] - past.mean()) ** 2 / past.var(ddof=1))
    assert not index[:21].any() and (index[21:] > 0).all()
    with pytest.raises(ValueError, match="window=1"):
        turbulence(CLOSES, window=1)


def test_nothing_comes_from_the_future() -> None:
    """The days after `now` in another order: what is known up to `now` stays, to the last bit."""
    now = 70
    shuffled = np.concatenate([CLOSES[: now + 1], np.random.default_rng(1).permutation(CLOSES[now + 1 :])])
    for function in (indicators, lambda prices: turbulence(prices, 20)):
        past, other = function(CLOSES), function(shuffled)
        assert np.array_equal(past[: now + 1], other[: now + 1]) and not np.array_equal(past, other)

    def states(closes: np.ndarray) -> np.ndarray:
        env = StockTradingEnv(price_array=closes, tech_array=indicators(closes), if_random_reset=False)
        seen = [env.reset()[0]]
        seen += [env.step(action)[0] for action in np.random.default_rng(2).uniform(-1, 1, (now + 10, 3))]
        return np.stack(seen)

    past, other = states(CLOSES), states(shuffled)
    assert np.array_equal(past[: now + 1], other[: now + 1]) and not np.array_equal(past[now + 1], other[now + 1])
