"""What Gymnasium's MuJoCo v5 tasks observe, pay and end by, in arrays (N, ...) of all environments.

The formulas are those of the classes in `gymnasium.envs.mujoco`, in the same order of operations, so that the results
are the same to the last bit. N environments, A action.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from .single import GymEnv, make_env

Array = Any  # NumPy's, or torch's in those tasks that run on MuJoCo Warp
Rows = Any  # which environments: ALL, indices, or a mask
Bind = Callable[[str], Array]
ALL = slice(None)
FINITE = (-math.inf, math.inf)
PLAIN_WRAPPERS = {"GymEnv", "TimeLimit", "OrderEnforcing", "PassiveEnvChecker"}  # these change no number


class Task:
    """One of Gymnasium's classes over all environments; this one runs forward: HalfCheetah, Swimmer and the others.

    one: an object of that class. options: what its constructor was told, and its defaults. bind: gives MuJoCo's fields
    by name as live arrays (N, ...); after a step the derived ones are one substep behind positions and velocities, in
    Gymnasium too.
    """

    needs_forces = False
    forces: Array
    hidden_positions = 0  # leading ones that `exclude_current_positions_from_observation` leaves out
    if_normal_velocity = False  # initial velocities are normal, not uniform
    largest_velocity: float | None = None  # in observations

    def __init__(self, one: Any, options: SimpleNamespace, bind: Bind):
        self.model, self.init_qpos, self.init_qvel, self.dt = one.model, one.init_qpos, one.init_qvel, one.dt
        self.options, self.mass = options, one.model.body_mass  # (bodies,), or (N, bodies) where it differs
        self.qpos, self.qvel, self.ctrl = (bind(name) for name in ("qpos", "qvel", "ctrl"))
        self.healthy = self.qpos[:, 0] < math.inf  # (N,), all of them
        hides = getattr(options, "exclude_current_positions_from_observation", False)
        self.first_position = self.hidden_positions if hides else 0

    def start(self, rng: Any, num: int) -> tuple[Array, Array]:
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

    def place(self) -> Array:
        """What runs forward, (N,), in metres."""
        return self.qpos[:, 0]

    def observe(self, rows: Rows) -> Sequence[Array]:
        """The parts of the observation, (n, size) each."""
        qvel = self.qvel[rows]
        if self.largest_velocity is not None:
            qvel = qvel.clip(-self.largest_velocity, self.largest_velocity)
        return self.qpos[rows, self.first_position :], qvel

    def reward(self, action: Array, velocity: Array) -> Array:
        """action: (N, A) in the environment's units. velocity: of `place`, (N,)."""
        survived = self.healthy * getattr(self.options, "healthy_reward", 0.0)
        return self.options.forward_reward_weight * velocity + survived - self.costs(action)

    def costs(self, action: Array) -> Array:
        return self.options.ctrl_cost_weight * (action**2).sum(1)

    def terminal(self) -> Array:
        """(N,) bool."""
        return ~self.healthy & getattr(self.options, "terminate_when_unhealthy", False)

    def is_finite(self) -> Array:
        return between(self.qpos, FINITE).all(1) & between(self.qvel, FINITE).all(1)


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
    """Bodies feel external forces `cfrc_ext`, which `stepped` expects in `forces`, (N, bodies, 6)."""

    hidden_positions = 2

    def __init__(self, one: Any, options: SimpleNamespace, bind: Bind):
        super().__init__(one, options, bind)
        self.limits = getattr(options, "contact_force_range", (-math.inf, math.inf))
        self.needs_forces = options.include_cfrc_ext_in_observation or options.contact_cost_weight != 0

    def begun(self, rows: Rows) -> None:
        low, high = self.limits
        self.forces[rows] = min(max(0.0, low), high)

    def stepped(self) -> None:
        self.forces = self.forces.clip(*self.limits)

    def touch(self, rows: Rows) -> list[Array]:
        return [flat(self.forces[rows, 1:])] if self.options.include_cfrc_ext_in_observation else []

    def touch_cost(self) -> Array:
        return self.options.contact_cost_weight * (flat(self.forces) ** 2).sum(1)


class Ant(TouchingTask):
    if_normal_velocity = True

    def __init__(self, one: Any, options: SimpleNamespace, bind: Bind):
        super().__init__(one, options, bind)
        self.xpos, self.body = bind("xpos"), self.model.body(options.main_body).id

    def place(self) -> Array:
        return self.xpos[:, self.body, 0]

    def stepped(self) -> None:
        super().stepped()
        low, high = self.options.healthy_z_range
        self.healthy = self.is_finite() & (low <= self.qpos[:, 2]) & (self.qpos[:, 2] <= high)

    def observe(self, rows: Rows) -> Sequence[Array]:
        return *super().observe(rows), *self.touch(rows)

    def costs(self, action: Array) -> Array:
        return super().costs(action) + self.touch_cost()


class Humanoid(TouchingTask):
    def __init__(self, one: Any, options: SimpleNamespace, bind: Bind):
        super().__init__(one, options, bind)
        self.xipos = bind("xipos")
        parts = (("cinert", 1), ("cvel", 1), ("qfrc_actuator", 6))  # without the world's, the free joint's
        self.seen = [(bind(name), first) for name, first in parts if getattr(options, f"include_{name}_in_observation")]

    def place(self) -> Array:
        mass = np.broadcast_to(self.mass, self.xipos.shape[:2])
        return np.einsum("nb,nbj->nj", mass, self.xipos)[:, 0] / mass.sum(1)

    def stepped(self) -> None:
        super().stepped()
        self.healthy = between(self.qpos[:, 2], self.options.healthy_z_range)

    def observe(self, rows: Rows) -> Sequence[Array]:
        seen = [flat(field[rows, first:]) for field, first in self.seen]
        return *super().observe(rows), *seen, *self.touch(rows)

    def costs(self, action: Array) -> Array:
        return super().costs(self.ctrl) + np.clip(self.touch_cost(), *self.options.contact_cost_range)


