"""GymEnv and make_env: environments of any age; cases 4, 5, 6, 7."""

from __future__ import annotations

import copy
import pickle
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.wrappers import ClipAction, TimeAwareObservation, TimeLimit

from elegantrl.envs import GymEnv, check_vec_env, make_env, vectorise
from elegantrl.envs.CustomGymEnv import PendulumEnv


class OldEnv:
    """The old interface: bare state as a list, four values, attributes only. The state is [seed, step, action]."""

    env_name = "OldEnv"
    state_dim, action_dim, max_step, if_discrete = 3, 1, 4, False
    time_limit = True

    def __init__(self, config: dict | None = None):
        self.config, self.first, self.t = config, 0, 0

    def seed(self, seed: int) -> None:
        self.first = seed

    def reset(self) -> list:
        self.t = 0
        return [self.first, 0.0, 0.0]

    def step(self, action: Any) -> tuple[list, np.ndarray, bool, dict]:
        self.t += 1
        done = self.t == self.max_step
        info = {"TimeLimit.truncated": True} if done and self.time_limit else {}
        return [self.first, self.t, action[0]], np.array([1.5]), done, info


def test_old_interface_becomes_gymnasiums():
    env = GymEnv(OldEnv())
    state, info = env.reset(seed=7)
    assert isinstance(env, gym.Env)
    assert (state.dtype, state.tolist(), info) == (np.float32, [7, 0, 0], {})
    for t in range(1, 4):
        state, reward, terminal, truncate, info = env.step(np.float32([0.5]))
        assert (state.tolist(), reward, terminal, truncate) == ([7, t, 0.5], 1.5, False, False)
    assert env.step(np.float32([0.5]))[2:4] == (False, True)


def test_old_interface_done_without_a_time_limit_is_a_termination():
    env = GymEnv(OldEnv())
    env.time_limit = False
    env.env.time_limit = False
    env.reset()
    flags = [env.step(np.float32([0]))[2:4] for _ in range(4)]
    assert flags == [(False, False)] * 3 + [(True, False)]


def test_attributes_without_spaces():
    env = GymEnv(OldEnv({"a": 1}))
    assert (env.env_name, env.num_envs, env.max_step) == ("OldEnv", 1, 4)
    assert (env.state_dim, env.action_dim, env.if_discrete) == (3, 1, False)
    assert env.action_space == gym.spaces.Box(-1, 1, (1,))
    assert env.observation_space == gym.spaces.Box(-np.inf, np.inf, (3,))
    assert env.config == {"a": 1}
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = env.nothing_like_it


def test_a_wrong_state_shape_is_one_clear_message():
    class Wrong(OldEnv):
        def reset(self) -> list:
            return [0.0, 0.0]

    with pytest.raises(ValueError, match=r"OldEnv.*\(3,\).*\(2,\)"):
        GymEnv(Wrong()).reset()


def test_an_environment_that_says_nothing_is_refused():
    class Silent(OldEnv):
        state_dim = None

    with pytest.raises(ValueError, match="state_dim"):
        GymEnv(Silent())
    assert GymEnv(Silent(), state_dim=3).state_dim == 3
    words = type("Words", (Float64Env,), {"observation_space": gym.spaces.Text(5)})
    with pytest.raises(ValueError, match="FlattenObservation"):
        make_env(words)


class Float64Env(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2, 2), np.float64)
    action_space = gym.spaces.Box(-2, 2, (1,), np.float64)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return self.np_random.random((2, 2)), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.float64, np.bool_, np.bool_, dict]:
        assert self.action_space.contains(action)
        return np.array([[1.0, 2], [3, 4]]), np.float64(0.5), np.bool_(False), np.bool_(False), {}


def test_float64_becomes_float32_and_matrices_become_vectors():
    env = GymEnv(Float64Env())
    assert env.state_dim == 4
    assert env.reset(seed=1)[0].dtype == np.float32
    state, reward, terminal, truncate, _ = env.step(np.array([1.5]))
    assert (state.dtype, state.tolist()) == (np.float32, [1, 2, 3, 4])
    assert (type(reward), type(terminal), type(truncate)) == (float, bool, bool)
    assert env.action_space.dtype == np.float64


