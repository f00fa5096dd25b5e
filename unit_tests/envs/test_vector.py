"""GymVecEnv and vectorise: the vector contract, one environment and many alike; cases 1, 2."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from elegantrl.envs import GymEnv, GymVecEnv, as_vec_env, vectorise
from elegantrl.envs.simulators import GymVectors
from elegantrl.envs.vector import MIN_NATIVE_ENVS


class Counter(gym.Env):
    """The state is (step, action seen); an episode ends after `length` steps, by truncation where the length is even.
    The state array is one and the same object all the time."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def __init__(self, space: gym.Space | None = None, length: int = 3, if_mask: bool = False):
        self.action_space = space or gym.spaces.Discrete(3, start=-1)
        self.length, self.if_mask, self.state = length, if_mask, np.zeros(2, np.float32)

    def info(self) -> dict[str, Any]:
        return {"action_mask": np.int8([1, 0, self.state[0] % 2])} if self.if_mask else {}

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        self.state[:] = 0, 0 if seed is None else seed
        return self.state, self.info()

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        self.state[:] = self.state[0] + 1, np.sum(action)
        ended = self.state[0] == self.length
        is_even = self.length % 2 == 0
        return self.state, 10.0, bool(ended and not is_even), bool(ended and is_even), self.info()


def actions(env: GymVecEnv, value: float) -> torch.Tensor:
    if env.if_discrete:
        return torch.full((env.num_envs,), int(value))
    return torch.full((env.num_envs, env.action_dim), float(value))


def seeds_of(seed: int, num_envs: int) -> list[float]:
    """NumPy's SeedSequence gives each environment its own; a float32 state holds them rounded."""
    return np.random.SeedSequence(seed).generate_state(num_envs).astype(np.float32).tolist()


@pytest.mark.parametrize("num_envs", [1, 3])
def test_next_step_autoreset(num_envs: int):
    env = vectorise(Counter, None, num_envs)
    assert (env.autoreset, env.num_envs, env.state_dim, env.action_dim) == ("next_step", num_envs, 2, 3)
    state, info = env.reset(seed=5)
    assert state[:, 0].tolist() == [0] * num_envs and state[:, 1].tolist() == seeds_of(5, num_envs)
    assert info == {}
    seen = []
    for _ in range(5):
        state, reward, terminal, truncate, _ = env.step(actions(env, 2))
        assert (state.shape, reward.shape, reward.dtype) == ((num_envs, 2), (num_envs,), torch.float32)
        assert (terminal.dtype, truncate.dtype) == (torch.bool, torch.bool)
        assert not truncate.any()
        seen.append((*state[0].tolist(), reward[0].item(), terminal[0].item()))
    # index 2 is action 1; the fourth row is the reset: it ignores the action and has no reward
    assert seen == [(1, 1, 10, False), (2, 1, 10, False), (3, 1, 10, True), (0, 0, 0, False), (1, 1, 10, False)]


def test_a_reset_after_an_end_needs_no_reset_row():
    env = vectorise(Counter, {"length": 1}, 2)
    env.reset()
    env.step(actions(env, 2))
    env.reset()
    assert env.step(actions(env, 2))[0][:, 0].tolist() == [1, 1]


def test_truncation_is_not_termination():
    env = vectorise(Counter, {"length": 2}, 2)
    env.reset()
    flags = [[x.tolist() for x in env.step(actions(env, 0))[2:4]] for _ in range(2)]
    assert flags == [[[False] * 2, [False] * 2], [[False] * 2, [True] * 2]]


def test_tensors_are_not_the_environments_buffers():
    env = vectorise(Counter, None, 2)
    first, _ = env.reset(seed=0)
    second = env.step(actions(env, 2))[0]
    third = env.step(actions(env, 2))[0]
    assert [x[1, 0].item() for x in (first, second, third)] == [0, 1, 2]


def test_environments_have_seeds_of_their_own():
    env = vectorise(Counter, None, 4)
    first, again, other = (env.reset(seed=seed)[0][:, 1].tolist() for seed in (5, 5, 6))
    assert first == again and len({*first, *other}) == 8


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Discrete(3, start=-1),
        gym.spaces.Box(-2, 2, (2, 3)),
        gym.spaces.Box(0, 1, (2,), np.float64),
        gym.spaces.MultiDiscrete([[3, 4], [2, 5]]),
        gym.spaces.MultiBinary(3),
    ],
)
@pytest.mark.parametrize("num_envs", [1, 2])
def test_actions_arrive_in_the_declared_space(space: gym.Space, num_envs: int):
    env = vectorise(Counter, {"space": space}, num_envs)
    env.reset()
    for value in (-5, 0, 5) if not env.if_discrete else (0, 1, env.action_dim - 1):
        env.step(actions(env, value))  # the environment asserts that it contains the action


