"""The evaluator counts whole episodes exactly, leaves training alone and writes the files the contract names."""

from __future__ import annotations

import builtins
import json
import math
import random
import re
import sys
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from elegantrl.train import evaluator as module
from elegantrl.train.console import Console, clock, number
from elegantrl.train.evaluator import Evaluator, play_episodes
from elegantrl.train.plots import draw_learning_curve
from elegantrl.train.worker import EnvironmentFault


class CountingEnv:
    """Environment i pays reward i + 1 for each of `lengths[i]` steps; a reset row pays 1000. State: the step."""

    env_name, state_dim, action_dim, if_discrete, max_step = "Counting-v0", 1, 1, False, 50
    device = torch.device("cpu")

    def __init__(self, lengths=(3, 5, 7), autoreset="next_step"):
        self.lengths, self.num_envs, self.autoreset = torch.tensor(lengths), len(lengths), autoreset
        self.seeds, self.rewards = [], torch.arange(1.0, self.num_envs + 1)

    def reset(self, seed=None):
        self.seeds.append(seed)
        self.step_count = torch.zeros(self.num_envs, dtype=torch.long)
        self.ended = torch.zeros(self.num_envs, dtype=torch.bool)
        return self.step_count[:, None].float(), {}

    def step(self, action):
        resetting = self.ended & (self.autoreset == "next_step")
        self.step_count = torch.where(resetting, 0, self.step_count + 1)
        self.ended = self.step_count >= self.lengths
        reward = torch.where(resetting, 1000.0, self.rewards)
        if self.autoreset == "same_step":
            self.step_count = torch.where(self.ended, 0, self.step_count)
        late = torch.arange(self.num_envs) % 2 == 1  # some end by termination, others by truncation
        return self.step_count[:, None].float(), reward, self.ended & ~late, self.ended & late, {}


class StandInAgent:
    device = torch.device("cpu")

    def __init__(self):
        self.act = nn.Linear(1, 1)

    def greedy(self, state, action_mask=None):
        return self.act(state)


def settings(**given):
    run = {"env_name": "Counting-v0", "agent_class": StandInAgent, "device": torch.device("cpu"), "break_step": 1000}
    run |= {"eval_times": 3, "eval_per_step": 100, "eval_gap": 0, "break_score": math.inf, "break_patience": 0}
    run |= {"save_gap": 4, "if_keep_save": True, "if_over_write": False, "if_tensorboard": False}
    run |= {"env_class": None, "env_args": None, "eval_env_class": None, "eval_env_args": None, "eval_record_step": 0}
    return SimpleNamespace(**(run | {"seed_for": lambda *key: 1000 + key[1]} | given))


LOGS = {"objC": 0.5, "objA": -2.0, "alpha": 0.1}


def scored(evaluator, score, step, **more):
    """An evaluation whose avgR is `score`."""
    evaluator.env.rewards = torch.full((evaluator.env.num_envs,), score / 4)
    evaluator.env.lengths = torch.full((evaluator.env.num_envs,), 4)
    return evaluator.evaluate_and_save(StandInAgent(), step, 1.0, LOGS, **more)


# --- playing ---
@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
@pytest.mark.parametrize("episodes", [1, 2, 5])
def test_first_episodes_of_each_environment_are_counted_exactly(autoreset, episodes):
    returns, lengths = play_episodes(CountingEnv((3, 5, 7), autoreset), lambda state, mask: state, episodes)
    assert lengths.tolist() == [3, 5, 7] * episodes and returns.tolist() == [3, 10, 21] * episodes


def test_team_return_is_the_mean_over_agents():
    env = CountingEnv((2,))
    env.rewards = torch.tensor([1.0])
    plain_step = env.step
    env.step = lambda action: (lambda s, r, *rest: (s, torch.stack((r, 3 * r), 1), *rest))(*plain_step(action))
    assert play_episodes(env, lambda state, mask: state, 1)[0].tolist() == [4.0]


def test_action_masks_of_reset_and_step_reach_the_policy():
    env, masks = CountingEnv((2,)), []
    plain_reset, plain_step = env.reset, env.step
    env.reset = lambda seed=None: (plain_reset(seed)[0], {"action_mask": "at reset"})
    env.step = lambda action: (*plain_step(action)[:4], {"action_mask": "at step"})
    play_episodes(env, lambda state, mask: masks.append(mask), 1)
    assert masks == ["at reset", "at step"]