def test_images_stay_bytes():
    class Image(Float64Env):
        observation_space = gym.spaces.Box(0, 255, (84, 84, 3), np.uint8)

        def reset(self, **_: Any) -> tuple[np.ndarray, dict]:
            return np.full((84, 84, 3), 200, np.uint8), {}

    env = GymEnv(Image())
    assert (env.state_dim, env.observation_space) == ((84, 84, 3), Image.observation_space)
    assert env.reset()[0].dtype == np.uint8


def test_max_step_comes_from_the_spec_below_wrappers():
    env = GymEnv(ClipAction(TimeAwareObservation(gym.make("Pendulum-v1"))))
    assert (env.max_step, env.state_dim, env.env_name) == (200, 4, "Pendulum-v1")
    assert GymEnv(ClipAction(TimeLimit(Float64Env(), 30))).max_step == 30
    assert GymEnv(gym.make("Pendulum-v1", max_episode_steps=9)).max_step == 9


def episode_length(env: GymEnv) -> int:
    env.reset(seed=0)
    for step in range(1, 1000):
        _, _, terminal, truncate, _ = env.step(np.zeros(env.action_space.shape, env.action_space.dtype))
        if terminal or truncate:
            assert truncate and not terminal
            return step
    raise AssertionError("endless")


def test_max_step_of_the_user():
    env_args = {"env_name": "Pendulum-v1", "max_step": 7}
    assert episode_length(make_env(gym.make, env_args)) == 7  # by Gymnasium's own time limit
    assert env_args == {"env_name": "Pendulum-v1", "max_step": 7}
    env = make_env(Float64Env, {"max_step": 5})
    assert [episode_length(env), episode_length(env)] == [5, 5]  # by ours
    assert episode_length(make_env(OldEnv, {"max_step": 2})) == 2
    assert make_env(Float64Env).max_step > 1000


def test_keywords_reach_the_constructor_and_attributes_do_not():
    env = make_env(None, {"env_name": "Pendulum-v1", "render_mode": "rgb_array", "g": 1.5, "state_dim": 3})
    assert (env.render_mode, env.unwrapped.g) == ("rgb_array", 1.5)
    env.reset()
    assert env.render().shape == (500, 500, 3)
    config = {"price": np.arange(3)}
    env = make_env(OldEnv, {"config": config, "state_dim": 3, "env_name": "x", "if_discrete": False})
    assert env.config is config


def test_function_instance_and_id_build_the_same():
    def build(env_name: str) -> gym.Env:
        return gym.make(env_name)

    built = gym.make("Pendulum-v1")
    for env in (
        make_env(build, {"env_name": "Pendulum-v1"}),
        make_env(built),
        make_env("Pendulum-v1"),
        make_env(GymEnv(built)),
    ):
        assert isinstance(env, GymEnv)
        assert (env.env_name, env.max_step, env.action_space.high.item()) == ("Pendulum-v1", 200, 2)


def test_an_id_that_is_gone_is_the_newest_one():
    with pytest.warns(UserWarning, match="Pendulum-v1 is used"):
        assert make_env("Pendulum-v0").env_name == "Pendulum-v1"
    with pytest.raises(gym.error.NameNotFound):
        make_env("NoSuchTask-v0")


def test_a_wrapper_with_attributes_speaks_the_policys_language():
    class Scaled(gym.Wrapper):
        state_dim, action_dim, if_discrete = 3, 1, False

        def step(self, action: np.ndarray) -> Any:
            return self.env.step(action * 2)

    class SaysSo(Scaled):
        @property
        def action_space(self) -> gym.Space:
            return gym.spaces.Box(-3, 3, (1,))

    assert GymEnv(Scaled(gym.make("Pendulum-v1"))).action_space.high.item() == 1
    assert GymEnv(SaysSo(gym.make("Pendulum-v1"))).action_space.high.item() == 3
    assert GymEnv(ClipAction(gym.make("Pendulum-v1"))).action_space.high.item() == np.inf


def test_built_in_pendulum_is_pendulum_with_scaled_torque():
    ours, theirs = GymEnv(PendulumEnv()), gym.make("Pendulum-v1")
    assert (ours.reset(seed=5)[0] == theirs.reset(seed=5)[0]).all()
    for torque in (0.3, -1.0, 0.9):
        ours_next, theirs_next = ours.step(np.float32([torque])), theirs.step(np.float32([2 * torque]))
        assert np.allclose(ours_next[0], theirs_next[0])
        assert ours_next[1] == pytest.approx(theirs_next[1])
    assert (ours.env_name, ours.max_step, ours.action_space.high.item()) == ("Pendulum-v1", 200, 1)


