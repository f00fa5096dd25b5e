"""Gymnasium's MuJoCo v5 tasks, N at once on MuJoCo's own threads: no processes, no Python loop around the physics.

What a task observes, pays and ends by is what its class in `gymnasium.envs.mujoco` says, in the same order of
operations, so that states, rewards and ends differ from Gymnasium's by exactly 0.
"""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Callable, Sequence
from copy import copy
from functools import cache
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..device import device_of
from .single import GymEnv, make_env
from .vector import GymVecEnv

Rows = slice | NDArray  # which environments
Randomiser = tuple[float, float] | Callable[[np.random.Generator, NDArray, int], NDArray]
ALL = slice(None)
PLAIN_WRAPPERS = {"GymEnv", "TimeLimit", "OrderEnforcing", "PassiveEnvChecker"}  # these change no number


class Task:
    """One of Gymnasium's classes over all environments; this one runs forward: HalfCheetah, Swimmer and the others.

    options: what the constructor of Gymnasium's class was told, and its defaults. batch: MuJoCo's; after a step its
    derived fields are one substep behind positions and velocities, in Gymnasium too.
    """

    hidden_positions = 0  # leading ones that `exclude_current_positions_from_observation` leaves out
    if_normal_velocity = False  # initial velocities are normal, not uniform
    largest_velocity: float | None = None  # in observations

    def __init__(self, one: Any, options: SimpleNamespace, batch: Any):
        self.model, self.init_qpos, self.init_qvel, self.dt = one.model, one.init_qpos, one.init_qvel, one.dt
        self.options, self.batch = options, batch
        self.qpos, self.qvel, self.ctrl = (batch.bind(name) for name in ("qpos", "qvel", "ctrl"))
        self.healthy = np.ones(batch.nsim, np.bool_)
        hides = getattr(options, "exclude_current_positions_from_observation", False)
        self.first_position = self.hidden_positions if hides else 0

    def start(self, rng: np.random.Generator, num: int) -> tuple[NDArray, NDArray]:
        """Positions (num, nq) and velocities (num, nv) of new episodes."""
        noise = self.options.reset_noise_scale
        qpos = self.init_qpos + rng.uniform(-noise, noise, (num, self.model.nq))
        shape = (num, self.model.nv)
        draw = noise * rng.standard_normal(shape) if self.if_normal_velocity else rng.uniform(-noise, noise, shape)
        return qpos, self.init_qvel + draw

    def begun(self, rows: Rows) -> None:
        """These environments have been reset."""

    def stepped(self) -> None:
        """All environments have been stepped; reads what `reward`, `terminal` and `observe` share."""

    def place(self) -> NDArray:
        """What runs forward, (N,), in metres."""
        return self.qpos[:, 0]

    def observe(self, rows: Rows) -> Sequence[NDArray]:
        """The parts of the observation, (n, size) each."""
        qvel = self.qvel[rows]
        if self.largest_velocity is not None:
            qvel = np.clip(qvel, -self.largest_velocity, self.largest_velocity)
        return self.qpos[rows, self.first_position :], qvel

    def reward(self, action: NDArray, velocity: NDArray) -> NDArray:
        """action: (N, A) in the environment's units. velocity: of `place`, (N,)."""
        survived = self.healthy * getattr(self.options, "healthy_reward", 0.0)
        return self.options.forward_reward_weight * velocity + survived - self.costs(action)

    def costs(self, action: NDArray) -> NDArray:
        return self.options.ctrl_cost_weight * np.square(action).sum(1)

    def terminal(self) -> NDArray:
        """(N,) bool."""
        return ~self.healthy & getattr(self.options, "terminate_when_unhealthy", False)


class HalfCheetah(Task):
    hidden_positions = 1
    if_normal_velocity = True


class Swimmer(Task):
    hidden_positions = 2


class Walker2d(Task):
    hidden_positions = 1
    largest_velocity = 10.0

    def stepped(self) -> None:
        z, angle = self.qpos[:, 1], self.qpos[:, 2]
        self.healthy = between(z, self.options.healthy_z_range) & between(angle, self.options.healthy_angle_range)


class Hopper(Walker2d):
    def stepped(self) -> None:
        super().stepped()
        for part in (self.qpos[:, 2:], self.qvel):
            self.healthy &= between(part, self.options.healthy_state_range).all(1)


