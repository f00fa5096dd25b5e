"""Rows of the experiment matrix of learning.py, as data: the peer by its zoo's settings, and what else goes beyond it.

A row's name is its agent with its variant: `AgentPPO`, `AgentPPO+H`, `AgentPPO@lr_third`, `sb3-PPO`.
Agents whose name begins with sb3- are Stable-Baselines3's (peers.py). Their settings are those of rl-baselines3-zoo
(hyperparams/*.yml, in the newest stored versions: ppo 208b6fd, sac c94924e, td3 a02f4fb, dqn ce95481, a2c c6c209e;
those for LunarLander-v2, Pendulum-v0 and Hopper-v4 on today's versions), `lin_x` being LinearSchedule(x). The number of
steps is the zoo's or that of our row beside it, whichever is less.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from elegantrl.agents.functional import LinearSchedule

EPISODES = 10  # of each evaluation
RANDOM = {  # mean return of 50 episodes of uniformly random actions: `python benchmarks/report.py --random`
    "CartPole-v1": 21.5, "Acrobot-v1": -500.0, "Pendulum-v1": -1183.1, "MountainCarContinuous-v0": -33.2,
    "LunarLander-v3": -168.5, "LunarLanderContinuous-v3": -234.8, "Hopper-v5": 17.4, "HalfCheetah-v5": -342.5,
    "Swimmer-v5": -1.0, "HopperBulletEnv-v0": 20.5, "InvertedPendulumBulletEnv-v0": 24.8,
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One agent on one task: what it is told (Config's keywords, or those of peers.py) and for how long."""

    task: str
    agent: str
    break_step: int
    eval_per_step: int
    settings: dict[str, Any]
    seeds: int = 5
    variant: str = ""

    @property
    def name(self) -> str:
        return self.agent + self.variant

    def told(self) -> dict[str, Any]:
        return {
            "break_step": self.break_step,
            "eval_per_step": self.eval_per_step,
            "eval_times": EPISODES,
        } | self.settings


def with_changes(row: Row) -> list[Row]:
    """How much the learning rate and the batch size matter: the same row with other values of them, 3 seeds."""

    def times(name: str, factor: float) -> dict[str, Any]:
        value = row.settings[name]
        if isinstance(value, LinearSchedule):
            return {name: replace(value, start=value.start * factor, end=value.end * factor)}
        return {name: type(value)(value * factor)}

    changes = {
        "@lr_third": times("learning_rate", 1 / 3), "@lr_thrice": times("learning_rate", 3),
        "@batch_half": times("batch_size", 1 / 2), "@batch_twice": times("batch_size", 2),
    }  # fmt: skip
    return [replace(row, settings=row.settings | new, variant=name, seeds=3) for name, new in changes.items()]


# Stable-Baselines3

