"""The experiment matrix: its rows, its report (against numbers that rliable made), and the peer's evaluation."""

from __future__ import annotations

import importlib
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from elegantrl.agents.functional import LinearSchedule

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"

# of 5 runs on 2 tasks: rliable 1.2.0 (which does not import beside pandas 3) says, by 20,000 and 5,000 repeats:
OURS = [np.array([0.1, 0.4, 0.35, 0.8, 0.6]), np.array([0.9, 0.8, 1.2, 0.7, 1.0])]
THEIRS = [np.array([0.2, 0.4, 0.1, 0.5, 0.3]), np.array([0.5, 0.9, 1.1, 0.6, 0.95])]
RLIABLE = {"iqm": (0.7, 0.55833333, 0.83333333), "improvement": (0.65, 0.39, 0.88), "profile": [0.9, 0.7, 0.3]}


@pytest.fixture(scope="module")
def benchmarks():
    """Imports a module of benchmarks/, which import each other by their bare names."""
    before = set(sys.modules)
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module
    sys.path.remove(str(BENCHMARKS))
    for name in set(sys.modules) - before:
        if str(BENCHMARKS) in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]


@pytest.fixture
def report(benchmarks):
    return benchmarks("report")


def test_estimates_are_those_of_rliable(report):
    value, low, high = RLIABLE["iqm"]
    assert report.overall_iqm(OURS) == pytest.approx(value)
    assert report.interval(report.overall_iqm, OURS) == pytest.approx((low, high), abs=0.02)
    value, low, high = RLIABLE["improvement"]
    assert report.improvement(OURS, THEIRS) == pytest.approx(value)
    assert report.interval(report.improvement, OURS, THEIRS) == pytest.approx((low, high), abs=0.02)
    assert report.profile(OURS, np.array([0.3, 0.5, 0.85])) == pytest.approx(RLIABLE["profile"])


def test_stability_by_hand(report):
    assert report.worst_decile(np.arange(20.0)) == 0.5  # the mean of 0 and 1
    assert report.worst_decile(np.array([3.0, 1.0, 2.0])) == 1.0
    assert report.largest_fall(np.array([1.0, 5.0, 2.0, 6.0, 4.0])) == 3.0
    assert report.iqr(np.array([0.0, 1.0, 2.0, 3.0, 4.0])) == 2.0
    assert report.iqr_ratio([np.arange(5.0)], [2 * np.arange(5.0)]) == 0.5
    near, far = np.linspace(-1, 1, 20), np.linspace(-5, 5, 20)
    assert report.spread_p(near, far) < 0.001 < 0.99 < report.spread_p(near, near + 100)


def write(learning, row, seed, values, results):
    rows = [[(i + 1) * row.eval_per_step, value] for i, value in enumerate(values)]
    facts = {"settings": row.told(), "wall_seconds": 1.0, "versions": {}}
    learning.write_csv(learning.csv_path(row, seed, results), facts, ["avgR"], rows, [0.0] * len(rows))


def test_report_of_raw_rows(benchmarks, report, tmp_path):
    learning, rows = benchmarks("learning"), benchmarks("rows")
    ours = rows.Row("CartPole-v1", "AgentPPO", 1200, 100, {"gamma": 0.9})
    theirs, with_h = replace(ours, agent="sb3-PPO"), replace(ours, variant="+H_mean")
    for seed in range(3):
        write(learning, ours, seed, [0, 900, *[480 + seed] * 10], tmp_path)  # the first two are not in the score
        write(learning, theirs, seed, [0, 0, *[470 + 2 * seed] * 10], tmp_path)
        write(learning, with_h, seed, [0, 0, *[400.0] * 10], tmp_path)
    write(learning, replace(ours, settings={"gamma": 0.8}), 3, [0.0] * 12, tmp_path)  # of settings given up since
    matrix = [ours, theirs, replace(ours, variant="+H"), with_h]
    found = report.load(matrix, tmp_path)
    assert sorted(name for _, name in found) == ["AgentPPO", "AgentPPO+H_mean", "sb3-PPO"]
    assert found["CartPole-v1", "AgentPPO"].scores.tolist() == [480, 481, 482]

    lines = report.report(matrix, found).splitlines()
    assert any(line.startswith("| AgentPPO | 1200 | 3 | 481.0 | 481.0") and line.endswith("| 0/3 |") for line in lines)
    assert any(line.startswith("| sb3-PPO | 1200 | 3 | 472.0 | ") and line.endswith("| 3/3 |") for line in lines)
    assert any(
        line.startswith("| CartPole-v1 | AgentPPO | sb3-PPO | 3 / 3 | 9.0 | 1.00 [1.00, 1.00] | 0.50 ")
        for line in lines
    )
    for draw in report.PICTURES.values():
        assert draw(found).get_axes()


