"""The picture of a backtest: what 1 became, and how far it lay below its highest value."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from backtest import Backtest
from matplotlib.dates import DateFormatter, YearLocator
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter, PercentFormatter

COLORS = ("#c1272d", "#0000a7", "#7a7a7a")


def draw(
    reports: dict[str, dict[str, Backtest]],
    trained: dict[str, list[Backtest]],
    dates: dict[str, list[str]],
    path: Path,
) -> None:
    """Of each title: rules by their names, all trained rules, and the days from the first on."""
    figure, axes = plt.subplots(
        2, len(reports), figsize=(6 * len(reports), 7), sharex="col", height_ratios=(3, 1), squeeze=False
    )
    for (growth, drawdown), (title, rules) in zip(axes.T, reports.items(), strict=True):
        time = np.array(dates[title][: len(trained[title][0].value)], "datetime64[D]")
        for i, backtest in enumerate(trained[title]):
            name = f"all {len(trained[title])} trained rules" if i == 0 else None
            growth.plot(time, backtest.value / backtest.value[0], color=COLORS[0], alpha=0.3, lw=0.7, label=name)
        for (name, backtest), color in zip(rules.items(), COLORS, strict=True):
            value = backtest.value / backtest.value[0]
            growth.plot(time, value, color=color, lw=1.5, label=f"{name}: {value[-1] - 1:+.0%}")
            drawdown.plot(time, value / np.maximum.accumulate(value) - 1, color=color, lw=0.9)
        growth.set_title(f"Test years {title}")
        growth.set_ylabel("value of 1 invested, costs paid (log scale)")
        growth.set_yscale("log")
        growth.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5)))
        growth.yaxis.set_major_formatter(FormatStrFormatter("%g"))
        growth.yaxis.set_minor_formatter(NullFormatter())
        growth.axhline(1, color="black", lw=0.6)
        growth.legend(loc="upper left", frameon=False)
        drawdown.set_ylabel("below its peak")
        drawdown.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        drawdown.xaxis.set_major_locator(YearLocator())
        drawdown.xaxis.set_major_formatter(DateFormatter("%Y"))
        for axis in (growth, drawdown):
            axis.grid(alpha=0.3)
            axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
