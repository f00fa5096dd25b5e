"""The image task: frames by hand, what pays, and that agents learn it from pixels."""

from __future__ import annotations

import pytest
import torch

from elegantrl import Config, train_agent
from elegantrl.agents import AgentD3QN, AgentPPO
from elegantrl.envs.pixels import CatchVecEnv
from elegantrl.train.evaluator import play_episodes

BALL = [10.0, 5.0, 1.0, 20.0, 9.0, 3.0, 1.0, 22.0]  # column, row, speed, paddle; and a step before


def place(*worlds):
    env = CatchVecEnv(len(worlds))
    env.world.copy_(torch.tensor(worlds))
    return env


def test_a_state_shows_the_two_newest_frames():
    env = place(BALL)
    state = env.observe(env.world)
    assert state.shape == (1, 2, 32, 32) and state.dtype == torch.uint8 and set(state.unique().tolist()) == {0, 255}
    for frame, (row, column, paddle) in zip(state[0], ((5, 10, 20), (3, 9, 22)), strict=True):
        expected = torch.zeros(32, 32, dtype=torch.bool)
        expected[row - 1 : row + 2, column - 1 : column + 2] = True
        expected[29:, paddle - 3 : paddle + 4] = True
        assert torch.equal(frame > 0, expected)
    *_, info = env.step(torch.tensor([0]))
    assert torch.equal(info["final_obs"][0, 1], state[0, 0]), "the newest frame becomes the older one"


def test_the_ball_falls_and_bounces_and_the_paddle_stays_inside():
    edge = [31.0, 5.0, 1.5, 28.0, 29.5, 3.0, 1.5, 26.0]
    env = place(BALL, BALL, edge)
    env.step(torch.tensor([0, 1, 2]))
    assert env.world[:, :4].tolist() == [[11, 7, 1, 18], [11, 7, 1, 20], [29.5, 7, -1.5, 28]]


def test_a_catch_pays_and_a_miss_costs():
    low = [10.0, 26.0, 0.0, 10.0, 10.0, 24.0, 0.0, 10.0]
    near, far = [*low[:3], 13.0, *low[4:]], [*low[:3], 14.0, *low[4:]]
    env = place(low, near, far, BALL)
    _, reward, terminal, _, _ = env.step(torch.ones(4, dtype=torch.long))
    assert reward.tolist() == [1.0, 1.0, -1.0, 0.0] and terminal.tolist() == [True, True, True, False]


def test_following_the_ball_catches_nearly_all():
    env = CatchVecEnv(200)

    def follow(state, mask):
        x, _, _, paddle = env.world[:, :4].unbind(-1)
        return 1 + ((x - paddle) / 2).round().clamp(-1, 1).long()

    returns, lengths = play_episodes(env, follow, 1, seed=0)
    assert returns.mean() > 0.9 and set(lengths) == {14}


@pytest.mark.slow
@pytest.mark.parametrize(
    "agent_class, num_envs, settings",
    [
        (AgentPPO, 32, {"horizon_len": 28, "batch_size": 224, "repeat_times": 4, "break_step": 150_000}),
        (AgentD3QN, 16, {"horizon_len": 4, "utd": 1 / 16, "soft_update_tau": 0.02, "break_step": 60_000}),
    ],
)
def test_agents_learn_from_pixels(agent_class, num_envs, settings):
    """At least 0.8 of a return between -1 and 1; a random policy's is about -0.6."""
    settings |= {"net_dims": (64,), "learning_rate": 1e-3, "gamma": 0.95, "num_threads": 1, "cwd": "run"}
    if agent_class.if_off_policy:
        settings["buffer_size"] = 20_000
    args = Config(agent_class, CatchVecEnv, {"num_envs": num_envs}, break_score=0.8, eval_times=64, **settings)
    args.eval_per_step = 5000
    run = train_agent(args, if_single_process=True)
    assert run.evaluator.records.best_return >= 0.8