def test_episode_without_end_is_counted_as_it_stands():
    with pytest.warns(UserWarning, match="Counting-v0 overran its max_step 50"):
        returns, lengths = play_episodes(CountingEnv((3, 10**6)), lambda state, mask: state, 1)
    assert lengths.tolist() == [3, 51] and returns.tolist() == [3, 102]


@pytest.mark.parametrize("name, bad", [("reward", math.inf), ("state", math.nan)])
def test_what_is_not_finite_is_named(name, bad):
    env = CountingEnv((3, 9))
    plain_step = env.step

    def poisoned(action):
        state, reward, *rest = plain_step(action)
        if env.step_count[1] == 7:
            (state if name == "state" else reward)[1] = bad
        return state, reward, *rest

    env.step = poisoned
    with pytest.raises(FloatingPointError, match=rf"the {name} of Counting-v0\[1\] is not finite at step 7"):
        play_episodes(env, lambda state, mask: state, 1)


def test_an_exception_in_evaluation_is_a_fault():
    """Its step is the environment's own: the third row only resets."""

    def raises(*how, **more):
        raise OSError("closed")

    env = CountingEnv((2,))
    plain_step, calls = env.step, []
    env.step = lambda action: calls.append(action) or (raises() if len(calls) == 5 else plain_step(action))
    with pytest.raises(
        EnvironmentFault, match=r"Counting-v0 raised OSError in its step 4 of this evaluation, .*closed"
    ):
        play_episodes(env, lambda state, mask: state, 3)
    env.reset = raises
    with pytest.raises(EnvironmentFault, match="Counting-v0 raised OSError in a reset of this evaluation: closed"):
        play_episodes(env, lambda state, mask: state, 3)
    with pytest.raises(ZeroDivisionError):  # the policy's own fault is not the environment's
        play_episodes(CountingEnv(), lambda state, mask: 1 / 0, 3)


def test_evaluation_neither_changes_nor_depends_on_global_random_states(tmp_path):
    class GlobalRandomEnv(CountingEnv):
        def reset(self, seed=None):
            state, info = super().reset(seed)
            self.rewards = torch.full((self.num_envs,), random.random() + np.random.rand() + torch.rand(1).item())
            return state, info

    def draws():
        return random.random(), np.random.rand(), torch.rand(1).item()

    def seed_all(seed):
        random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)

    evaluators = [Evaluator(tmp_path / str(i), GlobalRandomEnv(), settings()) for i in range(2)]
    agent = StandInAgent()
    seed_all(1)
    without = draws()
    seed_all(1)
    evaluators[0].evaluate_and_save(agent, 100, 1.0, LOGS)
    assert draws() == without and torch.is_grad_enabled()
    seed_all(2)
    evaluators[1].evaluate_and_save(agent, 100, 1.0, LOGS)
    assert np.array_equal(evaluators[0].records.array, evaluators[1].records.array)


def test_modules_are_in_evaluation_mode_only_while_playing(tmp_path):
    agent = StandInAgent()
    agent.act = nn.Sequential(nn.BatchNorm1d(1), nn.Dropout(0.5), nn.Linear(1, 1))
    agent.act[2].eval()
    statistics = agent.act[0].running_mean.clone()
    Evaluator(tmp_path, CountingEnv(), settings()).evaluate_and_save(agent, 100, 1.0, LOGS)
    assert [m.training for m in agent.act] == [True, True, False]
    assert torch.equal(agent.act[0].running_mean, statistics)


def test_older_functions():
    class Steps(gym.Env):
        observation_space, action_space = gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(3)
        spec, rendered = None, 0

        def reset(self, *, seed=None, options=None):
            self.left = 4
            return np.zeros(2, np.float32), {}

        def step(self, action):
            self.left -= 1
            return np.zeros(2, np.float32), float(action), self.left == 0, False, {}

        def render(self):
            self.rendered += 1

    class Values(nn.Module):
        def forward(self, state):  # action values, the last is the best
            return torch.arange(3.0).expand(len(state), 3)

    env = Steps()
    assert module.get_rewards_and_steps(env, Values()) == (8.0, 4) and env.rendered == 0
    assert module.get_episode_return_and_step(env, Values(), if_render=True) == (8.0, 4) and env.rendered == 4
    vector = module.get_cumulative_rewards_and_step_from_vec_env(CountingEnv((3, 5)), nn.Linear(1, 1))
    assert vector == [(3.0, 3), (10.0, 5)]


