"""Pictures of a run: the learning curve as an image, one episode as an animation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from elegantrl.train.recorder import COLUMNS

BLUE, ORANGE, GREY = "#1f5fa8", "#d9730d", "#6b6b6b"
SMALL_PANELS = {  # column -> (label, colour)
    "expR": ("expR\nreward per step", "#2e8b57"),
    "objC": ("objC\ncritic objective", "#b5304a"),
    "objA": ("objA\nactor objective", "#7a4fa3"),
}


def draw_learning_curve(
    recorder: np.ndarray | Sequence[Any],
    fig_title: str = "learning curve",
    save_path: str = "learning_curve.jpg",
    break_score: float = float("inf"),
) -> None:
    """Draw the greedy return, and below it exploration reward and objectives, over environment steps to `save_path`.

    recorder (R, >= 6): one row for each evaluation, columns as in COLUMNS (further ones are not drawn). Values that
    are not finite are skipped, and so is a panel without any value. break_score: a finite one is drawn as the goal.
    The suffix of `save_path` gives the format.
    """
    from matplotlib.figure import Figure  # not pyplot: that holds global state, and every figure it ever made
    from matplotlib.ticker import EngFormatter

    rows = np.array(recorder, dtype=np.float64)
    rows = rows[:, : len(COLUMNS)] if rows.size else np.empty((0, len(COLUMNS)))
    rows[~np.isfinite(rows)] = np.nan
    column = dict(zip(COLUMNS, rows.T, strict=True))
    step = column["total_step"]
    small = [name for name in SMALL_PANELS if np.isfinite(column[name]).any()]
    style: dict[str, Any] = {"linewidth": 1.6 if len(step) < 300 else 1.0}
    style |= {"marker": "o", "markersize": 3.5} if len(step) <= 40 else {}

    figure = Figure(figsize=(8.5, 4 + 1.25 * len(small)), dpi=110, layout="constrained")
    heights = [3.2, *(1.25 for _ in small)]
    top, *panels = figure.subplots(1 + len(small), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    top.set_title(fig_title, loc="left", pad=26, fontsize=13, fontweight="bold")
    top.set_ylabel("avgR\ngreedy episode return", color=BLUE, fontsize=9)
    if np.isfinite(column["avgR"]).any():
        _draw_return(top, step, column["avgR"], np.nan_to_num(column["stdR"]), break_score, style)
    else:
        top.text(0.5, 0.5, "no evaluation yet", transform=top.transAxes, ha="center", va="center", color=GREY)
    for panel, name in zip(panels, small, strict=True):
        label, colour = SMALL_PANELS[name]
        there = np.isfinite(column[name])
        values = column[name][there]
        panel.plot(step[there], values, color=colour, **style)
        panel.set_ylabel(label, color=colour, fontsize=9)
        if values.min() > 0 and values.max() > 100 * values.min():
            panel.set_yscale("log")
    for panel in figure.axes:
        panel.grid(True, color="#dddddd", linewidth=0.7)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
        if panel.get_yscale() == "linear" and max(map(abs, panel.get_ylim())) >= 1e4:
            panel.yaxis.set_major_formatter(EngFormatter(sep=""))
    bottom = figure.axes[-1]
    bottom.set_xlabel("environment steps")
    bottom.set_xlim(0, 1.03 * max(step.max(initial=0), 1000))
    bottom.xaxis.set_major_formatter(EngFormatter(sep=""))
    figure.align_ylabels()
    figure.savefig(save_path)


def _draw_return(
    panel: Any, step: np.ndarray, avg: np.ndarray, std: np.ndarray, break_score: float, style: dict[str, Any]
) -> None:
    """Mean with a band of one standard deviation, the best evaluation, the goal, and a legend above the panel."""
    from matplotlib.ticker import EngFormatter

    panel.plot(step, avg, color=BLUE, label="mean", zorder=3, **style)
    if len(step) > 1:
        panel.fill_between(step, avg - std, avg + std, color=BLUE, alpha=0.2, linewidth=0, label="± 1 std")
    else:
        panel.errorbar(step, avg, std, color=BLUE, alpha=0.5, capsize=4, label="± 1 std")
    best = int(np.nanargmax(avg))
    label = f"best {avg[best]:,.5g} at {EngFormatter(sep='')(float(f'{step[best]:.3g}'))} steps"
    marks = {"marker": "*", "linestyle": "", "color": ORANGE, "markeredgecolor": "white"}
    panel.plot(step[best], avg[best], markersize=13, zorder=4, label=label, **marks)
    if np.isfinite(break_score):
        panel.axhline(break_score, color=GREY, linestyle="--", linewidth=1, label=f"goal {break_score:,.5g}")
    panel.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=4, frameon=False, fontsize=9, borderpad=0.2, borderaxespad=0.3
    )


class Film:
    """Images of an episode, taken step by step; of a long one only every second, fourth, ... step is kept."""

    max_frames = 400

    def __init__(self, env: Any) -> None:
        self.env, self.step, self.stride = env, 0, 1
        self.frames: list[np.ndarray] = []

    def take(self) -> None:
        """Raises ValueError if the environment renders no image."""
        if self.step % self.stride == 0:
            frame = self.env.render()
            if not isinstance(frame, np.ndarray):
                raise ValueError(f"{self.env.env_name} renders no images (render_mode='rgb_array')")
            self.frames.append(frame)
            if len(self.frames) == self.max_frames:
                self.frames, self.stride = self.frames[::2], 2 * self.stride
        self.step += 1

    def save(self, path: str) -> None:
        """Write an endless animation, 25 images a second."""
        from PIL import Image

        first, *others = map(Image.fromarray, self.frames)
        first.save(path, save_all=True, append_images=others, duration=40, loop=0)
