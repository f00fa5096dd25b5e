"""Adapters of simulators, against stand-ins that keep the documented behaviour of the real ones; cases 3, 4, 7, 11."""

from __future__ import annotations

import ast
import itertools
import os
import subprocess
import sys
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from torch import Tensor

from elegantrl import build_env, check_vec_env
from elegantrl.agents import AgentPPO, AgentSAC
from elegantrl.envs import IsaacGym, vectorise
from elegantrl.train.evaluator import play_episodes
from unit_tests.tasks import build

LIMIT = 6


# --- Gymnasium's vector environments ---


class Chain(gym.Env):
    """The state tells the seed, the episode and the step; every third episode ends by truncation."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gym.spaces.Box(np.float32([-3, 0]), np.float32([1, 10]))

    def __init__(self) -> None:
        self.state = np.zeros(3, np.float32)  # one array for all states, as some environments have

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        if seed is not None:
            self.first, self.episode = seed % 1000, 0
        self.episode, self.t = self.episode + 1, 0
        self.state[:] = self.first, self.episode, self.t
        return self.state, {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.float64, bool, bool, dict]:
        assert self.action_space.contains(action)
        self.t += 1
        self.state[:] = self.first, self.episode, self.t
        ends = self.t == 2 + self.episode % 3
        truncates = bool(ends and self.episode % 3 == 0)
        return self.state, np.float64(action.sum()), bool(ends and not truncates), truncates, {}


def transitions(env: Any, steps: int) -> Counter:
    """(state, action sum, reward, end, next state) of every real transition, whatever the auto-reset mode."""
    seen: Counter = Counter()
    state, _ = env.reset(seed=5)
    ended = torch.zeros(env.num_envs, dtype=torch.bool)
    for _ in range(steps):
        action = (state[:, 1:] * torch.tensor([0.1, 0.3])).cos()  # so that it depends on the state alone
        after, reward, terminal, truncate, info = env.step(action)
        done = terminal | truncate
        successor = torch.where(done[:, None], info["final_obs"], after) if "final_obs" in info else after
        for i in range(env.num_envs):
            if not (env.autoreset == "next_step" and ended[i]) and state[i, 1] <= 5:
                row = (*state[i].tolist(), round(reward[i].item(), 4), bool(terminal[i]), bool(truncate[i]))
                seen[(*row, *successor[i].tolist())] += 1
        state, ended = after, done
    env.close()
    return seen


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_all_autoreset_modes_give_the_same_transitions(mode: str):
    expected = transitions(vectorise(Chain, None, 3), 40)
    assert len(expected) == 3 * (3 + 4 + 2 + 3 + 4)  # lengths of five episodes in each of three environments
    for autoreset_mode, if_copy in itertools.product(AutoresetMode, (True, False)):
        vector_kwargs = {"autoreset_mode": autoreset_mode, "copy": if_copy}
        env = vectorise(Chain, {"vectorization_mode": mode, "vector_kwargs": vector_kwargs}, 3)
        assert env.autoreset == ("next_step" if autoreset_mode is AutoresetMode.NEXT_STEP else "same_step")
        assert transitions(env, 40) == expected, autoreset_mode


@pytest.mark.parametrize("autoreset_mode", AutoresetMode)
def test_gymnasiums_vector_environments_keep_the_contract(autoreset_mode: AutoresetMode):
    env_args = {"num_envs": 2, "vectorization_mode": "sync", "vector_kwargs": {"autoreset_mode": autoreset_mode}}
    env = build_env("Pendulum-v1", env_args)
    check_vec_env(env, steps=210)
    assert (env.max_step, env.env_name) == (200, "Pendulum-v1")


@pytest.mark.parametrize("mode", ["async", "vector_entry_point"])
def test_other_vectorisations_keep_the_contract(mode: str):
    env = build_env("CartPole-v1", {"num_envs": 3, "max_step": 30, "vectorization_mode": mode})
    assert env.max_step == 30
    check_vec_env(env)
    env.close()


@pytest.mark.parametrize("mode", [None, "sync", "async"])
def test_evaluation_is_of_the_first_episodes_of_each_environment(mode: str | None):
    """Chain's episodes last 3, 4, 2, 3, ... steps in every environment, and pay the sum of the actions, here 5 - 1."""
    for autoreset_mode in AutoresetMode if mode else [None]:
        env_args = {"vectorization_mode": mode, "vector_kwargs": mode and {"autoreset_mode": autoreset_mode}}
        env = vectorise(Chain, {"max_step": 4, **env_args}, 2)
        returns, lengths = play_episodes(env, lambda state, mask: torch.zeros(2, 2), episodes=3, seed=0)
        assert lengths.tolist() == [3, 3, 4, 4, 2, 2] and returns.tolist() == [12, 12, 16, 16, 8, 8]
        env.close()


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
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_actions_arrive_in_the_declared_space(space: gym.Space, mode: str):
    class Strict(Chain):
        action_space = space

        def step(self, action: Any) -> tuple[np.ndarray, np.float64, bool, bool, dict]:
            assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
            return self.state, np.float64(np.sum(action)), False, False, {}

    env = vectorise(Strict, {"vectorization_mode": mode}, 2)
    env.reset(seed=0)
    for value in (0, 1, env.action_dim - 1) if env.if_discrete else (-5, 0, 5):
        action = torch.full((2,), value) if env.if_discrete else torch.full((2, env.action_dim), float(value))
        rewards = env.step(action)[1]
        assert rewards.tolist() == [float(np.sum(env.codec.decode(action[:1].numpy())))] * 2
    env.close()


