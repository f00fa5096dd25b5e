"""Gymnasium's classic control as tensors, and a task whose best policy and value are known. Letters: see tensor.py.

A step differs from the NumPy original's by 5e-6 of a state's size at most (float32); with `dtype=torch.float64` whole
episodes of CartPole and Pendulum are the original ones to the last bit.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .tensor import TensorEnv, columns


def wrapped(angle: Tensor) -> Tensor:
    """The same angle in [-pi, pi]; one that is there already stays exactly what it is."""
    return angle - 2 * math.pi * (angle / (2 * math.pi)).round()


class CartPoleVecEnv(TensorEnv):
    """CartPole-v1: a force of +-10 N on the cart; pays 1 a step until the pole leaves 12 degrees or the cart 2.4 m.

    Barto, Sutton, Anderson 1983. world = state: position, velocity, angle, angular velocity.
    """

    state_dim, action_dim, if_discrete, max_step = 4, 2, True, 500

    gravity, half_length, force, dt = 9.8, 0.5, 10.0, 0.02
    total_mass = 1.1  # of the cart 1.0, of the pole 0.1
    pole = 0.1 * half_length / total_mass

    def __init__(
        self, num_envs: int = 64, gpu_id: int = -1, max_step: int | None = None, dtype: torch.dtype = torch.float32
    ):
        super().__init__(num_envs, gpu_id, max_step, dtype)
        # tensors are made here, since in `advance` each would be one more copy from the host
        self.limits = self.tensor(2.4, 12 * 2 * math.pi / 360)  # of position and angle
        self.push_left = self.tensor(-self.force / self.total_mass)
        self.inertia = self.tensor(self.half_length * 4 / 3 / self.pole)

    def fresh(self) -> Tensor:
        return self.uniform(-0.05, 0.05, 4)

    def advance(self, world: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        _, x_dot, theta, theta_dot = world.unbind(-1)
        cos, sin = theta.cos(), theta.sin()
        # addcmul(a, b, c, value=v) is a + v * b * c in one pass, as add(a, b, alpha=v) is a + v * b
        push = torch.addcmul(self.push_left, sin, theta_dot.square(), value=self.pole)
        push = push.add(action, alpha=2 * self.force / self.total_mass)
        torque = torch.addcmul(self.gravity / self.pole * sin, cos, push, value=-1 / self.pole)
        theta_acc = torque / torch.addcmul(self.inertia, cos, cos, value=-1)
        x_acc = torch.addcmul(push, cos, theta_acc, value=-self.pole)
        world = world.add(columns(x_dot, x_acc, theta_dot, theta_acc), alpha=self.dt)
        left = world[:, ::2].abs() > self.limits
        return world, torch.ones_like(x_dot), left[:, 0] | left[:, 1]

    def observe(self, world: Tensor) -> Tensor:
        return world


class PendulumVecEnv(TensorEnv):
    """Pendulum-v1: swing up and hold, by a torque of +-2 N m (the policy's [-1, 1]); pays minus the squared errors.

    world: angle (0 is upright), angular velocity. state: cos, sin, angular velocity.
    """

    state_dim, action_dim, max_step = 3, 1, 200

    gravity, max_speed, max_torque, dt = 10.0, 8.0, 2.0, 0.05  # of a rod of 1 m and 1 kg

    def fresh(self) -> Tensor:
        return columns(self.uniform(-math.pi, math.pi), self.uniform(-1, 1))

    def advance(self, world: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        theta, theta_dot = world.unbind(-1)
        torque = self.max_torque * action[:, 0]
        cost = wrapped(theta).square() + 0.1 * theta_dot.square() + 0.001 * torque.square()
        theta_dot = theta_dot + (1.5 * self.gravity * theta.sin() + 3 * torque) * self.dt
        theta_dot = theta_dot.clamp(-self.max_speed, self.max_speed)
        theta = theta + theta_dot * self.dt
        return columns(theta, theta_dot), -cost, torch.zeros_like(theta, dtype=torch.bool)

    def observe(self, world: Tensor) -> Tensor:
        theta, theta_dot = world.unbind(-1)
        return columns(theta.cos(), theta.sin(), theta_dot)


class MountainCarContinuousVecEnv(TensorEnv):
    """MountainCarContinuous-v0: rock an engine that is too weak up the hill; pays 100 there, minus 0.1 action^2 a step.

    Moore 1990. world = state: position, velocity.
    """

    state_dim, action_dim, max_step = 2, 1, 999

    min_position, max_position, goal, max_speed, power, gravity = -1.2, 0.6, 0.45, 0.07, 0.0015, 0.0025

    def fresh(self) -> Tensor:
        position = self.uniform(-0.6, -0.4)
        return columns(position, torch.zeros_like(position))

    def advance(self, world: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        position, velocity = world.unbind(-1)
        force = action[:, 0]
        velocity = velocity + self.power * force - self.gravity * (3 * position).cos()
        velocity = velocity.clamp(-self.max_speed, self.max_speed)
        position = (position + velocity).clamp(self.min_position, self.max_position)
        velocity = velocity.masked_fill((position == self.min_position) & (velocity < 0), 0.0)  # the wall on the left
        terminal = (position >= self.goal) & (velocity >= 0)
        return columns(position, velocity), 100.0 * terminal - 0.1 * force.square(), terminal

    def observe(self, world: Tensor) -> Tensor:
        return world


class AcrobotVecEnv(TensorEnv):
    """Acrobot-v1: swing the tip of two links above the bar by the torque -1, 0 or 1 between them; pays -1 a step.

    Sutton 1996, equations of the book (Sutton, Barto 2018). world: two angles (0 hangs down), their velocities.
    state: cos and sin of each angle, the velocities. Links of 1 m, 1 kg and 1 kg m^2.
    """

    state_dim, action_dim, if_discrete, max_step = 6, 3, True, 500

    gravity, dt, max_speed_1, max_speed_2 = 9.8, 0.2, 4 * math.pi, 9 * math.pi

    def fresh(self) -> Tensor:
        return self.uniform(-0.1, 0.1, 4)

    def rates(self, world: Tensor, torque: Tensor) -> Tensor:
        """d world / dt, (N, 4)."""
        theta_1, theta_2, dot_1, dot_2 = world.unbind(-1)
        cos_2, sin_2 = theta_2.cos(), theta_2.sin()
        d_1 = 3.5 + cos_2
        d_2 = 1.25 + 0.5 * cos_2
        phi_2 = 0.5 * self.gravity * (theta_1 + theta_2).sin()  # sin(x) is the cos(x - pi/2) of the book
        phi_1 = -0.5 * dot_2.square() * sin_2 - dot_2 * dot_1 * sin_2 + 1.5 * self.gravity * theta_1.sin() + phi_2
        acc_2 = torque + d_2 / d_1 * phi_1 - 0.5 * dot_1.square() * sin_2 - phi_2
        acc_2 = acc_2 / (1.25 - d_2.square() / d_1)
        acc_1 = -(d_2 * acc_2 + phi_1) / d_1
        return columns(dot_1, dot_2, acc_1, acc_2)

    def advance(self, world: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        torque, dt = (action - 1).to(self.dtype), self.dt
        k_1 = self.rates(world, torque)  # Runge-Kutta of order 4
        k_2 = self.rates(world + dt / 2 * k_1, torque)
        k_3 = self.rates(world + dt / 2 * k_2, torque)
        k_4 = self.rates(world + dt * k_3, torque)
        theta_1, theta_2, dot_1, dot_2 = (world + dt / 6 * (k_1 + 2 * k_2 + 2 * k_3 + k_4)).unbind(-1)
        theta_1, theta_2 = wrapped(theta_1), wrapped(theta_2)
        dot_1 = dot_1.clamp(-self.max_speed_1, self.max_speed_1)
        dot_2 = dot_2.clamp(-self.max_speed_2, self.max_speed_2)
        terminal = -theta_1.cos() - (theta_1 + theta_2).cos() > 1
        return columns(theta_1, theta_2, dot_1, dot_2), terminal.to(self.dtype) - 1, terminal

    def observe(self, world: Tensor) -> Tensor:
        theta_1, theta_2, dot_1, dot_2 = world.unbind(-1)
        return columns(theta_1.cos(), theta_1.sin(), theta_2.cos(), theta_2.sin(), dot_1, dot_2)


class LQRVecEnv(TensorEnv):
    """A cart without friction that is to rest at 0: x' = F x + G a, pays -(x^T Q x + R a^2). It never ends.

    With discount gamma the best action is -K x and its value -x^T P x, where P and K solve the discrete Riccati
    equation of (sqrt(gamma) F, sqrt(gamma) G, Q, R). That action stays within [-1, 1] from every start, for gamma up to
    1, so that bounds change nothing. world = state: position, velocity.
    """

    state_dim, action_dim, max_step = 2, 1, 200

    F = ((1.0, 0.1), (0.0, 1.0))
    G = (0.0, 0.1)
    Q = (0.1, 0.01)  # a diagonal
    R = 0.1

    def fresh(self) -> Tensor:
        return self.uniform(-0.4, 0.4, 2)

    def advance(self, world: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        position, velocity = world.unbind(-1)
        force = action[:, 0]
        cost = self.Q[0] * position.square() + self.Q[1] * velocity.square() + self.R * force.square()
        (f_00, f_01), (f_10, f_11) = self.F
        position, velocity = (
            f_00 * position + f_01 * velocity + self.G[0] * force,
            f_10 * position + f_11 * velocity + self.G[1] * force,
        )
        return columns(position, velocity), -cost, torch.zeros_like(force, dtype=torch.bool)

    def observe(self, world: Tensor) -> Tensor:
        return world
