"""MujocoVecEnv does what Gymnasium's tasks do, with a difference of exactly 0, N at once."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from elegantrl.envs import GymVecEnv, MujocoVecEnv, make_env, vectorise

pytest.importorskip("mujoco.batch", reason="needs mujoco 3.17 or newer: pip install elegantrl[mujoco]")

N = 3
CASES: list[tuple[str, dict[str, Any]]] = [
    ("Hopper-v5", {}),
    ("Hopper-v5", {"ctrl_cost_weight": 0.5, "healthy_reward": 2.0, "healthy_state_range": (-4.0, 4.0)}),
    ("Hopper-v5", {"terminate_when_unhealthy": False, "frame_skip": 2, "reset_noise_scale": 0.1}),
    ("HalfCheetah-v5", {}),
    ("HalfCheetah-v5", {"forward_reward_weight": 3.0, "exclude_current_positions_from_observation": False}),
    ("Walker2d-v5", {}),
    ("Walker2d-v5", {"xml_file": "walker2d.xml", "healthy_angle_range": (-0.3, 0.3)}),
    ("Swimmer-v5", {}),
    ("InvertedPendulum-v5", {}),
    ("InvertedDoublePendulum-v5", {"healthy_reward": 3.0}),
    ("Reacher-v5", {"reward_dist_weight": 2.0, "reward_control_weight": 0.5}),
    ("Ant-v5", {}),
    ("Ant-v5", {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.0, "main_body": "torso"}),
    ("Ant-v5", {"contact_force_range": (0.5, 2.0), "healthy_z_range": (0.4, 0.8)}),
    ("Humanoid-v5", {"contact_cost_range": (-np.inf, 0.5), "contact_cost_weight": 5e-6}),
    ("Humanoid-v5", {"include_cvel_in_observation": False, "include_cfrc_ext_in_observation": False}),
]


def random_actions(env: MujocoVecEnv, steps: int) -> torch.Tensor:
    return torch.rand(steps, env.num_envs, env.action_dim, generator=torch.Generator().manual_seed(0)) * 2.4 - 1.2


def assert_equals_gymnasium(env_name: str, options: dict[str, Any], steps: int) -> None:
    """Every state, reward and end of `steps` random steps in N environments; each episode starts where ours does."""
    env = MujocoVecEnv(env_name, N, max_step=40, num_threads=2, **options)
    theirs = [make_env(env_name, {**options, "max_step": 40}) for _ in range(N)]

    def same_start(i: int) -> np.ndarray:
        theirs[i].reset()
        theirs[i].unwrapped.set_state(env.task.qpos[i].copy(), env.task.qvel[i].copy())
        return np.float32(theirs[i].unwrapped._get_obs())

    state, _ = env.reset(seed=1)
    ends = 0
    for t, action in enumerate([None, *random_actions(env, steps)]):
        if action is not None:
            state, reward, terminal, truncate, info = env.step(action)
        for i in range(N):
            where = f"{env_name} {options}, step {t} of environment {i}"
            if action is not None:
                expected = theirs[i].step(env.codec.decode(action.numpy())[i])
                np.testing.assert_array_equal(info["final_obs"][i], expected[0], where)
                got = (reward[i].item(), bool(terminal[i]), bool(truncate[i]))
                assert got == (np.float32(expected[1]), *expected[2:4]), where
                if not (terminal[i] or truncate[i]):
                    np.testing.assert_array_equal(state[i], expected[0], where)
                    continue
                ends += 1
            np.testing.assert_array_equal(state[i], same_start(i), where)
    assert ends >= N, "no episode ended"


@pytest.mark.parametrize(("env_name", "options"), CASES)
def test_equals_gymnasium(env_name: str, options: dict[str, Any]):
    assert_equals_gymnasium(env_name, options, 85)


@pytest.mark.slow
@pytest.mark.parametrize(("env_name", "options"), CASES)
def test_equals_gymnasium_for_long(env_name: str, options: dict[str, Any]):
    assert_equals_gymnasium(env_name, options, 1500)


@pytest.mark.parametrize(
    "env_name", ["Hopper-v5", "HalfCheetah-v5", "InvertedDoublePendulum-v5", "Reacher-v5", "Ant-v5", "Humanoid-v5"]
)
def test_starts_are_distributed_as_gymnasiums(env_name: str):
    num = 2000
    options = {"include_cfrc_ext_in_observation": False} if env_name in ("Ant-v5", "Humanoid-v5") else {}
    ours, _ = MujocoVecEnv(env_name, num, **options).reset(seed=0)
    one = make_env(env_name, options)
    theirs = np.stack([one.reset(seed=i)[0] for i in range(num)])
    varies = theirs.std(0) > 1e-9
    mean, std = theirs.mean(0), theirs.std(0)
    assert (np.abs(ours.numpy().mean(0) - mean) <= 0.15 * std + 1e-6).all()
    np.testing.assert_allclose(ours.numpy().std(0), std, rtol=0.1, atol=1e-9)
    kurtosis = [(((x[:, varies] - mean[varies]) / std[varies]) ** 4).mean(0) for x in (ours.numpy(), theirs)]
    np.testing.assert_allclose(*kurtosis, atol=0.8, rtol=0.1)  # 1.8 if uniform, 3 if normal


def test_contract():
    env = vectorise("Hopper-v5", {"max_step": 3, "terminate_when_unhealthy": False}, 4)
    assert isinstance(env, MujocoVecEnv)
    said = (env.env_name, env.num_envs, env.max_step, env.state_dim, env.action_dim, env.if_discrete, env.autoreset)
    assert said == ("Hopper-v5", 4, 3, 11, 3, False, "same_step")
    first, _ = env.reset(seed=0)
    kept = first.clone()
    for t in range(1, 4):
        state, reward, terminal, truncate, info = env.step(torch.zeros(4, 3))
        assert (state.dtype, reward.dtype, terminal.dtype, truncate.dtype) == (*[torch.float32] * 2, *[torch.bool] * 2)
        assert truncate.tolist() == [t == 3] * 4 and not terminal.any()
        assert torch.equal(state, info["final_obs"]) == (t < 3)
    assert torch.equal(first, kept), "an earlier state was written into"
    assert (state - first).abs().max() < 0.02 and not torch.equal(state, first)  # a new episode's, within its noise
    assert len(torch.unique(state, dim=0)) == 4


def test_one_environment_can_end_alone():
    env = MujocoVecEnv("InvertedPendulum-v5", 3)
    env.reset(seed=0)
    env.task.qpos[1, 1] = 0.3
    state, reward, terminal, _, info = env.step(torch.zeros(3, 1))
    assert terminal.tolist() == [False, True, False] and reward.tolist() == [1, 0, 1]
    assert info["final_obs"][1, 1] > 0.2 and state[1].abs().max() <= 0.01
    assert torch.equal(info["final_obs"][::2], state[::2])


def test_the_reachers_target_rests():
    env = MujocoVecEnv("Reacher-v5", 50)
    first, _ = env.reset(seed=0)
    state, *_ = env.step(torch.ones(50, 2))
    assert torch.equal(state[:, 4:6], first[:, 4:6]) and 0.19 < first[:, 4:6].norm(dim=1).max() < 0.2


def test_seeds_and_threads():
    def play(seed: int, threads: int) -> torch.Tensor:
        env = MujocoVecEnv("Hopper-v5", 4, num_threads=threads)
        first, _ = env.reset(seed=seed)
        return torch.stack([first, *(env.step(action)[0] for action in random_actions(env, 60))])

    assert torch.equal(play(1, 1), play(1, 2))
    assert not torch.equal(play(1, 1)[0], play(2, 1)[0])
    env = MujocoVecEnv("Hopper-v5", 4)
    assert not torch.equal(env.reset(seed=1)[0], env.reset()[0])  # goes on, does not start over


@pytest.mark.parametrize("env_name", ["Hopper-v5", "Ant-v5", "Humanoid-v5"])
def test_get_and_set_state(env_name: str):
    """The second environment, at another point of its life, goes on exactly as the first did."""
    options = {"max_step": 15, "randomise": {"body_mass": (0.8, 1.2)}}
    one, two = MujocoVecEnv(env_name, 3, **options), MujocoVecEnv(env_name, 3, **options)
    one.reset(seed=0), two.reset(seed=1)
    actions = random_actions(one, 30)
    for action in actions[:10]:
        one.step(action), two.step(-action)
    saved = one.get_state()
    expected = [one.step(action) for action in actions[10:]]
    two.set_state(saved)
    for theirs, action in zip(expected, actions[10:], strict=True):
        for a, b in zip(theirs[:4], two.step(action)[:4], strict=True):
            assert torch.equal(a, b)


def test_randomised_physics():
    def scale(rng: np.random.Generator, value: np.ndarray, num: int) -> np.ndarray:
        return value * rng.choice([1.0, 2.0], (num, *[1] * value.ndim))

    randomise = {"body_mass": (0.5, 1.5), "opt.gravity": scale}
    env = MujocoVecEnv("Hopper-v5", 500, randomise=randomise, max_step=2, terminate_when_unhealthy=False)
    plain = env.batch.model
    env.reset(seed=0)
    factor = env.batch.expanded("body_mass")[:, 1:] / plain.body_mass[1:]
    assert 0.5 <= factor.min() < 0.51 and 1.49 < factor.max() <= 1.5
    assert abs(factor.mean() - 1) < 0.03 and len(np.unique(factor)) == factor.size
    np.testing.assert_allclose(env.batch.expanded("body_subtreemass")[:, 0], (factor * plain.body_mass[1:]).sum(1))
    gravity = env.batch.expanded("opt.gravity")[:, 2] / plain.opt.gravity[2]
    assert set(gravity) == {1.0, 2.0} and 0.4 < (gravity == 2).mean() < 0.6
    state, _, _, _, _ = env.step(torch.zeros(500, 3))
    fall = state[:, 6].numpy()  # velocity downwards
    assert fall[gravity == 2].mean() < 1.5 * fall[gravity == 1].mean() < 0
    before = env.batch.expanded("body_mass").copy()
    env.step(torch.zeros(500, 3))  # a new episode, new physics
    assert (env.batch.expanded("body_mass")[:, 1:] != before[:, 1:]).all()


def test_each_environment_is_what_gymnasium_is_with_its_mass():
    env = MujocoVecEnv("Humanoid-v5", 2, randomise={"body_mass": (0.5, 1.5)})
    env.reset(seed=0)
    one = make_env("Humanoid-v5")
    one.reset()
    env.batch.get_model(1, one.unwrapped.model)
    one.unwrapped.set_state(env.task.qpos[1].copy(), env.task.qvel[1].copy())
    for action in random_actions(env, 12):
        _, reward, _, _, info = env.step(action)
        expected = one.step(env.codec.decode(action.numpy())[1])
        np.testing.assert_array_equal(info["final_obs"][1], expected[0])
        assert reward[1].item() == np.float32(expected[1])


def test_vectorise_uses_it_only_for_the_same_task(monkeypatch: pytest.MonkeyPatch):
    assert isinstance(vectorise("Ant-v5", {"ctrl_cost_weight": 0.1}, 2), MujocoVecEnv)
    assert isinstance(vectorise(gym.make, {"id": "Swimmer-v5", "if_batched": True}, 2), MujocoVecEnv)
    for env_class, env_args, num_envs in [
        ("Hopper-v5", {}, 1),
        ("Hopper-v5", {"if_batched": False}, 2),
        ("Hopper-v5", {"if_batched": False}, 1),
        ("Hopper-v4", {}, 2),
        ("Pusher-v5", {}, 2),
        ("CartPole-v1", {}, 2),
        (lambda: gym.wrappers.TransformReward(gym.make("Hopper-v5"), lambda r: 2 * r), {}, 2),
    ]:
        env = vectorise(env_class, env_args, num_envs)
        assert type(env) is GymVecEnv, (env_class, env_args)
    monkeypatch.setattr("elegantrl.envs.mujoco_batch.find_spec", lambda name: None)  # an older mujoco
    assert type(vectorise("Hopper-v5", {}, 2)) is GymVecEnv


def test_as_env_class():
    env_args = {"env_name": "Hopper-v5", "num_threads": 2, "ctrl_cost_weight": 0.5, "max_step": 7}
    env = vectorise(MujocoVecEnv, env_args, 3)
    assert (env.num_envs, env.batch.nthread, env.task.options.ctrl_cost_weight, env.max_step) == (3, 2, 0.5, 7)


def test_mujocos_clock_stands_only_while_a_batch_steps():
    one, env = make_env("Hopper-v5"), MujocoVecEnv("Hopper-v5", 2)

    def duration() -> float:
        one.reset()
        one.step(np.zeros(3, np.float32))
        return one.unwrapped.data.timer[0].duration

    env.reset()
    before = duration()
    env.step(torch.zeros(2, 3))
    assert before > 0 and duration() > 0


def test_names_the_extra_if_mujoco_is_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "mujoco.batch", None)
    with pytest.raises(ImportError, match=r"pip install elegantrl\[mujoco\]"):
        MujocoVecEnv("Hopper-v5", 2)


def test_refusals():
    with pytest.raises(ValueError, match=r"Hopper.*not .*Pusher"):
        MujocoVecEnv("Pusher-v5", 2)
    with pytest.raises(TypeError, match="ctrl_cost"):
        MujocoVecEnv("Hopper-v5", 2, ctrl_cost=1.0)
    with pytest.raises(ValueError, match=r"body_mass.*low"):
        MujocoVecEnv("Hopper-v5", 2, randomise={"body_mass": (1.2, 0.8)})
    with pytest.raises(ValueError, match="did you mean 'body_mass'"):
        MujocoVecEnv("Hopper-v5", 2, randomise={"body_mas": (0.8, 1.2)})


def test_without_a_time_limit_no_step_is_one():
    env = vectorise("HalfCheetah-v5", {"max_episode_steps": -1}, 2)
    env.reset(seed=0)
    env.steps[:] = 12_400
    assert isinstance(env, MujocoVecEnv) and not env.step(torch.zeros(2, 6))[3].any()