def test_images_stay_bytes():
    class Image(Chain):
        observation_space = gym.spaces.Box(0, 255, (4, 4, 3), np.uint8)

        def reset(self, **_: Any) -> tuple[np.ndarray, dict]:
            return np.full((4, 4, 3), 200, np.uint8), {}

    env = vectorise(Image, {"vectorization_mode": "sync"}, 2)
    state, _ = env.reset()
    assert (env.state_dtype, env.state_dim, state.dtype, state.max()) == (torch.uint8, (4, 4, 3), torch.uint8, 200)


def test_a_vector_environment_that_is_built_is_adapted():
    for env_class in (lambda: gym.make_vec("CartPole-v1", 2), gym.make_vec("CartPole-v1", 2)):
        env = build_env(env_class)
        assert (env.num_envs, env.max_step, env.action_dim, env.if_discrete) == (2, 500, 2, True)
        check_vec_env(env, steps=60)


def test_the_limit_of_ataris_own_vector_environments():
    pytest.importorskip("ale_py")
    env_args = {"num_envs": 2, "vectorization_mode": "vector_entry_point", "max_num_frames_per_episode": 80}
    env = build_env("ALE/Pong-v5", env_args)
    assert env.max_step == 20
    check_vec_env(env, steps=30)
    env.close()


def test_an_unknown_vectorisation_is_told():
    with pytest.raises(ValueError, match=r"vectorization_mode='threads'.*sync, async"):
        build_env("Pendulum-v1", {"num_envs": 2, "vectorization_mode": "threads"})
    with pytest.raises(ValueError, match=r"parts \['a', 'b'\].*FlattenObservation"):
        build_env(lambda: gym.vector.SyncVectorEnv([Parts]))
    for space in (gym.spaces.Discrete(3), gym.spaces.Tuple([gym.spaces.Box(-1, 1, (2,))])):
        choosing = type("Choosing", (Parts,), {"observation_space": space})
        with pytest.raises(ValueError, match=r"no row of numbers.*FlattenObservation around each"):
            build_env(gym.vector.SyncVectorEnv([choosing]))


class Parts(gym.Env):
    observation_space = gym.spaces.Dict({"a": gym.spaces.Box(-1, 1, (2,)), "b": gym.spaces.Discrete(3)})
    action_space = gym.spaces.Discrete(2)


class Masked(gym.Env):
    """The mask forbids what the step before did."""

    observation_space = gym.spaces.Box(-1, 1, (1,))
    action_space = gym.spaces.Discrete(3, start=1)
    last = 1

    def info(self) -> dict[str, Any]:
        return {"action_mask": np.arange(1, 4) != self.last}

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        self.last, self.t = 1, 0
        return np.zeros(1, np.float32), self.info()

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        assert action != self.last and self.action_space.contains(action)
        self.last, self.t = action, self.t + 1
        return np.float32([action / 3]), 0.0, False, self.t == 4, self.info()


