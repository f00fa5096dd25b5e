"""Gymnasium's MuJoCo v5 tasks, N at once on MuJoCo's own threads: no processes, no Python loop around the physics."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from copy import copy
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..device import device_of
from .mujoco_tasks import ALL, TASKS, Rows, TouchingTask, made, options_of, task_of
from .single import GymEnv
from .vector import GymVecEnv, SerialEnvs

Randomiser = tuple[float, float] | Callable[[np.random.Generator, NDArray, int], NDArray]


@cache
def _clock() -> tuple[ctypes.c_void_p, int | None]:
    """MuJoCo's pointer to the clock that it reads in all of its functions for `mjData.timer`, a fifth of a step's time,
    and what is in it. Where the pointer cannot be found this one points nowhere, and steps take longer."""
    import mujoco

    try:
        pointer = ctypes.c_void_p.in_dll(ctypes.CDLL(mujoco._functions.__file__), "mjcb_time")
    except (AttributeError, OSError, ValueError):
        pointer = ctypes.c_void_p()
    return pointer, pointer.value


class MujocoVecEnv(GymVecEnv):
    """The vector contract over N environments of one of Gymnasium's MuJoCo v5 tasks, with same-step auto-reset.

    `MujocoVecEnv("Hopper-v5", num_envs=64, ctrl_cost_weight=1e-2)`; `vectorise` makes one of an id by itself.
    `info["final_obs"]` (N, S) is the state before the resets; an ended row of the state begins the next episode.

    env_name: an id, or an environment that Gymnasium made of one. num_threads: of the physics; torch's number if not
    given. Results do not depend on it. options: of Gymnasium's constructor, with its defaults.
    randomise: fields of MuJoCo's model (`body_mass`, `geom_friction`, `opt.gravity`, ...) whose values are drawn anew
    for each episode of each environment: (low, high) draws a factor for each entry of the field, a function
    `(rng, value (...), n) -> (n, ...)` gives n environments' values. `batch.expanded(field)` (N, ...) tells them.
    ValueError: no such task. ImportError: mujoco is missing, or before 3.17.
    """

    autoreset = "same_step"

    def __init__(
        self,
        env_name: str | GymEnv,
        num_envs: int = 1,
        gpu_id: int = -1,
        num_threads: int | None = None,
        randomise: dict[str, Randomiser] | None = None,
        max_step: int | None = None,
        **options: Any,
    ):
        try:
            from mujoco import mjtDisableBit
            from mujoco.batch import Batch
        except ImportError as error:
            raise ImportError("MujocoVecEnv needs mujoco 3.17 or newer: pip install elegantrl[mujoco]") from error
        one, task_class = made(env_name, TASKS.values(), max_step=max_step, **options)
        self.limit = one._limit  # infinite where an episode has none, as max_step cannot be
        super().__init__(SerialEnvs([one]), device_of(gpu_id))
        self.one, self.num_envs, self.frame_skip = one, num_envs, one.unwrapped.frame_skip
        model, is_touching = copy(one.unwrapped.model), issubclass(task_class, TouchingTask)
        if model.ntree == 1:  # there are no islands to find: the same bits without the search, 5 to 8 % sooner
            model.opt.disableflags |= mjtDisableBit.mjDSBL_ISLAND
        self.batch = Batch(model, num_envs, num_threads or torch.get_num_threads(), persistent=is_touching)
        self.batch.reset()
        self.fresh = self.batch.state[0].copy()
        self.data = self.batch.get_data(0)
        self.task = task_class(one.unwrapped, options_of(one), self.batch.bind)
        if is_touching:
            self.task.forces = np.zeros((num_envs, model.nbody, 6))
        self.fields = {name: self.batch.expand(name) for name in randomise or {}}
        self.randomise = {name: _drawer(name, how, self.fields[name][0]) for name, how in (randomise or {}).items()}
        self.task.mass = self.fields.get("body_mass", self.task.mass)
        self.steps = np.zeros(num_envs, np.int64)  # of the episodes under way
        self.place = np.zeros(num_envs)
        self.rng = np.random.Generator(np.random.SFC64())

    @staticmethod
    def equals(env: GymEnv) -> bool:
        """Whether there are batches that do exactly what `env` does."""
        return task_of(env) is not None and find_spec("mujoco.batch") is not None

    def reset(self, seed: int | None = None) -> tuple[Tensor, dict[str, Any]]:
        if seed is not None:
            self.rng = np.random.Generator(np.random.SFC64(seed))  # by a SeedSequence
        self._begin(np.arange(self.num_envs))
        return self._tensor(self._observe(ALL)), {}

    def step(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        native = self.codec.decode(action.cpu().numpy())
        self.task.ctrl[:] = native
        clock, ticking = _clock()
        clock.value = None
        try:
            self.batch.step(None, self.frame_skip)
        finally:
            clock.value = ticking
        self.steps += 1
        if self.task.needs_forces:
            self.task.forces = self._external_forces()
        self.task.stepped()
        place = self.task.place().copy()
        reward = self.task.reward(native, (place - self.place) / self.task.dt).astype(np.float32)
        terminal, truncate = self.task.terminal(), self.steps >= self.limit
        self.place, state = place, self._observe(ALL)
        final = self._tensor(state)
        ended = (terminal | truncate).nonzero()[0]
        if len(ended):
            state = state.copy()
            self._begin(ended)
            state[ended] = self._observe(ended)
        tensor = self._tensor
        return tensor(state), tensor(reward), tensor(terminal), tensor(truncate), {"final_obs": final}

    def _begin(self, rows: NDArray) -> None:
        """New episodes in these environments, (n,) of them."""
        for name, draw in self.randomise.items():
            self.fields[name][rows] = draw(self.rng, len(rows))
        if self.randomise:
            self.batch.set_const(rows)
        self.batch.state[rows] = self.fresh  # what batch.reset does, in a tenth of the time
        self.task.qpos[rows], self.task.qvel[rows] = self.task.start(self.rng, len(rows))
        self.batch.forward(rows)
        self.task.begun(rows)
        self.steps[rows] = 0
        self.place[rows] = self.task.place()[rows]

    def _external_forces(self) -> NDArray:
        """`cfrc_ext` (N, bodies, 6), which a batch does not compute: one by one, a tenth of a step's time."""
        from mujoco import mj_rnePostConstraint

        forces = np.empty((self.num_envs, self.batch.model.nbody, 6))
        for i in range(self.num_envs):
            mj_rnePostConstraint(self.batch.model, self.batch.get_data(i, self.data))
            forces[i] = self.data.cfrc_ext
        return forces

    def _observe(self, rows: Rows) -> NDArray:
        return np.concatenate(self.task.observe(rows), axis=1, dtype=np.float32, casting="same_kind")

    def get_state(self) -> dict[str, Tensor]:
        """All that the next steps depend on, as tensors of this state's own."""
        random = self.rng.bit_generator.state["state"]["state"].view(np.int64)
        arrays = {"physics": self.batch.state, "steps": self.steps, "place": self.place, "random": random}
        return {name: torch.from_numpy(array.copy()) for name, array in {**arrays, **self.fields}.items()}

    def set_state(self, state: dict[str, Tensor]) -> None:
        """Goes on where `get_state` was asked, in an environment of the same arguments."""
        arrays = {name: tensor.numpy() for name, tensor in state.items()}
        for name, field in self.fields.items():
            field[:] = arrays[name]
        if self.fields:
            self.batch.set_const()
        self.batch.state[:], self.steps[:], self.place[:] = arrays["physics"], arrays["steps"], arrays["place"]
        bits = self.rng.bit_generator.state
        self.rng.bit_generator.state = {**bits, "state": {"state": arrays["random"].view(np.uint64)}}


def _drawer(name: str, how: Randomiser, value: NDArray) -> Callable[[np.random.Generator, int], NDArray]:
    value = value.copy()
    if callable(how):
        return lambda rng, num: how(rng, value, num)
    low, high = how
    if not 0 <= low <= high:
        raise ValueError(f"randomise[{name!r}] is {how!r}: (low, high) factors with 0 <= low <= high are needed")
    return lambda rng, num: value * rng.uniform(low, high, (num, *value.shape))
