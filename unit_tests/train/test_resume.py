"""A run that was killed and resumed is the run that went on, bit for bit; files of others survive."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from elegantrl.agents import AgentD3QN, AgentDDPG, AgentModSAC, AgentPPO, AgentREDQ, AgentSAC
from elegantrl.agents.functional import LinearSchedule
from elegantrl.train import evaluator
from elegantrl.train.run import load_agent, train_agent
from unit_tests.tasks import Call, Clock, Counter, Match, config
from unit_tests.train.test_run import ROOT, complete

NORMS = {"if_norm_state": True, "if_norm_value": True, "if_norm_reward": True}
BUFFER = {"if_save_buffer": True}
PER = BUFFER | {"if_use_per": True, "per_beta": LinearSchedule(0.4, 0.4)}  # a beta that rises depends on break_step
H_TERM = {"env_class": Clock, "lambda_h_term": 0.1, "h_term_k_step": 3, "h_term_sample_rate": 0.5}
CASES = {
    "SAC": (AgentSAC, BUFFER),
    "SAC, normalisers": (AgentSAC, BUFFER | NORMS),
    "SAC, PER": (AgentSAC, PER | {"buffer_size": 200}),
    "ModSAC, tau": (AgentModSAC, BUFFER | {"state_value_tau": 0.1}),
    "DDPG, OU": (AgentDDPG, BUFFER | {"if_ou_noise": True, "update_freq": 3}),
    "D3QN": (AgentD3QN, BUFFER | {"utd": 0.3, "explore_rate": 0.3}),  # the default schedule depends on break_step
    "D3QN, PER, n-step": (AgentD3QN, PER | {"n_step": 3, "explore_rate": 0.3}),
    "REDQ, cumulative rewards": (AgentREDQ, BUFFER | {"lambda_fit_cum_r": 0.5, "update_freq": 4}),
    "SAC, H-term": (AgentSAC, BUFFER | H_TERM),
    "DDPG, H-term": (AgentDDPG, BUFFER | H_TERM | {"h_term_weight": "advantage", "h_term_update_gap": 2}),
    "PPO, H-term": (AgentPPO, H_TERM | {"h_term_form": "mean", "h_term_buffer_size": 40}),
    "PPO": (AgentPPO, {}),
    "PPO, V-trace": (AgentPPO, {"if_use_v_trace": True}),
    "PPO, normalisers": (AgentPPO, {"if_norm_state": True, "if_norm_reward": True}),
}


@pytest.fixture(autouse=True)
def _quick_pictures(monkeypatch):
    monkeypatch.setattr(evaluator, "draw_learning_curve", lambda table, title, path, score: Path(path).touch())


class Careless(Clock):
    """Its episodes end by chance, from NumPy's global generator, as many environments of users do."""

    def draw(self, chosen):
        self.length = int(np.random.randint(2, 9))


