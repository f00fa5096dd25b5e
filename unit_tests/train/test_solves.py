"""Every algorithm solves its small task: the run ends by `break_score`. The table is made by benchmarks/learning.py."""

from __future__ import annotations

from typing import Any

import pytest

from elegantrl import Config, LinearSchedule, agents, train_agent

DQN = {"net_dims": (128, 128), "horizon_len": 32, "utd": 0.5, "gamma": 0.98, "learning_rate": LinearSchedule(1e-3)}
ON = {"num_envs": 16, "horizon_len": 64, "batch_size": 256, "learning_rate": 1e-3, "gamma": 0.98}
A2C = {"num_envs": 16, "horizon_len": 8, "learning_rate": LinearSchedule(1e-3), "gamma": 0.98}
OFF = {"net_dims": (128, 128), "learning_rate": 1e-3, "batch_size": 128}
ON_PENDULUM = {"if_norm_reward": True, "learning_rate": LinearSchedule(1e-3), "gamma": 0.9}

CASES: list[tuple[str, str, float, int, dict[str, Any]]] = [
    *((name, "CartPole-v1", 475, 150_000, DQN) for name in ("DQN", "DoubleDQN", "DuelingDQN", "D3QN")),
    *((name, "CartPole-v1", 475, 100_000, ON) for name in ("PPO", "DiscretePPO")),
    *((name, "CartPole-v1", 475, 300_000, A2C) for name in ("A2C", "DiscreteA2C")),
    *((name, "Pendulum-v1", -200, 20_000, OFF) for name in ("SAC", "ModSAC", "TD3", "DDPG")),
    ("PPO", "Pendulum-v1", -200, 150_000, {**ON_PENDULUM, "num_envs": 4, "horizon_len": 1024, "batch_size": 64}),
    (
        "A2C",
        "Pendulum-v1",
        -200,
        600_000,
        {**ON_PENDULUM, **A2C, "gamma": 0.9, "lambda_gae_adv": 1.0, "activation": "relu"},
    ),
]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("name", "task", "score", "steps", "settings"), CASES, ids=[f"{c[0]}-{c[1]}" for c in CASES])
def test_solves(name: str, task: str, score: float, steps: int, settings: dict[str, Any]):
    agent_class = getattr(agents, f"Agent{name}")
    ends = {"break_step": steps, "break_score": score, "eval_per_step": steps // 20, "eval_times": 10}
    run = train_agent(Config(agent_class, task, **settings, **ends), if_single_process=True)
    assert run.stop_reason.startswith("break_score"), run.evaluator.records.best_return
