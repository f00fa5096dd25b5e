"""Point chasing: ElegantRL's dynamics by hand, one environment and many alike, continuous and discrete."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from elegantrl import Config, build_env
from elegantrl.agents import AgentPPO
from elegantrl.envs.PointChasingEnv import (
    PointChasingDiscreteEnv,
    PointChasingDiscreteVecEnv,
    PointChasingEnv,
    PointChasingVecEnv,
)


@pytest.mark.parametrize("dim", [2, 3])
def test_a_step_by_hand(dim):
    env = PointChasingVecEnv(dim, 1, dtype=torch.float64)
    env.reset(seed=0)
    runner, chaser = np.full(dim, 1.0), np.full(dim, -7.0)
    velocities = np.full(dim, 0.4), np.arange(1.0, dim + 1)
    env.world.copy_(torch.from_numpy(np.concatenate((runner, velocities[0], chaser, velocities[1]))))
    action = np.full(dim, 0.9)  # longer than 1, so that it is shortened and paid for
    _, reward, terminal, _, info = env.step(torch.from_numpy(action)[None])
    new = info["final_obs"][0].double().numpy().reshape(4, dim)
    length = 0.9 * dim**0.5
    drift = new[1] - 0.5 * velocities[0]
    assert ((drift >= 0) & (drift < 1)).all()
    assert new[3] == pytest.approx(0.75 * velocities[1] + action / length)
    assert new[0] == pytest.approx(runner + 0.01 * new[1])
    assert new[2] == pytest.approx(chaser + 0.01 * new[3])
    gained = 8 * dim**0.5 - np.linalg.norm(new[0] - new[2])
    assert float(reward) == pytest.approx(gained - 0.02 * length, abs=1e-5)
    assert not terminal.any()


def test_the_least_effort_is_one_and_closeness_ends_it():
    env = PointChasingVecEnv(2, 2, dtype=torch.float64)
    env.reset(seed=0)
    env.world.zero_()
    env.world[:, 4] = torch.tensor([-3.0, -1.9])  # along x
    _, reward, terminal, truncate, info = env.step(torch.zeros(2, 2))
    distance = (info["final_obs"][:, :2] - info["final_obs"][:, 4:6]).norm(dim=-1)
    assert torch.allclose(reward, torch.tensor([3.0, 1.9]) - distance - 0.02, atol=1e-6)
    assert terminal.tolist() == [False, True] and not truncate.any()


def test_episodes_start_far_from_each_other_and_at_rest():
    env = PointChasingVecEnv(2, 20_000)
    state, _ = env.reset(seed=0)
    mean = torch.tensor([0.0, 0.0, 0.0, 0.0, -8.0, -8.0, 0.0, 0.0])
    assert torch.allclose(state.mean(0), mean, atol=0.05)
    assert torch.allclose(state.std(0), torch.tensor([1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0]), atol=0.05)


@pytest.mark.parametrize("dim", [2, 3])
def test_digits_of_the_index_are_forces(dim):
    ours, plain = PointChasingDiscreteVecEnv(dim, 3**dim), PointChasingVecEnv(dim, 3**dim)
    assert ours.action_dim == 3**dim and ours.if_discrete
    index = torch.arange(3**dim)
    force = torch.tensor([[i // 3**k % 3 - 1 for k in range(dim)] for i in index.tolist()], dtype=torch.float32)
    assert force[:4, :2].tolist() == [[-1, -1], [0, -1], [1, -1], [-1, 0]]
    ours.reset(seed=0)
    plain.reset(seed=0)
    for x, y in zip(ours.step(index)[:4], plain.step(force)[:4], strict=True):
        assert torch.equal(x, y)


@pytest.mark.parametrize(
    "single, vector",
    [
        (PointChasingEnv, PointChasingVecEnv),
        (PointChasingDiscreteEnv, PointChasingDiscreteVecEnv),
    ],
)
def test_one_environment_steps_as_the_vector_environment_does(single, vector):
    one, many = single(dim=3, max_step=7), vector(3, 1, max_step=7)
    state, there = one.reset(seed=5)[0], many.reset(seed=5)[0]
    assert state.shape == (12,) and state.dtype == np.float32
    for step in range(1, 22):
        assert (state == there[0].numpy()).all()
        action = one.action_space.sample()
        state, reward, terminal, truncate, _ = one.step(action)
        there, rewards, _, _, info = many.step(torch.as_tensor(action)[None])
        assert (state == info["final_obs"][0].numpy()).all() and reward == float(rewards)
        assert truncate == (step % 7 == 0) and not terminal
        if truncate:
            state, _ = one.reset()


def test_chasing_catches():
    env = PointChasingVecEnv(2, 64)
    state, _ = env.reset(seed=0)
    total, first = torch.zeros(64), torch.zeros(64)
    for _ in range(700):
        towards = env.get_action(state)
        state, reward, terminal, _, _ = env.step(towards / towards.norm(dim=-1, keepdim=True))
        total += reward * (first == 0)
        first += (first == 0) * terminal
    assert first.all()
    assert 1.0 < float(total.mean()) < 3.0  # 9.3 m gained, in about 360 steps that cost 0.02 each
    one = PointChasingEnv()
    assert one.get_action(one.reset(seed=0)[0]).shape == (2,)


def test_old_names_and_keywords():
    with pytest.warns(DeprecationWarning, match="elegantrl.envs.Chasing is now called"):
        from elegantrl.envs.Chasing import ChasingEnv
    assert ChasingEnv is PointChasingEnv
    with pytest.warns(DeprecationWarning):
        assert PointChasingVecEnv(dim=3, env_num=6, sim_gpu_id=-1).world.shape == (6, 12)
    with pytest.warns(DeprecationWarning):
        assert build_env(PointChasingVecEnv, {"dim": 2, "env_num": 6}).num_envs == 6
    env = build_env(PointChasingEnv, {"dim": 3})
    assert (env.state_dim, env.action_dim, env.max_step, env.env_name) == (12, 3, 1024, "PointChasingEnv")
    args = Config(AgentPPO, PointChasingEnv, {"dim": 2})
    assert (args.state_dim, args.action_dim, args.max_step, args.if_discrete) == (8, 2, 1024, False)