def flat(value, path=""):
    """Every leaf of a nested checkpoint by its path."""
    if isinstance(value, dict | list | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return {key: leaf for name, item in items for key, leaf in flat(item, f"{path}/{name}").items()}
    return {path: value}


def differences(cwd, other):
    """Paths at which the checkpoints of two folders differ, the clock and the settings left out."""
    these, those = (flat(torch.load(f"{folder}/checkpoint.pth")) for folder in (cwd, other))
    assert these.keys() == those.keys()
    different = [path for path in these if not np.array_equal(these[path], those[path])]
    different = [path for path in different if not _both_nan(these[path], those[path])]
    return [path for path in different if not path.startswith("/config") and not path.endswith("elapsed")]


def _both_nan(x, y):
    """Records have NaN where nothing was logged."""
    if isinstance(x, torch.Tensor) and x.is_floating_point():
        return torch.equal(x.nan_to_num(), y.nan_to_num()) and torch.equal(x.isnan(), y.isnan())
    return isinstance(x, float) and x != x and y != y


@pytest.mark.parametrize("case", CASES)
def test_a_resumed_run_is_the_run_that_went_on(case):
    agent_class, how = CASES[case]
    how = {"checkpoint_per_step": 120, "eval_per_step": 50, **how}
    train_agent(config(agent_class, cwd="whole", break_step=240, **how), True)
    train_agent(config(agent_class, cwd="parts", break_step=120, **how), True)
    assert differences("whole", "parts")  # it stands at another step
    run = train_agent(config(agent_class, cwd="parts", break_step=240, continue_train=True, **how), True)
    assert run.total_step >= 240 and run.checkpoints == 2
    assert differences("whole", "parts") == []
    np.testing.assert_array_equal(complete("whole"), complete("parts"))


@pytest.mark.parametrize("agent_class", [AgentSAC, AgentPPO])
def test_schedules_and_careless_environments_resume_too(agent_class):
    how = {"checkpoint_per_step": 100, "break_step": 250, "learning_rate": LinearSchedule(1e-3), **BUFFER}
    how |= {"if_use_per": True} if agent_class.if_off_policy else {}
    env_args = {"num_envs": 2, "length": 9}
    train_agent(config(agent_class, Careless, env_args, cwd="whole", **how), True)
    stop = Call("on_update", lambda run: run.stop("killed"), at=1)
    stop.on_update = lambda run: run.total_step >= 150 and run.stop("killed")
    save = {}

    def keep(run):  # what a killed run would leave: its last checkpoint, nothing of the orderly end
        save["checkpoint"] = Path("parts/checkpoint.pth").read_bytes()

    stop.on_rollout = lambda run: run.checkpoints and not save and keep(run)
    train_agent(config(agent_class, Careless, env_args, cwd="parts", callbacks=[stop], **how), True)
    Path("parts/checkpoint.pth").write_bytes(save["checkpoint"])
    train_agent(config(agent_class, Careless, env_args, cwd="parts", continue_train=True, **how), True)
    assert differences("whole", "parts") == []


RESUME = """
import sys
import torch
torch.set_num_threads(1)
from elegantrl.agents import AgentSAC
from elegantrl.agents.functional import LinearSchedule
from elegantrl.train.run import train_agent
from unit_tests.tasks import config
train_agent(config(AgentSAC, cwd="parts", break_step=240, continue_train=True, **{how}), True)
assert "torch._dynamo" not in sys.modules  # torch's compiler takes most of a second to import, in every process
"""


def test_a_new_process_resumes_bit_for_bit():
    how = {**PER, **NORMS, "checkpoint_per_step": 120}
    train_agent(config(AgentSAC, cwd="whole", break_step=240, **how), True)
    train_agent(config(AgentSAC, cwd="parts", break_step=120, **how), True)
    environment = {**os.environ, "PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", RESUME.format(how=how)], check=True, env=environment)
    assert differences("whole", "parts") == []


def test_no_pair_crosses_a_checkpoint():
    """The state counts the steps of one endless episode, until a checkpoint's reset."""
    how = {"checkpoint_per_step": 60, **BUFFER}
    train_agent(config(AgentSAC, Counter, {"num_envs": 2, "length": 1000}, break_step=130, **how), True)
    run = train_agent(config(AgentSAC, Counter, {"num_envs": 2, "length": 1000}, continue_train=True, **how), True)
    batch = run.learner.buffer.sample(3000)
    true = (batch.next.states == batch.states + 1)[:, 0]
    assert torch.equal(batch.weight > 0, true) and len(batch.index[~true].unique()) >= 2 * 3


@pytest.mark.parametrize("agent_class", [AgentSAC, AgentPPO])
def test_continue_train_alone_goes_on(agent_class):
    """All defaults otherwise; the records are kept, the actor that was saved learns on from its first update."""
    first = train_agent(config(agent_class), True)
    before = {key: value.clone() for key, value in first.agent.act.state_dict().items()}
    rows = complete()
    seen = []
    callback = Call()
    callback.on_rollout = lambda run: seen.append({key: x.clone() for key, x in run.agent.act.state_dict().items()})
    run = train_agent(config(agent_class, continue_train=True, break_step=500, callbacks=[callback]), True)
    assert all(torch.equal(before[key], seen[0][key]) for key in before)
    assert any(not torch.equal(seen[0][key], seen[1][key]) for key in before)
    assert run.total_step >= 500 and run.agent.update_count > first.agent.update_count
    again = complete()
    assert len(again) > len(rows)
    np.testing.assert_array_equal(again[: len(rows)], rows)


def test_continue_train_without_a_checkpoint_begins_anew(capsys):
    assert train_agent(config(AgentPPO, continue_train=True, break_step=50), True).total_step >= 50
    assert "checkpoint.pth does not exist" in capsys.readouterr().out


def test_continue_train_without_a_checkpoint_sets_the_earlier_run_aside(capsys):
    train_agent(config(AgentPPO, break_step=50), True)
    rows = Path("run/recorder.npy").read_bytes()
    Path("run/checkpoint.pth").unlink()  # as a killed run without checkpoint_per_step leaves it
    train_agent(config(AgentPPO, continue_train=True, break_step=90), True)
    assert Path("run/previous-1/recorder.npy").read_bytes() == rows and complete()[0, 0] >= 90
    assert f"are now in {Path('run/previous-1')}." in capsys.readouterr().out


