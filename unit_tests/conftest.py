"""What every test gets: one torch thread, fixed seeds, a working folder of its own; time limits by pytest-timeout."""

from __future__ import annotations

import os
import random
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported; processes started by a test inherit it

import numpy as np
import pytest
import torch

SLOW_TEST_SECONDS = 900

torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests marked slow a longer limit than pyproject.toml's, unless they state their own."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_TEST_SECONDS))


@pytest.fixture(autouse=True)
def _clean_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Run in an empty folder with fixed seeds; fail a test that leaves gradients off."""
    monkeypatch.chdir(tmp_path)
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    yield
    grad_enabled = torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    assert grad_enabled, "the test left torch's gradients disabled"