@pytest.mark.parametrize("autoreset_mode", AutoresetMode)
def test_masks_in_every_mode(autoreset_mode: AutoresetMode):
    env_args = {"max_step": 4, "vector_kwargs": {"autoreset_mode": autoreset_mode}}
    env = vectorise(Masked, env_args, 2)
    check_vec_env(env)
    env.reset()
    for action in (1, 2, 1, 2):
        info = env.step(torch.tensor([action, action]))[-1]
    if env.autoreset == "next_step":
        assert info["action_mask"].tolist() == [[True, True, False]] * 2
        info = env.step(torch.tensor([0, 0]))[-1]
    assert info["action_mask"].tolist() == [[False, True, True]] * 2


def test_a_mask_from_some_environments_only_is_told():
    env = vectorise(Masked, {"vectorization_mode": "sync"}, 2)
    env.env.envs[1].unwrapped.info = dict
    with pytest.raises(ValueError, match="from every environment, or from none"):
        env.reset()


class ManiSkill(gym.vector.VectorEnv):
    """Tensors, same-step reset, `final_observation`, and a device."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - as Gymnasium has it
    device = torch.device("cpu")

    def __init__(self, num_envs: int = 3):
        self.num_envs = num_envs
        self.single_observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.single_action_space = gym.spaces.Box(-2, 2, (1,), np.float32)
        self.spec = gym.envs.registration.EnvSpec("Mani-v1", max_episode_steps=LIMIT)
        self.random = torch.Generator()

    def observe(self) -> Tensor:
        return torch.cat([self.x, self.x**2], 1)

    def start(self, chosen: Tensor) -> None:
        self.x = torch.where(chosen[:, None], torch.rand(self.num_envs, 1, generator=self.random), self.x)
        self.t = torch.where(chosen, 0, self.t)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Tensor, dict]:
        if seed is not None:
            self.random.manual_seed(seed)
        self.x, self.t = torch.zeros(self.num_envs, 1), torch.zeros(self.num_envs, dtype=torch.long)
        self.start(self.t == 0)
        return self.observe(), {}

    def step(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, dict]:
        assert isinstance(action, Tensor) and bool((action.abs() <= 2).all())
        self.x, self.t = self.x + action, self.t + 1
        final, truncate = self.observe(), self.t >= LIMIT
        self.start(truncate)
        info = {"final_observation": final, "_final_observation": truncate} if bool(truncate.any()) else {}
        return self.observe(), final[:, 0], torch.zeros_like(truncate), truncate, info


def test_maniskill():
    env = build_env(ManiSkill, {"num_envs": 5})
    assert (env.num_envs, env.max_step, env.autoreset, env.env_name) == (5, LIMIT, "same_step", "Mani-v1")
    check_vec_env(env)
    env.reset(seed=0)
    infos = [env.step(torch.ones(5, 1))[-1] for _ in range(LIMIT)]
    assert ["final_obs" in info for info in infos] == [False] * (LIMIT - 1) + [True]
    assert bool((infos[-1]["final_obs"][:, 0] >= 2 * LIMIT).all())  # an action of 1 is 2 there


# --- Isaac Lab and mjlab ---


class ManagerBased(ManiSkill):
    """Observations in groups, live buffers, randomness from the global generator, no ends but by time and at x > 3."""

    max_episode_length = LIMIT

    def __init__(self, cfg: Any, device: str):
        super().__init__(cfg.scene.num_envs)
        self.cfg, self.extras, self.made_on = cfg, {}, device
        self.episode_length_buf = torch.zeros(self.num_envs, dtype=torch.long)
        parts = {cfg.group: gym.spaces.Box(-np.inf, np.inf, (2,)), "critic": gym.spaces.Box(-np.inf, np.inf, (7,))}
        self.single_observation_space = gym.spaces.Dict(parts)
        self.single_action_space = gym.spaces.Box(-np.inf, np.inf, (1,))
        self.flags = [torch.zeros(self.num_envs, dtype=torch.bool) for _ in range(2)]

    def groups(self) -> dict[str, Tensor]:
        return {"critic": torch.zeros(self.num_envs, 7), self.cfg.group: self.observe()}

    def start(self, chosen: Tensor) -> None:
        self.x = torch.where(chosen[:, None], torch.rand(self.num_envs, 1), self.x)
        self.episode_length_buf[chosen] = 0

    def reset(
        self, *, seed: int | None = None, env_ids: Tensor | None = None, options: Any = None
    ) -> tuple[dict, dict]:
        if seed is not None:
            torch.manual_seed(seed)
        if env_ids is None:
            self.x, env_ids = torch.zeros(self.num_envs, 1), torch.arange(self.num_envs)
        self.start(torch.isin(torch.arange(self.num_envs), env_ids))
        for flag in self.flags:
            flag[env_ids] = False
        return self.groups(), self.extras

    def step(self, action: Tensor) -> tuple[dict, Tensor, Tensor, Tensor, dict]:
        self.x = self.x + action
        self.episode_length_buf += 1
        self.flags[0][:] = self.x[:, 0] > 3
        self.flags[1][:] = (self.episode_length_buf >= LIMIT) & ~self.flags[0]
        ended = self.flags[0] | self.flags[1]
        reward = self.x[:, 0].clone()
        if bool(ended.any()) and getattr(self.cfg, "auto_reset", True):
            if getattr(self.cfg, "compute_final_obs", False):
                self.extras["final_obs"] = self.groups()  # stays there in later steps
            self.start(ended)
        return self.groups(), reward, *self.flags, self.extras


class NotGymnasiums(ManagerBased):
    """As Isaac Lab and mjlab are: no vector environment of Gymnasium's."""

    def __new__(cls, cfg: Any, device: str) -> Any:
        inner = ManagerBased(cfg, device)
        names = [
            n
            for n in dir(inner)
            if not n.startswith("_") and n not in ("unwrapped", "spec", "np_random", "np_random_seed")
        ]
        shell = SimpleNamespace(**{n: getattr(inner, n) for n in names})
        return shell


