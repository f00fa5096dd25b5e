"""The tutorial's agents: the library's losses on the same weights and rows, and values that are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from elegantrl import agents
from elegantrl.trajectory import Batch, Record, Rollout, Trajectory

DIMS, S, A, B = (16, 8), 3, 2, 32


def pair(hello, name, **settings):
    """(the library's agent, the tutorial's) with the same weights; targets differ from the networks they follow."""
    ours = getattr(agents, name)(DIMS, S, A, gpu_id=-1, args=hello.config.Config(**settings))
    theirs = getattr(hello.agent, name)(DIMS, S, A, -1, hello.config.Config(**settings))
    with torch.no_grad():
        for net in {ours.act, ours.cri, ours.act_target, ours.cri_target}:
            for p in net.parameters():
                p.add_(0.1 * torch.randn_like(p))
    for part in ("act", "cri", "act_target", "cri_target"):
        source, target = getattr(ours, part), getattr(theirs, part, None)
        if isinstance(target, torch.nn.ModuleList):  # one batched module (K, in, out) against K networks (out, in)
            for k, critic in enumerate(target):
                mine = [p[k].squeeze(0) if p.shape[1] == 1 else p[k].T for p in source.parameters()]
                for p, value in zip(critic.parameters(), mine, strict=True):
                    p.data.copy_(value.view_as(p))
        elif target is not None:
            target.load_state_dict(source.state_dict())
    return ours, theirs


def rows(hello, if_discrete):
    """The same B transitions as the library's Batch and as the tutorial's; a third of them ends its task."""
    states, next_states, rewards = torch.randn(B, S), torch.randn(B, S), torch.randn(B)
    actions = torch.randint(A, (B,)) if if_discrete else torch.rand(B, A) * 2 - 1
    undones = torch.arange(B) % 3 > 0
    batch = Batch(
        states,
        actions=actions,
        rewards=rewards,
        undones=undones,
        discount=0.99 * undones,
        weight=torch.ones(B),
        index=torch.arange(B),
        next=Record(next_states),
    )
    return batch, hello.agent.Transitions(states, actions, rewards, next_states, undones.float(), undones.float())


def assert_same(loss, net, expected, expected_net):
    """The losses and their gradients, as one vector each (layers are transposed in an ensemble: sorted)."""
    torch.testing.assert_close(loss, expected)
    grads = [torch.autograd.grad(x, list(n.parameters())) for x, n in ((loss, net), (expected, expected_net))]
    torch.testing.assert_close(*(torch.cat([g.flatten() for g in grad]).sort().values for grad in grads))


def test_dqn_loss(hello):
    ours, theirs = pair(hello, "AgentDQN")
    batch, transitions = rows(hello, True)
    loss, _ = theirs.critic_loss(transitions)
    assert_same(loss, theirs.cri, ours.critic_objective(batch)[0], ours.cri)


@pytest.mark.parametrize("name", ["AgentDDPG", "AgentSAC"])
def test_actor_critic_losses(hello, name):
    ours, theirs = pair(hello, name)
    batch, transitions = rows(hello, False)
    for mine, other, net in (
        (theirs.critic_loss, ours.critic_objective, "cri"),
        (theirs.actor_loss, ours.actor_objective, "act"),
    ):
        torch.manual_seed(1)  # SAC's samples
        loss = mine(transitions)
        torch.manual_seed(1)
        assert_same(loss, getattr(theirs, net), other(batch)[0], getattr(ours, net))


def test_sac_temperature_gradient(hello):
    ours, theirs = pair(hello, "AgentSAC")
    batch, transitions = rows(hello, False)
    losses = []
    for loss in (lambda: theirs.actor_loss(transitions), lambda: ours.actor_objective(batch)[0]):
        torch.manual_seed(1)
        losses.append(loss())
    mine = torch.autograd.grad(losses[0], theirs.log_alpha)
    torch.testing.assert_close(mine, torch.autograd.grad(losses[1], ours.log_alpha))


@pytest.mark.parametrize("name", ["AgentPPO", "AgentDiscretePPO"])
def test_ppo_loss(hello, name):
    ours, theirs = pair(hello, name, lambda_entropy=0.03)
    batch, _ = rows(hello, name == "AgentDiscretePPO")
    old, advantages, returns = -2 + torch.rand(B), torch.randn(B), torch.randn(B)
    rollout = Rollout(
        batch.states,
        actions=batch.actions,
        logprobs=old,
        advantages=advantages,
        returns=returns,
        weight=torch.ones(B),
    )
    actor_loss = theirs.actor_loss(batch.states, batch.actions, old, advantages)
    critic_loss = theirs.critic_loss(batch.states, returns)
    expected = ours.objective(rollout)[0]
    assert_same(actor_loss, theirs.act, expected - critic_loss.detach(), ours.act)
    assert_same(critic_loss, theirs.cri, ours.objective(rollout)[0] - actor_loss.detach(), ours.cri)


def test_advantages(hello):
    """GAE over an episode that terminates at row 3 and one that is truncated at row 7."""
    ours, theirs = pair(hello, "AgentPPO", gamma=0.9, lambda_gae_adv=0.8)
    T, ends = 12, [3, 7]
    states, rewards = torch.randn(T + 1, 1, S), torch.randn(T, 1)
    undones, unmasks = torch.ones(T, 1, dtype=torch.bool), torch.ones(T, 1, dtype=torch.bool)
    undones[3], unmasks[[4, 8]] = False, False  # the library masks the row that only resets
    items = (states[:-1], torch.randn(T, 1, A), torch.zeros(T, 1), rewards, undones, unmasks)
    with torch.no_grad():
        expected = ours.returns(Trajectory.from_tuple(items, states[-1]))[0]
    keeps = torch.ones(T)
    keeps[ends] = 0
    true = unmasks[:, 0]
    columns = (states[:-1, 0], items[1][:, 0], rewards[:, 0], states[1:, 0], undones[:, 0].float(), keeps)
    transitions = hello.agent.Transitions(*(x[true] for x in columns))
    torch.testing.assert_close(theirs.get_advantages(transitions), expected[true, 0])


class Payday:
    """Every step pays 1 and is the last of its episode. By `terminal` its value is 1, by `truncate` 1 / (1 - gamma)."""

    env_name, state_dim, action_dim, max_step = "Payday", 1, 2, 1

    def __init__(self, ends: str = "truncate", if_discrete: bool = True):
        self.ends, self.if_discrete = ends, if_discrete

    def reset(self, seed=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 1.0, self.ends == "terminate", self.ends == "truncate", {}

    def random_action(self):
        return torch.randint(2, ()) if self.if_discrete else torch.rand(2) * 2 - 1


@pytest.mark.parametrize("ends, value", [("truncate", 2.0), ("terminate", 1.0)])
@pytest.mark.parametrize("name", ["AgentDQN", "AgentDDPG", "AgentSAC", "AgentDiscretePPO"])
def test_a_time_limit_is_no_end(hello, name, ends, value):
    settings = {"gamma": 0.5, "soft_update_tau": 0.2, "learning_rate": 1e-2, "horizon_len": 32, "batch_size": 32}
    env = Payday(ends, if_discrete=name in ("AgentDQN", "AgentDiscretePPO"))
    agent = getattr(hello.agent, name)((16,), 1, 2, -1, hello.config.Config(**settings, repeat_times=20))
    if name == "AgentSAC":
        agent.log_alpha.data.fill_(-20)  # no pay for randomness
    buffer = hello.agent.ReplayBuffer(1000)
    for _ in range(10):
        rollout = agent.explore_env(env, 32, if_random=agent.if_off_policy)
        buffer.update(rollout)
        agent.update_net(buffer if agent.if_off_policy else rollout)
    batch = agent.explore_env(env, 32)
    with torch.no_grad():
        if name == "AgentDQN":
            got = agent.cri.q_values(batch.states).gather(1, batch.actions[:, None])
        elif agent.if_off_policy:
            critic = agent.cri[0] if name == "AgentSAC" else agent.cri
            got = critic(batch.states, batch.actions)
        else:
            got = agent.cri(batch.states)
    assert got.mean().item() == pytest.approx(value, rel=0.05)


class Counter(Payday):
    """The state is the number of the step; an episode has three."""

    def reset(self, seed=None):
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.full(1, self.t, np.float32), float(self.t), False, self.t == 3, {}


def test_rollouts_go_on_where_they_stopped(hello):
    agent = hello.agent.AgentDQN((8,), 1, 2)
    env = Counter()
    first, second = agent.explore_env(env, 4), agent.explore_env(env, 4)
    assert torch.cat([first.states, second.states]).flatten().tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    assert torch.cat([first.next_states, second.next_states]).flatten().tolist() == [1, 2, 3, 1, 2, 3, 1, 2]
    assert torch.cat([first.keeps, second.keeps]).tolist() == [1, 1, 0, 1, 1, 0, 1, 1]
    assert first.undones.tolist() == [1] * 4 and first.rewards.tolist() == [1, 2, 3, 1]
    assert first.actions.dtype == torch.long


def test_the_buffer_keeps_the_newest_rows(hello):
    agent, env = hello.agent.AgentDQN((8,), 1, 2), Counter()
    buffer = hello.agent.ReplayBuffer(10)
    for _ in range(6):  # 24 rows, 4 at a time
        rollout = agent.explore_env(env, 4)
        buffer.update(rollout)
    assert buffer.cur_size == 10 and buffer.head == 4
    batch = buffer.sample(500)
    torch.testing.assert_close(batch.next_states, batch.states + 1)
    torch.testing.assert_close(batch.rewards, batch.next_states[:, 0])
    torch.testing.assert_close(buffer.columns.states[:4], rollout.states)


def test_ppo_takes_each_row_once_an_epoch(hello):
    agent = hello.agent.AgentDiscretePPO((8,), 1, 2, -1, hello.config.Config(batch_size=3, repeat_times=2))
    rollout = agent.explore_env(Counter(), 7)
    rollout = rollout._replace(states=torch.arange(7.0)[:, None])
    seen = []
    loss = agent.critic_loss
    agent.critic_loss = lambda states, returns: seen.append(states.flatten()) or loss(states, returns)
    agent.update_net(rollout)
    assert [len(states) for states in seen] == [3, 3, 1] * 2
    assert torch.cat(seen).view(2, 7).sort().values.tolist() == [list(range(7))] * 2