# --- schedule, records ---
def test_evaluations_are_due_at_multiples_of_eval_per_step(tmp_path):
    evaluator = Evaluator(tmp_path, CountingEnv(), settings(eval_per_step=1e2))
    took_place = [step for step in range(40, 520, 40) if scored(evaluator, 1.0, step)]
    assert took_place == [120, 200, 320, 400]
    assert scored(evaluator, 1.0, 480, force=True) and not scored(evaluator, 1.0, 480, force=True)
    assert evaluator.env.seeds == [1000, 1001, 1002, 1003, 1004]


def test_eval_gap_is_the_least_time_between_evaluations(tmp_path):
    evaluator = Evaluator(tmp_path, CountingEnv(), settings(eval_gap=60))
    assert [scored(evaluator, 1.0, 100), scored(evaluator, 1.0, 200)] == [True, False]
    evaluator.evaluated_at -= 61
    assert scored(evaluator, 1.0, 201)


def test_eval_times_is_spread_over_the_environments(tmp_path):
    lengths = [Evaluator(tmp_path, CountingEnv(), settings(eval_times=n)).episodes for n in (1, 3, 4, 8)]
    assert lengths == [1, 1, 2, 3]


def test_recorder_columns(tmp_path):
    evaluator = Evaluator(tmp_path, CountingEnv((2, 4)), settings())
    evaluator.evaluate_and_save(StandInAgent(), 100, 0.25, {})
    evaluator.evaluate_and_save(StandInAgent(), 200, 0.5, {"objC": 0.5, "objA": torch.tensor(-2.0), "alpha": 0.1})
    names = json.loads((tmp_path / "recorder.json").read_text())
    table = np.load(tmp_path / "recorder.npy")
    assert names == ["total_step", "avgR", "stdR", "expR", "objC", "objA", "alpha", "avgS", "stdS"]
    assert table.dtype == np.float64
    nan = math.nan  # returns 2 and 8, lengths 2 and 4
    expected = [[100, 5, 3, 0.25, nan, nan, nan, 3, 1], [200, 5, 3, 0.5, 0.5, -2, 0.1, 3, 1]]
    assert np.array_equal(table, expected, equal_nan=True)


def test_state_dict_continues_the_records(tmp_path):
    first = Evaluator(tmp_path / "a", CountingEnv(), settings())
    for step, score in ((100, 1.0), (200, 9.0), (250, 3.0)):
        scored(first, score, step, force=True)
    torch.save(first.state_dict(), tmp_path / "state.pth")
    second = Evaluator(tmp_path / "b", CountingEnv(), settings())
    second.load_state_dict(torch.load(tmp_path / "state.pth", weights_only=True))
    for evaluator in (first, second):
        assert not scored(evaluator, 5.0, 299) and scored(evaluator, 5.0, 300)
    assert np.array_equal(first.records.array, second.records.array) and second.records.best_return == 9.0
    assert second.env.seeds == [1003] and second.elapsed >= first.elapsed_before
    assert not list((tmp_path / "b").glob("actor__*_*.pt"))  # 5 is no new best


# --- files ---
def test_actors_are_kept_at_each_best_and_every_save_gap(tmp_path):
    evaluator = Evaluator(tmp_path, CountingEnv(), settings(save_gap=2))
    for step, score in ((100, -20.5), (200, -30.0), (300, -10.0), (400, 250.125)):
        scored(evaluator, score, step)
    assert {path.name for path in tmp_path.glob("actor*")} == {
        *("actor__000000000100_-0020.500.pt", "actor__000000000300_-0010.000.pt", "actor__000000000400_00250.125.pt"),
        *("actor__000000000200.pt", "actor__000000000400.pt"),
    }
    torch.serialization.add_safe_globals([nn.Linear])
    assert isinstance(torch.load(tmp_path / "actor__000000000200.pt"), nn.Linear)


@pytest.mark.parametrize("given, expected", [({"if_over_write": True}, {"actor.pt"}), ({"if_keep_save": False}, set())])
def test_over_write_and_keep_save(tmp_path, given, expected):
    evaluator = Evaluator(tmp_path, CountingEnv(), settings(save_gap=1, **given))
    scored(evaluator, 1.0, 100)
    scored(evaluator, 2.0, 200)
    assert {path.name for path in tmp_path.glob("*.pt")} == expected


