"""Price tables for StockTradingEnv: what it accepts, real daily closes, indicators and turbulence from closes alone.

Letters: D days, K stocks, F indicators.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

INDICATORS = ("macd", "boll_ub", "boll_lb", "rsi_30", "close_30_sma", "close_60_sma")  # those of FinRL that need closes


@dataclass
class Prices:
    """A price table. dates: D ISO dates. names: of the K stocks. close: (D, K) float64."""

    dates: list[str]
    names: list[str]
    close: NDArray

    def between(self, first: str, last: str) -> slice:
        """The days from one date to another, both included, for the first axis of `close`."""
        return slice(int(np.searchsorted(self.dates, first)), int(np.searchsorted(self.dates, last, side="right")))


def load_prices() -> Prices:
    """Daily closes of 20 large US companies, 1990-01-02 to 2022-12-28, adjusted for splits and dividends.

    From the package skfolio 1.12.2 (BSD-3-Clause), which is read and not imported. They are companies that were large
    at the end: what any strategy earns on them is more than could have been earned. ImportError: it is not installed.
    """
    spec = find_spec("skfolio")
    if spec is None or spec.origin is None:
        raise ImportError(
            "the real prices are in the package skfolio: pip install elegantrl[finance], or for its data alone "
            "pip install --no-deps skfolio==1.12.2"
        )
    with gzip.open(Path(spec.origin).parent / "datasets" / "data" / "sp500_dataset.csv.gz", "rt", newline="") as file:
        header, *rows = csv.reader(file)
    return Prices([row[0] for row in rows], header[1:], np.array([row[1:] for row in rows], np.float64))


def price_table(prices: Any) -> NDArray:
    """(D, K) float64 from an array, or from a pandas frame: dates by names, or FinRL's with columns date, tic, close.

    ValueError: another shape, days out of order, or a price that is no positive number, by its day and stock.
    """
    if {"date", "tic", "close"} <= set(getattr(prices, "columns", ())):
        if (twice := prices[["date", "tic"]].duplicated()).any():
            raise ValueError(f"prices have a date and tic twice: {prices[['date', 'tic']][twice].iloc[0].tolist()}")
        prices = prices.pivot(index="date", columns="tic", values="close")
    table = numbers("prices", prices)
    if table.ndim != 2 or len(table) < 2 or not table.size:
        raise ValueError(f"prices of shape (days, stocks), at least 2 days and 1 stock, are needed, not {table.shape}")
    with np.errstate(over="ignore"):
        single = table.astype(np.float32)  # as StockTradingVecEnv has them
    wrong = ~(np.isfinite(single) & (single > 0))
    if wrong.any():
        day, stock = np.argwhere(wrong)[0]
        named = f" ({prices.index[day]}, {prices.columns[stock]})" if hasattr(prices, "columns") else ""
        raise ValueError(
            f"{wrong.sum()} of {wrong.size} prices are no positive number, first {table[day, stock]} at day {day}, "
            f"stock {stock}{named}: drop such days or stocks, or fill them from the past"
        )
    return table


def numbers(name: str, given: Any) -> NDArray:
    """What was given as `name`, float64, with NaN for what is missing.

    ValueError: it holds something else, or it is a pandas frame or series whose index does not rise, so that the days
    may be out of order, the newest first or one twice.
    """
    index: Any = getattr(given, "index", None)
    is_frame = hasattr(index, "is_monotonic_increasing")
    try:
        table = np.array(given.astype(object).where(given.notna(), np.nan) if is_frame else given, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be numbers, a row for each day (a frame: dates as the index, names as columns): {error}"
        ) from error
    if is_frame and not (index.is_monotonic_increasing and index.is_unique):
        raise ValueError(f"{name} must be in the order of time, each date once: try .sort_index() on the frame")
    return table


def indicators(prices: Any, names: Sequence[str] = INDICATORS) -> NDArray:
    """Technical indicators of each stock by stockstats, (D, F * K) float32; row d is known at the close of day d.

    Each is made free of the price level: the RSI as (RSI - 50) / 50, what is in units of price relative to the close.
    ImportError: stockstats is not installed. ValueError: one that needs more than closes, or that it does not know.
    """
    try:
        import stockstats
    except ImportError as error:
        raise ImportError("indicators need stockstats: pip install elegantrl[finance]") from error
    import pandas as pd  # comes with stockstats

    close = price_table(prices)
    frames = [stockstats.wrap(pd.DataFrame({"close": column})) for column in close.T]
    table = np.empty((len(names), *close.shape))
    for i, name in enumerate(names):
        try:
            values = np.stack([frame[name].to_numpy() for frame in frames], axis=1)
        except (KeyError, UserWarning) as error:
            raise ValueError(f"stockstats makes no indicator {name!r} from closes alone") from error
        if name.startswith("rsi"):
            table[i] = (values - 50) / 50
        else:
            table[i] = values / close - (0 if name.startswith("macd") else 1)
    return np.nan_to_num(table).transpose(1, 0, 2).reshape(len(close), -1).astype(np.float32)


def turbulence(prices: Any, window: int = 252) -> NDArray:
    """How unusual a day's returns are against those of the `window` days before it, (D,); 0 until there are so many.

    The squared Mahalanobis distance (Kritzman and Li 2010, equation 1), as FinRL has it. ValueError: a window below 2.
    """
    if window < 2:
        raise ValueError(f"window={window}: the spread of at least 2 days is needed")
    close = price_table(prices)
    change = close[1:] / close[:-1] - 1
    index = np.zeros(len(close))
    for day in range(window, len(change)):
        past = change[day - window : day]
        away = change[day] - past.mean(0)
        index[day + 1] = away @ np.linalg.pinv(np.atleast_2d(np.cov(past.T))) @ away
    return index
