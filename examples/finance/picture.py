"""The picture of a backtest: what 1 became, and how far it lay below its highest value."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from backtest import Backtest
from matplotlib.ticker import PercentFormatter

COLORS = ("#c1272d", "#0000a7", "#7a7a7a")


def draw(reports: dict[str, dict[str, Backtest]], dates: list[list[str]], path: Path) -> None:
    """reports: title -> rule -> backtest, dates: of each report's days, from its first on."""
    figure, axes = plt.subplots(
        2, len(reports), figsize=(7.5 * len(reports), 7), sharex="col", height_ratios=(3, 1), squeeze=False
    )
    for (growth, drawdown), (title, rules), days in zip(axes.T, reports.items(), dates, strict=True):
        for (name, backtest), color in zip(rules.items(), COLORS, strict=True):
            time = np.array(days[: len(backtest.value)], "datetime64[D]")
            value = backtest.value / backtest.value[0]
            growth.plot(time, value, color=color, lw=1.3, label=f"{name}: {value[-1] - 1:+.0%}")
            drawdown.plot(time, value / np.maximum.accumulate(value) - 1, color=color, lw=0.9)
        growth.set_title(f"Test years {title}, never used in training or choosing")
        growth.set_ylabel("value of 1 invested, costs paid")
        growth.axhline(1, color="black", lw=0.6)
        growth.legend(loc="upper left", frameon=False)
        drawdown.set_ylabel("below its peak")
        drawdown.yaxis.set_major_formatter(PercentFormatter(1.0))
        for axis in (growth, drawdown):
            axis.grid(alpha=0.3)
            axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
