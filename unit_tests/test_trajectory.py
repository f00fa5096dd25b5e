"""Trajectories keep their rows in every form, and minibatches visit each row once."""

from __future__ import annotations

import pytest
import torch

from elegantrl.agents import AgentPPO, AgentSAC
from elegantrl.trajectory import Record, Rollout, Trajectory
from unit_tests.tasks import Clock, build


def rollout(rows: int) -> Rollout:
    x = torch.arange(rows).float()
    return Rollout(x[:, None], actions=x, logprobs=x, advantages=x, returns=x, weight=torch.ones(rows))


@pytest.mark.parametrize("agent_class, length", [(AgentSAC, 5), (AgentPPO, 6)])
def test_the_tuple_of_explore_env_and_back(agent_class, length):
    """Third-party code knows states, actions, [logprobs,] rewards, undones, unmasks, each (T, N, ...)."""
    env = Clock(num_envs=3)
    agent = build(agent_class, env)
    items = agent.explore_env(env, 7)
    assert len(items) == length
    assert [tuple(x.shape) for x in (items[0], items[1])] == [(7, 3, 2), (7, 3, 1)]
    assert all(x.shape == (7, 3) for x in items[2:])
    again = Trajectory.from_tuple(items, agent.last_state)
    assert again.states.shape == (8, 3, 2) and torch.equal(again.states[-1], agent.last_state)
    assert all(torch.equal(x, y) for x, y in zip(items, again.as_tuple(), strict=True))


def test_a_rollout_continues_where_the_last_one_ended():
    """Episodes of 5 steps and a reset row each: time runs 0 1 2 3 4 5 0 ..., the reset row is the one at 5."""
    env = Clock(num_envs=2, ends="terminate")
    agent = build(AgentSAC, env)
    parts = [agent.explore_env(env, horizon) for horizon in (4, 3, 5)]
    states, _, rewards, undones, unmasks = (torch.cat(x) for x in zip(*parts, strict=True))
    assert states[:, 0].argmax(-1).tolist() == [0, 1, 2, 3, 4, 5] * 2
    assert unmasks[:, 0].tolist() == ([True] * 5 + [False]) * 2
    assert undones[:, 0].tolist() == ([True] * 4 + [False, True]) * 2
    assert rewards[:, 0].tolist() == ([1.0] * 5 + [0.0]) * 2


def test_a_tuple_never_turns_a_time_limit_into_an_end():
    """Final values have no place in a tuple, so their rows weigh nothing there."""
    env = Clock(num_envs=2, autoreset="same_step", final="always")
    agent = build(AgentPPO, env)
    trajectory = agent.explore(env, agent.new_trajectory(env, 10))
    assert trajectory.unmasks.all() and (trajectory.bootstraps != 0)[:, 0].tolist() == ([False] * 4 + [True]) * 2
    *_, undones, unmasks = trajectory.as_tuple()
    assert unmasks[:, 0].tolist() == ([True] * 4 + [False]) * 2
    assert bool((undones | ~unmasks).all())


def test_records_are_rows_of_the_same_tensors():
    mask = torch.tensor([[True] * 5, [False] * 5])
    trajectory = Trajectory.allocate(3, Record(torch.zeros(2, 4), mask), 5, if_discrete=True)
    trajectory.put(3, Record(torch.ones(2, 4), mask))
    assert trajectory.horizon == 3 and trajectory.states[3].eq(1).all() and torch.equal(trajectory.action_mask[3], mask)
    assert torch.equal(trajectory.at(3).action_mask, mask) and trajectory.at(slice(1, 3)).states.shape == (2, 2, 4)
    assert trajectory.actions.dtype == torch.long and trajectory.undones.dtype == torch.bool
    assert trajectory.to(torch.device("cpu")) is trajectory and set(trajectory.state_like()) == {
        "states",
        "action_mask",
    }


def test_images_stay_bytes():
    states = torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    assert Trajectory.allocate(4, Record(states), 1, if_discrete=False).states.dtype == torch.uint8


@pytest.mark.parametrize(
    "rows, batch_size, sizes", [(100, 25, [25] * 4), (100, 30, [34] * 3), (10, 64, [10]), (10, None, [10])]
)
def test_minibatches_are_equal_and_hold_each_row_once(rows, batch_size, sizes):
    orders = []
    for _ in range(2):
        batches = list(rollout(rows).minibatches(batch_size))
        assert [len(batch.weight) for batch in batches] == sizes
        kept = torch.cat([batch.returns[batch.weight > 0] for batch in batches])
        assert kept.sort().values.tolist() == list(range(rows))
        assert all(torch.equal(batch.states[:, 0], batch.advantages) for batch in batches)
        orders.append(kept.tolist())
    assert orders[0] != orders[1]
