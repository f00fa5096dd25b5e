"""DDPG's noise, TD3's target noise, their actors' gradients."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from elegantrl.agents import AgentDDPG, AgentTD3
from elegantrl.agents.AgentDDPG import OrnsteinUhlenbeckNoise
from elegantrl.agents.functional import LinearSchedule
from elegantrl.agents.net import CriticBase
from elegantrl.trajectory import Batch, Record
from unit_tests.tasks import Clock, build


class Action(CriticBase):
    """Q_1(s, a) = a, Q_2(s, a) = 2 a + 10, and of TD3's actor step only the first."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, state, action, members=slice(None)):
        return torch.stack([action[:, 0], 2 * action[:, 0] + 10])[members] * self.weight


def batch(rows, weight=1.0):
    x = torch.zeros(rows)
    columns = {"rewards": x, "undones": x, "discount": x, "weight": torch.full((rows,), weight), "index": x}
    return Batch(torch.zeros(rows, 2), actions=x[:, None], **columns, next=Record(torch.zeros(rows, 2)))


def constant(actor, value):
    """The actor says tanh(value), whatever the state."""
    actor.net[-1].weight.data.zero_()
    actor.net[-1].bias.data.fill_(value)


def test_target_noise_is_clipped_and_around_the_target_actor():
    agent = build(AgentTD3, Clock(), policy_noise_std=0.2, policy_noise_clip=0.3)
    agent.cri = Action()
    constant(agent.act, -3.0)  # the current actor must not matter
    constant(agent.act_target, 0.0)
    noise = agent.next_value(batch(5000))
    assert noise.abs().max().item() == pytest.approx(0.3)
    inside = noise[noise.abs() < 0.299]
    assert noise.mean().abs() < 0.02 and (noise.abs() > 0.299).float().mean().item() == pytest.approx(0.134, abs=0.02)
    assert inside.std().item() == pytest.approx(0.149, abs=0.01)  # of a normal cut at 1.5 sigma
    constant(agent.act_target, 3.0)
    assert agent.next_value(batch(5000)).max() == 1.0  # the noisy action stays in the box


def test_the_smaller_of_two_critics_values_the_next_state():
    agent = build(AgentTD3, Clock(), policy_noise_std=0.0)
    agent.cri = Action()
    constant(agent.act_target, 0.0)
    assert agent.next_value(batch(3)).tolist() == [0.0] * 3
    agent.cri_target.weight.data.fill_(-1.0)
    assert agent.next_value(batch(3)).tolist() == [-10.0] * 3


@pytest.mark.parametrize("weight", [1.0, 0.5])
def test_the_actor_climbs_the_first_critic(weight):
    agent = build(AgentTD3, Clock())
    agent.cri = Action()
    constant(agent.act, 0.5)
    assert agent.actor_loss(batch(4, weight)).item() == pytest.approx(-weight * torch.tensor(0.5).tanh().item())


def test_defaults_of_td3_are_the_papers():
    agent = build(AgentTD3, Clock())
    assert (agent.update_freq, agent.target_delay, agent.policy_noise_std, agent.policy_noise_clip) == (2, 2, 0.2, 0.5)
    assert agent.cri.members == 2


def test_exploration_noise_follows_its_schedule():
    agent = build(AgentDDPG, Clock(), explore_noise_std=LinearSchedule(0.2, 0.05))
    constant(agent.act, 0.0)
    for progress, std in ((0.0, 0.2), (1.0, 0.05)):
        agent.progress = progress
        noise = agent.explore_action(torch.zeros(20000, 2))
        assert noise.std().item() == pytest.approx(std, rel=0.05) and noise.mean().abs() < 0.01


def test_ou_noise_has_its_stationary_spread_and_drifts_slowly():
    """sigma^2 / (2 theta - theta^2 dt), and a correlation of 1 - theta dt from one step to the next."""
    noise, like = OrnsteinUhlenbeckNoise(theta=0.5, dt=0.2), torch.zeros(20000, 1)
    for _ in range(60):
        before = noise(like, 0.3).clone()
    after = noise(like, 0.3)
    assert after.std().item() == pytest.approx((0.09 / (1.0 - 0.05)) ** 0.5, rel=0.03)
    assert torch.corrcoef(torch.stack([before[:, 0], after[:, 0]]))[0, 1].item() == pytest.approx(0.9, abs=0.01)


def test_ou_noise_begins_at_zero_in_each_environment_whose_episode_ended():
    noise = OrnsteinUhlenbeckNoise()
    noise(torch.zeros(3, 1), 1.0)
    noise.x = torch.full((3, 1), 100.0)
    after = noise(torch.zeros(3, 1), 1.0, torch.tensor([False, True, False]))
    assert (after[:, 0] > 50).tolist() == [True, False, True]


def test_ou_noise_in_a_rollout():
    """Noise without spread: what is put into x decays, until the episode's end sets it to 0."""
    env = Clock(num_envs=1, length=3)
    agent = build(AgentDDPG, env, if_ou_noise=True, explore_noise_std=0.0)
    constant(agent.act, 0.0)
    trajectory = agent.new_trajectory(env, 5)
    agent.ou_noise.x = torch.full((1, 1), 0.8)
    actions = agent.explore(env, trajectory).actions[:, 0, 0]
    assert bool((actions[:3] > 0.75).all()) and bool(actions[3:].eq(0).all())
    agent.ou_noise.x = torch.full((1, 1), 0.3)
    agent.begin(*env.reset())  # a restart cuts every episode
    assert agent.ou_noise.x is None
