"""Every agent solves a task of one decision in seconds."""

from __future__ import annotations

import pytest
import torch

from elegantrl import agents
from elegantrl.agents.AgentBase import AgentOffPolicy
from unit_tests.agents.test_values import DISCRETE, OFF_POLICY, ON_POLICY, name
from unit_tests.tasks import Masked, Match, build, score, train


@pytest.mark.parametrize("agent_class, if_discrete", OFF_POLICY + ON_POLICY[:4], ids=name)
def test_match_is_learned(agent_class, if_discrete):
    env = Match(if_discrete=if_discrete)
    if issubclass(agent_class, AgentOffPolicy):
        agent = build(agent_class, env, net_dims=(32,), learning_rate=1e-2, batch_size=64, utd=0.5, alpha_init=0.01)
        train(agent, env, rounds=2, horizon=25)
    else:
        is_a2c = issubclass(agent_class, agents.AgentA2C)
        how = {"batch_size": None, "repeat_times": 1} if is_a2c else {"batch_size": 128, "repeat_times": 8}
        agent = build(agent_class, env, net_dims=(32,), learning_rate=2e-2 if is_a2c else 1e-2, **how)
        train(agent, env, rounds=90 if is_a2c else 15, horizon=16)
    state = torch.rand(1000, 2) * 1.6 - 0.8
    with torch.no_grad():
        rewards = score(state, agent.greedy(state), if_discrete)
    # a constant action earns 0.5, or -0.21
    assert rewards.mean() > (0.93 if if_discrete else -0.03)


@pytest.mark.parametrize("agent_class", [*DISCRETE, agents.AgentDiscretePPO, agents.AgentDiscreteA2C])
def test_forbidden_actions_are_never_taken(agent_class):
    """Warm-up, exploration, targets and the greedy policy; the masks of reset rows allow nothing at all."""
    env = Masked()
    own = {"utd": 0.5, "soft_update_tau": 0.2} if issubclass(agent_class, AgentOffPolicy) else {"repeat_times": 8}
    agent = build(agent_class, env, learning_rate=1e-2, gamma=0.5, batch_size=64, **own)
    train(agent, env, rounds=6, horizon=24)
    state, mask = torch.ones(2, 1), torch.tensor([[True, True, False], [True, False, False]])
    with torch.no_grad():
        assert agent.greedy(state, mask).tolist() == [1, 0]
    assert agent.select_action([1.0], [True, True, False]) == 1
    if agent.if_off_policy:  # the mean over time of 1, 1.5, 1.75 left to go; the forbidden 2 would add to it
        with torch.no_grad():
            assert 1.0 < float(agent.cri.q_values(state, mask)[0].max()) < 2.0
