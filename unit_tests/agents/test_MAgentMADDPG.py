"""MADDPG and MATD3: joint critics, whose gradient reaches whom, target actions, the Gumbel-softmax."""

from __future__ import annotations

import pytest
import torch

from elegantrl.agents import AgentMADDPG, AgentMATD3
from elegantrl.agents.net import CriticTeam, Team
from elegantrl.envs.teams import Rendezvous
from unit_tests.teams import TeamClock, TeamMasked, batch, build

M, S, A, B, K = 3, 2, 4, 5, 2


def slow(critic, state, action, agent):
    """Q_k of one agent, one row and one member at a time. state (B, G), action (B, M, A) -> (K, B)"""
    shared = critic.members == K
    table = torch.zeros(K, len(state))
    for k in range(K):
        for b in range(len(state)):
            x = torch.cat([state[b], action[b].flatten()])
            x = torch.cat([x, torch.eye(M)[agent]]) if shared else x
            member = k if shared else k * M + agent
            for layer in (critic.net[0], critic.net[2]):
                x = x @ layer.weight[member] + layer.bias[member, 0]
                x = x.relu() if layer is critic.net[0] else x
            table[k, b] = x[0]
    return table


@pytest.mark.parametrize("if_share_params", [True, False])
def test_joint_critics_are_a_loop_over_agents(if_share_params):
    critic = CriticTeam((7,), M * S, A, Team(M, if_share_params), K)
    state, action, own = torch.randn(B, M * S), torch.randn(B, M, A), torch.randn(B, M, M, A)
    with torch.no_grad():
        q, q_own = critic(state, action), critic(state, own)
        for agent in range(M):
            torch.testing.assert_close(q[:, :, agent], slow(critic, state, action, agent))
            torch.testing.assert_close(q_own[:, :, agent], slow(critic, state, own[:, agent], agent))


@pytest.mark.parametrize("if_discrete", [True, False])
@pytest.mark.parametrize("agent_class", [AgentMADDPG, AgentMATD3])
def test_each_actor_learns_through_its_own_action_only(agent_class, if_discrete):
    """Agent m's gradient is that of a slow loop in which only its critic is asked, with the others' stored actions."""
    agent = build(agent_class, TeamClock(num_agents=M, if_discrete=if_discrete), lambda_logit=0.0)
    states = torch.randn(B, M, 2)
    dim = agent.action_dim
    actions = torch.randint(dim, (B, M)) if if_discrete else torch.rand(B, M, dim) * 2 - 1
    rows = batch(states, actions, torch.zeros(B, M))
    params = list(agent.act.parameters())
    torch.manual_seed(1)
    grads = torch.autograd.grad(agent.actor_loss(rows), params)
    torch.manual_seed(1)
    if if_discrete:
        logits = agent.act.logits(states)
        soft = ((logits - torch.empty_like(logits).exponential_().log()) / agent.gumbel_tau).softmax(-1)
        chosen = torch.nn.functional.one_hot(soft.argmax(-1), dim) + soft - soft.detach()
    else:
        chosen = agent.act(states)
    stored = torch.nn.functional.one_hot(actions, dim).float() if if_discrete else actions
    total = 0.0
    for m in range(M):
        joint = stored.clone()
        joint[:, m] = chosen[:, m]
        total = total - agent.cri(states.flatten(1), joint)[0, :, m].mean() / M
    for ours, slowly in zip(grads, torch.autograd.grad(total, params), strict=True):
        torch.testing.assert_close(ours, slowly)


def test_one_agents_weight_moves_its_own_parameters_only():
    agent = build(AgentMADDPG, TeamClock(num_agents=M))
    weight = torch.zeros(B, M)
    weight[:, 1] = 1.0
    rows = batch(torch.randn(B, M, 2), torch.rand(B, M, 1), torch.zeros(B, M), weight=weight)
    for objective, net in ((agent.actor_loss(rows), agent.act), (agent.critic_objective(rows)[0], agent.cri)):
        for grad in torch.autograd.grad(objective, list(net.parameters())):
            sizes = grad.flatten(1).norm(dim=1)
            assert sizes[1] > 0 and sizes[0] == sizes[2] == 0


