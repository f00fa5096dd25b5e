"""PPO and A2C: one template, two losses."""

from __future__ import annotations

import pytest
import torch

from elegantrl.agents import AgentA2C, AgentDiscreteA2C, AgentDiscretePPO, AgentPPO
from elegantrl.agents.net import ActorDiscretePPO, ActorPPO
from elegantrl.trajectory import Rollout, Trajectory
from unit_tests.tasks import Clock, build


class Watched(AgentPPO):
    """Keeps the rows of every minibatch."""

    def update_once(self, batch):
        self.seen.append(batch)
        super().update_once(batch)


def explored(agent, env, horizon):
    return agent.explore(env, agent.new_trajectory(env, horizon))


def rollout(rows, advantage=0.0):
    zeros = torch.zeros(rows)
    columns = {"logprobs": zeros, "returns": zeros, "weight": torch.ones(rows)}
    return Rollout(torch.randn(rows, 2), actions=torch.randn(rows, 1), advantages=zeros + advantage, **columns)


def test_each_row_once_an_epoch_in_a_new_order():
    env = Clock(num_envs=2, length=100)
    agent = build(Watched, env, repeat_times=3, batch_size=8)
    agent.seen = []
    trajectory = explored(agent, env, 12)
    agent.update_net(trajectory)
    assert [len(batch.weight) for batch in agent.seen] == [8] * 9
    rows = torch.cat([batch.logprobs for batch in agent.seen]).view(3, 24)
    for epoch in rows:
        assert torch.equal(epoch.sort().values, trajectory.logprobs.flatten().sort().values)
    assert not torch.equal(rows[0], rows[1]) and not torch.equal(rows[1], rows[2])


def test_advantages_are_standardised_over_true_rows():
    env = Clock(num_envs=2, length=3, ends="terminate")
    agent = build(AgentPPO, env)
    rows = agent.rows(explored(agent, env, 12))
    kept = rows.advantages[rows.weight > 0]
    assert len(kept) == 18 and kept.mean().abs() < 1e-5 and kept.std(correction=0).item() == pytest.approx(1, abs=1e-3)


def test_returns_by_hand():
    """lambda 1 makes them the discounted rewards up to the end: 1 + 0.5 + 0.25, 1.5, 1, then a reset row."""
    env = Clock(num_envs=1, length=3, ends="terminate")
    agent = build(AgentPPO, env, gamma=0.5, lambda_gae_adv=1.0)
    rows = agent.rows(explored(agent, env, 4))
    torch.testing.assert_close(rows.returns[:3], torch.tensor([1.75, 1.5, 1.0]))
    assert rows.weight.tolist() == [1, 1, 1, 0]


def test_masked_rows_change_nothing():
    """Their states, actions, rewards and log-probabilities may be anything finite."""
    env = Clock(num_envs=4, length=3)
    results = []
    for poison in (0.0, 50.0):
        torch.manual_seed(0)
        agent = build(AgentPPO, env, batch_size=None, repeat_times=4)
        agent.begin(*env.reset(seed=0))
        trajectory = explored(agent, env, 12)
        masked = ~trajectory.unmasks
        assert masked.sum() == 12
        for column in (trajectory.actions, trajectory.rewards, trajectory.logprobs):
            column[masked] += poison
        agent.update_net(trajectory)
        results.append(torch.cat([p.flatten() for net in (agent.act, agent.cri) for p in net.parameters()]))
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-6)


def test_the_entropy_bonus_raises_the_std():
    for weight, rises in ((0.01, True), (0.0, False)):
        agent = build(AgentPPO, Clock(), lambda_entropy=weight)
        agent.sums = torch.zeros(5)
        agent.update_once(rollout(32))
        assert (agent.act.log_std.item() > 0) == rises


def test_target_kl_ends_the_epochs():
    for target_kl, epochs in ((0.0, 1), (float("inf"), 5)):
        env = Clock()
        agent = build(AgentPPO, env, target_kl=target_kl, repeat_times=5, batch_size=None, learning_rate=1e-3)
        trajectory = explored(agent, env, 16)
        trajectory.logprobs += torch.randn(16, 4) * 0.1  # as if the policy had moved
        agent.update_net(trajectory)
        assert agent.update_count == epochs


