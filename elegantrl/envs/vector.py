"""N environments behind one vector contract, with tensors on a device. One environment is N = 1."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .simulators import GymVectors, seeds_of
from .single import VECTOR_KEYS, GymEnv, constructor_keywords, is_instance, is_vec_env, make_env

MIN_NATIVE_ENVS = 6  # from here on its own vector code is faster than a loop (measured on CartPole-v1)


class SerialEnvs:
    """Single environments stepped in turn, in NumPy, with next-step auto-reset: the interface of Gymnasium's
    `SyncVectorEnv`, which takes 8 microseconds more for each step of N = 1, as much as CartPole itself."""

    def __init__(self, envs: Sequence[GymEnv]):
        self.envs = envs
        self.ended = [False] * len(envs)  # these are reset by the next step
        self.has_mask = False
        space = envs[0].observation_space
        self.shape, self.dtype = (len(envs), *(space.shape or ())), space.dtype

    def reset(self, seed: int | None = None) -> tuple[NDArray, dict]:
        """seed: each environment gets one of its own that derives from it."""
        seeds = seeds_of(seed, len(self.envs))
        states, infos = zip(*(env.reset(seed=s) for env, s in zip(self.envs, seeds, strict=True)), strict=True)
        self.ended = [False] * len(self.envs)
        self.has_mask = "action_mask" in infos[0]
        return np.stack(states), self._info(infos)

    def step(self, actions: NDArray) -> tuple[NDArray, NDArray, NDArray, NDArray, dict]:
        num_envs = len(self.envs)
        states, rewards = np.empty(self.shape, self.dtype), np.zeros(num_envs, np.float32)
        terminals, truncates = np.zeros(num_envs, np.bool_), np.zeros(num_envs, np.bool_)
        infos = []
        for i, env in enumerate(self.envs):
            if self.ended[i]:
                states[i], info = env.reset()
                self.ended[i] = False
            else:
                states[i], rewards[i], terminal, truncate, info = env.step(actions[i])
                if terminal or truncate:
                    terminals[i], truncates[i], self.ended[i] = terminal, truncate, True
            infos.append(info)
        return states, rewards, terminals, truncates, self._info(infos)

    def _info(self, infos: Sequence[dict]) -> dict:
        if not self.has_mask:
            return {}
        expected = (self.envs[0].action_dim,)
        masks = [info.get("action_mask", ()) for info in infos]
        for mask in masks:
            if np.shape(mask) != expected:
                raise ValueError(
                    f"{self.envs[0].env_name}: info['action_mask'] of shape {expected} is needed from every reset and "
                    f"step once there was one, not {np.shape(mask) if len(mask) else 'none'}"
                )
        return {"action_mask": np.stack(masks)}

    def close(self) -> None:
        for env in self.envs:
            env.close()


class GymVecEnv:
    """The vector contract over SerialEnvs.

    `reset(seed=None) -> state (N, S), info`; `step(action) -> state, reward (N,) float32, terminal (N,) bool,
    truncate (N,) bool, info`. Actions are the policy's: (N, A) float, clamped to [-1, 1], or (N,) long from 0.
    The row after an episode's end ignores its action and holds the new episode's first state, reward 0.
    `info["action_mask"]` (N, A) bool, where the environment gives one. Every tensor is a new one.
    """

    autoreset = "next_step"

    def __init__(self, vec_env: SerialEnvs, device: torch.device | str = "cpu"):
        one = vec_env.envs[0]
        self.vec_env, self.num_envs, self.device = vec_env, len(vec_env.envs), torch.device(device)
        self.env_name, self.max_step, self.codec = one.env_name, one.max_step, one.codec
        self.state_dim, self.action_dim, self.if_discrete = one.state_dim, one.action_dim, one.if_discrete
        self.state_dtype = one.state_dtype
        self._is_cpu = self.device.type == "cpu"

    def reset(self, seed: int | None = None) -> tuple[Tensor, dict[str, Any]]:
        state, info = self.vec_env.reset(seed=seed)
        return self._tensor(state), self._info(info)

    def step(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        state, reward, terminal, truncate, info = self.vec_env.step(self.codec.decode(action.cpu().numpy()))
        rewards = self._tensor(np.asarray(reward, np.float32))
        return self._tensor(state), rewards, self._tensor(terminal), self._tensor(truncate), self._info(info)

    def _tensor(self, array: NDArray) -> Tensor:
        return torch.from_numpy(array) if self._is_cpu else torch.from_numpy(array).to(self.device)

    def _info(self, info: dict[str, Any]) -> dict[str, Any]:
        return {"action_mask": self._tensor(info["action_mask"].astype(bool))} if "action_mask" in info else info

    def close(self) -> None:
        self.vec_env.close()


def vectorise(
    env_class: Any, env_args: dict[str, Any] | None = None, num_envs: int = 1, device: torch.device | str = "cpu"
) -> Any:
    """num_envs environments under the vector contract. What `env_class` builds is returned as it is if it keeps the
    contract itself, and adapted if it is a simulator that steps many. Gymnasium's MuJoCo v5 tasks run on MuJoCo's own
    threads (`MujocoVecEnv`).

    env_args: `if_batched=False` leaves these to Gymnasium; `vectorization_mode` ("sync", "async": in processes,
    "vector_entry_point") and `vector_kwargs` are as in `gymnasium.make_vec`, for every env_class.
    ValueError: more than one of an environment that is already built.
    """
    device = torch.device(device)
    env_args = {**(env_args or {}), "num_envs": num_envs}
    mode, vector_kwargs = (env_args.get(name) for name in VECTOR_KEYS)
    gpu_id = -1 if device.type == "cpu" else device.index or 0
    is_gym_id = isinstance(env_class, str) or env_class in (None, gym.make)
    if is_gym_id and mode == "vector_entry_point":
        named = {"env_name": env_class} if isinstance(env_class, str) else {}
        keywords = constructor_keywords(gym.make, {**env_args, **named})
        return GymVectors(gym.make_vec(num_envs=num_envs, vectorization_mode=mode, **keywords), device)
    first = make_env(env_class, env_args, gpu_id)
    if is_vec_env(first):
        return first
    if num_envs == 1 and not (mode or vector_kwargs):
        return as_vec_env(first, device)
    if is_instance(env_class):
        raise ValueError(f"num_envs={num_envs} needs a class or a function that builds {first.env_name}, not one built")
    if mode or vector_kwargs:
        kinds = {"sync": gym.vector.SyncVectorEnv, "async": gym.vector.AsyncVectorEnv}
        if (mode := mode or "sync") not in kinds:
            raise ValueError(
                f"vectorization_mode={mode!r} is not possible for {first.env_name}: {', '.join(kinds)} are"
            )
        first.close()
        make_one = partial(_with_own_states, env_class, env_args, gpu_id)
        return GymVectors(kinds[mode]([make_one] * num_envs, **(vector_kwargs or {})), device, first)
    if is_gym_id and env_args.get("if_batched", True):
        from .mujoco_batch import MujocoVecEnv  # here, because it imports this file

        if MujocoVecEnv.equals(first):
            return MujocoVecEnv(first, num_envs, gpu_id)
    if is_gym_id and num_envs >= MIN_NATIVE_ENVS and first.spec.vector_entry_point is not None:
        vec_env = gym.make_vec(first.spec, num_envs=num_envs, vectorization_mode="vector_entry_point")
        if vec_env.single_observation_space == first.observation_space:  # Atari's makes another task of it
            first.close()
            return GymVectors(vec_env, device, first)
        vec_env.close()
    others = [make_env(env_class, env_args, gpu_id) for _ in range(num_envs - 1)]
    return GymVecEnv(SerialEnvs([first, *others]), device)


def _with_own_states(env_class: Any, env_args: dict[str, Any], gpu_id: int) -> gym.Env:
    """For Gymnasium's vector environments, whose `final_obs` would change with a state array that is used again."""
    env = make_env(env_class, env_args, gpu_id)
    return gym.wrappers.TransformObservation(env, np.copy, env.observation_space)


def as_vec_env(env: Any, device: torch.device | str = "cpu") -> Any:
    """An environment under the vector contract; what keeps the contract already is returned as it is."""
    env = env if isinstance(env, GymEnv) or is_vec_env(env) else make_env(env)
    return env if is_vec_env(env) else GymVecEnv(SerialEnvs([env]), device)
