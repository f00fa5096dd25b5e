"""The code of docs/finance.md runs as it stands, and the Chinese page has the same code."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"(<!-- not run.*?-->\n)?```python\n(.*?)```", re.DOTALL)


def blocks(page: str) -> list[str]:
    """The Python blocks of a page that are to be run."""
    return [code for skip, code in BLOCK.findall((DOCS / page).read_text(encoding="utf-8")) if not skip]


def test_the_code_runs_and_earns_something() -> None:
    names: dict = {}
    exec("\n".join(blocks("finance.md")), names)
    assert len(names["value"]) == len(names["env"].prices) and names["value"][-1] > 1e6
    assert np.isfinite(names["returns"]).all() and 0 < names["costs"] < 1e6
    assert len(names["held_returns"]) == len(names["returns"]) - 1


def test_the_chinese_page_has_the_same_code_without_its_comments() -> None:
    def bare(page: str) -> list[str]:
        return [re.sub(r" *#.*", "", code) for code in blocks(page)]

    assert bare("finance.zh-CN.md") == bare("finance.md")
