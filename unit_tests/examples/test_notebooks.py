"""The notebooks run from top to bottom in quick mode, and hold what a reader is shown; the wheel holds the library."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
NAMES = {
    "quickstart_Pendulum_v1",
    "tutorial_BipedalWalker_v3",
    "tutorial_Creating_ChasingVecEnv",
    "tutorial_LunarLanderContinuous_v3",
    "tutorial_helloworld_DQN_DDPG_PPO",
    "tutorial_trading_stocks",
}


def printed(cell) -> str:
    return "".join(output.get("text", "") for output in cell.get("outputs", []))


def record(notebook) -> dict:
    """What the last code cell tells of the run."""
    return json.loads(printed([cell for cell in notebook.cells if cell.cell_type == "code"][-1]))


def test_every_notebook_is_there():
    assert {path.stem for path in NOTEBOOKS} == NAMES


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_in_quick_mode(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name, value in {"ELEGANTRL_QUICK": "1", "ELEGANTRL_SOURCE": str(ROOT), "PYTHONPATH": str(ROOT)}.items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.read(path, 4)
    NotebookClient(notebook, timeout=100, resources={"metadata": {"path": str(tmp_path)}}).execute()
    told = record(notebook)
    assert told["quick"] and {"seed", "steps", "score", "commit"} <= told.keys()
    assert list(tmp_path.rglob("LearningCurve.jpg"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_stored(path: Path):
    notebook = nbformat.read(path, 4)
    nbformat.validate(notebook)
    text = path.read_text()
    assert not re.search(r"/(home|root|tmp|work|usr)/", text), "a path of somebody's machine"
    found = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not any(output.output_type == "error" or output.get("name") == "stderr" for output in found)
    if found:  # nothing, or a run in full
        told = record(notebook)
        assert not told["quick"] and re.fullmatch(r"[0-9a-f]{7,}", told["commit"])
        assert any("image/png" in output.get("data", {}) for output in found)
        counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
        assert counts == list(range(1, len(counts) + 1)), "run from top to bottom, once"
    else:
        assert "**Time:" in text


def test_the_wheel_is_the_library(tmp_path: Path):
    """Built, installed into an empty folder, and imported from there, by another process in another folder."""
    source, wheels, target = tmp_path / "source", tmp_path / "wheels", tmp_path / "target"
    shutil.copytree(ROOT / "elegantrl", source / "elegantrl", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(source)]
    subprocess.run([*pip, *build], check=True)
    [wheel] = wheels.glob("elegantrl-*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--target", str(target), str(wheel)], check=True)
    assert (target / "elegantrl" / "py.typed").exists()
    code = "import elegantrl; from elegantrl import Config, train_agent; print(elegantrl.__file__)"
    found = {"env": {**os.environ, "PYTHONPATH": str(target)}, "cwd": tmp_path, "capture_output": True, "text": True}
    where = subprocess.run([sys.executable, "-c", code], check=True, **found).stdout
    assert where.strip() == str(target / "elegantrl" / "__init__.py")
