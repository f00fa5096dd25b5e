"""A run from end to end: what it leaves on disk, how it ends, what it repeats."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch

import elegantrl
from elegantrl.agents import AgentD3QN, AgentDDPG, AgentModSAC, AgentPPO, AgentSAC, AgentTD3
from elegantrl.agents.functional import LinearSchedule
from elegantrl.train import evaluator
from elegantrl.train import run as running
from elegantrl.train.config import build_env
from elegantrl.train.evaluator import play_greedily
from elegantrl.train.run import init_agent, load_agent, render_agent, train_agent, train_and_evaluate, valid_agent
from elegantrl.train.worker import EnvironmentFault
from unit_tests.agents.test_values import OFF_POLICY, ON_POLICY, name
from unit_tests.tasks import Call, Clock, Match, build, config

ROOT = str(Path(elegantrl.__file__).parents[1])
ALWAYS = ["act.pth", "actor.pth", "cri.pth", "checkpoint.pth", "recorder.npy", "recorder.json", "LearningCurve.jpg"]


@pytest.fixture(autouse=True)
def _quick_pictures(monkeypatch, request):
    """Drawing takes as long as a whole run here, and has tests of its own."""
    if "leaves_its_files" not in request.node.name:
        monkeypatch.setattr(evaluator, "draw_learning_curve", lambda table, title, path, score: Path(path).touch())


def complete(cwd="run"):
    missing = [file for file in ALWAYS if not (Path(cwd) / file).exists()]
    assert not missing and not list(Path(cwd).glob(".tmp*"))
    return np.load(Path(cwd) / "recorder.npy")


class Recorded(gym.Env):
    """One environment: pays -(a - 0.5)^2 in units of 10; keeps what it was told."""

    observation_space = gym.spaces.Box(-1, 1, (3,), np.float64)
    action_space = gym.spaces.Box(-10, 10, (1,), np.float64)
    made: ClassVar[list] = []

    def __init__(self):
        self.actions, self.seeds, self.closed = [], [], 0
        self.made.append(self)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        return self.np_random.uniform(-1, 1, 3), {}

    def step(self, action):
        self.actions.append(float(action[0]))
        return self.np_random.uniform(-1, 1, 3), -((action[0] / 10 - 0.5) ** 2), len(self.actions) % 7 == 0, False, {}

    def close(self):
        self.closed += 1


# --- every agent ---
@pytest.mark.parametrize("agent_class, if_discrete", OFF_POLICY + ON_POLICY, ids=name)
def test_every_agent_runs_and_leaves_its_files(agent_class, if_discrete):
    start = time.monotonic()
    env_args = {"num_envs": 4, "if_discrete": if_discrete, "ends": "terminate"}
    run = train_agent(config(agent_class, Clock, env_args), True)
    assert time.monotonic() - start < 10
    rows = complete()
    assert torch.is_grad_enabled() and run.total_step >= 300
    assert rows[-1, 0] == run.total_step and rows[-1, 1] == 5.0  # five steps that pay 1
    assert (rows[:, 3] == 1.0).all()  # expR: the mean reward of a step
    agent = load_agent("run")
    state = torch.eye(run.args.state_dim)
    assert torch.equal(agent.greedy(state), run.agent.greedy(state))


def test_the_random_beginning_ends_with_the_run():
    run = train_agent(config(AgentSAC, Clock, {"num_envs": 4}, break_step=60, buffer_init_size=1000), True)
    assert (run.total_step, run.agent.update_count, run.stop_reason) == (80, 0, "break_step 60 was reached")
    assert complete()[-1, 0] == 80


def test_a_single_environment_learns_in_its_own_units():
    Recorded.made.clear()
    how = {"gamma": 0.0, "learning_rate": 1e-2, "utd": 2.0, "net_dims": (32,), "buffer_init_size": 100}
    how |= {"batch_size": 64, "alpha_init": 0.01, "eval_times": 1}
    train_and_evaluate(config(AgentSAC, Recorded, {"max_step": 7}, **how))
    rows = complete()
    learning = max(Recorded.made, key=lambda env: len(env.actions))
    assert -10 <= min(learning.actions[:100]) < -8 and 8 < max(learning.actions[:100]) <= 10  # warm-up covers the box
    action = load_agent("run").select_action(np.zeros(3))
    assert action.shape == (1,) and action.dtype == np.float64 and action[0] == pytest.approx(5, abs=2)
    assert rows[-1, 1] > -0.5  # of 7 steps; the action 0 earns -1.75
    assert all(env.closed for env in Recorded.made)


def test_steps_are_the_calls_of_the_environment():
    Recorded.made.clear()
    run = train_agent(config(AgentPPO, Recorded, {"max_step": 7}, horizon_len=10, break_step=100), True)
    assert max(len(env.actions) for env in Recorded.made) == run.total_step >= 100
    assert run.worker.reset_rows > 5


def test_explore_env_takes_what_build_env_returns():
    agent = AgentSAC((8,), 3, 1)
    items = agent.explore_env(build_env("Pendulum-v1"), 6)
    assert [x.shape[0] for x in items] == [6] * 5 and items[0].shape == (6, 1, 3)


# --- evaluation ---
def test_the_policy_is_evaluated_greedily():
    """A bandit that pays -(a - 0.5)^2: the mean is right, the std is e^2."""
    env = Match(num_envs=4)
    env.draw = lambda chosen: setattr(env, "s", torch.full((4, 2), 0.5))
    agent = build(AgentPPO, env, log_std_init=2.0)
    agent.act.net[-1].weight.data.zero_()
    agent.act.net[-1].bias.data.fill_(0.5)
    returns, _ = play_greedily(env, agent, episodes=5)
    assert (returns == 0).all()
    assert agent.explore(env, agent.new_trajectory(env, 20)).rewards.mean() < -0.5


def test_evaluation_uses_the_normaliser_and_leaves_it_alone():
    args = config(AgentSAC, env_args={"num_envs": 4, "scale": 1000.0}, if_norm_state=True)
    run = train_agent(args, True)
    before = {key: value.clone() for key, value in run.agent.state_norm.state_dict().items()}
    assert before["std"].min() > 100
    env = Match(num_envs=4, scale=1000.0)
    first, second = (play_greedily(env, run.agent, episodes=3, seed=1)[0] for _ in range(2))
    assert (first == second).all()
    assert all(torch.equal(before[key], value) for key, value in run.agent.state_norm.state_dict().items())
    run.agent.state_norm.std.fill_(1.0)  # and without it the same policy is another
    assert (play_greedily(env, run.agent, episodes=3, seed=1)[0] != first).any()
    module = torch.load("run/act.pth")
    assert torch.equal(module.state_norm.std, before["std"])


@pytest.mark.parametrize("agent_class", [AgentSAC, AgentPPO])
def test_more_evaluations_do_not_change_training(agent_class):
    for cwd, gap in (("some", 100), ("many", 40)):
        train_agent(config(agent_class, cwd=cwd, eval_per_step=gap), True)
    some, many = (torch.load(f"{cwd}/actor.pth") for cwd in ("some", "many"))
    assert len(complete("many")) > len(complete("some"))
    assert all(torch.equal(some[key], many[key]) for key in some)


# --- seeds ---
@pytest.mark.parametrize("agent_class", [AgentSAC, AgentD3QN, AgentPPO])
def test_the_same_seed_gives_the_same_run(agent_class):
    for cwd, seed in (("first", 1), ("again", 1), ("other", 2)):
        torch.manual_seed(len(cwd))  # what the caller did before does not matter
        train_agent(config(agent_class, cwd=cwd, random_seed=seed, break_step=150, eval_per_step=50), True)
    first, again, other = (torch.load(f"{cwd}/actor.pth") for cwd in ("first", "again", "other"))
    assert all(torch.equal(first[key], again[key]) for key in first)
    np.testing.assert_array_equal(complete("first"), complete("again"))
    assert not all(torch.equal(first[key], other[key]) for key in first)
    assert not np.array_equal(complete("first")[:, 1], complete("other")[:, 1])


def test_environments_get_seeds_of_their_own():
    Recorded.made.clear()
    args = config(AgentDDPG, Recorded, {"max_step": 7, "num_envs": 3}, break_step=60, random_seed=4)
    train_agent(args, True)
    seeds = [env.seeds[0] for env in Recorded.made if env.seeds and env.seeds[0] is not None]
    assert len(set(seeds)) == len(seeds) >= 6


# --- ends ---
def test_break_score_ends_at_the_next_evaluation():
    run = train_agent(config(AgentPPO, Clock, {"num_envs": 4}, break_score=4.0, break_step=10**6), True)
    assert run.total_step < 200 and "break_score" in run.stop_reason and len(complete()) == 1


def test_break_step_may_be_a_float():
    run = train_agent(config(AgentPPO, break_step=1e2), True)
    assert 100 <= run.total_step < 200 and "break_step" in run.stop_reason


def test_a_stop_file_ends_the_run():
    callback = Call("on_rollout", lambda run: Path("run/stop").touch(), at=3)
    run = train_agent(config(AgentPPO, callbacks=[callback], break_step=10**6), True)
    assert callback.counts["on_update"] == 3 and "stop" in run.stop_reason
    assert complete()[-1, 0] == run.total_step


def test_callbacks_are_called_and_may_stop():
    callback = Call("on_update", lambda run: run.stop("enough"), at=5)
    run = train_agent(config(AgentPPO, callbacks=[object(), callback], eval_per_step=32, break_step=10**6), True)
    evaluations = len(complete())
    assert callback.counts == {"on_rollout": 5, "on_update": 5, "on_evaluate": evaluations, "on_end": 1}
    assert run.stop_reason == "enough" and evaluations > 1 and set(run.logs) == {"objC", "objA", "entropy", "kl"}


def interrupt(run):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "agent_class, hook",
    [(AgentSAC, "on_rollout"), (AgentSAC, "on_update"), (AgentPPO, "on_rollout"), (AgentPPO, "on_evaluate")],
)
def test_an_interrupt_leaves_complete_files(agent_class, hook):
    callback = Call(hook, interrupt, at=2)
    run = train_agent(config(agent_class, callbacks=[callback]), True)
    assert run.stop_reason == "interrupted" and callback.counts["on_end"] == 1
    assert complete()[-1, 0] == run.total_step  # there was a last evaluation
    assert load_agent("run").select_action(np.zeros(2)) is not None
    assert torch.is_grad_enabled()
    again = train_agent(config(agent_class, continue_train=True, break_step=run.total_step + 40), True)
    assert again.total_step >= run.total_step + 40


@pytest.mark.parametrize(
    "harm, told, if_single_process",
    [
        (lambda: time.sleep(0.01), "TimeoutError it takes too long", True),
        (lambda: time.sleep(0.01), "TimeoutError it takes too long", False),
        (lambda: interrupt(None), "KeyboardInterrupt", True),
    ],
)
def test_the_evaluation_after_ctrl_c_has_an_end(harm, told, if_single_process, monkeypatch, capsys):
    class Long(Clock):
        def step(self, action):
            harm()
            return super().step(action)

    how = {"eval_env_class": Long, "eval_env_args": {"num_envs": 2, "length": 10**6}, "eval_per_step": 10**6}
    monkeypatch.setattr(running, "LAST_SECONDS", 0.5)
    run = train_agent(config(AgentPPO, Clock, callbacks=[Call("on_update", interrupt, at=2)], **how), if_single_process)
    assert f"The last evaluation was left out: {told}" in capsys.readouterr().out
    assert run.stop_reason == "interrupted" and len(complete()) == 0


@pytest.mark.parametrize("agent_class", [AgentTD3, AgentPPO])
def test_an_environment_that_fails_is_told_after_saving(agent_class):
    class Fails(Clock):
        def step(self, action):
            if self.calls == 30:
                raise OSError("the exchange is closed")
            return super().step(action)

    threads = torch.get_num_threads()
    with pytest.raises(EnvironmentFault, match=r"Fails raised OSError in its step 26 .*the exchange is closed"):
        train_agent(config(agent_class, Fails, {"num_envs": 2}), True)
    complete()
    assert torch.is_grad_enabled() and torch.get_num_threads() == threads


def test_a_nan_ends_the_run_with_finite_parameters():
    class Broken(Clock):
        def step(self, action):
            state, *rest = super().step(action)
            return state / (self.calls != 37), *rest

    with pytest.raises(EnvironmentFault, match="states at step 31 of environment 0"):
        train_agent(config(AgentSAC, Broken, {"num_envs": 2}), True)
    complete()
    assert all(bool(torch.isfinite(x).all()) for x in torch.load("run/actor.pth").values())


@pytest.mark.parametrize("agent_class", [AgentSAC, AgentDDPG])
def test_settings_that_make_no_sense_are_refused_before_the_run(agent_class):
    with pytest.raises(ValueError, match="continuous"):
        train_agent(config(agent_class, Clock, {"num_envs": 2, "if_discrete": True}), True)
    assert not Path("run/recorder.npy").exists()


def test_no_steps_at_all():
    for agent_class in (AgentSAC, AgentPPO):
        run = train_agent(config(agent_class, break_step=0), True)
        assert run.total_step == run.worker.reset_rows == 0 and complete().shape[0] == 1
        assert load_agent("run").select_action(np.zeros(2)) is not None


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("agent_class", [AgentSAC, AgentPPO])
def test_the_callers_gradient_mode_does_not_matter(agent_class, mode):
    train_agent(config(agent_class, cwd="plain", break_step=100), True)
    with mode():
        run = train_agent(config(agent_class, break_step=100), True)
        assert not torch.is_grad_enabled() and torch.is_inference_mode_enabled() == (mode is torch.inference_mode)
    assert not any(x.is_inference() for x in run.agent.act.parameters())
    here, there = torch.load("run/actor.pth"), torch.load("plain/actor.pth")
    assert all(torch.equal(here[key], there[key]) for key in here)


def fail(run):
    raise OSError("no disk")


def test_an_impatient_second_ctrl_c_cuts_no_file_short():
    def press(run):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0)  # Python hears it between two steps of its own

    callback = Call("on_update", press)
    callback.on_end = press
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert train_agent(config(AgentPPO, callbacks=[callback]), True).stop_reason == "interrupted"
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    complete()


def test_two_runs_do_not_write_to_one_folder():
    told = []

    def again(run):
        with pytest.raises(ValueError, match=r"another run is writing to cwd='run': stop it, or give another cwd"):
            train_agent(config(AgentPPO), True)
        told.append(sorted(os.listdir("run")))

    train_agent(config(AgentPPO, callbacks=[Call("on_update", again, at=3)]), True)
    assert len(told) == 1 and not Path("run/previous-1").exists()
    complete()
    train_agent(config(AgentPPO, break_step=50), True)  # the folder is free again
    assert Path("run/previous-1").exists()


@pytest.mark.parametrize("hook, act, raised", [("on_end", fail, OSError), ("on_end", interrupt, KeyboardInterrupt)])
def test_a_callback_that_fails_at_the_end_stops_nothing_else(hook, act, raised, capsys):
    with pytest.raises(raised):
        train_agent(config(AgentPPO, callbacks=[Call(hook, act)], break_step=50), True)
    complete()
    assert "break_step 50 was reached. Files" in capsys.readouterr().out


def test_the_end_names_what_ended_it(capsys):
    with pytest.raises(SystemExit):
        train_agent(config(AgentPPO, callbacks=[Call("on_update", lambda run: sys.exit(3))]), True)
    complete()
    assert "reset rows): SystemExit. Files" in capsys.readouterr().out


def test_a_callback_must_be_an_object():
    class Stops:
        def on_update(self, run):
            run.stop("enough")

    with pytest.raises(ValueError, match=r"callbacks: objects are needed, Stops is a class: give Stops\(\) instead"):
        train_agent(config(AgentPPO, callbacks=[Stops]), True)
    assert not Path("run").exists()


def test_a_folder_that_cannot_be_written_to_is_told_first():
    Path("run").touch()
    with pytest.raises(ValueError, match="cwd='run' must be a folder that can be written to"):
        train_agent(config(AgentPPO), True)


@pytest.mark.parametrize("where", ["reset", "step"])
def test_an_environment_that_fails_in_evaluation_is_told(where):
    def fails(*how, **more):
        raise OSError("closed")

    other = type("Other", (Match,), {where: fails})
    with pytest.raises(EnvironmentFault, match=r"Other raised OSError in .* of this evaluation"):
        train_agent(config(AgentPPO, eval_env_class=other, eval_env_args={"num_envs": 2}), True)
    complete()


# --- doors ---
def test_load_agent_acts_in_the_environments_units():
    Recorded.made.clear()
    run = train_agent(config(AgentSAC, Recorded, {"max_step": 7}, if_norm_state=True, break_step=60), True)
    state = np.array([0.1, -0.2, 0.3])
    action = load_agent("run").select_action(state)
    np.testing.assert_array_equal(action, run.agent.select_action(state))
    greedy = run.agent.act(torch.tensor(state)[None].float()).item()
    assert action[0] == pytest.approx(10 * greedy, rel=1e-5)


class OwnSAC(AgentSAC):
    """A user's agent."""

    gamma = 0.5


