"""Learning from pictures: states of three axes and uint8 go through a convolutional network. A minute.

Pixels stay bytes in the replay buffer and are scaled to [0, 1] once, by the network.
"""

from __future__ import annotations

import numpy as np
from gymnasium.spaces import Box, Discrete

from elegantrl import Config, train_agent
from elegantrl.agents import AgentDQN
from quick import quick


class Catch:
    """A ball falls through a picture of 10 x 10 pixels; a paddle of three on the last row catches it, or not."""

    observation_space, action_space, max_step = Box(0, 255, (1, 10, 10), np.uint8), Discrete(3), 9

    def reset(self, seed: int | None = None) -> tuple[np.ndarray, dict]:
        if seed is not None or not hasattr(self, "random"):
            self.random = np.random.default_rng(seed)
        self.row, self.column, self.paddle = 0, int(self.random.integers(10)), 5
        return self.picture(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.paddle = int(np.clip(self.paddle + int(action) - 1, 1, 8))  # left, stay, right
        self.row += 1
        landed = self.row == 9
        reward = (1.0 if abs(self.column - self.paddle) <= 1 else -1.0) if landed else 0.0
        return self.picture(), reward, landed, False, {}

    def picture(self) -> np.ndarray:
        pixels = np.zeros((1, 10, 10), np.uint8)
        pixels[0, 9, self.paddle - 1 : self.paddle + 2] = 128
        pixels[0, self.row, self.column] = 255
        return pixels


def main() -> None:
    args = Config(AgentDQN, Catch, break_step=20_000, break_score=1.0, eval_per_step=1_000, eval_times=50)
    args.net_dims, args.learning_rate, args.batch_size, args.utd = (64,), 1e-3, 32, 0.25
    args.buffer_size = 20_000
    args.num_threads = 1  # the pictures are small: more threads would only get in each other's way
    run = train_agent(quick(args), if_single_process=True)
    pixels = run.learner.buffer.columns["states"]
    print(f"pixels in the buffer: {tuple(pixels.shape)}, {pixels.dtype}")
    print(f"best return {run.evaluator.records.best_return:.2f} of 1")


if __name__ == "__main__":
    main()