def manager_based(group: str = "policy", num_envs: int = 3, **cfg: Any) -> Any:
    settings = SimpleNamespace(scene=SimpleNamespace(num_envs=num_envs), group=group, **cfg)
    return build_env(NotGymnasiums, {"cfg": settings, "env_name": "Task"})


@pytest.mark.parametrize(
    ("group", "cfg", "has_final"),
    [("policy", {}, False), ("policy", {"compute_final_obs": True}, True), ("actor", {"auto_reset": False}, True)],
)
def test_manager_based_environments(group: str, cfg: dict, has_final: bool):
    env = manager_based(group, **cfg)
    assert (env.env_name, env.num_envs, env.max_step, env.state_dim, env.action_dim) == ("Task", 3, LIMIT, 2, 1)
    assert env.autoreset == "same_step"
    check_vec_env(env)
    env.reset(seed=0)
    for t in range(1, 2 * LIMIT + 1):
        state, _, terminal, truncate, info = env.step(torch.full((3, 1), 0.1))
        assert truncate.tolist() == [t % LIMIT == 0] * 3 and not terminal.any()
        assert ("final_obs" in info) == (has_final and t % LIMIT == 0)  # a stale one is not handed on
        if "final_obs" in info:
            assert (info["final_obs"][:, 0] > 0.1 * LIMIT - 0.01).all() and (state[:, 0] < 1).all()


def test_observations_without_a_known_group_are_told():
    with pytest.raises(ValueError, match=r"parts \['critic', 'vision'\].*policy, actor, obs, state"):
        manager_based("vision")


# --- Isaac Gym ---


