"""Adapters to the vector contract for what already steps many environments at once, recognised by its attributes.

Gymnasium's vector environments (sync, async, own code, EnvPool, ManiSkill), Isaac Lab and mjlab, Isaac Gym, Brax. They
differ in what a step returns, in how an episode's end resets, and in where its last observation is to be found.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from .single import FLATTENED, GymEnv

POLICY_KEYS = ("policy", "actor", "obs", "state")  # what a policy sees, where an observation has parts


class VecAdapter:
    """The vector contract, of which a subclass says `fits`, `described`, `begin` and `advance`.

    `reset(seed=None) -> state (N, S), info`; `step(action) -> state, reward (N,) float32, terminal (N,) bool,
    truncate (N,) bool, info`. Actions are the policy's: (N, A) float, clamped to [-1, 1], or (N,) long from 0.
    `info["action_mask"]` (N, A) bool and `info["final_obs"]` (N, S), where there are some. Every tensor is a new one.

    device: of the tensors given and taken; the simulator may have another.
    """

    autoreset = "same_step"
    takes_tensors = True
    draws_globally = True  # from the generators that everybody shares

    def __init__(self, env: Any, device: torch.device | str = "cpu", one: GymEnv | None = None):
        self.env, self.core, self.device = env, getattr(env, "unwrapped", env), torch.device(device)
        self.num_envs = self.count()
        one = one or GymEnv(SimpleNamespace(reset=env.reset, **self.described()))  # read, never stepped
        self.env_name, self.max_step, self.codec = one.env_name, one.max_step, one.codec
        self.state_dim, self.action_dim, self.if_discrete = one.state_dim, one.action_dim, one.if_discrete
        self.state_dtype = one.state_dtype
        sizes = (one.state_dim,) if isinstance(one.state_dim, int) else one.state_dim
        self._state_shape = (self.num_envs, *sizes)
        simulated_on = torch.device(getattr(self.core, "device", None) or self.device)
        self._random: Callable[..., Any] = OwnRandom(simulated_on) if self.draws_globally else nullcontext

    @staticmethod
    def fits(env: Any, core: Any) -> bool:
        """Whether this adapter is for an environment; core is the one below all wrappers."""
        raise NotImplementedError

    def count(self) -> int:
        return int(self.core.num_envs)

    def described(self) -> dict[str, Any]:
        """What GymEnv reads of one of the environments: spaces, `max_step`, `env_name`."""
        raise NotImplementedError

    def begin(self, seed: int | None) -> tuple[Any, dict[str, Any]]:
        """Resets all: (observation, info)."""
        raise NotImplementedError

    def advance(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One step: (observation, reward, terminal, truncate, info), as the simulator's own kind of array."""
        raise NotImplementedError

    def reset(self, seed: int | None = None) -> tuple[Tensor, dict[str, Any]]:
        with self._random(seed):
            observation, info = self.begin(seed)
        return self._state(observation), self._info(info)

    def step(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        action = action.detach()
        native = self.codec.decode_tensor(action) if self.takes_tensors else self.codec.decode(action.cpu().numpy())
        with self._random():
            observation, reward, terminal, truncate, info = self.advance(native)
        flags = self._tensor(terminal, torch.bool), self._tensor(truncate, torch.bool)
        return self._state(observation), self._tensor(reward, torch.float32), *flags, self._info(info)

    def close(self) -> None:
        if hasattr(self.env, "close"):
            self.env.close()

    def _tensor(self, array: Any, dtype: torch.dtype) -> Tensor:
        """A new tensor of the contract's: simulators hand out their live buffers."""
        tensor = array if isinstance(array, Tensor) else torch.from_numpy(np.asarray(array))
        return tensor.detach().to(self.device, dtype, copy=True)

    def _state(self, observation: Any) -> Tensor:
        tensor = self._tensor(self._seen(observation), self.state_dtype)
        if tensor.numel() != np.prod(self._state_shape):
            raise ValueError(
                f"{self.env_name} announced states of shape {self._state_shape} and gave {tuple(tensor.shape)}"
            )
        return tensor.reshape(self._state_shape)

    def _seen(self, parts: Any) -> Any:
        """The policy's part of an observation, or of a space, that has parts."""
        parts = getattr(parts, "spaces", parts)
        if isinstance(parts, (tuple, *FLATTENED)):
            raise ValueError(
                f"{type(self.core).__name__} has observations {parts}, which are no row of numbers: put "
                "gymnasium.wrappers.FlattenObservation around each single environment"
            )
        if not isinstance(parts, dict):
            return parts
        name = next((key for key in POLICY_KEYS if key in parts), None)
        if name is None or isinstance(parts[name], dict):
            raise ValueError(
                f"{type(self.core).__name__} has observations in parts {list(parts)}: a single tensor under one of "
                f"the names {', '.join(POLICY_KEYS)} is needed: choose it in the task's configuration, or flatten them "
                "(gymnasium.wrappers.vector.FlattenObservation)"
            )
        return parts[name]

    def _info(self, info: dict[str, Any]) -> dict[str, Any]:
        """What the contract knows of `info`."""
        known = {}
        if "action_mask" in info:
            if not np.all(info.get("_action_mask", True)):
                raise ValueError(f"{self.env_name}: info['action_mask'] is needed from every environment, or from none")
            known["action_mask"] = self._tensor(info["action_mask"], torch.bool)
        if info.get("final_obs") is not None:
            known["final_obs"] = self._state(info["final_obs"])
        return known


class GymVectors(VecAdapter):
    """A `gymnasium.vector.VectorEnv` of any of the three auto-reset modes, in NumPy or in tensors.

    Where auto-reset is disabled, ended environments are reset in the same step by `options["reset_mask"]`.
    """

    draws_globally = False

    def __init__(self, env: Any, device: torch.device | str = "cpu", one: GymEnv | None = None):
        super().__init__(env, device, one)
        self.mode = env.metadata.get("autoreset_mode", gym.vector.AutoresetMode.NEXT_STEP)
        self.takes_tensors = isinstance(getattr(env, "device", None), torch.device)
        if self.takes_tensors:  # ManiSkill, whatever its metadata say
            self.mode = gym.vector.AutoresetMode.SAME_STEP
        elif self.mode == gym.vector.AutoresetMode.NEXT_STEP:
            self.autoreset = "next_step"
        self.has_singles = isinstance(env.unwrapped, gym.vector.SyncVectorEnv | gym.vector.AsyncVectorEnv)

    @staticmethod
    def fits(env: Any, core: Any) -> bool:
        return isinstance(env, gym.vector.VectorEnv)

    def described(self) -> dict[str, Any]:
        spec = self.env.spec
        return {
            "observation_space": self._seen(self.env.single_observation_space),
            "action_space": self.env.single_action_space,
            "max_step": getattr(spec, "kwargs", {}).get("max_episode_steps"),
            "spec": spec,  # tells the limit otherwise, Atari's in frames
            "env_name": getattr(spec, "id", None) or type(self.core).__name__,
        }

    def begin(self, seed: int | None) -> tuple[Any, dict[str, Any]]:
        return self.env.reset(seed=seeds_of(seed, self.num_envs) if self.has_singles else seed)

    def advance(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observation, reward, terminal, truncate, info = self.env.step(action)
        ended = terminal | truncate
        if self.mode == gym.vector.AutoresetMode.DISABLED:
            if ended.any():
                info["final_obs"] = np.array(self._seen(observation))  # the reset may write into it: `copy=False`
                observation, fresh = self.env.reset(options={"reset_mask": ended})
                if "action_mask" in fresh:
                    info["action_mask"] = np.where(ended[:, None], fresh["action_mask"], info["action_mask"])
        elif self.mode == gym.vector.AutoresetMode.SAME_STEP:
            final = info.get("final_obs", info.get("final_observation"))  # the older name is ManiSkill's
            if isinstance(final, np.ndarray) and final.dtype == object:  # None where no episode ended
                known, final = final, np.array(self._seen(observation))
                final[ended] = np.stack([self._seen(each) for each in known[ended]])
            info["final_obs"] = final
        return observation, reward, terminal, truncate, info


class EnvPool(GymVectors):
    """An EnvPool of Gymnasium's kind. It takes a seed when it is built only, so a seeded reset builds it anew."""

    @staticmethod
    def fits(env: Any, core: Any) -> bool:
        return hasattr(getattr(env, "spec", None), "gen_config")

    def described(self) -> dict[str, Any]:
        return {**super().described(), "max_step": self.env.spec.config.max_episode_steps}

    def begin(self, seed: int | None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            spec = self.env.spec
            config = spec.gen_config(**{**spec.config._asdict(), "seed": seed % 2**31})
            self.env.close()
            self.env = type(self.env)(type(spec)(config))
        return self.env.reset()


class ManagerBased(VecAdapter):
    """Isaac Lab (manager-based and direct) and mjlab. They reset in the same step.

    The true last observation is known with `cfg.compute_final_obs = True` (Isaac Lab), which stays in `extras` until
    the next end, or with `cfg.auto_reset = False` (mjlab), where the adapter resets.
    """

    @staticmethod
    def fits(env: Any, core: Any) -> bool:
        return hasattr(core, "single_action_space") and hasattr(core, "episode_length_buf")

    def described(self) -> dict[str, Any]:
        return {
            "observation_space": self._seen(self.core.single_observation_space),
            "action_space": self.core.single_action_space,
            "max_step": int(self.core.max_episode_length),
            "env_name": getattr(getattr(self.env, "spec", None), "id", None) or type(self.core).__name__,
        }

    def begin(self, seed: int | None) -> tuple[Any, dict[str, Any]]:
        return self.env.reset(seed=seed)[0], {}

    def advance(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observation, reward, terminal, truncate, extras = self.env.step(action)
        ended = (terminal | truncate).nonzero()[:, 0]
        if len(ended) == 0:
            return observation, reward, terminal, truncate, {}
        if getattr(self.core.cfg, "auto_reset", True):
            return observation, reward, terminal, truncate, {"final_obs": extras.get("final_obs")}
        final, reward, terminal, truncate = self._state(observation), reward.clone(), terminal.clone(), truncate.clone()
        observation, _ = self.core.reset(env_ids=ended)
        return observation, reward, terminal, truncate, {"final_obs": final}


class IsaacGymTask(VecAdapter):
    """A `VecTask` of Isaac Gym, whose tasks reset in one of three ways; which one, a step past the time limit shows.

    At the end of the next step ("post") or at its beginning ("pre"): contract 'next_step', where that step is no
    transition (its action is replaced by 0, its reward too). Or within the same step ("same"): the last observation
    is lost. A fall in the last step before the limit counts as a time-out, as it does there.
    ValueError: episodes do not end at the limit.
    """

    def __init__(self, env: Any, device: torch.device | str = "cpu"):
        super().__init__(env, device)
        self.ended = torch.zeros(self.num_envs, dtype=torch.bool, device=self.core.progress_buf.device)
        with self._random(0):
            self.env.step(self._zero_action())  # resets all
            self.core.reset_buf.zero_()
            self.core.progress_buf.fill_(int(self.core.max_episode_length))
            done = self.env.step(self._zero_action())[2]
        if not bool(done.all()):
            raise ValueError(
                f"{self.env_name}: some episodes do not end after max_episode_length={self.max_step + 1} steps, so "
                "that it cannot be known how the task resets: let reset_buf be 1 where progress_buf reaches it"
            )
        if int(self.core.progress_buf.max()) > 0:
            self.autoreset = "next_step"

    @staticmethod
    def fits(env: Any, core: Any) -> bool:
        return all(hasattr(core, name) for name in ("progress_buf", "reset_buf", "num_acts", "max_episode_length"))

    def described(self) -> dict[str, Any]:
        name = getattr(self.core, "cfg", {}).get("name") or type(self.core).__name__
        limit = int(self.core.max_episode_length) - 1  # the task ends episodes when progress_buf reaches this
        spaces = {"observation_space": self.core.observation_space, "action_space": self.core.action_space}
        return {**spaces, "max_step": limit, "env_name": name}

    def _zero_action(self) -> Tensor:
        return torch.zeros(self.num_envs, self.action_dim, device=self.core.rl_device)

    def begin(self, seed: int | None) -> tuple[Any, dict[str, Any]]:
        self.core.reset_buf.fill_(1)  # `core.reset()` resets nothing
        if self.autoreset == "same_step":
            self.core.progress_buf.fill_(int(self.core.max_episode_length))
        self.ended.zero_()
        return self.env.step(self._zero_action())[0], {}

    def advance(self, action: Tensor) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        before = self.core.progress_buf.clone()
        action = action.to(self.core.rl_device)
        resets = self.ended.to(action.device)
        observation, reward, done, _ = self.env.step(action.masked_fill(resets[:, None], 0.0))
        done = done.bool()
        timeout = done & (before + 1 >= self.max_step).to(done.device)  # extras["time_outs"] is too late for "same"
        if self.autoreset == "next_step":
            self.ended = done.clone()
        return observation, reward.masked_fill(resets, 0.0), done & ~timeout, timeout, {}


class BraxBatch(VecAdapter):
    """A batch of an environment with Brax's interface (`create(name, batch_size=N, auto_reset=True)`), in JAX.

    It resets in the same step and drops the last observation. States and actions pass by DLPack.
    """

    draws_globally = False
    NEEDED = "create(name, batch_size=N, auto_reset=True) is needed"

    def __init__(self, env: Any, device: torch.device | str = "cpu"):
        import jax  # whoever built the environment has it

        if not getattr(env, "batch_size", None):
            raise ValueError(f"{type(env.unwrapped).__name__} is a single environment: {self.NEEDED}")
        self.env, self.random = env, np.random.default_rng()
        self.jax, self.reset_jit, self.step_jit = jax, jax.jit(env.reset), jax.jit(env.step)
        self.first, _ = self.begin(0)
        if "first_obs" not in self.state.info:
            raise ValueError(f"{type(env.unwrapped).__name__} does not reset itself: {self.NEEDED}")
        super().__init__(env, device)

    @staticmethod
    def fits(env: Any, core: Any) -> bool:
        return hasattr(env, "observation_size") and hasattr(env, "action_size")

    def count(self) -> int:
        return int(self.env.batch_size)

    def described(self) -> dict[str, Any]:
        action_space = gym.spaces.Box(-1, 1, (int(self.env.action_size),))
        limit = getattr(self.env, "episode_length", None)
        name = getattr(self.core, "env_name", None) or type(self.core).__name__
        sizes = tuple(self.first.shape[1:])
        return {"state_dim": sizes, "action_space": action_space, "max_step": limit, "env_name": name}

    def begin(self, seed: int | None) -> tuple[Any, dict[str, Any]]:
        seed = int(self.random.integers(2**31)) if seed is None else seed
        self.state = self.reset_jit(self.jax.random.PRNGKey(seed))
        return torch.from_dlpack(self._seen(self.state.obs)), {}

    def advance(self, action: Tensor) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        action = action.to(self.first.device).contiguous()
        self.state = state = self.step_jit(self.state, self.jax.dlpack.from_dlpack(action))
        seen, reward, done, cut = (
            torch.from_dlpack(x) for x in (self._seen(state.obs), state.reward, state.done, state.info["truncation"])
        )
        return seen, reward, done.bool() & ~cut.bool(), cut, {}


ADAPTERS = (EnvPool, GymVectors, IsaacGymTask, ManagerBased, BraxBatch)


def adapted(env: Any, device: torch.device | str = "cpu") -> VecAdapter | None:
    """`env` under the vector contract, by the first adapter that fits; None: it is a single environment."""
    core = getattr(env, "unwrapped", env)
    return next((adapter(env, device) for adapter in ADAPTERS if adapter.fits(env, core)), None)


def seeds_of(seed: int | None, num_envs: int) -> list[int] | list[None]:
    """A seed for each environment that derives from one (NumPy SeedSequence)."""
    if seed is None:
        return [None] * num_envs
    return np.random.SeedSequence(seed).generate_state(num_envs).tolist()


class OwnRandom:
    """Random states of an environment's own, for simulators that draw from the global generators.

    So a seed given to `reset` decides all that follows, and what the agent draws is not changed by the environment.
    """

    def __init__(self, device: torch.device):
        self.device = device if device.type == "cuda" else None
        self.states: Any = None

    @contextmanager
    def __call__(self, seed: int | None = None) -> Iterator[None]:
        outside = self._get()
        if seed is None and self.states is None:
            seed = int(np.random.SeedSequence().generate_state(1)[0])
        try:
            if seed is not None:
                random.seed(seed)
                np.random.seed(seed)
                torch.manual_seed(seed)
            else:
                self._set(self.states)
            yield
        finally:
            self.states = self._get()
            self._set(outside)

    def _get(self) -> tuple[Any, ...]:
        on_gpu = torch.cuda.get_rng_state(self.device) if self.device else None
        return random.getstate(), np.random.get_state(), torch.get_rng_state(), on_gpu

    def _set(self, states: tuple[Any, ...]) -> None:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        if self.device:
            torch.cuda.set_rng_state(states[3], self.device)
