"""A small task seen in pixels: the template for environments whose states are images. Letters: see tensor.py."""

from __future__ import annotations

import torch
from torch import Tensor

from .tensor import TensorEnv, columns


class CatchVecEnv(TensorEnv):
    """A ball falls aslant, bounces off the walls, and is to be caught by the paddle below: pays 1, or -1 if missed.

    state: the two newest frames (2, 32, 32) uint8, since one frame does not show where the ball is going. Three
    actions: left, stay, right. world: the ball's column, row and speed, the paddle's column, and all as it was a step
    before. Every episode has 14 steps.
    """

    state_dim, action_dim, if_discrete, max_step = (2, 32, 32), 3, True, 100
    state_dtype = torch.uint8

    size, fall, reach, stride = 32, 2, 3, 2  # pixels: of the frame, a step's fall, half the paddle's width, its step

    def __init__(
        self, num_envs: int = 64, gpu_id: int = -1, max_step: int | None = None, dtype: torch.dtype = torch.float32
    ):
        super().__init__(num_envs, gpu_id, max_step, dtype)
        self.pixels = torch.arange(self.size, device=self.device)

    def fresh(self) -> Tensor:
        ball, paddle = self.uniform(1, self.size - 1), self.uniform(self.reach, self.size - 1 - self.reach)
        place = (ball, torch.zeros_like(ball), self.uniform(-2, 2), paddle)
        return columns(*place, *place)

    def advance(self, world: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, y, speed, paddle = world[:, :4].unbind(-1)
        x, y = x + speed, y + self.fall
        outside = (x < 0) | (x > self.size - 1)
        x, speed = torch.where(outside, x - 2 * speed, x), torch.where(outside, -speed, speed)
        paddle = (paddle + self.stride * (action - 1)).clamp(self.reach, self.size - 1 - self.reach)
        terminal = y >= self.size - 4
        is_caught = (x - paddle).abs() <= self.reach
        reward = terminal * (2.0 * is_caught - 1.0)
        return torch.cat((columns(x, y, speed, paddle), world[:, :4]), -1), reward, terminal

    def observe(self, world: Tensor) -> Tensor:
        x, y, _, paddle = world.view(-1, 2, 4, 1, 1).unbind(2)  # (N, 2, 1, 1) each
        rows, cols = self.pixels[:, None], self.pixels[None]
        ball = ((rows - y).abs() <= 1) & ((cols - x).abs() <= 1)
        floor = (rows >= self.size - 3) & ((cols - paddle).abs() <= self.reach)
        return (ball | floor).to(self.state_dtype) * 255  # (N, 2, 32, 32)
