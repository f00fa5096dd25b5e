"""Tiny environments under the vector contract whose right answers are known, and short ways to train on them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from elegantrl.agents.AgentBase import AgentOffPolicy
from elegantrl.envs import ActionCodec
from elegantrl.train.config import Config
from elegantrl.train.replay_buffer import ReplayBuffer
from elegantrl.train.worker import Worker

POISON = 1000.0  # the reward of every row that is no transition: whoever learns from it, shows it


class Task:
    """N copies of a task. A subclass says `observe()` -> (N, S) and `payoff(action)` -> (N,); self.t is the time.

    length: steps of an episode. ends: "truncate" or "terminate".
    final: with same-step auto-reset, whether info has final_obs: "never", "always", or only "at_end" of an episode.
    """

    state_dim: int | tuple[int, ...] = 2
    state_dtype = torch.float32

    def __init__(
        self,
        num_envs: int = 4,
        if_discrete: bool = False,
        ends: str = "truncate",
        length: int = 5,
        autoreset: str = "next_step",
        final: str = "never",
    ):
        self.env_name, self.num_envs, self.if_discrete, self.max_step = (
            type(self).__name__,
            num_envs,
            if_discrete,
            length,
        )
        self.ends, self.length, self.autoreset, self.final = ends, length, autoreset, final
        self.action_dim = 2 if if_discrete else 1
        self.device, self.codec = torch.device("cpu"), ActionCodec.plain(self.action_dim, if_discrete)
        self.random = torch.Generator()
        self.calls = 0
        self.seeds: list[Any] = []

    def draw(self, chosen: Tensor) -> None:
        """Draws what is random in the next episode of the chosen (N,) environments."""

    def info(self) -> dict[str, Tensor]:
        return {}

    def reset(self, seed: int | list[int] | None = None) -> tuple[Tensor, dict[str, Any]]:
        self.seeds.append(seed)
        if seed is not None:
            self.random.manual_seed(sum(seed) if isinstance(seed, list) else seed)
        self.t = torch.zeros(self.num_envs, dtype=torch.long)
        self.over = torch.zeros(self.num_envs, dtype=torch.bool)
        self.draw(~self.over)
        return self.observe(), self.info()

    def step(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        self.calls += 1
        reward = torch.where(self.over, POISON, self.payoff(action).float())
        self.t = torch.where(self.over, 0, self.t + 1)
        done = (self.t >= self.length) & ~self.over
        fresh, info = self.over, {}
        if self.autoreset == "same_step":
            if self.final == "always" or (self.final == "at_end" and bool(done.any())):
                info["final_obs"] = self.observe()
            self.t = torch.where(done, 0, self.t)
            fresh = done
        else:
            self.over = done.clone()
        if bool(fresh.any()):
            self.draw(fresh)
        never = torch.zeros_like(done)
        ended = (done, never) if self.ends == "terminate" else (never, done)
        return self.observe(), reward, *ended, {**self.info(), **info}

    def close(self) -> None:
        pass


class Clock(Task):
    """Reward 1 a step. Seen is the time within the episode if it terminates, so that each state has its own value.

    Seen is only whether t is even if it is truncated: then a cut in time must not be seen in the value.
    """

    def __init__(
        self, num_envs: int = 4, if_discrete: bool = False, ends: str = "truncate", length: int = 5, **how: Any
    ):
        super().__init__(num_envs, if_discrete, ends, length, **how)
        self.state_dim = length + 1 if ends == "terminate" else 2

    def observe(self) -> Tensor:
        return torch.eye(self.state_dim)[self.t % self.state_dim]

    def payoff(self, action: Tensor) -> Tensor:
        return torch.ones(self.num_envs)

    def values(self, gamma: float) -> tuple[Tensor, Tensor]:
        """The states (R, S) and their true values (R,)."""
        if self.ends == "truncate":
            return torch.eye(2), torch.full((2,), 1 / (1 - gamma))
        left = torch.arange(self.length, 0, -1)
        return torch.eye(self.state_dim)[:-1], (1 - gamma**left) / (1 - gamma)


class Counter(Task):
    """The state is the step counter, and so is the reward."""

    state_dim = 1

    def observe(self) -> Tensor:
        return self.t[:, None].float()

    def payoff(self, action: Tensor) -> Tensor:
        return self.t + 1


class Match(Task):
    """One decision: pays -(a - s_0)^2, or discrete 1 if a is the index of the larger entry of s."""

    def __init__(self, num_envs: int = 16, if_discrete: bool = False, scale: float = 1.0, length: int = 1):
        super().__init__(num_envs, if_discrete, "terminate", length)
        self.scale = scale

    def draw(self, chosen: Tensor) -> None:
        new = torch.rand(self.num_envs, 2, generator=self.random) * 1.6 - 0.8
        self.s = new if bool(chosen.all()) else torch.where(chosen[:, None], new, self.s)

    def observe(self) -> Tensor:
        return self.s * self.scale

    def payoff(self, action: Tensor) -> Tensor:
        return score(self.s, action, self.if_discrete)


def score(state: Tensor, action: Tensor, if_discrete: bool) -> Tensor:
    """The reward of Match, (N,)."""
    if if_discrete:
        return (action == state.argmax(-1)).float()
    return -(action[:, 0].clamp(-1, 1) - state[:, 0]).square()


class Masked(Task):
    """Three actions pay 0, 1 and 2, of which the mask allows the first two, and none where an episode is over."""

    state_dim = 1

    def __init__(self, num_envs: int = 4, length: int = 3):
        super().__init__(num_envs, True, "terminate", length)
        self.action_dim, self.codec = 3, ActionCodec.plain(3, True)

    def observe(self) -> Tensor:
        return torch.ones(self.num_envs, 1)

    def info(self) -> dict[str, Tensor]:
        allowed = torch.tensor([True, True, False]).repeat(self.num_envs, 1)
        return {"action_mask": allowed & ~self.over[:, None]}

    def payoff(self, action: Tensor) -> Tensor:
        assert bool(((action < 2) | self.over).all()), "a forbidden action was taken"
        return action


class Settings:
    """What an agent reads of a Config: only these names are given."""

    def __init__(self, **settings: Any):
        vars(self).update(settings)


def build(agent_class: type, env: Task, **settings: Any) -> Any:
    """An agent for the task on the CPU. net_dims is (16,) unless given."""
    settings = {"net_dims": (16,), "if_discrete": env.if_discrete, **settings}
    args = Settings(**settings)
    return agent_class(settings["net_dims"], env.state_dim, env.action_dim, gpu_id=-1, args=args)


def train(agent: Any, env: Task, rounds: int, horizon: int, buffer: ReplayBuffer | None = None) -> None:
    """`rounds` times: explore `horizon` steps, update. Off-policy the first rollout is random."""
    worker = Worker(env, agent, Settings(horizon_len=horizon))
    worker.restart(seed=0)
    if isinstance(agent, AgentOffPolicy):
        buffer = buffer or ReplayBuffer(
            4096, env.state_dim, env.action_dim, -1, env.num_envs, if_discrete=env.if_discrete
        )
    for i in range(rounds):
        trajectory = worker.explore(if_random=buffer is not None and i == 0)
        agent.observe(trajectory)
        if buffer is not None:
            buffer.update(trajectory)
        agent.update_net(trajectory if buffer is None else buffer)
        agent.update_statistics(trajectory)


def config(agent_class, env_class=Match, env_args=None, **settings) -> Config:
    """A short run in the folder `run`: 300 steps of 4 environments, small networks, evaluations every 100 steps."""
    discrete = agent_class.action_kinds == ("discrete",)
    env_args = env_args or {"num_envs": 4, "if_discrete": discrete}
    short = {"net_dims": (8,), "batch_size": 16, "horizon_len": 8, "buffer_init_size": 32, "buffer_size": 1000}
    short |= {"utd": 0.25} if agent_class.if_off_policy else {"repeat_times": 2}
    ends = {"break_step": 300, "eval_per_step": 100, "eval_times": 4, "cwd": "run"}
    known = agent_class.hyper_parameters()
    short = {key: value for key, value in short.items() if key in known}
    return Config(agent_class, env_class, env_args, **{**short, **ends, **settings})


class Call:
    """A callback: does `act(run)` at one hook, and counts all of them."""

    def __init__(self, hook=None, act=None, at=1):
        self.hook, self.act, self.at, self.counts = hook, act, at, {}

    def __getattr__(self, hook):
        if not hook.startswith("on_"):
            raise AttributeError(hook)

        def call(run):
            self.counts[hook] = self.counts.get(hook, 0) + 1
            if hook == self.hook and self.counts[hook] == self.at:
                self.act(run)

        return call
