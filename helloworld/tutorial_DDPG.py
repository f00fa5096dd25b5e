"""DDPG learns Pendulum-v1: a motor that is too weak to lift a pendulum swings it up and holds it there.

Run it: python tutorial_DDPG.py. AgentSAC in place of AgentDDPG works as it stands.
"""

from __future__ import annotations

from agent import AgentDDPG
from config import Config
from env import GymEnv, get_gym_env_args
from run import evaluate, train


def train_ddpg_for_pendulum(seed: int = 0, break_step: int = 10_000, agent_class=AgentDDPG) -> float:
    """Mean return over 20 fresh episodes: about -1200 by random actions, -150 by the best; -200 counts as solved."""
    args = Config(random_seed=seed, break_step=break_step, cwd=f"Pendulum-v1_{agent_class.__name__}")
    args.eval_per_step = 1_000
    args.eval_times = 20

    env = GymEnv("Pendulum-v1")
    get_gym_env_args(env, if_print=True)
    agent = agent_class(args.net_dims, env.state_dim, env.action_dim, args.gpu_id, args)
    train(agent, env)
    return evaluate(env, agent, episodes=20, first_seed=20_000)[0].mean()


if __name__ == "__main__":
    print(f"DDPG on Pendulum-v1, mean return over 20 fresh episodes: {train_ddpg_for_pendulum():.1f}")