SB3_SDE = {"use_sde": True, "policy_kwargs": {"log_std_init": -2, "ortho_init": False}}
SB3_A2C_PENDULUM = SB3_SDE | {
    "normalize": True, "n_envs": 8, "max_grad_norm": 0.5, "n_steps": 8, "gae_lambda": 0.9, "vf_coef": 0.4, "gamma": 0.9,
    "use_rms_prop": True, "normalize_advantage": False, "learning_rate": LinearSchedule(7e-4),
}  # fmt: skip
SB3_EPISODES = {  # TD3 and DDPG: as many updates as steps, after each episode
    "gamma": 0.98, "buffer_size": 200_000, "learning_starts": 10_000, "noise_type": "normal", "noise_std": 0.1,
    "gradient_steps": -1, "train_freq": (1, "episode"), "learning_rate": 1e-3,
    "policy_kwargs": {"net_arch": [400, 300]},
}  # fmt: skip
SB3_OU = {"noise_type": "ornstein-uhlenbeck", "noise_std": 0.5}
SB3_CARTPOLE_PPO = {
    "n_envs": 8, "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20,
    "learning_rate": LinearSchedule(1e-3), "clip_range": LinearSchedule(0.2),
}  # fmt: skip
SB3_PENDULUM_PPO = {
    "n_envs": 4, "n_steps": 1024, "batch_size": 64, "gae_lambda": 0.95, "gamma": 0.9, "n_epochs": 10,
    "learning_rate": 1e-3, "clip_range": 0.2, "use_sde": True, "sde_sample_freq": 4,
}  # fmt: skip
SB3_MOUNTAIN_PPO = {
    "normalize": True, "n_envs": 1, "n_steps": 8, "batch_size": 256, "gamma": 0.9999, "learning_rate": 7.77e-5,
    "ent_coef": 0.00429, "clip_range": 0.1, "n_epochs": 10, "gae_lambda": 0.9, "max_grad_norm": 5, "vf_coef": 0.19,
    "use_sde": True, "policy_kwargs": {"log_std_init": -3.29, "ortho_init": False},
}  # fmt: skip
SB3_MOUNTAIN_SAC = {
    "learning_rate": 3e-4, "buffer_size": 50_000, "batch_size": 512, "ent_coef": 0.1, "train_freq": 32,
    "gradient_steps": 32, "gamma": 0.9999, "tau": 0.01, "learning_starts": 0, "use_sde": True,
    "policy_kwargs": {"log_std_init": -3.67, "net_arch": [64, 64]},
}  # fmt: skip
SB3_MOUNTAIN_A2C = {
    "normalize": True, "n_envs": 4, "n_steps": 100, "use_sde": True, "sde_sample_freq": 16,
    "policy_kwargs": {"log_std_init": 0.0, "ortho_init": False},
}  # fmt: skip
SB3_CARTPOLE_DQN = {
    "learning_rate": 2.3e-3, "batch_size": 64, "buffer_size": 100_000, "learning_starts": 1_000, "gamma": 0.99,
    "target_update_interval": 10, "train_freq": 256, "gradient_steps": 128, "exploration_fraction": 0.16,
    "exploration_final_eps": 0.04, "policy_kwargs": {"net_arch": [256, 256]},
}  # fmt: skip
SB3_DQN = {  # Acrobot and LunarLander
    "learning_rate": 6.3e-4, "batch_size": 128, "buffer_size": 50_000, "learning_starts": 0, "gamma": 0.99,
    "target_update_interval": 250, "train_freq": 4, "gradient_steps": -1, "exploration_fraction": 0.12,
    "exploration_final_eps": 0.1, "policy_kwargs": {"net_arch": [256, 256]},
}  # fmt: skip
SB3_ACROBOT_PPO = {"normalize": True, "n_envs": 16, "n_steps": 256, "gae_lambda": 0.94, "gamma": 0.99, "n_epochs": 4}
SB3_LUNAR_PPO = {
    "n_envs": 16, "n_steps": 1024, "batch_size": 64, "gae_lambda": 0.98, "gamma": 0.999, "n_epochs": 4,
    "ent_coef": 0.01,
}  # fmt: skip
SB3_LUNAR_SAC = {
    "batch_size": 256, "learning_rate": LinearSchedule(7.3e-4), "tau": 0.01, "learning_starts": 10_000,
    "policy_kwargs": {"net_arch": [400, 300]},
}  # fmt: skip
SB3_MUJOCO_NETS = {
    "log_std_init": -2, "ortho_init": False, "activation_fn": nn.ReLU, "net_arch": {"pi": [256, 256], "vf": [256, 256]},
}  # fmt: skip
SB3_HOPPER_PPO = {
    "normalize": True, "n_envs": 1, "batch_size": 32, "n_steps": 512, "gamma": 0.999, "learning_rate": 9.80828e-5,
    "ent_coef": 0.00229519, "clip_range": 0.2, "n_epochs": 5, "gae_lambda": 0.99, "max_grad_norm": 0.7,
    "vf_coef": 0.835671, "policy_kwargs": SB3_MUJOCO_NETS,
}  # fmt: skip
SB3_CHEETAH_PPO = {
    "normalize": True, "n_envs": 1, "batch_size": 64, "n_steps": 512, "gamma": 0.98, "learning_rate": 2.0633e-5,
    "ent_coef": 0.000401762, "clip_range": 0.1, "n_epochs": 20, "gae_lambda": 0.92, "max_grad_norm": 0.8,
    "vf_coef": 0.58096, "policy_kwargs": SB3_MUJOCO_NETS,
}  # fmt: skip
SB3_SWIMMER_PPO = {
    "normalize": True, "n_envs": 4, "n_steps": 1024, "batch_size": 256, "gamma": 0.9999, "learning_rate": 6e-4,
    "gae_lambda": 0.98,
}  # fmt: skip
SB3_DEFAULTS = {"normalize": True, "n_envs": 8, "n_steps": 256}  # not the zoo's: the rows that a colleague had measured