def test_load_agent_of_a_users_class():
    class Local(AgentModSAC):
        pass

    train_agent(config(Local, break_step=60), True)
    with pytest.raises(ImportError, match="agent_class"):
        load_agent("run")
    assert isinstance(load_agent("run", agent_class=Local), Local)
    train_agent(config(OwnSAC, break_step=60, cwd="own"), True)
    assert type(load_agent("own")).__name__ == "OwnSAC"


def test_load_agent_says_what_is_missing():
    Path("empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"checkpoint\.pth"):
        load_agent("empty")


def test_init_agent_loads_what_the_folder_holds(capsys):
    args = config(AgentTD3)
    state = torch.randn(5, 2)
    init_agent(args, gpu_id=-1)
    assert "is new" in capsys.readouterr().out
    run = train_agent(args, True)
    assert torch.equal(init_agent(config(AgentTD3), gpu_id=-1).act(state), run.agent.act(state))


def test_init_agent_builds_the_networks_of_the_checkpoint_where_nothing_else_is_said():
    run = train_agent(config(AgentTD3, net_dims=(8, 16), if_norm_state=True, activation="tanh"), True)
    args = type(run.args)(AgentTD3, run.args.env_class, cwd=run.args.cwd)
    agent = init_agent(args, gpu_id=-1)
    state = torch.randn(5, 2)
    assert agent.net_dims == (8, 16) and torch.equal(agent.act(state), run.agent.act(state))
    with pytest.raises(ValueError, match="other networks"):
        init_agent(config(AgentTD3, net_dims=(8, 8)), gpu_id=-1)


@pytest.mark.parametrize(
    "file, how",
    [
        *((file, how) for file in ("actor.pth", "act.pth") for how in ({}, {"if_norm_state": True})),
        ("actor.pth", {"state_value_tau": 0.1}),
        ("act.pth", {"activation": "tanh"}),  # which a state dict does not say
    ],
)
def test_valid_agent_plays_a_saved_actor(file, how, capsys):
    args = config(AgentDDPG, Recorded, {"max_step": 7}, break_step=60, **how)
    train_agent(args, True)
    agent = load_agent("run")
    returns = valid_agent(Recorded, {"max_step": 7}, (8,), AgentDDPG, f"run/{file}", render_times=3)
    assert len(returns) == 3 and capsys.readouterr().out.count("return") >= 3
    greedy = agent.greedy(torch.zeros(1, 3)).item()
    assert np.mean(returns) / 7 == pytest.approx(-((greedy - 0.5) ** 2), abs=0.3)


@pytest.mark.parametrize("file", ["actor.pth", "act.pth"])
def test_valid_agent_builds_the_network_as_the_run_did(file):
    """What a state dict does not say stands in the checkpoint beside it."""

    class Steady(Recorded):
        def step(self, action):
            return np.ones(3), *super().step(action)[1:]

        def reset(self, **how):
            return np.ones(3), super().reset(**how)[1]

    train_agent(config(AgentDDPG, Steady, {"max_step": 7}, break_step=60, activation="tanh"), True)
    Recorded.made.clear()
    valid_agent(Steady, {"max_step": 7}, (8,), AgentDDPG, f"run/{file}", render_times=1)
    played = next(env.actions for env in Recorded.made if env.actions)
    assert played[0] == pytest.approx(load_agent("run").select_action(np.ones(3))[0])


def test_networks_that_do_not_fit_are_told():
    train_agent(config(AgentSAC, break_step=40), True)
    told = "holds other networks than AgentDDPG has with net_dims .* give the agent_class and settings"
    for net_dims in ((8,), (5,)):
        for file in ("checkpoint.pth", "actor.pth"):  # init_agent reads the first of them that is there
            with pytest.raises(ValueError, match=told):
                init_agent(config(AgentDDPG, net_dims=net_dims))
            Path("run", file).rename(file)
        for file in ("checkpoint.pth", "actor.pth"):
            Path(file).rename(f"run/{file}")
    with pytest.raises(ValueError, match=told):
        load_agent("run", agent_class=AgentDDPG)
    with pytest.raises(ValueError, match=told):
        valid_agent(Match, {"num_envs": 1}, (5,), AgentDDPG, "run/actor.pth")


def test_a_function_is_not_loaded_as_its_name():
    train_agent(config(AgentSAC, break_step=40, learning_rate=lambda progress: 1e-4 * (1 - progress)), True)
    assert load_agent("run").learning_rate == AgentSAC.learning_rate


def test_render_agent_asks_for_a_window():
    asked = []

    class Shown(Recorded):
        def __init__(self, render_mode=None):
            super().__init__()
            asked.append(render_mode)

        def render(self):
            asked.append("frame")

    train_agent(config(AgentDDPG, Shown, {"max_step": 7}, break_step=60), True)
    render_agent(Shown, {"max_step": 7}, (8,), AgentDDPG, "run/act.pth", render_times=1)
    assert asked[-1] == "frame" and "human" in asked


ACT = """
import torch, elegantrl
act = torch.load("run/act.pth")
torch.save(act(torch.tensor([[0.1, -0.3], [0.5, 0.2]])).detach(), "answer.pt")
"""


def test_a_bare_torch_load_acts_in_a_process_that_imported_elegantrl():
    run = train_agent(config(AgentPPO, if_norm_state=True, break_step=100), True)
    subprocess.run([sys.executable, "-c", ACT], check=True, env={"PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1"})
    with torch.no_grad():
        expected = run.agent.act(torch.tensor([[0.1, -0.3], [0.5, 0.2]]))
    assert torch.equal(torch.load("answer.pt"), expected)


def test_schedules_follow_the_run():
    seen = []
    callback = Call()
    callback.on_update = lambda run: seen.append(
        (run.agent.progress, run.agent.act_optimizer.param_groups[0]["lr"], run.total_step)
    )
    train_agent(config(AgentPPO, learning_rate=LinearSchedule(1e-3), callbacks=[callback]), True)
    progress, rates, steps = zip(*seen, strict=True)
    assert rates == pytest.approx([1e-3 * (1 - p) for p in progress]) and progress[0] < 0.2 and max(progress) > 0.8
    assert progress[1] == pytest.approx(steps[0] / 300)
    assert math.isclose(load_agent("run").learning_rate.start, 1e-3)


def test_a_resume_that_fails_leaves_the_checkpoint(tmp_path):
    train_agent(config(AgentSAC, cwd=str(tmp_path), break_step=40), True)
    before = (tmp_path / "checkpoint.pth").read_bytes(), (tmp_path / "recorder.npy").read_bytes()
    with pytest.raises(ValueError, match=r"net_dims was \(8,\), is \(5,\)"):
        train_agent(config(AgentSAC, cwd=str(tmp_path), break_step=80, net_dims=(5,), continue_train=True), True)
    assert before == ((tmp_path / "checkpoint.pth").read_bytes(), (tmp_path / "recorder.npy").read_bytes())


def test_the_best_policy_is_loaded(tmp_path):
    run = train_agent(config(AgentSAC, cwd=str(tmp_path)), True)
    scores = {float(path.stem.rpartition("_")[2]): path for path in tmp_path.glob("actor__*_*.pt")}
    state = torch.rand(5, 2)
    best = torch.load(scores[max(scores)], weights_only=True)
    assert torch.equal(load_agent(str(tmp_path), best=True).act(state), best(state))
    assert torch.equal(load_agent(str(tmp_path)).act(state), run.agent.act(state))


def test_a_misspelt_hook_is_told():
    class Typo:
        def on_rolout(self, run):
            pass

    with pytest.warns(UserWarning, match="on_rolout"):
        train_agent(config(AgentSAC, callbacks=[Typo()]), True)


def test_a_schedule_needs_the_length_of_the_run():
    args = config(AgentSAC, learning_rate=LinearSchedule(1e-3))
    args.break_step = math.inf
    with pytest.raises(ValueError, match=r"learning_rate.*break_step"):
        train_agent(args, True)