def test_logs_bear_their_names():
    """learning_rate 0: no divergence from the old policy, the entropy of a unit Gaussian, the mean squared return."""
    env = Clock()
    agent = build(AgentPPO, env, learning_rate=0.0, batch_size=None, repeat_times=2)
    trajectory = explored(agent, env, 16)
    rows = agent.rows(trajectory)
    logs = dict(zip(agent.log_names, agent.update_net(trajectory), strict=True))
    values = agent.cri(rows.states)
    assert logs["kl"] == pytest.approx(0, abs=1e-6)
    assert logs["entropy"] == pytest.approx(1.4189, rel=1e-4)
    assert logs["objC"] == pytest.approx((values - rows.returns)[rows.weight > 0].square().mean().item(), rel=1e-4)
    assert logs["objA"] == pytest.approx(0, abs=1e-5)


def test_kl_is_logged_where_the_policy_moved():
    env = Clock()
    agent = build(AgentPPO, env, learning_rate=0.02, batch_size=16)
    assert dict(zip(agent.log_names, agent.update_net(explored(agent, env, 16)), strict=True))["kl"] > 1e-3


def test_a2c_has_no_ratio_to_clip():
    """Its loss is -A log pi: a gradient of -A at any ratio, where PPO's has none at 5."""
    for agent_class, slope in ((AgentA2C, -1.0), (AgentPPO, 0.0)):
        logprobs = torch.tensor([5.0]).log().requires_grad_()
        build(agent_class, Clock()).policy_loss(logprobs, rollout(1, advantage=1.0)).sum().backward()
        assert logprobs.grad.item() == slope


def test_a2c_takes_one_step_on_each_rollout():
    env = Clock()
    agent = build(AgentA2C, env)
    agent.update_net(explored(agent, env, 16))
    assert agent.update_count == 1


@pytest.mark.parametrize("if_discrete", [False, True])
def test_vtrace_returns_are_made_anew_for_each_epoch(if_discrete):
    """In the first they are GAE's, as the policy is the one that acted; later the policy and the values have moved."""
    env = Clock(num_envs=2, length=3, if_discrete=if_discrete)
    agent = build(AgentPPO, env, if_use_v_trace=True, repeat_times=3, learning_rate=0.02)
    trajectory = explored(agent, env, 12)
    with torch.no_grad():
        expected = AgentPPO.returns(agent, trajectory)
    seen = []
    compute = agent.returns
    agent.returns = lambda tr: seen.append(compute(tr)) or seen[-1]
    agent.update_net(trajectory)
    assert len(seen) == 3
    for result, same in zip(seen[0], expected, strict=True):
        torch.testing.assert_close(result, same, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(seen[1][1], seen[0][1]) and not torch.allclose(seen[2][1], seen[1][1])


def test_gae_returns_are_made_once():
    env = Clock()
    agent, calls = build(AgentPPO, env, repeat_times=3), []
    compute = agent.returns
    agent.returns = lambda tr: calls.append(tr) or compute(tr)
    agent.update_net(explored(agent, env, 12))
    assert len(calls) == 1


def test_a2c_weighs_an_older_policys_rows_by_at_most_one():
    """rho = min(1, pi / mu): 0.5 where the policy now likes the action half as much, 1 where it likes it more."""
    for ratio, slope in ((0.5, -0.5), (3.0, -1.0)):
        logprobs = torch.tensor([ratio]).log().requires_grad_()
        build(AgentA2C, Clock()).policy_loss(logprobs, rollout(1, advantage=1.0)).sum().backward()
        assert logprobs.grad.item() == pytest.approx(slope)


@pytest.mark.parametrize("agent_class", [AgentPPO, AgentA2C])
def test_the_environment_chooses_the_kind_of_policy(agent_class):
    assert isinstance(build(agent_class, Clock(if_discrete=True)).act, ActorDiscretePPO)
    assert isinstance(build(agent_class, Clock()).act, ActorPPO)


def test_discrete_classes_need_no_environment():
    for agent_class in (AgentDiscretePPO, AgentDiscreteA2C):
        assert isinstance(agent_class((8,), 2, 3).act, ActorDiscretePPO)


def test_the_std_at_the_start():
    assert build(AgentPPO, Clock(), log_std_init=-1.0).act.log_std.item() == -1.0


def test_update_net_takes_the_tuple_of_explore_env():
    """The same step as the trajectory gives."""
    env, results = Clock(), []
    for as_tuple in (False, True):
        torch.manual_seed(0)
        agent = build(AgentPPO, env, repeat_times=1)
        agent.begin(*env.reset(seed=0))
        items = agent.explore_env(env, 16) if as_tuple else explored(agent, env, 16)
        assert isinstance(items, tuple if as_tuple else Trajectory)
        results.append(agent.update_net(items))
    assert results[0] == results[1]