PEERS = [
    Row("CartPole-v1", "sb3-PPO", 100_000, 2_500, SB3_CARTPOLE_PPO),
    Row("CartPole-v1", "sb3-DQN", 50_000, 2_000, SB3_CARTPOLE_DQN),
    Row("CartPole-v1", "sb3-A2C", 500_000, 20_000, {"n_envs": 8}),
    Row("Acrobot-v1", "sb3-PPO", 200_000, 10_000, SB3_ACROBOT_PPO),
    Row("Acrobot-v1", "sb3-DQN", 100_000, 5_000, SB3_DQN),
    Row("Acrobot-v1", "sb3-A2C", 400_000, 20_000, {"normalize": True, "n_envs": 16}),
    Row("Pendulum-v1", "sb3-SAC", 20_000, 1_000, {"learning_rate": 1e-3, "batch_size": 256}),
    Row("Pendulum-v1", "sb3-TD3", 20_000, 1_000, SB3_EPISODES),
    Row("Pendulum-v1", "sb3-DDPG", 20_000, 1_000, SB3_EPISODES),
    Row("Pendulum-v1", "sb3-PPO", 100_000, 5_000, SB3_PENDULUM_PPO),
    Row("Pendulum-v1", "sb3-A2C", 600_000, 15_000, SB3_A2C_PENDULUM),
    Row("MountainCarContinuous-v0", "sb3-PPO", 20_000, 1_000, SB3_MOUNTAIN_PPO),
    Row("MountainCarContinuous-v0", "sb3-SAC", 50_000, 2_500, SB3_MOUNTAIN_SAC),
    Row("MountainCarContinuous-v0", "sb3-A2C", 100_000, 5_000, SB3_MOUNTAIN_A2C),
    Row("MountainCarContinuous-v0", "sb3-TD3", 50_000, 2_500, SB3_OU),
    Row("MountainCarContinuous-v0", "sb3-DDPG", 50_000, 2_500, SB3_OU),
    Row("LunarLander-v3", "sb3-PPO", 800_000, 20_000, SB3_LUNAR_PPO, seeds=3),
    Row("LunarLander-v3", "sb3-DQN", 100_000, 5_000, SB3_DQN, seeds=3),
    Row("LunarLanderContinuous-v3", "sb3-PPO", 800_000, 20_000, SB3_LUNAR_PPO, seeds=3),
    Row("LunarLanderContinuous-v3", "sb3-SAC", 150_000, 5_000, SB3_LUNAR_SAC, seeds=3),
    Row("Hopper-v5", "sb3-PPO", 1_000_000, 50_000, SB3_HOPPER_PPO, seeds=3),
    Row("Hopper-v5", "sb3-PPO", 1_000_000, 50_000, SB3_DEFAULTS, seeds=8, variant="@defaults"),
    Row("HalfCheetah-v5", "sb3-PPO", 1_000_000, 50_000, SB3_CHEETAH_PPO, seeds=2),
    Row("Swimmer-v5", "sb3-PPO", 1_000_000, 50_000, SB3_SWIMMER_PPO, seeds=2),
]

# ours

DQN = ("AgentDQN", "AgentDoubleDQN", "AgentDuelingDQN", "AgentD3QN")
PPO = ("AgentPPO", "AgentDiscretePPO")
A2C = ("AgentA2C", "AgentDiscreteA2C")

