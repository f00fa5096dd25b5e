"""Every number that a run can be told, with its default. `Config(gamma=0.98)` changes one; `print(Config())` shows all.

The names are ElegantRL's, so that what you learn here holds there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass
class Config:
    """The settings of an agent and of its training run."""

    # who learns what; only `train_agent(args)` needs these two
    agent_class: Any = None  # AgentDQN, AgentDDPG, AgentSAC, AgentPPO or AgentDiscretePPO
    env_class: Any = None  # an id of Gymnasium's such as "CartPole-v1"

    # the networks
    net_dims: tuple[int, ...] = (64, 64)  # widths of the hidden layers
    learning_rate: float = 1e-3  # step size of Adam at first; it falls to 0 at the end of the run
    clip_grad_norm: float = math.inf  # PPO: a longer gradient is shortened to this, so that no batch can do much harm
    gpu_id: int = -1  # -1: the CPU, which is the faster one for networks this small

    # what is learned
    gamma: float = 0.99  # discount factor: a reward in k steps counts gamma ** k
    reward_scale: float = 1.0  # factor on every reward; networks learn best from numbers near 1

    # how experience is collected and used
    horizon_len: int = 32  # T, steps between two updates of the networks
    batch_size: int = 128  # B, transitions in one gradient step

    # off-policy agents (DQN, DDPG, SAC), which learn from old experience too
    buffer_size: int = 100_000  # transitions that the replay buffer keeps
    buffer_init_size: int = 1_000  # transitions by random actions before anything is learned
    updates_per_step: float = 1.0  # gradient steps for each step of the environment
    soft_update_tau: float = 5e-3  # share of the network that its target takes over after each update
    explore_rate: float = 0.02  # DQN: share of random actions, after it fell from 1 in the first fifth of the run
    explore_noise_std: float = 0.1  # DDPG: std of the noise on actions in [-1, 1]

    # on-policy agents (PPO), which learn from the newest rollout and then forget it
    repeat_times: int = 10  # epochs over each rollout
    ratio_clip: float = 0.2  # how far the probability of an action may move within one rollout
    lambda_gae_adv: float = 0.95  # 0: advantages trust the critic, 1: they trust the rewards that were seen
    lambda_entropy: float = 0.0  # weight of a bonus for randomness

    # the run
    random_seed: int = 0  # everything random follows from it
    break_step: float = 100_000  # the run ends after so many steps ...
    break_score: float = math.inf  # ... or when the mean return of an evaluation reaches this
    eval_per_step: int = 2_000  # steps between two evaluations
    eval_times: int = 10  # episodes of one evaluation
    cwd: str = "."  # folder for actor.pth and LearningCurve.jpg