class TouchingTask(Task):
    """Bodies feel external forces `cfrc_ext` (N, bodies, 6), which a batch does not compute: they are asked for one
    environment at a time, a tenth of the time that its physics takes, and only where the options need them."""

    hidden_positions = 2

    @staticmethod
    def needs_forces(options: SimpleNamespace) -> bool:
        return options.include_cfrc_ext_in_observation or options.contact_cost_weight != 0

    def __init__(self, one: Any, options: SimpleNamespace, batch: Any):
        super().__init__(one, options, batch)
        self.limits = getattr(options, "contact_force_range", (-np.inf, np.inf))
        self.forces = np.zeros((batch.nsim, self.model.nbody, 6))
        self.data = batch.get_data(0) if self.needs_forces(options) else None

    def begun(self, rows: Rows) -> None:
        self.forces[rows] = np.clip(0.0, *self.limits)

    def stepped(self) -> None:
        if self.data is not None:
            from mujoco import mj_rnePostConstraint

            for i in range(self.batch.nsim):
                mj_rnePostConstraint(self.model, self.batch.get_data(i, self.data))
                np.clip(self.data.cfrc_ext, *self.limits, out=self.forces[i])

    def touch(self, rows: Rows) -> list[NDArray]:
        return [flat(self.forces[rows, 1:])] if self.options.include_cfrc_ext_in_observation else []

    def touch_cost(self) -> NDArray:
        return self.options.contact_cost_weight * np.square(flat(self.forces)).sum(1)


class Ant(TouchingTask):
    if_normal_velocity = True

    def __init__(self, one: Any, options: SimpleNamespace, batch: Any):
        super().__init__(one, options, batch)
        self.xpos, self.body = batch.bind("xpos"), self.model.body(options.main_body).id

    def place(self) -> NDArray:
        return self.xpos[:, self.body, 0]

    def stepped(self) -> None:
        super().stepped()
        low, high = self.options.healthy_z_range
        is_finite = np.isfinite(self.qpos).all(1) & np.isfinite(self.qvel).all(1)
        self.healthy = is_finite & (low <= self.qpos[:, 2]) & (self.qpos[:, 2] <= high)

    def observe(self, rows: Rows) -> Sequence[NDArray]:
        return *super().observe(rows), *self.touch(rows)

    def costs(self, action: NDArray) -> NDArray:
        return super().costs(action) + self.touch_cost()


class Humanoid(TouchingTask):
    def __init__(self, one: Any, options: SimpleNamespace, batch: Any):
        super().__init__(one, options, batch)
        self.xipos = batch.bind("xipos")
        parts = (("cinert", 1), ("cvel", 1), ("qfrc_actuator", 6))  # without the world's, the free joint's
        self.seen = [
            (batch.bind(name), first) for name, first in parts if getattr(options, f"include_{name}_in_observation")
        ]

    def place(self) -> NDArray:
        mass = self.batch.expanded("body_mass")
        mass = np.broadcast_to(self.model.body_mass, self.xipos.shape[:2]) if mass is None else mass
        return np.einsum("nb,nbj->nj", mass, self.xipos)[:, 0] / mass.sum(1)

    def stepped(self) -> None:
        super().stepped()
        self.healthy = between(self.qpos[:, 2], self.options.healthy_z_range)

    def observe(self, rows: Rows) -> Sequence[NDArray]:
        seen = [flat(field[rows, first:]) for field, first in self.seen]
        return *super().observe(rows), *seen, *self.touch(rows)

    def costs(self, action: NDArray) -> NDArray:
        return super().costs(self.ctrl) + np.clip(self.touch_cost(), *self.options.contact_cost_range)


class InvertedPendulum(Task):
    def stepped(self) -> None:
        is_finite = np.isfinite(self.qpos).all(1) & np.isfinite(self.qvel).all(1)
        self.healthy = is_finite & ~(np.abs(self.qpos[:, 1]) > 0.2)

    def reward(self, action: NDArray, velocity: NDArray) -> NDArray:
        return self.healthy.astype(np.float64)

    def terminal(self) -> NDArray:
        return ~self.healthy


class InvertedDoublePendulum(Task):
    if_normal_velocity = True

    def __init__(self, one: Any, options: SimpleNamespace, batch: Any):
        super().__init__(one, options, batch)
        self.tip, self.qfrc_constraint = batch.bind("site_xpos")[:, 0], batch.bind("qfrc_constraint")

    def stepped(self) -> None:
        self.healthy = ~(self.tip[:, 2] <= 1)

    def observe(self, rows: Rows) -> Sequence[NDArray]:
        angles, force = self.qpos[rows, 1:], self.qfrc_constraint[rows, :1]
        limited = np.clip(self.qvel[rows], -10, 10), np.clip(force, -10, 10)
        return self.qpos[rows, :1], np.sin(angles), np.cos(angles), *limited

    def reward(self, action: NDArray, velocity: NDArray) -> NDArray:
        x, y, v1, v2 = self.tip[:, 0], self.tip[:, 2], self.qvel[:, 1], self.qvel[:, 2]
        distance = 0.01 * x**2 + (y - 2) ** 2
        return self.healthy * self.options.healthy_reward - distance - (1e-3 * v1**2 + 5e-3 * v2**2)

    def terminal(self) -> NDArray:
        return ~self.healthy