ACROBOT_DQN = {
    "net_dims": (128, 128), "horizon_len": 32, "learning_rate": LinearSchedule(1e-3), "batch_size": 128, "utd": 0.25,
    "buffer_size": 100_000,
}  # fmt: skip
ACROBOT_PPO = {
    "num_envs": 16, "horizon_len": 256, "batch_size": 256, "learning_rate": LinearSchedule(1e-3),
    "lambda_gae_adv": 0.94, "if_norm_state": True, "if_norm_reward": True,
}  # fmt: skip
ACROBOT_A2C = {"num_envs": 32, "horizon_len": 16, "learning_rate": LinearSchedule(2e-3), "if_norm_state": True}
MOUNTAIN_SAC = {
    "net_dims": (64, 64), "learning_rate": 3e-4, "batch_size": 512, "gamma": 0.9999, "soft_update_tau": 0.01,
    "horizon_len": 32,
}  # fmt: skip
MOUNTAIN_OU = {"if_ou_noise": True, "explore_noise_std": 0.5, "learning_rate": 1e-3, "horizon_len": 32}
MOUNTAIN_PPO = {  # noise this wide is clipped to full power forth and back, which finds the flag
    "num_envs": 16, "horizon_len": 256, "batch_size": 256, "learning_rate": LinearSchedule(1e-3), "gamma": 0.999,
    "log_std_init": 2.0, "if_norm_state": True, "if_norm_reward": True,
}  # fmt: skip
CHEETAH_PPO = {
    "num_envs": 32, "horizon_len": 64, "batch_size": 256, "learning_rate": LinearSchedule(1e-3), "ratio_clip": 0.2,
    "if_norm_state": True, "if_norm_reward": True,
}  # fmt: skip
SMALL = {"net_dims": (64, 64), "learning_rate": 1e-3, "batch_size": 128}  # REDQ against SAC
H = {
    "+H": {"lambda_h_term": 2**-5},
    "+H_mean": {"lambda_h_term": 2**-5, "h_term_form": "mean"},
    "+H_product": {"lambda_h_term": 2**-5, "h_term_form": "product"},
    "+H_advantage": {"lambda_h_term": 2**-5, "h_term_weight": "advantage"},
}

MORE = [
    *(Row("Acrobot-v1", agent, 100_000, 5_000, ACROBOT_DQN) for agent in DQN),
    *(Row("Acrobot-v1", agent, 200_000, 10_000, ACROBOT_PPO) for agent in PPO),
    *(Row("Acrobot-v1", agent, 400_000, 20_000, ACROBOT_A2C) for agent in A2C),
    *(Row("MountainCarContinuous-v0", agent, 50_000, 2_500, MOUNTAIN_SAC) for agent in ("AgentSAC", "AgentModSAC")),
    *(Row("MountainCarContinuous-v0", agent, 50_000, 2_500, MOUNTAIN_OU) for agent in ("AgentTD3", "AgentDDPG")),
    *(Row("MountainCarContinuous-v0", agent, 200_000, 10_000, MOUNTAIN_PPO) for agent in ("AgentPPO", "AgentA2C")),
    *(
        Row(task, "AgentPPO", 1_000_000, 50_000, CHEETAH_PPO | {"gamma": gamma}, seeds=2, variant=f"@gamma={gamma}")
        for task in ("HalfCheetah-v5", "Swimmer-v5")
        for gamma in (0.99, 0.9999)
    ),
    # REDQ has half of SAC's steps
    Row("Pendulum-v1", "AgentSAC", 6_000, 200, SMALL, variant="@64"),
    Row("Pendulum-v1", "AgentREDQ", 3_000, 100, SMALL),
    Row("InvertedPendulumBulletEnv-v0", "AgentSAC", 8_000, 200, SMALL, variant="@64"),
    Row("InvertedPendulumBulletEnv-v0", "AgentREDQ", 4_000, 100, SMALL),
]
