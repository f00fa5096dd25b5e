"""Classic control as tensors against Gymnasium's NumPy originals, and the linear task against its Riccati equation."""

from __future__ import annotations

import math

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor

from elegantrl.envs.classic import (
    AcrobotVecEnv,
    CartPoleVecEnv,
    LQRVecEnv,
    MountainCarContinuousVecEnv,
    PendulumVecEnv,
    wrapped,
)

N = 6
TASKS = {  # id, what the policy's [-1, 1] is there, the limit of episodes (None: the task's own)
    CartPoleVecEnv: ("CartPole-v1", 1.0, 15),
    PendulumVecEnv: ("Pendulum-v1", 2.0, None),
    MountainCarContinuousVecEnv: ("MountainCarContinuous-v0", 1.0, None),
    AcrobotVecEnv: ("Acrobot-v1", 1.0, None),
}


def originals(env_class, max_step=None):
    name, scale, limit = TASKS[env_class]
    limit = max_step or limit
    keywords = {} if limit is None else {"max_episode_steps": limit}
    return [gym.make(name, **keywords) for _ in range(N)], scale


def world_of(envs) -> Tensor:
    return torch.from_numpy(np.stack([np.asarray(env.unwrapped.state, np.float64) for env in envs]))


def policy(env, state: Tensor) -> Tensor:
    """Random, with a push in the direction of motion where that is what reaches the goal.

    In eighths, so that what an original rounds to float32 is exact.
    """
    random = torch.randint(-8, 9, (N, 1)) / 8
    if isinstance(env, CartPoleVecEnv | PendulumVecEnv):
        return torch.randint(2, (N,)) if env.if_discrete else random
    if env.if_discrete:
        return 1 + state[:, 5].sign().long()
    return torch.where(torch.rand(N, 1) < 0.2, random, state[:, 1:].sign())


def in_step(env, envs, scale, steps, resync):
    """Plays both with the same actions. Yields what both returned, and which rows still play the same episode.

    resync: before each step our world is made theirs, and ended episodes begin anew; else each plays one episode.
    """
    states = [original.reset(seed=i)[0] for i, original in enumerate(envs)]
    env.reset(seed=0)
    state, alive = torch.from_numpy(np.stack(states)), np.ones(N, bool)
    env.world.copy_(world_of(envs))
    for _ in range(steps):
        if resync:
            env.world.copy_(world_of(envs))
        action = policy(env, state)
        ours = env.step(action)
        theirs = [None] * N
        for i in np.flatnonzero(alive):
            theirs[i] = envs[i].step(int(action[i]) if env.if_discrete else (action[i] * scale).numpy())
            state[i] = torch.from_numpy(theirs[i][0])
        yield ours, theirs
        for i in np.flatnonzero(alive):
            if theirs[i][2] or theirs[i][3]:
                alive[i] = resync
                if resync:
                    state[i] = torch.from_numpy(envs[i].reset()[0])


def differences(ours, theirs):
    """Of states and rewards, relative to 1 and to their size; terminations and truncations must be the same."""
    _, reward, terminal, truncate, info = ours
    for i, there in enumerate(theirs):
        if there is not None:
            assert (bool(terminal[i]), bool(truncate[i])) == tuple(map(bool, there[2:4]))
            for own, value in ((info["final_obs"][i].numpy(), there[0]), (reward[i].item(), np.float32(there[1]))):
                yield float(np.max(np.abs(own - value) / np.maximum(1, np.abs(value))))


@pytest.mark.parametrize("env_class", TASKS)
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 5e-6), (torch.float64, 1.2e-7)])
def test_each_step_is_the_original_one(env_class, dtype, tolerance):
    envs, scale = originals(env_class)
    env = env_class(N, max_step=TASKS[env_class][2], dtype=dtype)
    ended = torch.zeros(2, dtype=torch.long)
    for ours, theirs in in_step(env, envs, scale, steps=600, resync=True):
        assert max(differences(ours, theirs)) <= tolerance
        ended += torch.stack((ours[2].sum(), ours[3].sum()))
    assert env_class is PendulumVecEnv or ended[0] > 0, "no episode terminated"
    assert env_class in (MountainCarContinuousVecEnv, AcrobotVecEnv) or ended[1] > 0, "no episode was truncated"