@pytest.mark.parametrize("evaluations", [0, 1, 2])
def test_closed_evaluator_leaves_complete_files(tmp_path, evaluations):
    evaluator = Evaluator(tmp_path, CountingEnv(), settings())
    (tmp_path / "mine.txt").write_text("mine")
    for i in range(evaluations):
        scored(evaluator, float(i), 100 + 100 * i)
    evaluator.close()
    assert len(np.load(tmp_path / "recorder.npy")) == evaluations
    picture = (tmp_path / "LearningCurve.jpg").read_bytes()
    assert picture[:3] == b"\xff\xd8\xff" and (tmp_path / "plot_learning_curve.jpg").read_bytes() == picture
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("rows", [0, 1, 2, 1000])
def test_learning_curve_of_any_length_and_with_gaps(tmp_path, rows):
    table = np.random.default_rng(0).normal(size=(rows, 9))
    table[:, 0] = np.arange(1, rows + 1) * 1e4
    table[::2, 3], table[:, 4] = math.nan, math.nan
    table[-1:, 1] = math.inf
    before = set(sys.modules.get("matplotlib.pyplot", SimpleNamespace()).__dict__)
    draw_learning_curve(table, "title", str(tmp_path / "curve.png"))
    module.save_learning_curve(table.tolist(), tmp_path, "title", "curve.jpg")
    assert (tmp_path / "curve.png").stat().st_size > 5000 < (tmp_path / "curve.jpg").stat().st_size
    assert set(sys.modules.get("matplotlib.pyplot", SimpleNamespace()).__dict__) == before


class RenderingEnv(gym.Env):
    observation_space, action_space = gym.spaces.Box(-1, 1, (1,)), gym.spaces.Box(-1, 1, (1,))

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.count += 1
        return np.zeros(1, np.float32), 1.0, self.count == 6, False, {}

    def render(self):
        return np.full((8, 8, 3), 5 * self.count, np.uint8) if self.render_mode == "rgb_array" else None


def test_film_every_eval_record_step(tmp_path, capsys):
    from PIL import Image

    evaluator = Evaluator(tmp_path, CountingEnv(), settings(env_class=RenderingEnv, eval_record_step=200))
    for step in range(100, 500, 100):
        scored(evaluator, 1.0, step)
    films = sorted(tmp_path.glob("*.gif"))
    assert [film.name for film in films] == ["render_000000000200.gif", "render_000000000400.gif"]
    with Image.open(films[0]) as film:
        assert film.n_frames == 6
    capsys.readouterr()
    evaluator.args.env_class = lambda: RenderingEnv(None)
    scored(evaluator, 1.0, 600)
    assert "renders no images (render_mode='rgb_array')" in capsys.readouterr().out


def test_long_film_is_thinned(monkeypatch):
    from elegantrl.train.plots import Film

    monkeypatch.setattr(Film, "max_frames", 8)
    env = RenderingEnv("rgb_array")
    film = Film(env)
    for env.count in range(30):
        film.take()
    assert [int(frame[0, 0, 0]) for frame in film.frames] == [5 * i for i in range(0, 30, 8)]


def test_tensorboard(tmp_path, monkeypatch):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    evaluator = Evaluator(tmp_path, CountingEnv(), settings(), if_tensorboard=True)
    scored(evaluator, 4.0, 100)
    scored(evaluator, 6.0, 200)
    evaluator.close()
    events = event_accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("evaluate/avgR")] == [(100, 4.0), (200, 6.0)]
    assert {"train/expR", "train/objC", "train/alpha", "evaluate/stdS"} <= set(events.Tags()["scalars"])

    plain_import = builtins.__import__

    def without_tensorboard(name, *rest):
        if name == "torch.utils.tensorboard":
            raise ImportError(name)
        return plain_import(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_tensorboard)
    with pytest.raises(ImportError, match=r"elegantrl\[tensorboard\]"):
        Evaluator(tmp_path, CountingEnv(), settings(if_tensorboard=True))


# --- ending ---
def test_break_score(tmp_path):
    evaluator = Evaluator(tmp_path, CountingEnv(), settings(break_score=10.0))
    assert evaluator.should_stop() is None
    scored(evaluator, 9.0, 100)
    assert evaluator.should_stop() is None
    scored(evaluator, 10.0, 200)
    assert evaluator.should_stop() == "break_score 10 was reached: avgR 10.00"