class VecTask:
    """IsaacGymEnvs' VecTask with the three patterns of reset: "post", "pre" and "same" (see its tasks Ant, ShadowHand,
    AnymalTerrain). The state is (x, t); x falls (terminal) beyond 3. All that it returns are live buffers."""

    max_episode_length = LIMIT + 1  # episodes end when progress_buf reaches one less
    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,))
    action_space = gym.spaces.Box(-1, 1, (1,))
    num_obs, num_acts, rl_device = 2, 1, "cpu"

    def __init__(self, pattern: str, num_envs: int = 3):
        self.pattern, self.num_envs, self.cfg = pattern, num_envs, {"name": "Ant"}
        self.x = torch.zeros(num_envs)
        self.obs_buf, self.rew_buf = torch.zeros(num_envs, 2), torch.zeros(num_envs)
        self.reset_buf, self.progress_buf = (
            torch.ones(num_envs, dtype=torch.long),
            torch.zeros(num_envs, dtype=torch.long),
        )
        self.extras: dict[str, Tensor] = {}

    def reset(self) -> dict[str, Tensor]:
        return {"obs": self.obs_buf}

    def reset_idx(self) -> None:
        chosen = self.reset_buf > 0
        self.x = torch.where(chosen, torch.rand(self.num_envs), self.x)
        self.progress_buf[chosen] = 0
        self.reset_buf[chosen] = 1 if self.pattern == "same" else 0

    def judge(self) -> None:
        self.rew_buf[:] = 1 + self.x
        self.reset_buf[:] = (self.progress_buf >= self.max_episode_length - 1) | (self.x > 3)

    def step(self, actions: Tensor) -> tuple[dict[str, Tensor], Tensor, Tensor, dict[str, Tensor]]:
        if self.pattern == "pre":
            self.reset_idx()
        self.x = self.x + actions[:, 0]
        self.progress_buf += 1
        if self.pattern == "post":
            self.reset_idx()
        self.judge()
        if self.pattern == "same":
            self.reset_idx()
        self.obs_buf[:] = torch.stack([self.x, self.progress_buf.float()], 1)
        timeouts = (self.progress_buf >= self.max_episode_length - 1) & (self.reset_buf != 0)
        self.extras["time_outs"] = timeouts
        return {"obs": self.obs_buf}, self.rew_buf, self.reset_buf, self.extras


PATTERNS = {"post": "next_step", "pre": "next_step", "same": "same_step"}


@pytest.mark.parametrize(("pattern", "autoreset"), PATTERNS.items())
def test_isaac_gym_patterns_of_reset(pattern: str, autoreset: str):
    env = build_env(lambda: VecTask(pattern))
    assert (env.env_name, env.num_envs, env.max_step, env.autoreset) == ("Ant", 3, LIMIT, autoreset)
    assert (env.state_dim, env.action_dim, env.if_discrete) == (2, 1, False)
    check_vec_env(env)
    env.reset(seed=0)
    rows = [env.step(torch.ones(3, 1)) for _ in range(6)]
    after = rows[1 + next(i for i, row in enumerate(rows) if row[2][0])]
    assert (float(after[1][0]) == 0.0) == (autoreset == "next_step")  # the reset row pays nothing
    while not bool(rows[-1][2][0]):
        rows.append(env.step(torch.ones(3, 1)))
    start, _ = env.reset(seed=1)
    assert torch.allclose(env.step(torch.ones(3, 1))[0][:, 0], start[:, 0] + 1)  # nothing left of the end before


def test_an_isaac_gym_task_that_starts_with_an_end():
    task = VecTask("post")
    judge, calls = task.judge, []

    def first_fails() -> None:
        judge()
        calls.append(0)
        task.reset_buf[0] |= len(calls) == 1

    task.judge = first_fails
    assert build_env(task).autoreset == "next_step"


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("push", [0.0, 1.0])
def test_isaac_gym_rows_are_transitions_or_masked(pattern: str, push: float):
    """push 0: time-outs only. push 1: falls only, at x > 3."""
    agent_args = {"agent_class": AgentSAC, "gamma": 0.9}
    env = build_env(lambda: VecTask(pattern))
    agent = build(agent_args["agent_class"], env)
    agent.decide = lambda trajectory, t: trajectory.actions[t].fill_(push)
    agent.begin(*env.reset(seed=1))
    tr = agent.explore(env, agent.new_trajectory(env, 25))
    assert int(tr.dones.sum()) > 0 and int(tr.unmasks.sum()) > 0
    moved = (tr.states[1:, :, 0] - tr.states[:-1, :, 0] - push).abs() < 1e-5
    aged = tr.states[1:, :, 1] - tr.states[:-1, :, 1] == 1
    is_fall = (tr.dones & ~tr.undones).logical_and(torch.tensor(PATTERNS[pattern] == "same_step"))
    assert bool((moved & aged)[tr.unmasks & ~is_fall].all())  # after a fall the next state counts for nothing
    if push == 0.0:
        assert bool(tr.undones.all())  # a time-out is no death
        assert float(tr.states[:-1, :, 1].max()) <= LIMIT
    else:
        falls = tr.dones & ~tr.undones
        assert bool((falls == tr.dones).all())
    next_step = PATTERNS[pattern] == "next_step"
    after = torch.zeros_like(tr.dones)
    after[1:] = tr.dones[:-1]
    expected = ~after if next_step else ~(tr.dones & tr.undones)
    assert bool((tr.unmasks == expected).all())
    assert bool((tr.rewards[~tr.unmasks & after] == 0).all()) if next_step else True