def test_copies_and_pickles():
    env = make_env("Pendulum-v1")
    env.reset(seed=3)
    twin = copy.deepcopy(env)
    assert (twin.step(np.float32([1]))[0] == env.step(np.float32([1]))[0]).all()
    assert pickle.loads(pickle.dumps(GymEnv(OldEnv()))).state_dim == 3


def test_an_info_of_none_is_an_empty_one():
    class NoInfo(OldEnv):
        def step(self, action: Any) -> tuple[list, float, bool, None]:
            return [0.0, 0.0, 0.0], 1.0, False, None

    env = GymEnv(NoInfo())
    env.reset()
    assert env.step(np.float32([0]))[2:] == (False, False, {})


@pytest.mark.parametrize(
    ("name", "dim"), [("state_dim", "3"), ("state_dim", -3), ("state_dim", 2.5), ("action_dim", 0), ("action_dim", "1")]
)
def test_sizes_are_positive_whole_numbers(name: str, dim: Any):
    env = OldEnv()
    setattr(env, name, dim)
    with pytest.raises(ValueError, match=f"OldEnv has {name}={dim!r}: a positive whole number"):
        GymEnv(env)
    env = OldEnv()
    env.state_dim = 3.0
    assert type(GymEnv(env).state_dim) is int


@pytest.mark.parametrize("limit", [-3, float("nan"), "200"])
def test_a_limit_is_a_positive_number_of_steps(limit: Any):
    told = f"OldEnv has max_step={limit!r}: a positive number of steps is needed"
    with pytest.raises(ValueError, match=told):
        GymEnv(OldEnv(), max_step=limit)
    env = OldEnv()
    env.max_step = limit
    with pytest.raises(ValueError, match=told):
        GymEnv(env)


def test_what_has_no_step_is_no_environment():
    class Half:
        state_dim, action_dim, if_discrete, max_step = 1, 1, False, 4

    with pytest.raises(ValueError, match="Half has no reset and no step: an environment needs both"):
        make_env(Half)


def test_an_argument_that_nobody_takes_is_told_at_the_callers_line():
    with pytest.warns(UserWarning, match=r"env_args\['confg'\] has no effect: OldEnv .*'config'") as caught:
        make_env(OldEnv, {"confg": {}, "state_dim": 3, "env_num": 1})
    assert [w.filename for w in caught] == [__file__]


def test_many_environments_without_a_word_on_their_reset_are_refused():
    with pytest.raises(ValueError, match="Silent has num_envs=3 and no autoreset"):
        make_env(type("Silent", (OldEnv,), {"num_envs": 3}))


def test_a_max_step_attribute_ends_episodes():
    class Endless:
        state_dim, action_dim, if_discrete, max_step = 1, 1, False, 4

        def reset(self):
            return np.zeros(1), {}

        def step(self, action):
            return np.zeros(1), 1.0, False, False, {}

    env = GymEnv(Endless())
    env.reset()
    assert [env.step([0.0])[3] for _ in range(4)] == [False, False, False, True]


class Parts(Float64Env):
    """An observation in parts; the image part makes flattening lossless but long."""

    observation_space = gym.spaces.Dict(
        {"pose": gym.spaces.Box(-1, 1, (2,)), "gear": gym.spaces.Discrete(3), "pair": gym.spaces.MultiBinary(2)}
    )

    def reset(self, **_: Any) -> tuple[dict, dict]:
        return {"pose": np.float32([0.5, -0.5]), "gear": 1, "pair": np.int8([0, 1])}, {}

    def step(self, action: np.ndarray) -> tuple[dict, float, bool, bool, dict]:
        return {"pose": np.float32([1, 0]), "gear": 2, "pair": np.int8([1, 1])}, 1.0, False, False, {}


def test_observations_in_parts_are_flattened_as_gymnasium_does():
    with pytest.warns(UserWarning, match=r"Parts: observations Dict.*flattened to \(7,\)"):
        env = make_env(Parts)
    reference = gym.wrappers.FlattenObservation(Parts())
    assert env.state_dim == 7 and env.reset()[0].dtype == np.float32
    assert env.reset()[0].tolist() == reference.reset()[0].tolist()  # the parts in the order of their names
    assert env.step(np.zeros(1))[0].tolist() == reference.step(np.zeros(1))[0].tolist()

    pair = type("Pair", (Parts,), {"observation_space": gym.spaces.Tuple([gym.spaces.Box(0, 1, (1,))] * 2)})
    pair.reset = lambda self, **_: ((np.float32([0.25]), np.float32([0.75])), {})
    with pytest.warns(UserWarning, match="Tuple"):
        assert make_env(pair).reset()[0].tolist() == [0.25, 0.75]


