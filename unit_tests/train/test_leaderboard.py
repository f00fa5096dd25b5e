"""The evaluation service ranks the newest policies of runs by episodes that are the same for all."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from elegantrl import Config
from elegantrl.agents import AgentPPO, AgentSAC
from elegantrl.train import evaluator
from elegantrl.train.evaluator import play_greedily
from elegantrl.train.leaderboard import Leaderboard
from elegantrl.train.run import load_agent, train_agent
from unit_tests.tasks import Match, config
from unit_tests.train.test_run import ROOT


@pytest.fixture(autouse=True)
def _quick_pictures(monkeypatch):
    monkeypatch.setattr(evaluator, "draw_learning_curve", lambda table, title, path, score: Path(path).touch())


def rows_of(file="board.csv"):
    with open(file, newline="") as stream:
        return list(csv.DictReader(stream))


def test_runs_are_ranked_by_the_same_episodes(capsys):
    train_agent(config(AgentPPO, cwd="one"), True)
    train_agent(config(AgentSAC, cwd="two", if_keep_save=False), True)
    board = Leaderboard(["one", "two", "none"], "board.csv", episodes=40)
    assert board.look() == 2 and board.look() == 0
    rows = rows_of()
    assert [row["rank"] for row in rows] == ["1", "2"] and float(rows[0]["avgR"]) >= float(rows[1]["avgR"])
    row = next(row for row in rows if row["cwd"] == "two")
    returns, _ = play_greedily(Match(4), load_agent("two"), 10, seed=0)
    assert float(row["avgR"]) == pytest.approx(np.mean(returns)) and row["episodes"] == "40"
    assert (row["agent"], row["env_name"], row["policy"]) == ("AgentSAC", "Match", "checkpoint.pth")
    assert capsys.readouterr().out.count("none: no checkpoint.pth yet") == 1  # told once


def test_a_newer_policy_is_evaluated():
    run = train_agent(config(AgentPPO, cwd="one"), True)
    board = Leaderboard(["one"], "board.csv", episodes=20)
    board.look()
    with torch.no_grad():
        for x in run.agent.act.parameters():
            x.zero_()  # the action is 0: it earns -s^2, which is -0.213 on average
    torch.save(run.agent.act, f"one/actor__{777:012d}_{-0.213:09.3f}.pt")
    assert board.look() == 1
    (row,) = rows_of()
    assert row["step"] == "777" and float(row["avgR"]) == pytest.approx(-0.213, abs=0.1)


def test_the_command():
    train_agent(
        Config(AgentPPO, "Pendulum-v1", net_dims=(8,), break_step=64, horizon_len=64, eval_times=1, cwd="run"), True
    )
    command = [sys.executable, "-m", "elegantrl.train.evaluator", "run", "--once", "--episodes", "2"]
    environment = {**os.environ, "PYTHONPATH": ROOT}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stderr == ""
    assert "Pendulum-v1   1." in done.stdout and rows_of("leaderboard.csv")[0]["step"] == "64"
