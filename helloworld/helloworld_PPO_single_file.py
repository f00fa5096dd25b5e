"""PPO, arXiv:1707.06347, on one screen: it learns CartPole-v1."""

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical


def train_ppo(break_step: int = 80_000, seed: int = 0, gamma: float = 0.98, lam: float = 0.9) -> float:
    """Return of the greedy policy at the end. Letters: T = 1024 steps of a rollout, B batch, S = 4, A = 2 actions."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    env, eval_env = gym.make("CartPole-v1"), gym.make("CartPole-v1")
    act = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))  # logits (B, A)
    cri = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1), nn.Flatten(0))
    optimizer = torch.optim.Adam([*act.parameters(), *cri.parameters()], lr=1e-3)

    state, _ = env.reset(seed=seed)  # (S,)
    for step in range(1024, break_step + 1024, 1024):
        # explore: T steps of the policy as it is
        rows = []
        for _ in range(1024):
            with torch.no_grad():
                action = int(Categorical(logits=act(torch.as_tensor(state))).sample())
            next_state, reward, terminal, truncate, _ = env.step(action)
            end = terminal or truncate
            rows.append((state, action, reward, next_state, not terminal, not end))
            state = env.reset()[0] if end else next_state
        columns = (torch.as_tensor(np.array(x)) for x in zip(*rows, strict=True))  # (T, ...)
        states, actions, rewards, next_states, undones, keeps = columns

        # how much better than expected each action was: GAE, arXiv:1506.02438 eq. 16
        with torch.no_grad():
            deltas = rewards + gamma * undones * cri(next_states) - cri(states)  # (T,)
            advantages, advantage = torch.zeros(1024), torch.zeros(())  # (T,), ()
            for t in reversed(range(1024)):  # across no episode's end
                advantages[t] = advantage = deltas[t] + gamma * lam * keeps[t] * advantage
            returns = advantages + cri(states)  # (T,)
            advantages = (advantages - advantages.mean()) / advantages.std()  # (T,)
            old_logprobs = Categorical(logits=act(states)).log_prob(actions)  # (T,)

        # learn: ten epochs over the rollout
        for i in (i for _ in range(10) for i in torch.randperm(1024).split(64)):  # (B,)
            logprobs = Categorical(logits=act(states[i])).log_prob(actions[i])  # (B,)
            ratio = (logprobs - old_logprobs[i]).exp()  # (B,)
            surrogate = torch.min(ratio * advantages[i], ratio.clamp(0.8, 1.2) * advantages[i])  # (B,), eq. 7
            loss = -surrogate.mean() + (cri(states[i]) - returns[i]).square().mean()  # (), eq. 9
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_([*act.parameters(), *cri.parameters()], 0.5)
            optimizer.step()

        # evaluate: the greedy policy, in an environment of its own
        if step % 5_120 == 0 or step >= break_step:
            score = np.mean([play(eval_env, act, 10_000 + i) for i in range(10)])
            print(f"step {step:6d}   mean return {score:6.1f}", flush=True)
            if score >= 495:
                break
    return score


def play(env: gym.Env, act: nn.Module, seed: int) -> float:
    (state, _), total, end = env.reset(seed=seed), 0.0, False
    while not end:
        state, reward, terminal, truncate, _ = env.step(int(act(torch.as_tensor(state)).argmax()))
        total, end = total + float(reward), terminal or truncate
    return total


if __name__ == "__main__":
    train_ppo()
