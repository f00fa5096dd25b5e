"""The DQN family: its targets, its exploration."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from elegantrl.agents import AgentD3QN, AgentDoubleDQN, AgentDQN, AgentDuelingDQN, AgentEmbedDQN, AgentEnsembleDQN
from elegantrl.agents.functional import LinearSchedule
from elegantrl.agents.net import QNetBase, QNetDuel
from elegantrl.trajectory import Batch, Record
from unit_tests.tasks import Clock, build


class Table(QNetBase):
    """The same Q(s, .) everywhere."""

    def __init__(self, *values):
        super().__init__()
        self.values = nn.Parameter(torch.tensor(values))

    def q_values(self, state, action_mask=None):
        q = self.values.expand(len(state), -1)
        return q if action_mask is None else q.masked_fill(~action_mask, -1e8)


def batch(mask=None):
    x = torch.zeros(2)
    rows = {"actions": torch.tensor([0, 2]), "rewards": x, "undones": x, "discount": x, "weight": x, "index": x}
    return Batch(torch.zeros(2, 2), **rows, next=Record(torch.zeros(2, 2), mask))


@pytest.mark.parametrize(
    "agent_class, value, masked",
    [(AgentDQN, 30.0, 20.0), (AgentDuelingDQN, 30.0, 20.0), (AgentDoubleDQN, 10.0, 20.0), (AgentD3QN, 10.0, 20.0)],
)
def test_the_next_value(agent_class, value, masked):
    """Online 1 2 3 chooses the last action (of the first two: the second), the target values them 30 20 10."""
    agent = build(agent_class, Clock(if_discrete=True))
    agent.cri, agent.cri_target = Table(1.0, 2.0, 3.0), Table(30.0, 20.0, 10.0)
    assert agent.next_value(batch()).tolist() == [value] * 2
    if agent_class in (AgentDQN, AgentDuelingDQN):
        mask = torch.tensor([[False, True, True]] * 2)
    else:
        mask = torch.tensor([[True, True, False]] * 2)
    assert agent.next_value(batch(mask)).tolist() == [masked] * 2
    assert agent.q_value(batch()).tolist() == [1.0, 3.0]


def test_networks_of_the_family():
    env = Clock(if_discrete=True)
    assert [isinstance(build(c, env).cri, QNetDuel) for c in (AgentDQN, AgentDoubleDQN)] == [False, False]
    assert [isinstance(build(c, env).cri, QNetDuel) for c in (AgentDuelingDQN, AgentD3QN)] == [True, True]


class Tables(Table):
    """Of two members, the second with twice the values."""

    def q_members(self, state):
        q = Table.q_values(self, state)
        return torch.stack([q, 2 * q])

    def q_values(self, state, action_mask=None):
        return self.q_members(state).mean(0)


def test_the_mean_of_an_ensemble_makes_the_label_that_each_fits():
    """Target 30 20 10 and 60 40 20: the mean's greatest is 45. Members have 1 2 3 and 2 4 6."""
    agent = build(AgentEnsembleDQN, Clock(if_discrete=True))
    agent.cri, agent.cri_target = Tables(1.0, 2.0, 3.0), Tables(30.0, 20.0, 10.0)
    assert agent.next_value(batch()).tolist() == [45.0] * 2
    assert agent.q_value(batch()).tolist() == [[1.0, 3.0], [2.0, 6.0]]


def test_ensembles_have_as_many_members_as_asked():
    agent = build(AgentEnsembleDQN, Clock(if_discrete=True), num_ensembles=3)
    assert agent.cri.members == 3 and agent.cri.q_members(torch.zeros(5, 2)).shape == (3, 5, 2)
    assert agent.cri_optimizer.flats[0].matrix().shape[0] == 3  # each is clipped by itself
    torch.testing.assert_close(agent.cri.q_values(torch.zeros(5, 2)), agent.cri.q_members(torch.zeros(5, 2)).mean(0))


def test_embedded_actions_have_the_value_that_the_row_of_all_has():
    agent = AgentEmbedDQN((8,), 3, 100)
    assert agent.cri.embedding.weight.shape == (100, 10)
    state, action = torch.randn(2, 7, 3), torch.randint(100, (2, 7))
    q = agent.cri.q_values(state)
    assert q.shape == (2, 7, 100)
    torch.testing.assert_close(agent.cri.q_value(state, action), q.gather(-1, action[..., None]).squeeze(-1))
    one = batch()
    one.states = torch.randn(2, 3)
    torch.testing.assert_close(agent.q_value(one), agent.cri.q_values(one.states)[[0, 1], [0, 2]])


def test_a_rare_large_error_counts_by_its_square():
    """One end of an episode (Q 50, label 0) among 100 rows that are right: a clipped error would be 0.5, not 25."""
    agent, rows = build(AgentDQN, Clock(if_discrete=True)), 100
    agent.cri, zeros, actions = Table(0.0, 50.0), torch.zeros(rows), torch.zeros(rows, dtype=torch.long)
    actions[7], states = 1, torch.zeros(rows, 2)
    columns = {"rewards": zeros, "undones": zeros, "discount": zeros, "weight": zeros + 1, "index": zeros}
    loss = agent.critic_objective(Batch(states, actions=actions, next=Record(states), **columns))[0]
    assert loss.item() == 25.0
    loss.backward()
    assert agent.cri.values.grad.tolist() == [0.0, 1.0]


def test_epsilon_follows_its_schedule():
    """Of three actions a random one is not the greedy one in 2 / 3: 0.6, then 0.2 of the actions."""
    agent = build(AgentDQN, Clock(if_discrete=True), explore_rate=LinearSchedule(0.9, 0.3, fraction=0.5))
    agent.cri, agent.action_dim = Table(1.0, 3.0, 2.0), 3
    for progress, other in ((0.0, 0.6), (0.25, 0.4), (0.5, 0.2), (1.0, 0.2)):
        agent.progress = progress
        action = agent.explore_action(torch.zeros(20000, 2))
        assert (action != 1).float().mean().item() == pytest.approx(other, abs=0.015)
        assert (action == 0).float().mean().item() == pytest.approx(other / 2, abs=0.015)


def test_random_actions_are_allowed_and_uniform():
    agent = build(AgentDQN, Clock(if_discrete=True), explore_rate=1.0)
    agent.cri = Table(1.0, 2.0, 3.0)
    mask = torch.tensor([[True, True, False]]).expand(20000, 3)
    state = torch.zeros(20000, 2)
    for action in (agent.explore_action(state, mask), agent.random_action(Record(state, mask))):
        assert action.bincount(minlength=3).tolist() == pytest.approx([10000, 10000, 0], abs=300)
