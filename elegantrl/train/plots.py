"""Pictures of a run: the learning curve as an image, one episode as an animation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from elegantrl.train.console import COLUMNS

BLUE, ORANGE, GREEN, RED, GREY = "#1f5fa8", "#d9730d", "#2e8b57", "#b5304a", "#6b6b6b"


def draw_learning_curve(
    recorder: np.ndarray | Sequence[Any],
    fig_title: str = "learning curve",
    save_path: str = "LearningCurve.jpg",
    break_score: float = float("inf"),
) -> None:
    """Draw the greedy return, the exploration reward and the two objectives over environment steps to `save_path`.

    recorder (R, >= 6): one row for each evaluation, columns as in COLUMNS (further ones are not drawn); NaN is a gap,
    and a panel without any value is left out. break_score: a finite one is drawn as the goal. The suffix of
    `save_path` gives the format.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # not pyplot: it holds global state and every figure
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    rows = np.asarray(recorder, dtype=np.float64).reshape(len(recorder), -1)
    rows = rows[:, : len(COLUMNS)] if len(rows) else np.empty((0, len(COLUMNS)))
    rows = np.where(np.isfinite(rows), rows, np.nan)
    step, avg, std, exp, obj_c, obj_a = rows.T

    def has_values(*columns: np.ndarray) -> bool:
        return any(bool(np.isfinite(column).any()) for column in columns)

    below = [panel for panel, there in (("exp", has_values(exp)), ("obj", has_values(obj_c, obj_a))) if there]
    figure = Figure(figsize=(9, 3.6 + 1.7 * len(below)), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    heights = [2.4] + [1.0] * len(below)
    panels = figure.subplots(1 + len(below), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    style: dict[str, Any] = {"linewidth": 1.6 if len(step) < 300 else 1.0}
    style |= {"marker": "o", "markersize": 3.5} if len(step) <= 40 else {}

    top = panels[0]
    top.set_title(fig_title, loc="left", fontsize=13, fontweight="bold")
    top.set_ylabel("episode return (greedy policy)")
    if has_values(avg):
        spread = np.nan_to_num(std)
        top.plot(step, avg, color=BLUE, label="mean over episodes", zorder=3, **style)
        top.fill_between(step, avg - spread, avg + spread, color=BLUE, alpha=0.2, linewidth=0, label="± 1 std")
        best = int(np.nanargmax(avg))
        best_label = f"best {avg[best]:,.5g} at {EngFormatter(sep='')(step[best])} steps"
        top.plot(step[best], avg[best], "*", color=ORANGE, markersize=13, markeredgecolor="white", zorder=4)
        top.plot([], [], "*", color=ORANGE, markersize=10, linestyle="", label=best_label)
        if np.isfinite(break_score):
            top.axhline(break_score, color=GREY, linestyle="--", linewidth=1, label=f"goal {break_score:,.5g}")
        columns = 4
        top.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=columns, frameon=False, fontsize=9, borderpad=0)
    else:
        top.text(0.5, 0.5, "no evaluation yet", transform=top.transAxes, ha="center", va="center", color=GREY)

    for panel, name in zip(panels[1:], below, strict=True):
        if name == "exp":
            panel.plot(step, exp, color=GREEN, **style)
            panel.set_ylabel("reward per step\n(exploring)", color=GREEN)
            continue
        panel.plot(step, obj_c, color=RED, **style)
        panel.set_ylabel("objC: critic", color=RED)
        if has_values(obj_a):
            right = panel.twinx()
            right.plot(step, obj_a, color=BLUE, **style)
            right.set_ylabel("objA: actor", color=BLUE)
            right.spines["top"].set_visible(False)
    for panel in panels:
        panel.grid(True, color="#dddddd", linewidth=0.7)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlabel("environment steps")
    panels[-1].xaxis.set_major_formatter(EngFormatter(sep=""))
    figure.align_ylabels(panels)
    figure.savefig(save_path)
