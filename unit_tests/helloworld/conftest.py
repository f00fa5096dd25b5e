"""The tutorial's files import each other by their bare names, as they do when one of them is run."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "helloworld"


@pytest.fixture(scope="session")
def hello() -> SimpleNamespace:
    """Every module of helloworld/, by its name; nothing of it stays importable for other tests."""
    names = [path.stem for path in FOLDER.glob("*.py")]
    sys.path.insert(0, str(FOLDER))
    try:
        return SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    finally:
        sys.path.remove(str(FOLDER))
        for name in names:
            sys.modules.pop(name, None)
