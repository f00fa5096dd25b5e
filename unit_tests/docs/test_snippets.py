"""Every Python block of README and docs runs, those of a page in order and together, with runs cut to a few steps.

A line `<!-- not run: what it needs -->` above a block names the hardware or package that is not here.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from elegantrl.train import evaluator, run

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(
    r"(?:<!-- (not run: \S[^>]*?) -->\n)?^```(?:python|py|\{code-block\} python)\n(.*?)^```", re.DOTALL | re.MULTILINE
)
FINANCE = ("docs/finance.md", "docs/finance.zh-CN.md")  # test_finance.py runs them, and looks at what they earn
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [name for path in FILES if (name := path.relative_to(ROOT).as_posix()) not in FINANCE and "_build" not in name]
LARGEST = {"horizon_len": 16, "batch_size": 16, "buffer_init_size": 32, "eval_times": 1, "num_envs": 64, "max_step": 50}
train = run.train


def blocks(page: str) -> list[tuple[str, int, str]]:
    """Why it is not run (or ''), line number and code of each Python block of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [(found[1] or "", text[: found.start(2)].count("\n"), found[2]) for found in BLOCK.finditer(text)]


def short_run(args: Any, kind: Any = None, ranks: Any = None) -> Any:
    """The run that a page describes, in one process and a few updates long; a resumed one goes as far again."""
    for name, largest in LARGEST.items():
        if (getattr(args, name, None) or 0) > largest:  # on-policy agents have no buffer, some batches no size
            setattr(args, name, largest)
    if args.if_off_policy:
        args.utd = min(args.utd, 4 / args.num_envs)
    else:
        args.repeat_times = 1
    rollout = args.horizon_len * args.num_envs
    args.break_step, args.eval_per_step = (3 + 3 * args.continue_train) * rollout, rollout
    return train(args, run.Run)


@pytest.fixture
def namespace(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Of a module, so that classes which a page defines can be found again by their names."""
    monkeypatch.setattr(run, "train", short_run)
    monkeypatch.setattr(evaluator, "draw_learning_curve", lambda *given: Path(given[2]).touch())  # half a second each
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    return vars(module)


@pytest.mark.parametrize("page", [page for page in PAGES if any(not why for why, _, _ in blocks(page))])
def test_page(page: str, namespace: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    if page.startswith("docs/helloworld"):
        monkeypatch.syspath_prepend(str(ROOT / "helloworld"))
    for why, line, code in blocks(page):
        if not why:
            exec(compile("\n" * line + code, str(ROOT / page), "exec"), namespace)


@pytest.mark.parametrize("page", [page for page in PAGES if page.endswith(".zh-CN.md")] + ["README.zh-CN.md"])
def test_chinese_page_has_the_same_code(page: str):
    def bare(name: str) -> list[str]:
        return [re.sub(r'""".*?"""| *#.*', "", code) for _, _, code in blocks(name)]

    assert bare(page) == bare(page.replace(".zh-CN", ""))


def test_few_blocks_are_not_run():
    """The tag is for what is not here, not for what does not work."""
    reasons = [why for page in PAGES for why, _, _ in blocks(page) if why]
    assert all(re.match(r"not run: needs \S", why) for why in reasons) and len(reasons) < 20