def test_action_masks_come_from_reset_and_step():
    env = vectorise(Counter, {"if_mask": True}, 2)
    _, info = env.reset()
    assert info["action_mask"].dtype == torch.bool
    assert info["action_mask"].tolist() == [[True, False, False]] * 2
    assert env.step(actions(env, 0))[4]["action_mask"].tolist() == [[True, False, True]] * 2


@pytest.mark.parametrize(("info", "got"), [({"action_mask": np.ones(4)}, r"\(4,\)"), ({}, "none")])
def test_a_wrong_action_mask_is_one_clear_error(info: dict, got: str):
    env = vectorise(Counter, {"if_mask": True}, 2)
    env.reset()
    env.vec_env.envs[1].env.info = lambda: info
    with pytest.raises(ValueError, match=rf"Counter: info\['action_mask'\] of shape \(3,\) is needed.* not {got}$"):
        env.step(actions(env, 0))


def test_same_transitions_as_the_environment_itself():
    env, single = vectorise("Pendulum-v1", None, 3), gym.make("Pendulum-v1")
    states, _ = env.reset(seed=11)
    state, _ = single.reset(seed=int(np.random.SeedSequence(11).generate_state(3)[1]))
    for t in range(205):
        assert (states[1].numpy() == state).all()
        torque = np.float32(np.sin(t))
        states, rewards, _, truncates, _ = env.step(torch.full((3, 1), float(torque)))
        if t == 200:  # the reset row
            break
        state, reward, _, truncate, _ = single.step(np.float32([2 * torque]))
        assert rewards[1].item() == pytest.approx(float(reward), rel=1e-5)
        assert truncates[1].item() == truncate == (t == 199)


def test_native_cartpole_moves_like_cartpole():
    """Every transition of the vector version is one of CartPole-v1, with the same ends, time limit and reset rows."""
    num_envs, max_step = MIN_NATIVE_ENVS, 30
    env = vectorise("CartPole-v1", {"max_step": max_step}, num_envs)
    assert isinstance(env, GymVectors)
    assert (env.max_step, env.env_name, env.action_dim) == (max_step, "CartPole-v1", 2)
    one = gym.make("CartPole-v1").unwrapped
    states, _ = env.reset(seed=3)
    ended, age = np.zeros(num_envs, bool), np.zeros(num_envs, int)
    resets = truncations = terminations = 0
    for _ in range(300):
        # keeps most poles up, so that both kinds of ends occur
        action = torch.where(torch.arange(num_envs) % 2 == 0, (states[:, 2] + states[:, 3] > 0).long(), 1)
        exact = env.env.state.T.copy()
        new_states, rewards, terminals, truncates, _ = env.step(action)
        for i in range(num_envs):
            if ended[i]:
                resets, age[i] = resets + 1, 0
                assert (rewards[i], terminals[i], truncates[i]) == (0, False, False)
                assert new_states[i].abs().max() <= 0.05
                continue
            one.reset()
            one.state = exact[i]
            state, reward, terminal, _, _ = one.step(int(action[i]))
            age[i] += 1
            assert np.allclose(new_states[i].numpy(), state, atol=1e-6)
            assert (rewards[i], terminals[i], truncates[i]) == (reward, terminal, age[i] >= max_step)
            terminations, truncations = terminations + terminal, truncations + bool(truncates[i])
        ended, states = (terminals | truncates).numpy(), new_states
    assert min(resets, truncations, terminations) > 3


def test_one_environment_of_an_instance_and_no_more():
    built = Counter()
    assert as_vec_env(built).num_envs == 1
    assert as_vec_env(GymEnv(built)).vec_env.envs[0].env is built
    with pytest.raises(ValueError, match="num_envs=2"):
        vectorise(built, None, 2)


def test_what_keeps_the_contract_is_left_as_it_is():
    class Simulator:
        num_envs, autoreset, made_for = 1, "same_step", None

        def __init__(self, num_envs: int, gpu_id: int):
            self.num_envs, self.gpu_id = num_envs, gpu_id

        def step(self, action: torch.Tensor) -> None: ...

    env = vectorise(Simulator, {"env_name": "Simulator"}, 6)
    assert (type(env), env.num_envs, env.gpu_id) == (Simulator, 6, -1)
    assert as_vec_env(env) is env


def test_uint8_states():
    class Image(Counter):
        observation_space = gym.spaces.Box(0, 255, (4, 4, 3), np.uint8)

        def reset(self, **_: Any) -> tuple[np.ndarray, dict]:
            return np.full((4, 4, 3), 200, np.uint8), {}

    env = vectorise(Image, None, 2)
    assert (env.state_dtype, env.state_dim, env.reset()[0].dtype) == (torch.uint8, (4, 4, 3), torch.uint8)


def test_close_closes_every_environment():
    closed = []

    class Closing(Counter):
        def close(self) -> None:
            closed.append(self)

    vectorise(Closing, None, 3).close()
    assert len(closed) == 3
