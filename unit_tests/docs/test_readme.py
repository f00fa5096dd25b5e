"""What README's table of algorithms says was solved is what benchmarks/results/learning.md says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def solved() -> dict[tuple[str, str], str]:
    """(agent, task without its version) -> runs that solved it / runs."""
    found = {}
    for part in re.split(r"^## ", (ROOT / "benchmarks/results/learning.md").read_text(encoding="utf-8"), flags=re.M):
        task = re.split(r"-v\d", part)[0]
        for agent, runs in re.findall(r"^\| (Agent\w+) \| \d+ \| (\d+/\d+) ", part, flags=re.M):
            found[agent, task] = runs
    return found


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_the_table_of_algorithms_says_what_was_measured(page: str) -> None:
    rows = re.findall(r"^\| (`Agent.*) \|$", (ROOT / page).read_text(encoding="utf-8"), flags=re.M)
    said = {}
    for row in rows:
        first, *_, told = row.split("|")
        [agent, *_] = re.findall(r"`(Agent\w+)`", first)
        said |= {(agent, task): runs for task, runs in re.findall(r"([A-Z]\w+) (\d+/\d+)", told)}
    measured = solved()
    assert len(rows) == 15 and len(said) >= 15
    assert {key: measured.get(key) for key in said} == said
