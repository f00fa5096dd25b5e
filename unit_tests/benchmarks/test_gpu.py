"""benchmarks/gpu/check.py in its small form on the CPU, and that what is wrong fails it."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu" / "check.py"


@pytest.fixture
def check(monkeypatch):
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "gpu_check", module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_small_form_passes():
    done = subprocess.run([sys.executable, str(SCRIPT), "--small"], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("PASSED") and "FAILED" not in done.stdout
    rows = re.findall(r"^(?:PPO|SAC) \w+ +cpu +[\d,]+ steps/s(.*)", done.stdout, re.MULTILINE)
    assert len(rows) == 4
    for row in rows:
        shares = dict(re.findall(r"(environment|policy|transfer|update|rest) +(-?\d+)%", row))
        assert len(shares) == 5 and 98 <= sum(map(int, shares.values())) <= 102


def test_without_a_gpu_the_full_form_says_so(check, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert check.main([]) == 1
    assert "--small" in capsys.readouterr().out


def test_an_environment_that_differs_fails_and_the_rest_goes_on(check, monkeypatch, capsys):
    class Off(check.PendulumVecEnv):
        def advance(self, world, action):
            world, reward, terminal = super().advance(world, action)
            return world * (1 + 1e-3 * torch.rand(())), reward, terminal

    monkeypatch.setattr(check, "ENVIRONMENTS", [Off, check.CartPoleVecEnv])
    monkeypatch.setattr(check, "TRAININGS", [])
    assert check.main(["--small"]) == 1
    printed = capsys.readouterr().out
    assert "FAILED  Off: as on the CPU: state differs by" in printed and "ok      CartPoleVecEnv" in printed
    assert "FAILED: Off: as on the CPU" in printed


def test_a_training_that_raises_fails(check, monkeypatch, capsys):
    job = check.TRAININGS[0]
    job.settings["horizon_len"] = -1
    monkeypatch.setattr(check, "ENVIRONMENTS", [])
    monkeypatch.setattr(check, "TRAININGS", [job])
    assert check.main(["--small"]) == 1
    assert "FAILED  PPO Pendulum" in capsys.readouterr().out
