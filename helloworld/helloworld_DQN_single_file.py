"""DQN, arXiv:1312.5602, on one screen: it learns CartPole-v1. The other files of this folder are this, tidied up."""

import random
from collections import deque
from copy import deepcopy

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def train_dqn(break_step: int = 80_000, seed: int = 0, gamma: float = 0.98, tau: float = 5e-3) -> float:
    """Return of the greedy policy at the end. Letters: B batch, S = 4 numbers in a state, A = 2 actions."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    random.seed(seed)
    env, eval_env = gym.make("CartPole-v1"), gym.make("CartPole-v1")
    q_net = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))  # (B, S)->(B, A)
    q_target = deepcopy(q_net)  # follows slowly, so that the label does not run away from the learner
    optimizer = torch.optim.Adam(q_net.parameters(), lr=1e-3)
    buffer: deque = deque(maxlen=100_000)

    state, _ = env.reset(seed=seed)  # (S,)
    for step in range(1, break_step + 1):
        # explore: epsilon-greedy, from always down to 2 % in the first fifth of the run
        progress = step / break_step
        if random.random() < max(0.02, 1 - 5 * progress):
            action = random.randrange(2)
        else:
            action = int(q_net(torch.as_tensor(state)).argmax())
        next_state, reward, terminal, truncate, _ = env.step(action)
        buffer.append((state, action, reward, next_state, not terminal))  # at a time limit the task goes on
        state = env.reset()[0] if terminal or truncate else next_state

        # learn
        if step > 1_000:
            rows = zip(*random.sample(buffer, 128), strict=True)
            states, actions, rewards, next_states, undones = (torch.as_tensor(np.array(x)) for x in rows)  # (B, ...)
            with torch.no_grad():  # y = r + gamma max_a' Q'(s', a'), below eq. 2
                label = rewards.float() + gamma * undones * q_target(next_states).amax(1)  # (B,)
            q = q_net(states).gather(1, actions[:, None]).squeeze(1)  # (B,) Q(s, a)
            optimizer.param_groups[0]["lr"] = 1e-3 * (1 - progress)  # large steps first, then ever finer ones
            optimizer.zero_grad()
            F.mse_loss(q, label).backward()  # eq. 2
            optimizer.step()
            for p_target, p in zip(q_target.parameters(), q_net.parameters(), strict=True):
                p_target.data.lerp_(p.data, tau)

        # evaluate: the greedy policy, in an environment of its own
        if step % 2_000 == 0 or step == break_step:
            score = np.mean([play(eval_env, q_net, 10_000 + i) for i in range(10)])
            print(f"step {step:6d}   mean return {score:6.1f}", flush=True)
            if score >= 495:
                break
    return score


def play(env: gym.Env, q_net: nn.Module, seed: int) -> float:
    (state, _), total, end = env.reset(seed=seed), 0.0, False
    while not end:
        state, reward, terminal, truncate, _ = env.step(int(q_net(torch.as_tensor(state)).argmax()))
        total, end = total + float(reward), terminal or truncate
    return total


if __name__ == "__main__":
    train_dqn()