@pytest.mark.parametrize(
    "env_class, dtype, steps",
    [
        (CartPoleVecEnv, torch.float64, 200),
        (PendulumVecEnv, torch.float64, 200),
        (MountainCarContinuousVecEnv, torch.float32, 300),  # the original's own dtype
    ],
)
def test_whole_episodes_are_the_original_ones(env_class, dtype, steps):
    envs, scale = originals(env_class, max_step=steps)
    env = env_class(N, max_step=steps, dtype=dtype)
    found = []
    for ours, theirs in in_step(env, envs, scale, steps, resync=False):
        if any(there is not None for there in theirs):
            found.append(max(differences(ours, theirs)))
    assert len(found) > 20
    assert max(found) <= (1.2e-7 if dtype is torch.float64 else 2e-6)


@pytest.mark.parametrize(
    "env_class, low, high",
    [
        (CartPoleVecEnv, [-0.05] * 4, [0.05] * 4),
        (PendulumVecEnv, [-math.pi, -1], [math.pi, 1]),
        (MountainCarContinuousVecEnv, [-0.6, 0], [-0.4, 0]),
        (AcrobotVecEnv, [-0.1] * 4, [0.1] * 4),
    ],
)
def test_episodes_start_as_the_original_ones_do(env_class, low, high):
    env = env_class(10_000)
    env.reset(seed=0)
    low, high = torch.tensor(low), torch.tensor(high)
    assert ((env.world >= low) & (env.world <= high)).all()
    width = high - low
    assert torch.allclose(env.world.amin(0), low, atol=0.01 * float(width.max()))
    assert torch.allclose(env.world.amax(0), high, atol=0.01 * float(width.max()))
    assert torch.allclose(env.world.mean(0), (low + high) / 2, atol=0.02 * float(width.max()))
    assert torch.allclose(env.world.var(0), width**2 / 12, rtol=0.05)  # of a uniform distribution


def test_limits_of_episodes_are_the_registered_ones():
    for env_class, (name, _, _) in TASKS.items():
        assert env_class.max_step == gym.spec(name).max_episode_steps


def test_wrapped_angles():
    angles = torch.tensor([0.0, 3.0, -3.0, 2 * math.pi, 7.0, -9.0])
    assert torch.allclose(
        wrapped(angles),
        torch.tensor([0.0, 3.0, -3.0, 0.0, 7 - 2 * math.pi, 2 * math.pi - 9]),
        atol=1e-6,
    )
    assert torch.equal(wrapped(angles[:3]), angles[:3])


def riccati(gamma: float) -> tuple[Tensor, Tensor]:
    """P (2, 2) and K (1, 2) of the discounted linear task, by iterating its equation to the fixed point."""
    f, g = torch.tensor(LQRVecEnv.F).double(), torch.tensor(LQRVecEnv.G).double()[:, None]
    q, r = torch.tensor(LQRVecEnv.Q).double().diag(), LQRVecEnv.R
    p = torch.zeros(2, 2, dtype=torch.float64)
    for _ in range(3000):
        k = gamma * g.T @ p @ f / (r + gamma * g.T @ p @ g)
        p = q + gamma * f.T @ p @ (f - g @ k)
    return p, k


def discounted_return(policy, gamma: float) -> tuple[Tensor, Tensor]:
    """Starts (N, 2), and what a policy earns from them, (N,)."""
    env = LQRVecEnv(64, max_step=3000, dtype=torch.float64)
    state, _ = env.reset(seed=1)
    start, total = state.double(), 0.0
    for t in range(1500):
        state, reward, terminal, truncate, _ = env.step(policy(state.double()))
        assert not (terminal | truncate).any()
        total = total + gamma**t * reward.double()
    return start, total


@pytest.mark.parametrize("gamma", [0.9, 0.99])
def test_the_best_policy_of_the_linear_task_earns_its_known_value(gamma):
    p, k = riccati(gamma)

    def best(state):
        action = -state @ k.T
        assert (action.abs() < 1).all(), "the bounds must not matter"
        return action

    start, total = discounted_return(best, gamma)
    value = -(start @ p * start).sum(-1)
    assert torch.allclose(total, value, atol=1e-6)
    for other in (0.9, 1.1):  # every other gain earns less
        _, less = discounted_return(lambda state, other=other: -other * state @ k.T, gamma)
        assert (less < total).all()
