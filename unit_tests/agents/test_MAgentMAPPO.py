"""MAPPO: ratios of each agent, values of the global state or of each agent, value normalisation, windows."""

from __future__ import annotations

import pytest
import torch

from elegantrl.agents import AgentMAPPO, AgentPPO
from elegantrl.envs.teams import Battle
from unit_tests.teams import Recall, TeamClock, TeamMasked, build


def test_ratios_are_each_agents_own():
    """ratio_clip 0.2. Agent 0: ratio 5, A = 1: no gradient. Agent 1: ratio 0.1, A = 1: gradient."""
    agent = build(AgentMAPPO, TeamClock(if_discrete=True))
    env = TeamClock(if_discrete=True)
    rollout = agent.rows(agent.explore(env, agent.new_trajectory(env, 4)))
    rollout.advantages = torch.ones_like(rollout.advantages)
    logprobs = rollout.logprobs.clone().requires_grad_()
    rollout.logprobs = logprobs.detach() - torch.tensor([5.0, 0.1]).log()
    (grad,) = torch.autograd.grad(agent.policy_loss(logprobs, rollout).sum(), logprobs)
    assert grad[:, 0].abs().max() == 0
    torch.testing.assert_close(grad[:, 1], torch.full((16,), -0.1))


@pytest.mark.parametrize("if_share_params", [True, False])
@pytest.mark.parametrize("if_agent_value", [False, True])
def test_what_a_value_sees(if_agent_value, if_share_params):
    """The global state, and with if_agent_value the agent's own state; never another's, where there is a global one."""
    env = Battle(5)
    agent = build(AgentMAPPO, env, if_agent_value=if_agent_value, if_share_params=if_share_params)
    agent.begin(*env.reset(seed=0))
    record = agent.last
    record.states.requires_grad_()
    record.global_state.requires_grad_()
    value = agent.value(record)
    assert value.shape == (5, 3)
    by_state, by_global = torch.autograd.grad(
        value[:, 1].sum(), [record.states, record.global_state], allow_unused=True
    )
    assert by_global.abs().sum() > 0
    if if_agent_value:
        assert by_state[:, 1].abs().sum() > 0 and by_state[:, [0, 2]].abs().sum() == 0
    else:
        assert by_state is None


def test_a_team_reward_is_everybodys_and_values_are_normalised():
    env = TeamClock(if_discrete=True)
    agent = build(AgentMAPPO, env)
    trajectory = agent.explore(env, agent.new_trajectory(env, 6))
    assert trajectory.rewards.shape == trajectory.unmasks.shape == trajectory.logprobs.shape == (6, 4, 2)
    assert trajectory.rewards[0].eq(1).all()
    states = trajectory.states[:-1]
    before = agent.value(trajectory.at(slice(0, -1)))
    agent.update_net(trajectory)
    with torch.no_grad():
        values = agent.value(trajectory.at(slice(0, -1)))
        agent.update_statistics(trajectory)
        kept = agent.value(trajectory.at(slice(0, -1)))
    assert agent.value_norm.std != 1.0 and before.shape == states.shape[:3]
    torch.testing.assert_close(values, kept)


@pytest.mark.parametrize("agent_class, num_agents", [(AgentMAPPO, 2), (AgentPPO, 0)])
@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
def test_windows_repeat_what_was_remembered_when_acting(agent_class, num_agents, autoreset):
    """Before an update each window's log-probabilities are those of the rollout, wherever episodes end."""
    env = Recall(6, num_agents, delay=4, autoreset=autoreset)
    agent = build(agent_class, env, rnn_dim=8, seq_len=4)
    for _ in range(3):  # rollouts that begin within an episode
        trajectory = agent.explore(env, agent.new_trajectory(env, 12))
    rollout = agent.rows(trajectory)
    assert rollout.weight.shape[:2] == (18, 4) and rollout.hidden.abs().sum() > 0
    seen, _ = agent.act.remember(rollout.states, rollout.hidden, rollout.keeps)
    logprobs, _ = agent.act.logprob_entropy(seen, rollout.actions, rollout.action_mask)
    torch.testing.assert_close(logprobs, rollout.logprobs)


def test_a_horizon_that_windows_do_not_divide_is_told():
    env = Recall(2)
    agent = build(AgentMAPPO, env, rnn_dim=8, seq_len=5)
    trajectory = agent.explore(env, agent.new_trajectory(env, 12))
    with pytest.raises(ValueError, match="horizon_len 12 is no multiple of seq_len 5"):
        agent.update_net(trajectory)


def test_masks_hold_in_the_update():
    env = TeamMasked()
    agent = build(AgentMAPPO, env)
    agent.update_net(agent.explore(env, agent.new_trajectory(env, 8)))
    rollout = agent.rows(agent.explore(env, agent.new_trajectory(env, 8)))
    logprobs, entropy = agent.act.logprob_entropy(rollout.states, rollout.actions, rollout.action_mask)
    used = rollout.weight > 0
    torch.testing.assert_close(logprobs[used], rollout.logprobs[used])
    assert entropy[:, 0][used[:, 0]].abs().max() < 1e-4  # agent 0 has one action only