class InvertedPendulum(Task):
    def stepped(self) -> None:
        self.healthy = self.is_finite() & ~(np.abs(self.qpos[:, 1]) > 0.2)

    def reward(self, action: Array, velocity: Array) -> Array:
        return self.healthy.astype(np.float64)

    def terminal(self) -> Array:
        return ~self.healthy


class InvertedDoublePendulum(Task):
    if_normal_velocity = True

    def __init__(self, one: Any, options: SimpleNamespace, bind: Bind):
        super().__init__(one, options, bind)
        self.tip, self.qfrc_constraint = bind("site_xpos")[:, 0], bind("qfrc_constraint")

    def stepped(self) -> None:
        self.healthy = ~(self.tip[:, 2] <= 1)

    def observe(self, rows: Rows) -> Sequence[Array]:
        angles, force = self.qpos[rows, 1:], self.qfrc_constraint[rows, :1]
        limited = np.clip(self.qvel[rows], -10, 10), np.clip(force, -10, 10)
        return self.qpos[rows, :1], np.sin(angles), np.cos(angles), *limited

    def reward(self, action: Array, velocity: Array) -> Array:
        x, y, v1, v2 = self.tip[:, 0], self.tip[:, 2], self.qvel[:, 1], self.qvel[:, 2]
        distance = 0.01 * x**2 + (y - 2) ** 2
        return self.healthy * self.options.healthy_reward - distance - (1e-3 * v1**2 + 5e-3 * v2**2)

    def terminal(self) -> Array:
        return ~self.healthy


class Reacher(Task):
    def __init__(self, one: Any, options: SimpleNamespace, bind: Bind):
        super().__init__(one, options, bind)
        self.xpos = bind("xpos")
        self.finger, self.target = (self.model.body(name).id for name in ("fingertip", "target"))

    def start(self, rng: Any, num: int) -> tuple[Array, Array]:
        qpos = self.init_qpos + rng.uniform(-0.1, 0.1, (num, self.model.nq))
        qvel = self.init_qvel + rng.uniform(-0.005, 0.005, (num, self.model.nv))
        radius, angle = 0.2 * np.sqrt(rng.uniform(size=num)), rng.uniform(0, 2 * np.pi, num)  # even over a disc
        qpos[:, -2:] = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
        qvel[:, -2:] = 0
        return qpos, qvel

    def observe(self, rows: Rows) -> Sequence[Array]:
        angles = self.qpos[rows, :2]
        return np.cos(angles), np.sin(angles), self.qpos[rows, 2:], self.qvel[rows, :2], self.gap(rows)[:, :2]

    def gap(self, rows: Rows) -> Array:
        return self.xpos[rows, self.finger] - self.xpos[rows, self.target]

    def reward(self, action: Array, velocity: Array) -> Array:
        distance = np.linalg.norm(self.gap(ALL), axis=1) * self.options.reward_dist_weight
        return -distance - (action**2).sum(1) * self.options.reward_control_weight


TASKS: dict[str, type[Task]] = {  # by Gymnasium's modules
    "half_cheetah_v5": HalfCheetah, "swimmer_v5": Swimmer, "walker2d_v5": Walker2d, "hopper_v5": Hopper, "ant_v5": Ant,
    "humanoid_v5": Humanoid, "inverted_pendulum_v5": InvertedPendulum, "reacher_v5": Reacher,
    "inverted_double_pendulum_v5": InvertedDoublePendulum,
}  # fmt: skip


def between(x: Array, limits: tuple[float, float]) -> Array:
    return (limits[0] < x) & (x < limits[1])


def flat(x: Array) -> Array:
    return x.reshape(len(x), -1)


def task_of(env: GymEnv) -> type[Task] | None:
    """The task that does exactly what `env` does, N times; None if there is none, or it has to be rendered."""
    package, _, module = type(env.unwrapped).__module__.rpartition(".")
    if package != "gymnasium.envs.mujoco" or env.spec is None or env.render_mode:
        return None
    layer: Any = env
    while layer is not env.unwrapped:
        if type(layer).__name__ not in PLAIN_WRAPPERS:
            return None
        layer = layer.env
    return TASKS.get(module)


def made(env_name: str | GymEnv, known: Iterable[type[Task]], **env_args: Any) -> tuple[GymEnv, type[Task]]:
    """The environment, made with these arguments if it is an id, and its task. ValueError: it is not among `known`."""
    one = env_name if isinstance(env_name, GymEnv) else make_env(env_name, env_args)
    task = task_of(one)
    if task is None or task not in known:
        names = ", ".join(task.__name__ for task in known)
        raise ValueError(f"one of Gymnasium's v5 tasks {names}, without wrappers and rendering, is needed, not {one}")
    return one, task


def options_of(env: GymEnv) -> SimpleNamespace:
    """The arguments of Gymnasium's class, its defaults included."""
    defaults = inspect.signature(type(env.unwrapped)).parameters
    given = env.spec.kwargs if env.spec else {}
    return SimpleNamespace(**{name: p.default for name, p in defaults.items()} | given)
