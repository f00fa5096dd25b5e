"""SAC's entropy and temperature, ModSAC's rule."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from elegantrl.agents import AgentModSAC, AgentSAC
from elegantrl.agents.net import ActorBase, CriticBase
from elegantrl.trajectory import Batch, Record
from unit_tests.agents.test_AgentBase import filled, update
from unit_tests.tasks import Clock, build


class Fixed(ActorBase):
    """Always the action 0.25 with log-probability `logprob`."""

    def __init__(self, logprob):
        super().__init__()
        self.logprob = nn.Parameter(torch.tensor(logprob))

    def sample(self, state):
        return torch.full((len(state), 1), 0.25), self.logprob.expand(len(state))


class Two(CriticBase):
    """Q_1 = a, Q_2 = 10 - a."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, state, action):
        return torch.stack([action[:, 0], 10 - action[:, 0]]) * self.weight


def batch(*weight):
    x = torch.zeros(len(weight))
    columns = {"rewards": x, "undones": x, "discount": x, "weight": torch.tensor(weight), "index": x}
    states = torch.zeros(len(weight), 2)
    return Batch(states, actions=x[:, None], **columns, next=Record(states))


def sac(logprob=0.0, **settings):
    agent = build(AgentSAC, Clock(), **settings)
    agent.act, agent.cri = Fixed(logprob), Two()
    agent.sums = torch.zeros(4)
    return agent


def test_the_next_value_is_soft():
    """min(0.25, 9.75) - 0.5 * (-3) = 1.75, by the current actor."""
    agent = sac(logprob=-3.0, alpha_init=0.5)
    assert agent.next_value(batch(1.0)).item() == pytest.approx(1.75)
    agent.act.logprob.data.fill_(1.0)
    assert agent.next_value(batch(1.0)).item() == pytest.approx(-0.25)
    agent.cri_target.weight.data.fill_(-1.0)  # and by the target critic: min(-0.25, -9.75)
    assert agent.next_value(batch(1.0)).item() == pytest.approx(-10.25)


@pytest.mark.parametrize("logprob, rises", [(-3.0, False), (3.0, True)])
def test_temperature_falls_above_and_rises_below_the_target_entropy(logprob, rises):
    agent = sac(logprob, target_entropy=0.5, learning_rate=0.01)
    agent.update_actor(batch(1.0, 1.0))
    assert (agent.log_alpha.item() > 0) == rises and abs(agent.log_alpha.item()) == pytest.approx(0.01, rel=0.01)


def test_the_actors_loss_by_hand():
    """alpha 2: 2 * (-1) - 0.25 in one of two rows: -1.125; temperature log 2 * (1 + 1) / 2 = 0.693."""
    agent = sac(logprob=-1.0, alpha_init=2.0)
    loss, gain, *logs = agent.actor_objective(batch(1.0, 0.0))
    assert gain.item() == 1.125
    assert loss.item() == pytest.approx(-1.125 + math.log(2))
    gradients = torch.autograd.grad(loss, [agent.act.logprob, agent.log_alpha])
    assert [g.item() for g in gradients] == [1.0, 1.0]  # alpha / 2, and (entropy - target) / 2: each for itself
    assert [x.item() for x in logs] == [2.0, 1.0]  # temperature, entropy


def test_default_target_entropy_is_minus_the_number_of_actions():
    assert AgentSAC((8,), 2, 5).target_entropy == -5.0
    assert sac(target_entropy=-0.3).target_entropy == -0.3
    assert build(AgentSAC, Clock(), alpha_init=0.2).log_alpha.exp().item() == pytest.approx(0.2)


def test_the_entropy_approaches_its_target():
    agent = build(AgentSAC, Clock(), target_entropy=-0.5, learning_rate=1e-2, batch_size=64)
    agent.cri, agent.sums = Two(), torch.zeros(4)
    for _ in range(300):
        agent.update_actor(batch(*[1.0] * 64))
    _, logprob = agent.act.sample(torch.zeros(5000, 2))
    assert -logprob.mean().item() == pytest.approx(-0.5, abs=0.35)  # it began near +0.6


def test_logs_bear_their_names():
    agent = build(AgentSAC, Clock(), batch_size=8, alpha_init=0.5, learning_rate=0.0)
    logs = dict(zip(agent.log_names, update(agent, filled(Clock())), strict=True))
    _, logprob = agent.act.sample(torch.randn(5000, 2))
    assert logs["alpha"] == pytest.approx(0.5) and logs["entropy"] == pytest.approx(-logprob.mean().item(), abs=0.3)


@pytest.mark.parametrize("critic_loss, actor_updates", [(0.0, 24), (10.0, 12), (1.0, None)])
def test_modsac_updates_the_actor_while_the_share_is_below_its_bound(critic_loss, actor_updates):
    """lambda = exp(-c^2): a bound of 1 / (2 - 1) for a perfect critic, of 1 / 2 for one of no use, 0.61 for c = 1."""
    agent, buffer = build(AgentModSAC, Clock(), loss_tau=0.0, batch_size=8), filled(Clock())
    agent.critic_loss = critic_loss
    for _ in range(3):
        update(agent, buffer)
    bound = 1 / (2 - math.exp(-(critic_loss**2)))
    assert agent.update_count == 24
    assert agent.actor_count == (actor_updates or math.ceil(24 * bound))


def test_modsac_follows_the_mean_of_the_critics_loss():
    agent, buffer = build(AgentModSAC, Clock(), loss_tau=0.5, batch_size=8, learning_rate=0.0), filled(Clock())
    logged = update(agent, buffer, transitions=60)[0]
    assert agent.critic_loss == pytest.approx(logged, rel=0.6) and agent.critic_loss != 1.0


def test_modsac_does_not_count_what_the_critic_does_not_learn_from():
    agent = build(AgentModSAC, Clock(), loss_tau=1.0)
    agent.act, agent.cri = Fixed(0.0), Two()
    agent.sums = torch.zeros(4)
    one, poisoned = batch(1.0, 0.0), batch(1.0, 0.0)
    poisoned.rewards = torch.tensor([0.0, 1000.0])
    agent.update_critic(one)
    expected, agent.cri = agent.critic_loss, Two()
    agent.update_critic(poisoned)
    assert agent.critic_loss == expected == pytest.approx((0.0 + 100.0) / 2 / 2)  # Q_1 = 0, Q_2 = 10, the label is 0