def test_target_actions():
    """MADDPG: mu'(s), its best discrete action. MATD3: with noise of std 0.2 cut at 0.5, or a draw."""
    state = torch.zeros(20_000, 2, 2)
    rows = batch(state, torch.zeros(20_000, 2, 1), torch.zeros(20_000, 2))
    agent = build(AgentMADDPG, TeamClock())
    assert torch.equal(agent.target_action(rows.next), agent.act_target(state))
    agent = build(AgentMATD3, TeamClock())
    noise = agent.target_action(rows.next) - agent.act_target(state)
    assert noise.std().item() == pytest.approx(0.2, abs=0.01) and noise.abs().max().item() == pytest.approx(
        0.5, abs=1e-4
    )

    env = TeamMasked()
    mask = env.allowed.expand(20_000, -1, -1)
    rows = batch(state[..., :1], torch.zeros(20_000, 2).long(), torch.zeros(20_000, 2), action_mask=mask)
    for agent_class, shares in ((AgentMADDPG, (1.0, 0.0)), (AgentMATD3, (0.5, 0.5))):
        agent = build(agent_class, env)
        agent.act_target.load_state_dict({k: torch.zeros_like(v) for k, v in agent.act.state_dict().items()})
        found = agent.target_action(rows.next).mean(0)
        assert found[0].tolist() == [1.0, 0.0, 0.0] and found[1, 2] == 0
        assert found[1, :2].tolist() == pytest.approx(shares, abs=0.02)


def test_the_smaller_of_two_critics():
    agent = build(AgentMATD3, TeamClock())
    rows = batch(torch.randn(B, 2, 2), torch.rand(B, 2, 1), torch.zeros(B, 2))
    torch.manual_seed(0)
    action = agent.target_action(rows.next)
    torch.manual_seed(0)
    q = agent.cri_target(rows.next.states.flatten(1), action)
    assert torch.equal(agent.next_value(rows), torch.minimum(q[0], q[1])) and not torch.equal(q[0], q[1])


@pytest.mark.parametrize("if_share_params", [True, False])
@pytest.mark.parametrize("agent_class", [AgentMADDPG, AgentMATD3])
def test_critic_regression_is_no_broadcast(agent_class, if_share_params):
    """Case 15 for teams. gamma 0, agent m is paid its own first feature: Q_m is that feature."""
    agent = build(agent_class, TeamClock(), gamma=0.0, learning_rate=1e-2, if_share_params=if_share_params)
    for _ in range(300):
        states, actions = torch.randn(128, 2, 2), torch.rand(128, 2, 1) * 2 - 1
        rows = batch(states, actions, states[..., 0])
        rows.discount = torch.zeros(128, 2)
        agent.minimize(agent.critic_objective, rows, agent.cri_optimizer)
    states, actions = torch.randn(500, 2, 2), torch.rand(500, 2, 1) * 2 - 1
    with torch.no_grad():
        q = agent.q_value(batch(states, actions, states[..., 0]))
    for member in q:
        for m in range(2):
            assert torch.corrcoef(torch.stack([member[:, m], states[:, m, 0]]))[0, 1] > 0.99
            assert abs(float(member[:, m].std() / states[:, m, 0].std()) - 1) < 0.1


@pytest.mark.parametrize("if_discrete", [True, False])
@pytest.mark.parametrize("agent_class", [AgentMADDPG, AgentMATD3])
@pytest.mark.slow
def test_learns_to_meet(agent_class, if_discrete):
    from elegantrl import Config, train_agent

    env_args = {"num_envs": 16, "if_discrete": if_discrete}
    how = {"net_dims": (64,), "learning_rate": 1e-3, "utd": 0.25, "batch_size": 128, "horizon_len": 10, "gamma": 0.9}
    args = Config(agent_class, Rendezvous, env_args, **how, break_step=20_000, break_score=-1.5, eval_per_step=2000)
    run = train_agent(args, if_single_process=True)
    assert run.evaluator.records.best_return > -1.5
