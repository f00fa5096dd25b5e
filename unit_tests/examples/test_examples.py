"""Every example ends in seconds with `--quick`, leaves complete files, finite losses and a policy that has changed."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import elegantrl  # noqa: F401, names the networks that torch.load may build

FOLDER = Path(__file__).resolve().parents[2] / "examples"
SCRIPTS = sorted(path for path in FOLDER.glob("*.py") if path.name not in ("quick.py", "demo.py"))
FILES = {"act.pth", "actor.pth", "cri.pth", "checkpoint.pth", "recorder.npy", "recorder.json", "LearningCurve.jpg"}
pytestmark = pytest.mark.timeout(300)  # on a busy machine five processes take long to begin
MADE = {"load_and_render": ["pendulum.gif"]}  # beside the folders of runs


def run_as_main(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `python script` does: processes that it starts import it again, and its classes can be loaded afterwards."""
    spec = importlib.util.spec_from_file_location("__main__", script)
    module = importlib.util.module_from_spec(spec)
    module.__spec__ = None
    monkeypatch.setitem(sys.modules, "__main__", module)
    spec.loader.exec_module(module)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_example(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.argv", [str(script), "--quick"])
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.delitem(sys.modules, "quick", raising=False)  # it looks at the command line once
    run_as_main(script, monkeypatch)
    runs = [path.parent for path in tmp_path.glob("*/recorder.npy")]
    assert runs
    for run in runs:
        assert {path.name for path in run.iterdir()} >= FILES
        table, names = np.load(run / "recorder.npy"), json.loads((run / "recorder.json").read_text())
        assert len(table) >= 2 and np.isfinite(table[-1][[names.index("objC"), names.index("avgR")]]).all()
        first, *_ = sorted(run.glob("actor__*.pt"))
        is_ours = script.stem != "your_own_network"
        before, after = (torch.load(path, weights_only=is_ours).state_dict() for path in (first, run / "act.pth"))
        assert any(not torch.equal(after[name], x) for name, x in before.items())
    for name in MADE.get(script.stem, []):
        assert (tmp_path / name).stat().st_size > 1000


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_example_is_short(script: Path):
    assert len(script.read_text().splitlines()) <= 80
