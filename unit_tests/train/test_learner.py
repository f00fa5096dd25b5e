"""The learner stores, updates, then moves the normalisers."""

from __future__ import annotations

import math

import pytest
import torch

from elegantrl.agents import AgentPPO, AgentSAC
from elegantrl.train.learner import Learner
from unit_tests.tasks import Clock, Settings, build

BUFFER = {"num_agents": 0, "buffer_size": 200, "if_use_per": False, "state_dtype": torch.float32, "gpu_id": -1}


def learner_of(agent_class, **how):
    env = Clock()
    agent = build(agent_class, env, **{"batch_size": 8, **how})
    dims = {"state_dim": env.state_dim, "action_dim": 1, "num_envs": 4, "if_discrete": False}
    learner = Learner(agent, Settings(**BUFFER, **dims))
    return learner, agent.explore(env, agent.new_trajectory(env, 10))


def test_off_policy_learns_from_the_buffer():
    learner, trajectory = learner_of(AgentSAC, utd=0.1, if_norm_state=True)
    learner.store(trajectory)
    assert learner.buffer.cur_size == 10
    logs = learner.update()
    assert list(logs) == ["objC", "objA", "alpha", "entropy"] and learner.agent.update_count == 4
    assert learner.agent.state_norm.mean.sum() > 0


def test_on_policy_learns_from_the_rollout():
    learner, trajectory = learner_of(AgentPPO, repeat_times=1)
    learner.store(trajectory)
    assert learner.buffer is None
    assert list(learner.update()) == ["objC", "objA", "entropy", "kl"] and learner.agent.update_count == 5


def test_statistics_move_after_the_update():
    """So the log-probabilities of the rollout are those of the policy in its first minibatch."""
    learner, trajectory = learner_of(AgentPPO, if_norm_state=True, batch_size=None, repeat_times=1, learning_rate=0.0)
    learner.store(trajectory)
    assert learner.update()["kl"] < 1e-6
    moved = learner.agent.act.logprob_entropy(trajectory.states[:-1], trajectory.actions)[0]
    assert (moved - trajectory.logprobs).abs().max() > 0.002


def test_the_summary_is_the_mean_over_rollouts_with_updates():
    """utd 1 / 80: of the rollouts of 40 transitions every second one has an update, the others have no logs."""
    learner, trajectory = learner_of(AgentSAC, utd=1 / 80)
    logs = []
    for _ in range(6):
        learner.store(trajectory)
        logs.append(learner.update()["objC"])
    assert [math.isnan(x) for x in logs] == [True, False] * 3
    assert learner.summary()["objC"] == pytest.approx(sum(logs[1::2]) / 3)
    learner.clear_summary()
    assert all(math.isnan(x) for x in learner.summary().values())