def test_rows_have_names_of_their_own_and_known_tasks(benchmarks):
    learning = benchmarks("learning")
    names = [(row.task, row.name) for row in learning.TASKS]
    assert len(set(names)) == len(names)
    assert {row.task for row in learning.TASKS} == set(learning.THRESHOLDS) == set(benchmarks("rows").RANDOM)
    for row in learning.TASKS:
        assert row.break_step // row.eval_per_step >= learning.SCORE_EVALUATIONS, row.name


def test_every_agent_has_a_colour(benchmarks, report):
    names = {row.agent.removeprefix("Agent").removeprefix("sb3-") for row in benchmarks("learning").TASKS}
    assert names <= report.COLOURS.keys()


def test_changed_rows(benchmarks):
    rows = benchmarks("rows")
    row = rows.Row("Pendulum-v1", "AgentPPO", 10, 1, {"learning_rate": LinearSchedule(3e-3), "batch_size": 64})
    third, thrice, half, twice = rows.with_changes(row)
    assert third.settings == {"learning_rate": LinearSchedule(pytest.approx(1e-3)), "batch_size": 64}
    assert thrice.settings["learning_rate"].start == pytest.approx(9e-3)
    assert (half.settings["batch_size"], twice.settings["batch_size"]) == (32, 128)
    assert twice.name == "AgentPPO@batch_twice"


def test_no_further_run_begins_after_ctrl_c(benchmarks, tmp_path, monkeypatch):
    learning, told = benchmarks("learning"), []

    class Pool(ThreadPoolExecutor):
        def __init__(self, jobs, **how):
            super().__init__(jobs)

        def shutdown(self, wait=True, *, cancel_futures=False):
            told.append(cancel_futures)
            super().shutdown(wait, cancel_futures=cancel_futures)

    def interrupted(futures):
        raise KeyboardInterrupt

    monkeypatch.setattr(learning, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(learning, "as_completed", interrupted)
    monkeypatch.setattr(learning, "run_row", lambda *what: None)
    with pytest.raises(KeyboardInterrupt):
        learning.run_all(learning.TASKS[:2], 3, 1, tmp_path)
    assert told == [True]


def test_the_peer_meets_our_episodes(benchmarks, tmp_path):
    pytest.importorskip("stable_baselines3")
    learning, peers, rows = benchmarks("learning"), benchmarks("peers"), benchmarks("rows")
    settings = {"n_envs": 2, "n_steps": 8, "batch_size": 16, "normalize": True, "learning_rate": LinearSchedule(1e-3)}
    row = rows.Row("Pendulum-v1", "sb3-PPO", 64, 32, settings)
    learning.run_row(row, 0, tmp_path)
    assert learning.finished_seeds(row, tmp_path) == [0]
    _, evaluations = learning.read_run(learning.csv_path(row, 0, tmp_path))
    assert [e["step"] for e in evaluations] == [32, 64] and evaluations[0]["avgS"] == 200

    run = peers.Evaluate(row, 0)
    seen = []
    run.num_timesteps, run.policy = 32, lambda state, mask: (seen.append(state.clone()), state[:, :1] * 0)[1]
    run.evaluate()
    env = peers.build_vec_env(run.args, if_eval=True)
    assert (seen[0] == env.reset(seed=run.args.seed_for("evaluate", 0))[0]).all()
    ours = peers.play_episodes(env, lambda s, m: s[:, :1] * 0, 5, run.args.seed_for("evaluate", 0))[0]
    assert run.rows[0][1] == ours.mean()


def test_the_peer_acts_in_our_units(benchmarks):
    pytest.importorskip("stable_baselines3")
    import gymnasium
    import torch

    peers, rows = benchmarks("peers"), benchmarks("rows")
    run = peers.Evaluate(rows.Row("Pendulum-v1", "sb3-PPO", 64, 32, {}), 0)

    class Model:  # says 1 of Pendulum's 2
        action_space = gymnasium.make("Pendulum-v1").action_space

        def get_vec_normalize_env(self):
            return None

        def predict(self, seen, deterministic):
            assert deterministic
            return np.ones((len(seen), 1), np.float32), None

    run.model = Model()
    assert run.policy(torch.zeros(3, 3), None).tolist() == [[0.5]] * 3
