"""Every agent learns the true value of a state: through a time limit, up to a true end, whatever a reset row pays."""

from __future__ import annotations

import pytest
import torch

from elegantrl import agents
from elegantrl.agents.AgentBase import AgentOffPolicy
from elegantrl.train.replay_buffer import ReplayBuffer
from unit_tests.tasks import Clock, build, train

GAMMA = 0.9
DISCRETE = [agents.AgentDQN, agents.AgentDoubleDQN, agents.AgentDuelingDQN, agents.AgentD3QN]
DISCRETE += [agents.AgentEnsembleDQN, agents.AgentEmbedDQN]
CONTINUOUS = [agents.AgentDDPG, agents.AgentTD3, agents.AgentSAC, agents.AgentModSAC, agents.AgentREDQ]
OFF_POLICY = [*((c, True) for c in DISCRETE), *((c, False) for c in CONTINUOUS)]
ON_POLICY = [(c, discrete) for c in (agents.AgentPPO, agents.AgentA2C) for discrete in (False, True)]
ON_POLICY += [(agents.AgentDiscretePPO, True), (agents.AgentDiscreteA2C, True)]


def name(value) -> str:
    if isinstance(value, dict):
        return ",".join(f"{key}={x}" for key, x in value.items())
    return getattr(value, "__name__", {True: "discrete", False: "continuous"}.get(value, str(value)))


def learned_values(agent_class, env, **how):
    """(R,) learned and true values."""
    common = {"gamma": GAMMA, "learning_rate": 1e-2, "batch_size": 64, **how}
    if issubclass(agent_class, AgentOffPolicy):
        own = {"soft_update_tau": 0.2, "target_delay": 1, "utd": 0.8, "alpha_init": 1e-9}
        agent = build(agent_class, env, **common, **own)
        train(agent, env, rounds=2, horizon=40)
    else:
        epochs = 1 if issubclass(agent_class, agents.AgentA2C) else 4
        agent = build(agent_class, env, **common, repeat_times=epochs, clip_grad_norm=10.0)
        train(agent, env, rounds=80 // epochs, horizon=24)
    states, true = env.values(GAMMA)
    with torch.no_grad():
        if not agent.if_off_policy:
            values = agent.cri(states)
        elif env.if_discrete:
            values = agent.cri.q_values(states).amax(-1)
        else:
            values = agent.cri(states, agent.act(states)).reshape(-1, len(states)).mean(0)
    return values, true


@pytest.mark.parametrize("ends", ["truncate", "terminate"])
@pytest.mark.parametrize("agent_class, if_discrete", OFF_POLICY + ON_POLICY, ids=name)
def test_values_are_those_of_the_closed_form(agent_class, if_discrete, ends):
    """Reward 1, 5 steps: 1 / (1 - gamma) = 10 through a time limit, (1 - gamma^left) / (1 - gamma) up to an end."""
    values, true = learned_values(agent_class, Clock(if_discrete=if_discrete, ends=ends))
    torch.testing.assert_close(values, true, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("ends", ["truncate", "terminate"])
@pytest.mark.parametrize(
    "agent_class, if_discrete, how",
    [
        (agents.AgentPPO, False, {"if_use_v_trace": True}),
        (agents.AgentPPO, True, {"if_use_v_trace": True}),
        (agents.AgentA2C, False, {"if_use_v_trace": True}),
        (agents.AgentSAC, False, {"n_step": 3}),
        (agents.AgentD3QN, True, {"n_step": 4}),
    ],
    ids=name,
)
def test_values_by_other_targets(agent_class, if_discrete, how, ends):
    values, true = learned_values(agent_class, Clock(if_discrete=if_discrete, ends=ends), **how)
    torch.testing.assert_close(values, true, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("final", ["never", "always", "at_end"])
@pytest.mark.parametrize("agent_class, if_discrete", [(agents.AgentD3QN, True), (agents.AgentPPO, False)], ids=name)
def test_values_with_same_step_reset(agent_class, if_discrete, final):
    env = Clock(if_discrete=if_discrete, autoreset="same_step", final=final)
    values, true = learned_values(agent_class, env)
    torch.testing.assert_close(values, true, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("agent_class, if_discrete", OFF_POLICY, ids=name)
def test_critic_regression_is_no_broadcast(agent_class, if_discrete):
    """gamma 0 and the first state feature as reward: Q is that feature, with its spread."""
    env = Clock(num_envs=1, if_discrete=if_discrete)
    agent = build(agent_class, env, gamma=0.0, learning_rate=1e-2, batch_size=128, utd=1.0, alpha_init=1e-9)
    buffer = ReplayBuffer(600, 2, env.action_dim, -1, if_discrete=if_discrete)
    states = torch.randn(600, 1, 2)
    actions = torch.randint(2, (600, 1)) if if_discrete else torch.rand(600, 1, 1) * 2 - 1
    flags = torch.ones(600, 1)
    buffer.update((states, actions, states[..., 0], flags, flags))
    buffer.add_size = 250  # as many updates
    agent.update_net(buffer)
    test = torch.randn(500, 2)
    action = torch.rand(500, 1) * 2 - 1
    with torch.no_grad():
        q = agent.cri.q_values(test) if if_discrete else agent.cri(test, action).reshape(-1, 500).T
    for column in q.T:
        assert torch.corrcoef(torch.stack([column, test[:, 0]]))[0, 1] > 0.99
        assert abs(float(column.std() / test[:, 0].std()) - 1) < 0.1
