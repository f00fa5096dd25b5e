"""Load a trained agent, score it, film it: pendulum.gif. Two minutes of training first; --quick: seconds.

Needs pygame, which draws the pendulum: `pip install ".[box2d]"` has it.
"""

from __future__ import annotations

import os

import gymnasium as gym
from PIL import Image

from elegantrl import Config, load_agent, train_agent
from elegantrl.agents import AgentSAC
from quick import quick

CWD = "filmed_run"


def train() -> None:
    args = Config(AgentSAC, "Pendulum-v1", net_dims=(64, 64), learning_rate=1e-3, break_step=20_000, break_score=-160)
    args.eval_per_step, args.eval_times, args.cwd = 1_000, 16, CWD
    train_agent(quick(args), if_single_process=True)


def film(path: str) -> float:
    """One episode of the greedy policy as a moving picture; its return."""
    agent = load_agent(CWD, best=True)  # best: of the best evaluation; otherwise the run's last one
    env = gym.make("Pendulum-v1", render_mode="rgb_array")  # no window, so it works on a server too
    state, _ = env.reset(seed=0)
    frames, score, done = [], 0.0, False
    while not done:
        state, reward, terminal, truncate, _ = env.step(agent.select_action(state))  # in the environment's own units
        score, done = score + float(reward), terminal or truncate
        frames.append(Image.fromarray(env.render()).resize((200, 200)))
    frames[0].save(path, save_all=True, append_images=frames[2::2], duration=100, loop=0)
    env.close()
    return score


def main() -> None:
    if not os.path.exists(f"{CWD}/checkpoint.pth"):
        train()
    print(f"return {film('pendulum.gif'):.0f}; the film: {os.path.abspath('pendulum.gif')}")


if __name__ == "__main__":
    main()
