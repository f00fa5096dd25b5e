"""What a run shows while it goes: one line for each evaluation, and in a terminal a progress bar."""

from __future__ import annotations

import math
import sys
from typing import Any

from elegantrl.train.recorder import MEASURED


class Console:
    """A table of plain lines, one for each evaluation, under a header; in a terminal, tqdm's progress bar below it."""

    def __init__(self, break_step: float) -> None:
        self.header = ""
        self.bar = _progress_bar(break_step)

    def line(self, text: str) -> None:
        if self.bar is not None:
            self.bar.write(text)
        else:
            print(text, flush=True)

    def progress(self, total_step: int) -> None:
        if self.bar is not None:
            self.bar.update(min(total_step, self.bar.total or total_step) - self.bar.n)

    def table_row(self, row: dict[str, float], elapsed: float, is_best: bool) -> None:
        """Print `row` (name -> value), a star behind a new best avgR, and the header if it is new or has changed."""
        trained = [name for name in row if name not in MEASURED]
        widths = [max(9, len(name)) for name in trained]
        names = " ".join(f"{name:>{width}}" for name, width in zip(trained, widths, strict=True))
        header = f"|{'Step':>13} {'Time':>9} |{'avgR':>10}  {'stdR':>9} {'avgS':>7} {'stdS':>7} | {names} |"
        if header != self.header:
            self.header = header
            self.line(header)
        values = " ".join(number(row[name], width, 3) for name, width in zip(trained, widths, strict=True))
        star = "*" if is_best else " "
        self.line(
            f"|{int(row['total_step']):>13,} {clock(elapsed):>9} |{number(row['avgR'], 10, 2)}{star} "
            f"{number(row['stdR'], 9, 2)} {number(row['avgS'], 7, 0)} {number(row['stdS'], 7, 0)} | {values} |"
        )

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None


def number(value: float, width: int, decimals: int) -> str:
    """`value` right-aligned in `width`: fewer decimals, then an exponent, where it does not fit; NaN as -."""
    if math.isnan(value):
        return f"{'-':>{width}}"
    shows_nothing = 0 < abs(value) < 0.5 * 10.0**-decimals
    texts = [f"{value:.{kept}f}" for kept in range(decimals, -1, -1) if not shows_nothing]
    texts += [f"{value:.{kept}e}" for kept in (2, 1, 0)]
    return f"{next((text for text in texts if len(text) <= width), texts[-1]):>{width}}"


def clock(seconds: float) -> str:
    """Hours, minutes and seconds, as 1:02:03."""
    minutes, second = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{second:02d}"


def _progress_bar(break_step: float) -> Any:
    if not sys.stderr.isatty():
        return None
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    total = int(break_step) if break_step < 1e15 else None
    return tqdm(total=total, unit=" steps", unit_scale=True, dynamic_ncols=True, leave=False)
