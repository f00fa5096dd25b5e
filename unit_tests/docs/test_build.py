"""The documentation builds without a warning, and its generated tables say what the code says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from elegantrl.agents import AgentREDQ

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.slow  # `make docs`, which .ci/run calls, is the quick way
def test_docs_build(tmp_path: Path):
    command = [sys.executable, "-m", "sphinx", "-W", "-n", "-q", str(DOCS), str(tmp_path / "html")]
    result = subprocess.run(command, capture_output=True, text=True, cwd=DOCS.parent)
    assert result.returncode == 0, result.stderr
    page = (tmp_path / "html" / "algorithms" / "redq.html").read_text(encoding="utf-8")
    for name in AgentREDQ.hyper_parameters():
        assert f">{name}</span>" in page
    settings = (tmp_path / "html" / "api" / "config.html").read_text(encoding="utf-8")
    assert "None: ./{env_name}_{agent}_{seed}" in settings  # underscores of a comment are no emphasis
    assert "critics that make a label, drawn anew for each update" in page  # a comment in AgentREDQ.py
