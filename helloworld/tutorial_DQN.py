"""DQN learns CartPole-v1: a cart is pushed left or right so that the pole on it stays up."""

from __future__ import annotations

from agent import AgentDQN
from config import Config
from env import GymEnv, get_gym_env_args
from run import evaluate, train


def train_dqn_for_cartpole(seed: int = 0, break_step: int = 60_000) -> float:
    """Mean return over 20 fresh episodes: a step pays 1, so 500 is the most there is; 475 counts as solved."""
    args = Config(random_seed=seed, break_step=break_step, cwd="CartPole-v1_DQN")
    args.gamma = 0.98  # a pole falls within a second or not at all: 1 / (1 - 0.98) = 50 steps ahead are far enough
    args.eval_per_step = 2_500

    env = GymEnv("CartPole-v1")
    get_gym_env_args(env, if_print=True)
    agent = AgentDQN(args.net_dims, env.state_dim, env.action_dim, args.gpu_id, args)
    train(agent, env)
    return evaluate(env, agent, episodes=20, first_seed=20_000)[0].mean()


if __name__ == "__main__":
    print(f"DQN on CartPole-v1, mean return over 20 fresh episodes: {train_dqn_for_cartpole():.1f}")