def test_an_index_as_observation_is_one_hot():
    with pytest.warns(UserWarning, match=r"Discrete\(16\) are flattened to \(16,\)"):
        env = make_env("FrozenLake-v1")
    assert env.state_dim == 16 and env.reset(seed=0)[0].tolist() == [1.0, *[0.0] * 15]
    assert env.step(1)[0].sum() == 1.0


def test_observations_that_cannot_be_flattened_are_refused():
    graph = gym.spaces.Dict({"graph": gym.spaces.Graph(gym.spaces.Box(0, 1, (2,)), None)})
    with pytest.raises(ValueError, match=r"observation_space Dict.*Box"):
        make_env(type("Web", (Parts,), {"observation_space": graph}))


def test_the_package_of_a_task_is_imported_or_named(monkeypatch: pytest.MonkeyPatch):
    for env_id, package, extra in (
        ("ALE/Nonsense-v5", "ale_py", "atari"),
        ("HopperBulletEnv-v0", "pybullet_envs_gymnasium", "pybullet"),
    ):
        monkeypatch.setattr(gym.envs.registration, "registry", {})
        monkeypatch.setattr(gym, "registry", {})
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(ImportError, match=rf"{env_id} needs {package}: pip install 'elegantrl\[{extra}\]'"):
            make_env(env_id)


def test_a_device_that_must_be_given_is_given():
    class OnDevice(OldEnv):
        def __init__(self, device: str):
            super().__init__()
            self.made_on = device

    assert make_env(OnDevice).made_on == "cpu"
    assert make_env(OnDevice, {"device": "cuda:7"}).made_on == "cuda:7"


def test_atari():
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    env = make_env("ALE/Pong-v5")
    assert (env.state_dim, env.action_dim, env.max_step) == ((210, 160, 3), 6, 27000)  # 108000 frames, 4 a step
    assert env.reset(seed=0)[0].dtype == np.uint8

    def stacked(frameskip: int = 1) -> gym.Env:
        env = gym.wrappers.AtariPreprocessing(gym.make("ALE/Pong-v5", frameskip=frameskip))
        return gym.wrappers.FrameStackObservation(env, 4)

    env = vectorise(stacked, None, 7)
    state, _ = env.reset(seed=0)
    assert (env.max_step, env.state_dim, state.dtype) == (27000, (4, 84, 84), torch.uint8)
    env = vectorise("ALE/Pong-v5", None, 7)  # never the other task that Atari's own vector code makes of the id
    assert env.reset(seed=0)[0].shape == (7, 210, 160, 3)
    env = vectorise("ALE/Pong-v5", {"vectorization_mode": "vector_entry_point"}, 2)
    assert env.state_dim == (4, 84, 84)
    check_vec_env(env, steps=20)


def test_pybullet():
    pytest.importorskip("pybullet_envs_gymnasium")
    env = vectorise("HopperBulletEnv-v0", None, 2)
    assert (env.max_step, env.state_dim, env.action_dim) == (1000, 15, 3)
    check_vec_env(env, steps=60)


def test_envpool():
    envpool = pytest.importorskip("envpool")
    env = vectorise(envpool.make_gymnasium, {"env_name": "CartPole-v1"}, 4)
    assert (env.num_envs, env.env_name, env.max_step, env.autoreset) == (4, "CartPole-v1", 500, "next_step")
    check_vec_env(env, steps=60)


def test_bytes_that_turn_into_fractions_are_refused():
    class Image(gym.Env):
        observation_space, action_space = gym.spaces.Box(0, 255, (2, 8, 8), np.uint8), gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return np.zeros((2, 8, 8), np.int64), {}

        def step(self, action):
            return np.full((2, 8, 8), 0.5), 0.0, False, False, {}

    env = GymEnv(Image())
    assert env.reset()[0].dtype == np.uint8
    with pytest.raises(ValueError, match=r"Image announced states of bytes \(uint8\) and gave one of int64, from 256 "):
        env._checked(np.full((2, 8, 8), 256))
    with pytest.raises(ValueError, match=r"Image announced states of bytes \(uint8\) and gave one of float64"):
        env.step(0)
