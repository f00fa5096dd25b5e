"""Tiny tasks for teams whose right answers are known, batches made by hand, and a short way to train."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from elegantrl.agents.AgentBase import AgentOffPolicy
from elegantrl.train.replay_buffer import ReplayBuffer
from elegantrl.train.worker import Worker
from elegantrl.trajectory import Batch, Record
from unit_tests.tasks import POISON, Settings, Task


class TeamTask(Task):
    """A Task with an agent axis. own: rewards (N, M) instead of the team's (N,)."""

    global_dim = 0

    def __init__(self, num_envs: int = 4, num_agents: int = 2, own: bool = False, **how: Any):
        super().__init__(num_envs, **how)
        self.num_agents, self.own = num_agents, own

    def step(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        state, reward, *rest = super().step(action)
        return state, reward[:, None].expand(-1, self.num_agents) if self.own else reward, *rest


class TeamClock(TeamTask):
    """Clock for a team: reward 1 a step, the same is seen by all agents."""

    def __init__(self, ends: str = "truncate", length: int = 5, **how: Any):
        super().__init__(ends=ends, length=length, **how)
        self.state_dim = length + 1 if ends == "terminate" else 2

    def observe(self) -> Tensor:
        return torch.eye(self.state_dim)[self.t % self.state_dim][:, None].repeat(1, self.num_agents, 1)

    def payoff(self, action: Tensor) -> Tensor:
        return torch.ones(self.num_envs)

    def values(self, gamma: float) -> tuple[Tensor, Tensor]:
        """The states (R, M, S) and their true values (R,)."""
        if self.ends == "truncate":
            states, true = torch.eye(2), torch.full((2,), 1 / (1 - gamma))
        else:
            left = torch.arange(self.length, 0, -1)
            states, true = torch.eye(self.state_dim)[:-1], (1 - gamma**left) / (1 - gamma)
        return states[:, None].repeat(1, self.num_agents, 1), true


class TeamMasked(TeamTask):
    """Agent m may take the actions up to 1 + m of three, which pay their number; none where an episode is over."""

    state_dim = 1

    def __init__(self, num_envs: int = 4, length: int = 3, **how: Any):
        super().__init__(num_envs, if_discrete=True, ends="terminate", length=length, **how)
        from elegantrl.envs import ActionCodec

        self.action_dim, self.codec = 3, ActionCodec.plain(3, True)
        self.allowed = torch.arange(3) < torch.arange(1, self.num_agents + 1)[:, None]

    def observe(self) -> Tensor:
        return torch.ones(self.num_envs, self.num_agents, 1)

    def info(self) -> dict[str, Tensor]:
        return {"action_mask": self.allowed & ~self.over[:, None, None]}

    def payoff(self, action: Tensor) -> Tensor:
        assert bool(
            (
                self.allowed.expand(self.num_envs, -1, -1).gather(-1, action[..., None])[..., 0] | self.over[:, None]
            ).all()
        )
        return action.sum(-1)


class Recall(TeamTask):
    """The first state shows a token of two; `delay` steps later, acting by it pays 1. No state between shows it.

    num_agents 0: one agent without the axis. The state: is this the first or the last one, then the token.
    """

    state_dim = 4

    def __init__(self, num_envs: int = 16, num_agents: int = 2, delay: int = 10, autoreset: str = "same_step"):
        super().__init__(
            num_envs, num_agents, if_discrete=True, ends="terminate", length=delay + 1, autoreset=autoreset
        )

    def draw(self, chosen: Tensor) -> None:
        new = torch.randint(2, (self.num_envs, max(1, self.num_agents)), generator=self.random)
        self.token = new if bool(chosen.all()) else torch.where(chosen[:, None], new, self.token)

    def observe(self) -> Tensor:
        first, last = (self.t == 0)[:, None], (self.t == self.length - 1)[:, None].expand_as(self.token)
        shown = torch.nn.functional.one_hot(self.token, 2) * first[..., None]
        state = torch.cat([first.expand_as(self.token)[..., None], last[..., None], shown], -1).float()
        return state if self.num_agents else state[:, 0]

    def payoff(self, action: Tensor) -> Tensor:
        right = (action.reshape(self.num_envs, -1) == self.token).float().mean(-1)
        return right * (self.t == self.length - 1)


def build(agent_class: type, env: Any, **settings: Any) -> Any:
    """An agent for the task on the CPU. net_dims is (16,) unless given."""
    names = ("if_discrete", "num_agents", "global_dim")
    settings = {"net_dims": (16,), **{name: getattr(env, name) for name in names}, **settings}
    agent = agent_class(settings["net_dims"], env.state_dim, env.action_dim, gpu_id=-1, args=Settings(**settings))
    agent.codec = env.codec
    return agent


def ring(env: Any, rows: int = 4096, if_use_per: bool = False) -> ReplayBuffer:
    dims = (rows, env.state_dim, env.action_dim, -1, env.num_envs, if_use_per)
    return ReplayBuffer(*dims, if_discrete=env.if_discrete, num_agents=env.num_agents)


def train(agent: Any, env: Any, rounds: int, horizon: int, rows: int = 4096, if_use_per: bool = False) -> None:
    """`rounds` times: explore `horizon` steps, update. Off-policy the first rollout is random."""
    worker = Worker(env, agent, Settings(horizon_len=horizon))
    worker.restart(seed=0)
    buffer = ring(env, rows, if_use_per) if isinstance(agent, AgentOffPolicy) else None
    for i in range(rounds):
        agent.progress = i / rounds
        trajectory = worker.explore(if_random=buffer is not None and i == 0)
        if buffer is not None:
            buffer.update(trajectory)
        agent.update_net(trajectory if buffer is None else buffer)
        agent.update_statistics(trajectory)


def batch(states: Tensor, actions: Tensor, rewards: Tensor, after: Tensor | None = None, **fields: Any) -> Batch:
    """A batch of B rows that all go on, with gamma 0.9."""
    ones = torch.ones_like(rewards)
    names = {"action_mask", "global_state", "alive"}
    now = {name: fields[name] for name in names & fields.keys()}
    later = {name: fields.get(f"next_{name}", x) for name, x in now.items()}
    rest = {"undones": ones.bool(), "discount": 0.9 * ones, "weight": ones, "index": torch.arange(len(states))}
    given = {"weight": fields["weight"]} if "weight" in fields else {}
    next_record = Record(states if after is None else after, **later)
    return Batch(states, **now, actions=actions, rewards=rewards, next=next_record, **{**rest, **given})


__all__ = ["POISON", "Recall", "TeamClock", "TeamMasked", "TeamTask", "batch", "build", "ring", "train"]
