"""Train SAC on Pendulum-v1 in one process until it is solved, then let the saved policy play. `make demo` runs this."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import gymnasium as gym
import torch

from elegantrl import Config, load_agent, train_agent
from elegantrl.agents import AgentSAC

CWD = Path("demo_run")
SOLVED = -200.0  # mean return of the greedy policy; a random one gets about -1200


def train() -> None:
    args = Config(AgentSAC, "Pendulum-v1")
    args.net_dims = (64, 64)
    args.learning_rate = 1e-3
    args.break_step = 20_000
    args.break_score = SOLVED + 20  # a margin, so that one lucky evaluation does not end the run too early
    args.eval_per_step = 500
    args.eval_times = 16
    args.cwd = str(CWD)
    train_agent(args, if_single_process=True)


def play(episodes: int = 20) -> float:
    """Mean return of the saved policy over fresh episodes."""
    agent = load_agent(str(CWD))
    env = gym.make("Pendulum-v1")
    total = 0.0
    for episode in range(episodes):
        state, _ = env.reset(seed=10_000 + episode)
        done = False
        while not done:
            action = agent.select_action(state)
            state, reward, terminal, truncate, _ = env.step(action)
            total += float(reward)
            done = terminal or truncate
    env.close()
    return total / episodes


def main() -> int:
    torch.set_num_threads(1)
    start = time.time()
    train()
    score = play()
    solved = score >= SOLVED
    print(f"\nPendulum-v1 {'solved' if solved else 'NOT solved'} in {time.time() - start:.0f} s:")
    print(f"the saved policy's mean return over 20 fresh episodes is {score:.1f} (solved: {SOLVED:.0f} and above)")
    print(f"learning curve: {(CWD / 'LearningCurve.jpg').resolve()}")
    return 0 if solved else 1


if __name__ == "__main__":
    sys.exit(main())
