"""DDPG, arXiv:1509.02971, on one screen: it learns Pendulum-v1."""

import random
from collections import deque
from copy import deepcopy

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def train_ddpg(break_step: int = 20_000, seed: int = 0, gamma: float = 0.99, tau: float = 5e-3) -> float:
    """Return of the greedy policy at the end. Letters: B batch, S = 3 numbers in a state, A = 1 in an action."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    random.seed(seed)
    env, eval_env = gym.make("Pendulum-v1"), gym.make("Pendulum-v1")  # actions in [-2, 2]
    act = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1), nn.Tanh())
    cri = nn.Sequential(nn.Linear(3 + 1, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1), nn.Flatten(0))
    act_target, cri_target = deepcopy(act), deepcopy(cri)  # they follow slowly
    act_optimizer, cri_optimizer = (torch.optim.Adam(net.parameters(), lr=1e-3) for net in (act, cri))
    buffer: deque = deque(maxlen=100_000)

    state, _ = env.reset(seed=seed)  # (S,)
    for step in range(1, break_step + 1):
        # explore: mu(s) plus noise, eq. 7
        with torch.no_grad():
            action = (act(torch.as_tensor(state)) + 0.1 * torch.randn(1)).clamp(-1, 1)  # (A,)
            action = torch.rand(1) * 2 - 1 if step <= 1_000 else action
        next_state, reward, terminal, truncate, _ = env.step(2 * action.numpy())
        buffer.append((state, action.numpy(), np.float32(reward), next_state, np.float32(not terminal)))
        state = env.reset()[0] if terminal or truncate else next_state  # only a terminal ends what can be earned

        # learn
        if step > 1_000:
            rows = zip(*random.sample(buffer, 128), strict=True)
            states, actions, rewards, next_states, undones = (torch.as_tensor(np.array(x)) for x in rows)  # (B, ...)
            with torch.no_grad():  # y = r + gamma Q'(s', mu'(s')), eq. 5
                next_q = cri_target(torch.cat([next_states, act_target(next_states)], 1))  # (B,)
                label = rewards + gamma * undones * next_q  # (B,)
            cri_optimizer.zero_grad()
            F.mse_loss(cri(torch.cat([states, actions], 1)), label).backward()  # eq. 4
            cri_optimizer.step()
            act_optimizer.zero_grad()
            (-cri(torch.cat([states, act(states)], 1)).mean()).backward()  # eq. 6
            act_optimizer.step()
            for target, net in ((act_target, act), (cri_target, cri)):
                for p_target, p in zip(target.parameters(), net.parameters(), strict=True):
                    p_target.data.lerp_(p.data, tau)

        # evaluate: the greedy policy, in an environment of its own
        if step % 1_000 == 0 or step == break_step:
            score = np.mean([play(eval_env, act, 10_000 + i) for i in range(10)])
            print(f"step {step:6d}   mean return {score:7.1f}", flush=True)
            if score >= -160:
                break
    return score


@torch.no_grad()
def play(env: gym.Env, act: nn.Module, seed: int) -> float:
    (state, _), total, end = env.reset(seed=seed), 0.0, False
    while not end:
        state, reward, terminal, truncate, _ = env.step(2 * act(torch.as_tensor(state)).numpy())
        total, end = total + float(reward), terminal or truncate
    return total


if __name__ == "__main__":
    train_ddpg()
