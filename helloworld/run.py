"""The training loop: explore, store, learn, evaluate."""

from __future__ import annotations

import os
import time

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from agent import AgentBase, ReplayBuffer
from config import Config
from env import GymEnv


def train(agent: AgentBase, env: GymEnv) -> list[tuple[int, float]]:
    """Trains until `break_step` or `break_score`; the best policy is left in agent.act and in cwd/actor.pth.

    Returns the learning curve: (step, mean return of the greedy policy) of each evaluation.
    """
    args = agent.args
    torch.set_num_threads(1)  # on networks this small more threads only get in each other's way
    evaluator = Evaluator(env.another(), args)
    buffer = ReplayBuffer(args.buffer_size)
    step = 0
    if agent.if_off_policy:
        buffer.update(agent.explore_env(env, args.buffer_init_size, if_random=True))
        step += args.buffer_init_size
    while step < args.break_step and evaluator.best < args.break_score:
        agent.progress = step / args.break_step
        rollout = agent.explore_env(env, args.horizon_len)
        step += args.horizon_len
        if agent.if_off_policy:
            buffer.update(rollout)
            logs = agent.update_net(buffer)
        else:
            logs = agent.update_net(rollout)
        evaluator.evaluate_if_due(agent, step, logs)
    evaluator.close(agent)
    return evaluator.curve


def train_agent(args: Config) -> list[tuple[int, float]]:
    """The same from a Config that names agent_class and env_class: what `elegantrl.train_agent` does."""
    env = GymEnv(args.env_class)
    agent = args.agent_class(args.net_dims, env.state_dim, env.action_dim, args.gpu_id, args)
    return train(agent, env)


class Evaluator:
    """Measures the greedy policy on its own environment, keeps the best one, draws the learning curve."""

    def __init__(self, env: GymEnv, args: Config):
        self.env, self.args = env, args
        self.start, self.best, self.next_step = time.time(), -np.inf, args.eval_per_step
        self.curve: list[tuple[int, float]] = []
        self.path = os.path.join(args.cwd, "actor.pth")
        os.makedirs(args.cwd, exist_ok=True)
        print("    step  seconds |     avgR    stdR   avgS |     objC      objA")

    def evaluate_if_due(self, agent: AgentBase, step: int, logs: tuple[float, float]) -> None:
        """Every `eval_per_step` steps and at the end: plays, prints a line, keeps the policy if it is the best yet."""
        if step < min(self.next_step, self.args.break_step):
            return
        self.next_step = step + self.args.eval_per_step
        returns, steps = evaluate(self.env, agent, self.args.eval_times)  # (eval_times,) each
        mean = float(returns.mean())
        self.curve.append((step, mean))
        played = f"{mean:8.1f} {returns.std():7.1f} {steps.mean():6.0f}"
        print(f"{step:8d} {time.time() - self.start:8.0f} | {played} | {logs[0]:8.3f} {logs[1]:9.3f}", flush=True)
        if mean > self.best:
            self.best = mean
            torch.save(agent.act.state_dict(), self.path)

    def close(self, agent: AgentBase) -> None:
        """Gives the best policy back to the agent and draws cwd/LearningCurve.jpg."""
        if self.curve:  # else the run ended while actions were random, and the file is an earlier run's
            agent.act.load_state_dict(torch.load(self.path, weights_only=True))
        figure = Figure()  # drawn without a screen
        axes = figure.subplots()
        axes.plot(*zip(*self.curve, strict=True))
        axes.set(xlabel="steps", ylabel="mean return of the greedy policy", title=self.env.env_name)
        axes.grid()
        figure.savefig(os.path.join(self.args.cwd, "LearningCurve.jpg"))


def evaluate(env: GymEnv, agent: AgentBase, episodes: int, first_seed: int = 10_000) -> tuple[NDArray, NDArray]:
    """Returns and lengths, (episodes,) each, of the greedy policy. Training never began with these seeds."""
    played = [get_rewards_and_steps(env, agent, first_seed + i) for i in range(episodes)]
    returns, steps = np.array(played).T
    return returns, steps


def get_rewards_and_steps(env: GymEnv, agent: AgentBase, seed: int | None = None) -> tuple[float, int]:
    """The return, which is the sum of rewards, and the length of one episode of the greedy policy.

    To watch it, give it a GymEnv(..., render_mode="human").
    """
    state, _ = env.reset(seed=seed)  # (S,)
    cumulative_reward, steps, end = 0.0, 0, False
    while not end:
        state, reward, terminal, truncate, _ = env.step(agent.select_action(state))
        cumulative_reward, steps, end = cumulative_reward + reward, steps + 1, terminal or truncate
    return cumulative_reward, steps