def test_break_patience_counts_evaluations_below_the_best(tmp_path):
    evaluator = Evaluator(tmp_path, CountingEnv(), settings(break_patience=3))
    reasons = []
    for i, score in enumerate((5.0, 9.0, 8.0, 7.0, 9.0, 8.0, 8.5, 8.0)):  # an equal best is no fall
        scored(evaluator, score, 100 + 100 * i)
        reasons.append(evaluator.should_stop())
    assert reasons[:-1] == [None] * 7 and "last 3 evaluations (break_patience)" in reasons[-1]


@pytest.mark.parametrize("make", ["touch", "mkdir"])
def test_stop_file_or_folder(tmp_path, make):
    evaluator = Evaluator(tmp_path, CountingEnv(), settings())
    assert evaluator.should_stop() is None
    getattr(tmp_path / "stop", make)()
    assert evaluator.should_stop() == f"{tmp_path / 'stop'} was found"


def test_stop_file_from_before_the_run_is_ignored_until_touched(tmp_path, capsys):
    import os

    (tmp_path / "stop").touch()
    os.utime(tmp_path / "stop", (1, 1))
    evaluator = Evaluator(tmp_path, CountingEnv(), settings())
    assert evaluator.should_stop() is None and "is ignored" in capsys.readouterr().out
    (tmp_path / "stop").touch()
    assert evaluator.should_stop() is not None
    (tmp_path / "stop").unlink()
    assert evaluator.should_stop() is None


# --- console ---
NAMES = ("total_step", "avgR", "stdR", "avgS", "stdS", "expR", "objC")
ROWS = [
    dict(zip(NAMES, values, strict=True))
    for values in (
        (20_000, -12345.678, 1234.5, 1000, 0, -16.3, math.nan),
        (10_000_000, 9.5, 0.0, 8.5, 1e5, 1e-5, 1e12),
        (999_999_999, -1e9, 1e20, 1e9, 3, 0.0, -1e-9),
    )
]


def test_console_lines_are_aligned_under_one_header(capsys):
    console = Console(1e6)
    for i, row in enumerate(ROWS):
        console.table_row(row, 10.0**i * 3600, is_best=i == 1)
    console.table_row(ROWS[0] | {"a_long_agent_column": 1.0}, 1.0, is_best=False)
    lines = capsys.readouterr().out.splitlines()
    header, *table = lines[:4]
    assert [[m.start() for m in re.finditer(r"\|", line)] for line in table] == 3 * [
        [m.start() for m in re.finditer(r"\|", header)]
    ]
    assert re.findall(r"\w+", header) == ["Step", "Time", "avgR", "stdR", "avgS", "stdS", "expR", "objC"]
    assert "10,000,000" in table[1] and "9.50*" in table[1] and "*" not in table[0]
    assert len(lines) == 6 and "a_long_agent_column" in lines[4] and len(lines[4]) == len(lines[5])


@pytest.mark.parametrize(
    "room, last, length",
    [
        (200, "trainR", 127),
        (127, "trainR", 127),
        (126, "trainR", 104),
        (100, "entropy", 96),
        (80, "objA", 80),
        (9, "", 57),
    ],
)
def test_console_lines_fit_a_terminal(room, last, length, monkeypatch, capsys):
    """What SAC logs; the last columns are left out where there is no room for them."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(room))
    names = [*NAMES, "objA", "alpha", "entropy", "trainR"]
    Console(1e6).table_row(dict.fromkeys(names, -1234.5678), 3600.0, is_best=True)
    header, line = capsys.readouterr().out.splitlines()
    assert len(header) == len(line) == length and re.findall(r"\w+", header)[-1] == (last or "stdS")


@pytest.mark.parametrize(
    "value, text",
    [
        (1.0, "    1.000"),
        (-12345.678, "-12345.68"),
        (-1e9, "-1.00e+09"),
        (0.0001, " 1.00e-04"),
        (0.0, "    0.000"),
        (math.nan, "        -"),
    ],
)
def test_number(value, text):
    assert number(value, 9, 3) == text


def test_clock():
    assert [clock(seconds) for seconds in (0, 59.9, 3723, 360_000)] == ["0:00:00", "0:00:59", "1:02:03", "100:00:00"]


def test_progress_bar_in_a_terminal_only(monkeypatch, capsys):
    pytest.importorskip("tqdm")
    assert Console(100).bar is None
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    console = Console(100)
    assert console.bar.total == 100 and Console(math.inf).bar.total is None
    console.progress(40)
    console.progress(112)  # a rollout may end beyond break_step
    assert console.bar.n == 100
    console.table_row(ROWS[0], 1.0, is_best=False)
    console.close()
    console.close()
    assert "20,000" in capsys.readouterr().out
