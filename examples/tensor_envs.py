"""Thousands of environments as tensors, on a GPU if there is one: your own in 20 lines. A minute on a CPU.

`fresh`, `advance` and `observe` speak of all N at once. Automatic resets, time limits, seeds and saving are inherited.
"""

from __future__ import annotations

import torch
from torch import Tensor

from elegantrl import Config, train_agent
from elegantrl.agents import AgentPPO
from elegantrl.envs import TensorEnv
from quick import quick


class Juggle(TensorEnv):
    """A ball on a tilting table: state (place, speed) along two axes, action the tilt; it pays to be in the middle."""

    state_dim, action_dim, max_step = 4, 2, 100

    def fresh(self) -> Tensor:
        """N new episodes: place and speed, (N, 4)."""
        return torch.cat([self.uniform(-0.8, 0.8, 2), self.normal(0.0, 0.3, 2)], dim=-1)

    def advance(self, world: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """World (N, 4), action (N, 2) in [-1, 1] -> the next world, reward (N,), whether the ball fell (N,)."""
        place, speed = world.chunk(2, dim=-1)  # (N, 2) each
        speed = speed + 0.1 * action
        place = place + 0.1 * speed
        fell = (place.abs() > 1).any(dim=-1)  # no `if`, no loop: where, any, masks
        return torch.cat([place, speed], dim=-1), 1 - place.norm(dim=-1) - 20.0 * fell, fell

    def observe(self, world: Tensor) -> Tensor:
        """What the policy sees, (N, 4)."""
        return world


def main() -> None:
    gpu_id = 0 if torch.cuda.is_available() else -1
    args = Config(AgentPPO, Juggle, num_envs=4096 if gpu_id >= 0 else 256, gpu_id=gpu_id)
    args.horizon_len, args.repeat_times, args.batch_size = 32, 4, 1024
    args.learning_rate, args.gamma = 1e-3, 0.97
    args.break_step, args.eval_per_step = 100 * args.num_envs * args.horizon_len, 10 * args.num_envs * args.horizon_len
    train_agent(quick(args), if_single_process=True)


if __name__ == "__main__":
    main()