@pytest.mark.parametrize("pattern", PATTERNS)
def test_evaluation_of_isaac_gym_is_exact(pattern: str):
    """Two episodes of each environment without falls; "pre" never returns an episode's first state and reward."""
    env = build_env(lambda: VecTask(pattern))
    returns, lengths = play_episodes(env, lambda state, mask: torch.zeros(3, 1), episodes=2, seed=0)
    assert lengths.tolist() == [LIMIT - (pattern == "pre")] * 6
    assert (returns >= lengths).all() and (returns <= 2 * lengths).all()  # each step pays 1 + x, x in [0, 1)


def test_isaac_gym_task_without_a_limit_is_told():
    task = VecTask("post")
    task.judge = lambda: task.reset_buf.zero_()
    with pytest.raises(ValueError, match=r"do not end after max_episode_length=7"):
        build_env(task)


def test_isaac_gym_by_name(monkeypatch: pytest.MonkeyPatch):
    made = {}

    def make(**keywords: Any) -> VecTask:
        made.update(keywords)
        return VecTask("post", keywords["num_envs"])

    monkeypatch.setitem(sys.modules, "isaacgymenvs", SimpleNamespace(make=make, __file__=__file__))
    from elegantrl.envs.PlanIsaacGymEnv import IsaacVecEnv

    env = build_env(IsaacVecEnv, {"env_name": "Humanoid", "env_num": 4, "sim_device_id": -1, "rl_device_id": -1})
    assert (env.num_envs, env.env_name, made["task"], made["sim_device"]) == (4, "Humanoid", "Humanoid", "cpu")
    assert (made["num_envs"], made["rl_device"], made["headless"]) == (4, "cpu", False)
    one = build_env(IsaacGym.IsaacOneEnv, {"env_name": "Ant", "device_id": -1})
    state, _ = one.reset(seed=0)
    assert (state.shape, one.max_step, one.step(np.zeros(1))[2:4]) == ((2,), LIMIT, (False, False))

    task = SimpleNamespace(env=SimpleNamespace(numEnvs=2))
    hydra = ModuleType("hydra")
    hydra.compose = lambda config_name, overrides: SimpleNamespace(task=task, overrides=overrides)
    hydra.initialize_config_dir = lambda config_dir: nullcontext()
    monkeypatch.setitem(sys.modules, "hydra", hydra)
    env = IsaacGym.IsaacVecEnv("Ant", sim_device_id=-1, rl_device_id=-1, headless=True)
    assert (env.num_envs, made["cfg"].overrides, made["headless"]) == (2, ["task=Ant"], True)


def test_isaac_gym_is_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "isaacgymenvs", None)
    with pytest.raises(ImportError, match=r"Isaac Gym is not installed.*pip install"):
        IsaacGym.IsaacVecEnv("Ant")


def test_isaac_gyms_file_is_valid_for_its_python():
    ast.parse(Path(IsaacGym.__file__).read_text(), feature_version=(3, 8))


# --- Brax ---


