"""PPO learns CartPole-v1 with discrete actions, then Pendulum-v1 with continuous ones."""

from __future__ import annotations

from agent import AgentDiscretePPO, AgentPPO
from config import Config
from env import GymEnv, get_gym_env_args
from run import evaluate, train


def train_ppo_for_cartpole(seed: int = 0, break_step: int = 80_000) -> float:
    """Mean return over 20 fresh episodes: 500 is the most there is, 475 counts as solved."""
    args = Config(random_seed=seed, break_step=break_step, cwd="CartPole-v1_PPO")
    args.gamma = 0.98
    args.lambda_gae_adv = 0.9
    args.horizon_len, args.batch_size = 1024, 64  # each rollout is used for repeat_times * 1024 / 64 = 160 steps
    args.eval_per_step, args.eval_times = 5_000, 20
    args.break_score = 495
    return learn(AgentDiscretePPO, GymEnv("CartPole-v1"), args)


def train_ppo_for_pendulum(seed: int = 0, break_step: int = 150_000) -> float:
    """Mean return over 20 fresh episodes: about -1200 by random actions, -150 by the best; -200 counts as solved."""
    args = Config(random_seed=seed, break_step=break_step, cwd="Pendulum-v1_PPO")
    args.gamma = 0.9  # what is done now shows within ten steps
    args.reward_scale = 0.1  # rewards go down to -16: in tenths the critic learns their values sooner
    args.horizon_len, args.batch_size = 2048, 64
    args.eval_per_step, args.eval_times = 10_000, 20
    args.break_score = -170
    return learn(AgentPPO, GymEnv("Pendulum-v1"), args)


def learn(agent_class, env: GymEnv, args: Config) -> float:
    get_gym_env_args(env, if_print=True)
    args.clip_grad_norm = 0.5
    agent = agent_class(args.net_dims, env.state_dim, env.action_dim, args.gpu_id, args)
    train(agent, env)
    return evaluate(env, agent, episodes=20, first_seed=20_000)[0].mean()


if __name__ == "__main__":
    print(f"PPO on CartPole-v1, mean return over 20 fresh episodes: {train_ppo_for_cartpole():.1f}")
    print(f"PPO on Pendulum-v1, mean return over 20 fresh episodes: {train_ppo_for_pendulum():.1f}")
