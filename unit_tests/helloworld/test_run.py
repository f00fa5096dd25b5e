"""The tutorial as a whole: its size, its loop, its tutorials."""

from __future__ import annotations

import ast
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from unit_tests.helloworld.conftest import FOLDER

FILES = sorted(FOLDER.glob("*.py"))


def test_fewer_than_1000_lines():
    assert sum(len(path.read_text().splitlines()) for path in FILES) < 1000


def test_it_stands_alone():
    """Nothing but Python's own modules, each other, and four packages."""
    allowed = {*sys.stdlib_module_names, *(path.stem for path in FILES), "torch", "numpy", "gymnasium", "matplotlib"}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [name.name for name in node.names] if isinstance(node, ast.Import) else []
            assert {name.split(".")[0] for name in names} <= allowed, path.name


TUTORIALS = [
    ("tutorial_DQN", "train_dqn_for_cartpole", 475),
    ("tutorial_DDPG", "train_ddpg_for_pendulum", -200),
    ("tutorial_PPO", "train_ppo_for_cartpole", 475),
    ("tutorial_PPO", "train_ppo_for_pendulum", -200),
    ("helloworld_DQN_single_file", "train_dqn", 475),
    ("helloworld_DDPG_single_file", "train_ddpg", -200),
    ("helloworld_PPO_single_file", "train_ppo", 475),
]


@pytest.mark.parametrize("module, function, score", TUTORIALS)
def test_tutorial_runs(hello, module, function, score):
    result = getattr(getattr(hello, module), function)(break_step=1_100, seed=1)
    assert math.isfinite(result)
    if module.startswith("tutorial"):
        [folder] = Path.cwd().iterdir()
        assert sorted(path.name for path in folder.iterdir()) == ["LearningCurve.jpg", "actor.pth"]


@pytest.mark.slow
@pytest.mark.parametrize("module, function, score", TUTORIALS)
def test_tutorial_learns(hello, module, function, score):
    assert getattr(getattr(hello, module), function)(seed=0) >= score


SHORT = {"net_dims": (16,), "break_step": 240, "buffer_init_size": 80, "batch_size": 32, "horizon_len": 40}


def short_run(hello, name, task, **settings):
    args = hello.config.Config(**{**SHORT, "eval_per_step": 80, "eval_times": 2, **settings})
    env = hello.env.GymEnv(task)
    agent = getattr(hello.agent, name)(args.net_dims, env.state_dim, env.action_dim, args.gpu_id, args)
    return hello.run.train(agent, env), agent


@pytest.mark.parametrize("name", ["AgentDQN", "AgentDiscretePPO"])
def test_a_seed_decides_everything(hello, name):
    curve, agent = short_run(hello, name, "CartPole-v1", random_seed=3)
    again, same = short_run(hello, name, "CartPole-v1", random_seed=3)
    other, _ = short_run(hello, name, "CartPole-v1", random_seed=4)
    assert curve == again and curve != other
    assert curve[-1][0] == 240
    for p, q in zip(agent.cri.parameters(), same.cri.parameters(), strict=True):
        assert torch.equal(p, q)


def test_an_evaluation_changes_nothing(hello):
    """PPO, whose value network is not among what the best evaluation restores."""
    _, often = short_run(hello, "AgentPPO", "Pendulum-v1", eval_per_step=40)
    _, never = short_run(hello, "AgentPPO", "Pendulum-v1", eval_per_step=240)
    for p, q in zip(often.cri.parameters(), never.cri.parameters(), strict=True):
        assert torch.equal(p, q)


def test_the_best_policy_is_kept(hello):
    """actor.pth, and the agent after training, hold the policy of the best evaluation."""
    curve, agent = short_run(hello, "AgentDQN", "CartPole-v1", random_seed=2, eval_per_step=40, learning_rate=1e-2)
    best = max(score for _, score in curve)
    assert best > curve[-1][1], "the last policy is the best one: this seed tests nothing"
    returns, _ = hello.run.evaluate(hello.env.GymEnv("CartPole-v1"), agent, 2)
    assert returns.mean() == best
    saved = torch.load("actor.pth", weights_only=True)
    assert all(torch.equal(p, saved[name]) for name, p in agent.act.state_dict().items())


def test_a_run_that_ends_among_random_actions(hello):
    """It learns nothing, and takes nothing from the run before it in the same folder."""
    short_run(hello, "AgentDQN", "CartPole-v1")
    before = hello.agent.AgentDQN((16,), 4, 2).act.state_dict()
    curve, agent = short_run(hello, "AgentDQN", "CartPole-v1", break_step=80)
    assert curve == []
    assert all(torch.equal(before[name], p) for name, p in agent.act.state_dict().items())


def test_break_score_ends_the_run(hello):
    curve, _ = short_run(hello, "AgentDQN", "CartPole-v1", break_score=1)
    assert len(curve) == 1


def test_train_agent_is_train(hello):
    args = hello.config.Config(hello.agent.AgentPPO, "Pendulum-v1", **SHORT, eval_per_step=80, eval_times=2)
    assert hello.run.train_agent(args) == short_run(hello, "AgentPPO", "Pendulum-v1")[0]


def test_the_greedy_policy_is_deterministic(hello):
    env = hello.env.GymEnv("Pendulum-v1")
    for name in ("AgentDDPG", "AgentSAC", "AgentPPO"):
        agent = getattr(hello.agent, name)((8,), 3, 1)
        actions = [agent.select_action(np.ones(3, np.float32)) for _ in range(2)]
        assert np.array_equal(*actions) and actions[0].shape == (1,) and abs(actions[0]) <= 1
        assert hello.run.get_rewards_and_steps(env, agent, 5) == hello.run.get_rewards_and_steps(env, agent, 5)


def test_actions_reach_the_task_in_its_units(hello):
    env = hello.env.GymEnv("Pendulum-v1")
    assert [env.to_units_of_task(np.array([a])).item() for a in (-3, -1, 0.5, 1)] == [-2, -2, 1, 2]
    assert hello.env.get_gym_env_args(env) == {
        "env_name": "Pendulum-v1",
        "max_step": 200,
        "state_dim": 3,
        "action_dim": 1,
        "if_discrete": False,
    }
    assert hello.env.GymEnv("CartPole-v1").to_units_of_task(np.int64(1)) == 1
    assert env.another().env is not env.env
