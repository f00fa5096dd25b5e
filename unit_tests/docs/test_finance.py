"""The code of docs/finance.md runs as it stands, and the Chinese page has the same code."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

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


def test_the_chinese_page_has_the_same_code_and_parts() -> None:
    def bare(page: str) -> list[str]:
        return [re.sub(r" *#.*", "", code) for code in blocks(page)]

    def parts(page: str) -> list[tuple[int, ...]]:
        """Of each section how many blocks, points and rows of a table it has."""
        text = (DOCS / page).read_text(encoding="utf-8")
        return [tuple(part.count(mark) for mark in ("```", "\n- ", "\n|")) for part in text.split("\n## ")]

    assert bare("finance.zh-CN.md") == bare("finance.md")
    assert parts("finance.zh-CN.md") == parts("finance.md")


@pytest.mark.parametrize("page", ["finance.md", "finance.zh-CN.md"])
def test_what_is_to_be_installed_is_this_library(page: str) -> None:
    """The index has an older one under the same name, without the extra."""
    told = re.findall(r"^pip install .*", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert told == ['pip install ".[finance]"']