class Reacher(Task):
    def __init__(self, one: Any, options: SimpleNamespace, batch: Any):
        super().__init__(one, options, batch)
        self.xpos = batch.bind("xpos")
        self.finger, self.target = (self.model.body(name).id for name in ("fingertip", "target"))

    def start(self, rng: np.random.Generator, num: int) -> tuple[NDArray, NDArray]:
        qpos = self.init_qpos + rng.uniform(-0.1, 0.1, (num, self.model.nq))
        qvel = self.init_qvel + rng.uniform(-0.005, 0.005, (num, self.model.nv))
        radius, angle = 0.2 * np.sqrt(rng.uniform(size=num)), rng.uniform(0, 2 * np.pi, num)  # even over a disc
        qpos[:, -2:] = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
        qvel[:, -2:] = 0
        return qpos, qvel

    def observe(self, rows: Rows) -> Sequence[NDArray]:
        angles = self.qpos[rows, :2]
        return np.cos(angles), np.sin(angles), self.qpos[rows, 2:], self.qvel[rows, :2], self.gap(rows)[:, :2]

    def gap(self, rows: Rows) -> NDArray:
        return self.xpos[rows, self.finger] - self.xpos[rows, self.target]

    def reward(self, action: NDArray, velocity: NDArray) -> NDArray:
        distance = np.linalg.norm(self.gap(ALL), axis=1) * self.options.reward_dist_weight
        return -distance - np.square(action).sum(1) * self.options.reward_control_weight


TASKS: dict[str, type[Task]] = {  # by Gymnasium's modules
    "half_cheetah_v5": HalfCheetah, "swimmer_v5": Swimmer, "walker2d_v5": Walker2d, "hopper_v5": Hopper, "ant_v5": Ant,
    "humanoid_v5": Humanoid, "inverted_pendulum_v5": InvertedPendulum, "reacher_v5": Reacher,
    "inverted_double_pendulum_v5": InvertedDoublePendulum,
}  # fmt: skip


def between(x: NDArray, limits: tuple[float, float]) -> NDArray:
    return (limits[0] < x) & (x < limits[1])


def flat(x: NDArray) -> NDArray:
    return x.reshape(len(x), -1)


def task_of(env: GymEnv) -> type[Task] | None:
    """The task that does exactly what `env` does, N times; None if there is none, or it has to be rendered."""
    package, _, module = type(env.unwrapped).__module__.rpartition(".")
    if package != "gymnasium.envs.mujoco" or env.spec is None or env.render_mode or not find_spec("mujoco.batch"):
        return None
    layer: Any = env
    while layer is not env.unwrapped:
        if type(layer).__name__ not in PLAIN_WRAPPERS:
            return None
        layer = layer.env
    return TASKS.get(module)


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
        one = env_name
        if not isinstance(one, GymEnv):
            one = make_env(env_name, {**options, "max_step": max_step})
        try:
            from mujoco import mjtDisableBit
            from mujoco.batch import Batch
        except ImportError as error:
            raise ImportError("MujocoVecEnv needs mujoco 3.17 or newer: pip install elegantrl[mujoco]") from error
        task_class = task_of(one)
        if task_class is None or one.spec is None:
            raise ValueError(f"MujocoVecEnv has {', '.join(TASKS)}, without wrappers and rendering, not {one}")
        self.one = one
        super().__init__(one, one, num_envs, device_of(gpu_id))  # closed together
        defaults = inspect.signature(type(one.unwrapped)).parameters
        settings = SimpleNamespace(**{name: p.default for name, p in defaults.items()} | one.spec.kwargs)
        self.frame_skip = one.unwrapped.frame_skip
        needs_data = issubclass(task_class, TouchingTask) and task_class.needs_forces(settings)
        model = copy(one.unwrapped.model)
        if model.ntree == 1:  # there are no islands to find: the same bits without the search, 5 to 8 % sooner
            model.opt.disableflags |= mjtDisableBit.mjDSBL_ISLAND
        self.batch = Batch(model, num_envs, num_threads or torch.get_num_threads(), needs_data)
        self.batch.reset()
        self.fresh = self.batch.state[0].copy()
        self.fields = {name: self.batch.expand(name) for name in randomise or {}}
        self.randomise = {name: _drawer(name, how, self.fields[name][0]) for name, how in (randomise or {}).items()}
        self.task = task_class(one.unwrapped, settings, self.batch)
        self.steps = np.zeros(num_envs, np.int64)  # of the episodes under way
        self.place = np.zeros(num_envs)
        self.rng = np.random.Generator(np.random.SFC64())

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
        self.task.stepped()
        place = self.task.place().copy()
        reward = self.task.reward(native, (place - self.place) / self.task.dt).astype(np.float32)
        terminal, truncate = self.task.terminal(), self.steps >= self.max_step
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
