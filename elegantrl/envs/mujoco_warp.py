"""Gymnasium's MuJoCo tasks on MuJoCo Warp: states, physics and rewards stay on one device, thousands at once.

The arithmetic is float32, C MuJoCo's is float64: from one state the two agree to 1e-5 after a step; with contacts the
difference grows as in any chaotic system (unit_tests/envs/test_mujoco_warp.py). On a CPU this is for tests only.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from ..device import device_of
from .mujoco_tasks import ALL, Ant, HalfCheetah, Hopper, made, options_of
from .single import GymEnv
from .vector import GymVecEnv, SerialEnvs

WARP_TASKS = (HalfCheetah, Hopper, Ant)
CONTACTS = 32  # of one environment, on average over all; the most that was seen is 10


class TorchRandom:
    """NumPy's names of random draws, as tensors of a device."""

    def __init__(self, device: torch.device):
        self.device, self.generator = device, torch.Generator(device)
        self.generator.seed()

    def uniform(self, low: float, high: float, shape: Sequence[int]) -> Tensor:
        return torch.empty(*shape, device=self.device).uniform_(low, high, generator=self.generator)

    def standard_normal(self, shape: Sequence[int]) -> Tensor:
        return torch.randn(*shape, device=self.device, generator=self.generator)


class MujocoWarpVecEnv(GymVecEnv):
    """The vector contract over N environments of HalfCheetah-v5, Hopper-v5 or Ant-v5, with same-step auto-reset.

    Shapes are fixed, nothing waits for the device, and `info["final_obs"]` (N, S) is the state before the resets.

    env_name: an id, or an environment that Gymnasium made of one. options: of Gymnasium's constructor.
    Positions of HalfCheetah agree with C MuJoCo's to 1e-3 after 20 random steps, Hopper's to 1e-4. Ant's differ by 1e-2
    after two: Warp's friction pyramid lies in other directions (with elliptic cones they agree to 1e-3 after 20).
    ValueError: no such task. ImportError: mujoco-warp is missing.
    """

    autoreset = "same_step"

    def __init__(
        self, env_name: str | GymEnv, num_envs: int = 1, gpu_id: int = -1, max_step: int | None = None, **options: Any
    ):
        try:
            import mujoco_warp
            import warp
        except ImportError as error:
            raise ImportError("MujocoWarpVecEnv needs mujoco-warp: pip install elegantrl[warp]") from error
        one, task_class = made(env_name, WARP_TASKS, max_step=max_step, **options)
        super().__init__(SerialEnvs([one]), device_of(gpu_id))
        self.num_envs, self.mjw, self.wp = num_envs, mujoco_warp, warp
        unwrapped = one.unwrapped
        with self._scope():
            self.model = mujoco_warp.put_model(unwrapped.model)
            self.data = mujoco_warp.make_data(
                unwrapped.model, num_envs, nconmax=CONTACTS, njmax=4 * CONTACTS + unwrapped.model.nv
            )
        self.frame_skip, self.task = unwrapped.frame_skip, task_class(unwrapped, options_of(one), self._field)
        self.task.init_qpos, self.task.init_qvel = self._copy(unwrapped.init_qpos), self._copy(unwrapped.init_qvel)
        if self.task.needs_forces:
            self.task.forces = self._field("cfrc_ext")
        low, high = self._copy(self.codec.low), self._copy(self.codec.high)
        self.action_scale, self.action_offset = (high - low) / 2, (high + low) / 2
        self.steps = torch.zeros(num_envs, dtype=torch.int32, device=self.device)  # of the episodes under way
        self.place = torch.zeros(num_envs, device=self.device)
        self.rng = TorchRandom(self.device)

    def reset(self, seed: int | None = None) -> tuple[Tensor, dict[str, Any]]:
        """RuntimeError: there were more contacts than there is room for."""
        if seed is not None:
            self.rng.generator.manual_seed(seed)
        if bool(self._field("overflow").any()):
            raise RuntimeError(f"{self.env_name}: more than {CONTACTS} contacts an environment, CONTACTS is too small")
        self._begin(torch.ones(self.num_envs, dtype=torch.bool, device=self.device))
        return self._observe(), {}

    def step(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        native = action.to(self.device).clamp(-1, 1) * self.action_scale + self.action_offset
        self.task.ctrl.copy_(native)
        with self._scope():
            for _ in range(self.frame_skip):
                self.mjw.step(self.model, self.data)
            if self.task.needs_forces:
                self.mjw.rne_postconstraint(self.model, self.data)
                self.task.forces = self._field("cfrc_ext")
        self.steps += 1
        self.task.stepped()
        place = self.task.place().clone()
        reward = self.task.reward(native, (place - self.place) / self.task.dt)
        terminal, truncate = self.task.terminal(), self.steps >= self.max_step
        self.place, final, ended = place, self._observe(), terminal | truncate
        self._begin(ended)
        state = torch.where(ended[:, None], self._observe(), final)
        return state, reward, terminal, truncate, {"final_obs": final}

    def _begin(self, ended: Tensor) -> None:
        """New episodes where `ended` (N,) says so. What is drawn for the others is dropped: shapes are fixed."""
        start, rows = self.task.start(self.rng, self.num_envs), ended[:, None]
        for field, value in zip((self.task.qpos, self.task.qvel), start, strict=True):
            field.copy_(torch.where(rows, value, field))
        self._field("qacc_warmstart").masked_fill_(rows, 0)
        self._field("time").masked_fill_(ended, 0)
        with self._scope():
            self.mjw.kinematics(self.model, self.data)
        self.task.begun(ended)
        self.steps.masked_fill_(ended, 0)
        self.place = torch.where(ended, self.task.place(), self.place)

    def _observe(self) -> Tensor:
        return torch.cat(tuple(self.task.observe(ALL)), 1)

    def _field(self, name: str) -> Tensor:
        return self.wp.to_torch(getattr(self.data, name))  # the same memory

    def _copy(self, array: Any) -> Tensor:
        return torch.as_tensor(array, dtype=torch.float32, device=self.device).clone()

    def _scope(self) -> AbstractContextManager:
        """Warp's work goes to this device, in order with torch's."""
        if self._is_cpu:
            return self.wp.ScopedDevice("cpu")
        return self.wp.ScopedStream(self.wp.stream_from_torch(self.device))
