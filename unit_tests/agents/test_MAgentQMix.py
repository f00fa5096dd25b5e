"""QMIX and VDN: the mixers, the team's value and its target, the game that tells them apart, windows."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from elegantrl.agents import AgentQMix, AgentVDN
from elegantrl.agents.net import Memory, QMixer, QNetTeam, Team, VDNMixer
from elegantrl.envs.mpe import SimpleSpread
from elegantrl.envs.teams import TwoStepGame
from unit_tests.teams import TeamMasked, batch, build, train

ORIGIN = torch.zeros(1, 2, 3)


def game_values(agent_class, seed):
    """The learned team value (2, 2) of both agents' actions in the second step's two matrices, and the first's choice.

    As in the paper: all actions are random; a seed draws the networks.
    """
    torch.manual_seed(seed)
    env = TwoStepGame(64)
    agent = build(agent_class, env, explore_rate=1.0, learning_rate=2e-3, batch_size=64, utd=0.1, soft_update_tau=0.05)
    train(agent, env, rounds=70, horizon=4)
    safe, unsafe = torch.eye(3)[1].repeat(4, 2, 1), torch.eye(3)[2].repeat(4, 2, 1)
    actions = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    with torch.no_grad():
        values = [
            agent.q_value(batch(states, actions, torch.zeros(4), global_state=states[:, 0]))
            for states in (safe, unsafe)
        ]
    first = agent.greedy(torch.eye(3)[0].repeat(1, 2, 1))[0, 0]
    return values[0], values[1], int(first)


@pytest.mark.parametrize("seed", [0, 1])
def test_qmix_finds_the_optimum_of_the_matrix_game(seed):
    """1803.11485 table 2: QMIX tells 7 from 8 and takes the second matrix."""
    safe, unsafe, first = game_values(AgentQMix, seed)
    torch.testing.assert_close(safe, torch.full((4,), 7.0), atol=0.3, rtol=0)
    torch.testing.assert_close(unsafe, torch.tensor([0.0, 1.0, 1.0, 8.0]), atol=0.5, rtol=0)
    assert first == 1


@pytest.mark.parametrize("seed", [0, 1])
def test_vdn_cannot(seed):
    """The best sum for 0 1 1 8 under uniform actions is -1.5 2.5 2.5 6.5, so VDN takes the safe 7."""
    safe, unsafe, first = game_values(AgentVDN, seed)
    torch.testing.assert_close(unsafe, torch.tensor([-1.5, 2.5, 2.5, 6.5]), atol=0.6, rtol=0)
    assert first == 0 and safe.min() > 6.0


def test_the_mixer_grows_in_every_agent():
    mixer, q, state = QMixer(3, 5, 8), torch.randn(200, 3, requires_grad=True), torch.randn(200, 5)
    for p in mixer.parameters():
        nn.init.normal_(p)
    (slope,) = torch.autograd.grad(mixer(q, state).sum(), q)
    assert slope.min() >= 0 and slope.std() > 0.1
    assert torch.equal(mixer(q.view(20, 10, 3), state.view(20, 10, 5)).flatten(), mixer(q, state))


def test_the_mixer_by_hand():
    """One hidden unit; all is 0 but w_in |-1 2|, b_in 3, w_out |-2|, b_out 5: q (1, -4) -> elu(1 - 8 + 3) * 2 + 5."""
    mixer = QMixer(2, 1, 1)
    for p in mixer.parameters():
        nn.init.zeros_(p)
    mixer.hyper[-1].bias.data = torch.tensor([-1.0, 2.0, 3.0, -2.0, 5.0])
    hidden = torch.tensor(-4.0).expm1()
    torch.testing.assert_close(mixer(torch.tensor([1.0, -4.0]), torch.zeros(1)), hidden * 2 + 5)


def test_the_mixer_does_not_grow_with_the_state():
    """Where a value grows outwards by more than 1 / gamma a step, bootstrapping from the furthest states diverges."""
    mixer, q, state = QMixer(3, 54), torch.randn(500, 3), torch.randn(500, 54)
    near, far = mixer(q, 10 * state).abs(), mixer(q, 1000 * state).abs()
    assert far.max() < 2 * near.max()


def test_values_stay_below_what_can_be_earned():
    """No reward is above 0. States have no bounds here, and the furthest are bootstrapped from but never trained."""
    env = SimpleSpread(64)
    agent = build(AgentQMix, env, net_dims=(64, 64), learning_rate=1e-3)
    train(agent, env, rounds=12, horizon=25, rows=32_000)
    with torch.no_grad():
        values = agent.state_value(agent.explore(env, agent.new_trajectory(env, 25)))
    assert values.max() < 3


class Table(QNetTeam):
    """The same Q_m(s, .) (M, A) everywhere, summed."""

    def __init__(self, *values):
        super().__init__((4,), 1, 3, Team(2), VDNMixer())
        self.values = nn.Parameter(torch.tensor(values))

    def q_values(self, state, action_mask=None):
        q = self.values.expand(len(state), -1, -1)
        return q if action_mask is None else q.masked_fill(~action_mask, -1e8)


def tables():
    """Online, agent 0 likes the last action best, agent 1 the first; the target values them 30 and 400."""
    agent = build(AgentVDN, TeamMasked())
    agent.cri = Table([1.0, 2.0, 3.0], [3.0, 2.0, 1.0])
    agent.cri_target = Table([10.0, 20.0, 30.0], [400.0, 500.0, 600.0])
    return agent


def test_the_next_value_is_double_and_masked():
    agent, states, actions = tables(), torch.zeros(1, 2, 1), torch.zeros(1, 2, dtype=torch.long)
    rows = batch(states, actions, torch.zeros(1))
    assert agent.next_value(rows).item() == 430.0
    mask = torch.tensor([[[True, True, False], [False, True, False]]])
    assert agent.next_value(batch(states, actions, torch.zeros(1), action_mask=mask)).item() == 520.0


def test_the_dead_add_nothing():
    agent, states = tables(), torch.zeros(1, 2, 1)
    alive = torch.tensor([[True, False]])
    rows = batch(states, torch.tensor([[1, 0]]), torch.zeros(1), alive=alive)
    assert agent.q_value(rows).item() == 2.0 and agent.next_value(rows).item() == 30.0


def test_a_value_normaliser_is_refused():
    with pytest.raises(ValueError, match="leave if_norm_value"):
        build(AgentQMix, TeamMasked(), if_norm_value=True)


# memory


def test_the_unit_by_hand():
    """All weights 0, biases of the three gates (0, 0, 1): h = (1 - 0.5) tanh(1) + 0.5 h, and anew after a cut."""
    memory = Memory(2, (3,), 1)
    for p in memory.parameters():
        nn.init.zeros_(p)
    memory.enter[-1].bias.data[2] = 1.0
    keeps = torch.tensor([[True, False, True, True]])
    rows, last = memory(torch.randn(1, 4, 2), None, keeps)
    a = 0.5 * torch.tensor(1.0).tanh()
    torch.testing.assert_close(rows.flatten(), torch.stack([a, 1.5 * a, a, 1.5 * a]))
    assert torch.equal(last, rows[:, -1])


@pytest.mark.parametrize("if_share_params", [True, False])
def test_a_memory_in_one_go_is_the_memory_step_by_step(if_share_params):
    net = QNetTeam((5,), 3, 4, Team(2, if_share_params, True, 6), VDNMixer())
    states, hidden = torch.randn(7, 9, 2, 3), torch.randn(7, 2, 6)
    keeps = torch.rand(7, 9) > 0.3
    whole, last = net.remember(states, hidden, keeps)
    for t in range(9):
        row, hidden = net.remember(states[:, t : t + 1], hidden)
        torch.testing.assert_close(row[:, 0], whole[:, t])
        after, hidden = hidden, hidden * keeps[:, t, None, None]
    torch.testing.assert_close(last, after)


def test_forward_remembers_until_it_forgets():
    net = QNetTeam((5,), 3, 4, Team(2, rnn_dim=6), VDNMixer())
    state = torch.randn(3, 2, 3)
    with torch.no_grad():
        net(state)
        first = net.hidden.clone()
        net(state)
        second = net.hidden.clone()
        net.forget(torch.tensor([True, False, True]))
        net(state)
        assert torch.allclose(net.hidden[0], first[0]) and not torch.allclose(net.hidden[1], second[1])
        net.forget()
        net(state)
    torch.testing.assert_close(net.hidden, first)


def test_each_member_is_the_single_network():
    """Separate parameters: agent m's values are those of a plain network with its weights."""
    net = QNetTeam((5,), 3, 4, Team(2, if_share_params=False), VDNMixer())
    states = torch.randn(7, 2, 3)
    values = net.q_values(states)
    for m in range(2):
        x = states[:, m]
        for i in (0, 2):
            x = x @ net.net[i].weight[m] + net.net[i].bias[m, 0]
            x = x.relu() if i == 0 else x
        torch.testing.assert_close(values[:, m], x)


def test_the_id_tells_agents_apart():
    states = torch.ones(1, 2, 3)
    same, told = (QNetTeam((5,), 3, 4, Team(2, True, if_id), VDNMixer()).q_values(states) for if_id in (False, True))
    assert torch.equal(same[:, 0], same[:, 1]) and not torch.allclose(told[:, 0], told[:, 1])


def test_burn_in_rows_carry_no_loss():
    env = TeamMasked()
    agent = build(AgentQMix, env, rnn_dim=4, seq_len=3, burn_in=2)
    train(agent, env, rounds=1, horizon=16)
    from unit_tests.teams import ring

    buffer = ring(env, 64)
    buffer.update(agent.explore(env, agent.new_trajectory(env, 16)))
    rows = buffer.sample(8, 0.99, length=agent.window)
    loss = agent.critic_objective(rows)[0]
    rows.rewards[:, :2] += 100.0
    assert torch.equal(agent.critic_objective(rows)[0], loss)
    rows.rewards[:, 2:] += 100.0
    assert not torch.equal(agent.critic_objective(rows)[0], loss)