def test_a_finished_run_that_is_continued_stays_as_it_is():
    """Its buffer is not saved, and yet no step is taken to fill it."""
    first = train_agent(config(AgentSAC), True)
    rows, checkpoint = complete(), Path("run/checkpoint.pth").read_bytes()
    again = train_agent(config(AgentSAC, continue_train=True), True)
    assert again.total_step == first.total_step and Path("run/checkpoint.pth").read_bytes() == checkpoint
    np.testing.assert_array_equal(complete(), rows)


@pytest.mark.parametrize(
    "agent_class, name, value",
    [
        *((AgentSAC, name, value) for name, value in {"activation": "tanh", "num_ensembles": 5, **NORMS}.items()),
        (AgentPPO, "state_value_tau", 0.1),
        (AgentPPO, "agent_class", AgentDDPG),
    ],
)
def test_another_run_is_not_resumed(agent_class, name, value):
    train_agent(config(agent_class, break_step=40), True)
    how = {} if name == "agent_class" else {name: value}
    with pytest.raises(ValueError, match=f"was another one: {name} was"):
        train_agent(config(value if name == "agent_class" else agent_class, continue_train=True, **how), True)


def test_a_class_may_be_imported_by_another_name():
    train_agent(config(AgentPPO, break_step=40), True)
    moved = type("AgentPPO", (AgentPPO,), {"__module__": "__main__", "__qualname__": "AgentPPO"})
    assert train_agent(config(moved, continue_train=True, break_step=90), True).total_step >= 90


def test_a_checkpoint_of_others_is_refused_and_kept():
    Path("run").mkdir()
    torch.save({"model": {}, "epoch": 3}, "run/checkpoint.pth")
    before = Path("run/checkpoint.pth").read_bytes()
    for call in (lambda: train_agent(config(AgentPPO, continue_train=True), True), lambda: load_agent("run")):
        with pytest.raises(ValueError, match=r"run.checkpoint\.pth is no checkpoint of a run"):
            call()
    assert Path("run/checkpoint.pth").read_bytes() == before


def test_files_of_the_user_survive_every_mode():
    Path("run").mkdir()
    own = {"notes.txt": "mine", "model.pth": "mine too", "results.json": "{}"}
    taken = {file: f"my {file}" for file in ("act.pth", "actor.pth", "cri.pth", "recorder.npy", "LearningCurve.jpg")}
    for file, text in {**own, **taken}.items():
        Path("run", file).write_text(text)
    for how in ({}, {}, {"continue_train": True}, {"if_remove": False}, {}, {}, {}):
        train_agent(config(AgentPPO, break_step=50, **how), True)
        complete()
        assert {file: Path("run", file).read_text() for file in own} == own
    assert {file: Path("run/previous-1", file).read_text() for file in taken} == taken
    kept = sorted(path.name for path in Path("run").glob("previous-*"))
    assert len(kept) == 4 and all(Path("run", name, "checkpoint.pth").exists() for name in kept[1:])


def test_files_of_the_user_survive_where_earlier_runs_are_not_moved():
    Path("run").mkdir()
    Path("run/act.pth").write_text("mine")
    for _ in range(2):
        train_agent(config(AgentPPO, break_step=50, if_remove=False), True)
    assert [path.name for path in Path("run").glob("previous-*")] == ["previous-1"]
    assert Path("run/previous-1/act.pth").read_text() == "mine"


def test_an_earlier_run_is_set_aside_whole():
    train_agent(config(AgentSAC, break_step=60), True)
    before = load_agent("run").act.state_dict()
    train_agent(config(AgentSAC, break_step=60, random_seed=5), True)
    moved = load_agent("run/previous-1").act.state_dict()
    assert all(torch.equal(before[key], moved[key]) for key in before)
    assert not all(torch.equal(before[key], x) for key, x in load_agent("run").act.state_dict().items())


def test_nothing_in_the_files_needs_code_to_load():
    train_agent(config(AgentModSAC, env_class=Match, break_step=60, if_use_per=True, **BUFFER, **NORMS), True)
    for file in Path("run").glob("*.pt*"):
        torch.load(file, weights_only=True)
    assert json.loads(Path("run/recorder.json").read_text())[:3] == ["total_step", "avgR", "stdR"]
