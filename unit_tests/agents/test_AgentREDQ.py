"""REDQ: which critics make a label, which one the actor climbs, how often."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from elegantrl.agents import AgentREDQ
from elegantrl.agents.net import CriticBase, CriticREDQ
from unit_tests.agents.test_AgentBase import filled, update
from unit_tests.agents.test_AgentSAC import Fixed, batch
from unit_tests.tasks import Clock, build


class Numbers(CriticBase):
    """Q_k = k * a for k = 1..K, a user's own."""

    def __init__(self, num):
        super().__init__()
        self.numbers = nn.Parameter(torch.arange(1.0, num + 1))

    def forward(self, state, action):
        return self.numbers[:, None] * action[:, 0]


def redq(**settings):
    agent = build(AgentREDQ, Clock(), num_ensembles=4, alpha_init=1e-9, **settings)
    agent.act, agent.cri = Fixed(0.0), Numbers(4)  # the action is 0.25
    agent.sums = torch.zeros(4)
    return agent


@pytest.mark.parametrize("members, chances", [(1, [1, 1, 1, 1]), (2, [3, 2, 1, 0]), (4, [1, 0, 0, 0])])
def test_a_label_is_the_least_of_a_random_subset(members, chances):
    """Of 4 critics, the least of a pair is 1 in 3 of 6 pairs, 2 in 2, 3 in 1. One draw for the whole batch."""
    agent, counts = redq(target_members=members), torch.zeros(4)
    for _ in range(3000):
        value = agent.next_value(batch(1.0, 1.0))
        assert value[0] == value[1]
        counts[round(value[0].item() / 0.25) - 1] += 1
    expected = torch.tensor(chances) / sum(chances) * 3000
    assert counts.tolist() == pytest.approx(expected.tolist(), abs=150)


def test_only_the_members_that_are_asked_for_are_computed(monkeypatch):
    agent = build(AgentREDQ, Clock())
    seen = []
    forward = type(agent.cri.net).forward
    monkeypatch.setattr(type(agent.cri.net), "forward", lambda net, x, m: seen.append(m) or forward(net, x, m))
    agent.next_value(batch(1.0))
    assert [len(members) for members in seen] == [2]


def test_the_actor_climbs_the_mean_of_all():
    agent = redq()
    assert agent.actor_objective(batch(1.0))[1].item() == pytest.approx(0.25 * 2.5)


def test_twenty_critic_updates_and_one_of_the_actor_for_each_step():
    agent = build(AgentREDQ, Clock(), batch_size=8)
    assert isinstance(agent.cri, CriticREDQ) and agent.cri.members == 10
    before = agent.cri_target.net.layers[0].weight.clone()
    update(agent, filled(Clock()), transitions=3)
    assert (agent.update_count, agent.actor_count) == (60, 3)
    assert not torch.equal(before, agent.cri_target.net.layers[0].weight)


def test_a_users_single_critic_makes_a_label_of_each_row():
    class Single(Numbers):
        def forward(self, state, action):
            return self.numbers[0] * state[:, 0]

    agent = redq()
    agent.cri, rows = Single(1), batch(1.0, 1.0, 1.0)
    rows.next.states = torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]])
    assert agent.next_value(rows).tolist() == pytest.approx([1.0, 2.0, 3.0])
    assert agent.actor_objective(rows)[1].item() == 0.0
