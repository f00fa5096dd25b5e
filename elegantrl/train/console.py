"""What a run shows while it goes: one line for each evaluation, and in a terminal a progress bar."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from elegantrl.train.recorder import MEASURED

WIDE, NARROW = (13, 9, 10, 9, 7, 7, 9), (10, 8, 9, 7, 5, 5, 7)  # of Step, Time, avgR, stdR, avgS, stdS; of each other


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
        """Print `row` (name -> value), a star behind a new best avgR, and the header if it is new or has changed.

        In a terminal that is too narrow for it the columns are narrower, and the last that do not fit are left out.
        """
        names = ["Step", "Time", "avgR", "stdR", "avgS", "stdS", *(name for name in row if name not in MEASURED)]
        room = shutil.get_terminal_size().columns if sys.stdout.isatty() else math.inf
        widths = column_widths(names, *WIDE)
        if len(table_line(names, widths)) > room:
            widths = column_widths(names, *NARROW)
            while len(table_line(names, widths)) > room and len(widths) > 6:
                widths.pop()
        header = table_line(names, widths)
        if header != self.header:
            self.header = header
            self.line(header)
        decimals = {"avgR": 2, "stdR": 2, "avgS": 0, "stdS": 0}
        numbers = [number(row[n], w, decimals.get(n, 3)) for n, w in zip(names[2:], widths[2:], strict=False)]
        texts = [f"{int(row['total_step']):,}", clock(elapsed), *numbers]
        self.line(table_line(texts, widths, "*" if is_best else " "))

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None


class SilentConsole(Console):
    """Shows nothing: another process does."""

    def __init__(self) -> None:
        pass

    def line(self, text: str) -> None:
        pass

    def progress(self, total_step: int) -> None:
        pass

    def table_row(self, row: dict[str, float], elapsed: float, is_best: bool) -> None:
        pass

    def close(self) -> None:
        pass


def column_widths(names: Sequence[str], *least: int) -> list[int]:
    """For each name its least width, the last of `least` for all further ones, or more where the name needs it."""
    return [max(least[min(i, len(least) - 1)], len(name)) for i, name in enumerate(names)]


def table_line(texts: Sequence[str], widths: Sequence[int], star: str = " ") -> str:
    """The texts for which there are widths, right-aligned; six of them are always there."""
    aligned = [f"{text:>{width}}" for text, width in zip(texts, widths, strict=False)]
    step, time, mean, std, steps, steps_std, *others = aligned
    return f"|{step} {time} |{mean}{star} {std} {steps} {steps_std} | {' '.join(others)} |"


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