class BraxTask:
    """The functional interface, in NumPy; the arrays are new ones in each step, as JAX's are."""

    batch_size, episode_length, action_size, observation_size = 3, LIMIT, 1, 2
    env_name = "brax_task"

    @property
    def unwrapped(self) -> Any:
        return self

    def reset(self, rng: int) -> Any:
        x = np.random.default_rng(rng).random((self.batch_size, 1)).astype(np.float32)
        info = {"first_x": x, "first_obs": self.obs(x), "steps": np.zeros(3), "truncation": np.zeros(3, np.float32)}
        return SimpleNamespace(x=x, obs=self.obs(x), reward=np.zeros(3, np.float32), done=np.zeros(3), info=info)

    def obs(self, x: np.ndarray) -> np.ndarray:
        return np.concatenate([x, x**2], 1)

    def step(self, state: Any, action: np.ndarray) -> Any:
        x, steps = state.x + action, np.where(state.done, 0, state.info["steps"]) + 1
        falls = (x[:, 0] > 3).astype(np.float32)
        timeouts = np.where(steps >= LIMIT, 1 - falls, 0).astype(np.float32)
        done = np.maximum(falls, timeouts)
        reward = x[:, 0].copy()
        x = np.where(done[:, None] > 0, state.info["first_x"], x)
        info = {**state.info, "steps": steps, "truncation": timeouts}
        return SimpleNamespace(x=x, obs=self.obs(x), reward=reward, done=done, info=info)


@pytest.fixture
def jax(monkeypatch: pytest.MonkeyPatch) -> None:
    random, dlpack = SimpleNamespace(PRNGKey=lambda seed: seed), SimpleNamespace(from_dlpack=np.from_dlpack)
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(jit=lambda f: f, random=random, dlpack=dlpack))


def test_brax(jax: None):
    env = build_env(BraxTask)
    assert (env.env_name, env.num_envs, env.max_step, env.autoreset) == ("brax_task", 3, LIMIT, "same_step")
    check_vec_env(env)
    env.reset(seed=0)
    flags = [env.step(torch.full((3, 1), 0.0))[2:4] for _ in range(LIMIT)]
    assert [bool(truncate.all()) for _, truncate in flags] == [False] * (LIMIT - 1) + [True]
    assert not any(bool(terminal.any()) for terminal, _ in flags)


def test_brax_without_a_batch_is_told(jax: None):
    with pytest.raises(ValueError, match=r"create\(name, batch_size=N, auto_reset=True\)"):
        build_env(type("Single", (BraxTask,), {"batch_size": None}))


# --- learning on them ---


@pytest.mark.parametrize("has_final", [True, False])
@pytest.mark.parametrize("agent_class", [AgentPPO, AgentSAC])
def test_a_lost_state_is_completed_or_masked(agent_class: type, has_final: bool):
    """Case 11: on-policy, a final observation completes the row of a time-out; else that row is masked."""
    env = manager_based(compute_final_obs=has_final)
    agent = build(agent_class, env)
    agent.begin(*env.reset(seed=0))
    tr = agent.explore(env, agent.new_trajectory(env, 3 * LIMIT))
    assert bool(tr.dones.any())
    if agent_class is AgentPPO and has_final:
        assert bool(tr.unmasks.all()) and bool((tr.undones == ~tr.dones).all())
        assert bool((tr.bootstraps != 0).any()) and bool((tr.bootstraps[~tr.dones] == 0).all())
    else:
        assert bool((tr.unmasks == ~(tr.dones & tr.undones)).all())


def test_settings_are_not_changed():
    env_args = {"num_envs": 2, "vectorization_mode": "sync", "vector_kwargs": {"autoreset_mode": "SameStep"}}
    before = {**env_args, "vector_kwargs": dict(env_args["vector_kwargs"])}
    build_env("Pendulum-v1", env_args)
    assert env_args == before


@pytest.mark.slow
@pytest.mark.parametrize("simulator", ["mjlab", "isaaclab"])
def test_ppo_balances_a_pole_in_a_real_simulator(simulator: str):
    """ELEGANTRL_MJLAB, ELEGANTRL_ISAACLAB: the Python of a virtual environment by benchmarks/simulators/setup.sh."""
    name = f"ELEGANTRL_{simulator.upper()}"
    if (python := os.environ.get(name)) is None:
        pytest.skip(f"needs benchmarks/simulators/setup.sh {simulator} DIR, and {name}=DIR/bin/python")
    root = Path(__file__).parents[2]
    subprocess.run([python, root / "benchmarks/simulators/cartpole.py", simulator], cwd=root, check=True)
