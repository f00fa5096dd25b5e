"""Collects trajectories, in this process or in others. Letters: T horizon, N environments, W Workers, S state."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from typing import Any

import torch
from torch import Tensor

from ..agents.functional import alone
from ..envs.watch import WatchedEnv
from ..faults import EnvironmentFault, ProcessFault
from ..trajectory import Trajectory
from .config import Config, build_agent, build_vec_env, seed_everything
from .processes import LOOK, Child, Link, listen
from .shared import SharedTensors, SharedTrajectories


class Tally:
    """Counts what happened in trajectories, exactly, whatever their length."""

    summed = staticmethod(alone)  # over all Learners that work together, so that the numbers are those of all
    ids: tuple[int, ...] = (0,)  # of the Workers that collect them, each with a stream of seeds of its own

    def __init__(self, num_envs: int, autoreset: str):
        self.autoreset = autoreset
        self.total_step = 0  # env.step calls times environments, without reset rows
        self.reset_rows = 0  # rows in which an environment only reset itself
        self.running = torch.zeros(num_envs, dtype=torch.float64)  # return so far of the episodes under way
        self.clear_summary()

    def is_step(self, tr: Trajectory) -> Tensor:
        """Where an environment did not only reset itself, (T, N) bool."""
        return tr.of_environments(tr.unmasks) if self.autoreset == "next_step" else torch.ones_like(tr.dones)

    def count(self, tr: Trajectory) -> Tensor:
        """Steps, rewards and the returns of finished episodes. Returns the steps of each environment, (N,)."""
        new_steps = self.is_step(tr).sum(0).cpu()
        rewards, dones = tr.of_environments(tr.rewards).cpu(), tr.dones.cpu()
        step = torch.arange(1, tr.horizon + 1)[:, None]
        last_end = (dones * step).amax(0)  # (N,), 0 where no episode ended
        gained = rewards.sum(0, dtype=torch.float64)
        total, rest = self.running + gained, (rewards * (step > last_end)).sum(0, dtype=torch.float64)
        self.running = torch.where(last_end > 0, rest, total)
        returns = (total - self.running).sum()
        numbers = torch.stack([new_steps.sum(), (tr.horizon - new_steps).sum(), gained.sum(), returns, dones.sum()])
        steps, reset_rows, reward_sum, return_sum, episodes = self.summed(numbers.double()).tolist()
        self.total_step += int(steps)
        self.reset_rows += int(reset_rows)
        self.reward_sum += reward_sum
        self.reward_count += int(steps)
        self.return_sum += return_sum
        self.return_count += int(episodes)
        return new_steps

    def clear_summary(self) -> None:
        self.reward_sum, self.reward_count = 0.0, 0
        self.return_sum, self.return_count = 0.0, 0

    def summary(self) -> tuple[float, float]:
        """Mean reward of a step, and mean return of the episodes that ended, since `clear_summary`; NaN if none."""
        reward = self.reward_sum / self.reward_count if self.reward_count else math.nan
        return reward, self.return_sum / self.return_count if self.return_count else math.nan

    def state_dict(self) -> dict[str, Any]:
        sums = ("reward_sum", "reward_count", "return_sum", "return_count")
        return {name: getattr(self, name) for name in ("total_step", "reset_rows", *sums)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)


class Worker(Tally):
    """Steps the environments with the agent's policy and counts what happens.

    env: a vector environment (docs/tutorials/vector_env.md). Rows are written into the same tensors each time: what
    `explore` returns is valid until its next call.
    """

    def __init__(self, env: Any, agent: Any, args: Any):
        self.env, self.agent = WatchedEnv(env, lambda: self.steps_before(self.env.calls - 1) + 1), agent
        super().__init__(env.num_envs, env.autoreset)
        self.horizon_len = int(args.horizon_len)
        self.steps = torch.zeros(env.num_envs, dtype=torch.long)  # of each environment, in this process
        self.trajectory: Trajectory | None = None  # where rows are written

    def restart(self, seed: int) -> None:
        """Resets every environment by a seed; the episodes under way are dropped."""
        self.agent.begin(*self.env.reset(seed=seed))
        self.running.zero_()

    def explore(self, if_random: bool = False) -> Trajectory:
        """One rollout of horizon_len steps in each environment. Raises EnvironmentFault."""
        if self.trajectory is None:
            self.trajectory = self.agent.new_trajectory(self.env, self.horizon_len)
        tr = self.trajectory
        tr.rewards.zero_()
        tr.actions.zero_()
        self.env.calls = 0
        try:
            self.agent.explore(self.env, tr, if_random)
        except EnvironmentFault:
            self.env.check_finite(tr, self)  # a NaN that went before is the cause, not the exception that came of it
            raise
        self.env.check_finite(tr, self)
        self.env.check_masks(tr, self)
        self.steps += self.count(tr)
        return tr

    def steps_before(self, row: int) -> Tensor:
        """Steps of each environment before a row of this rollout, (N,) on the CPU."""
        assert self.trajectory is not None
        return self.steps + self.is_step(self.trajectory)[:row].sum(0).cpu()

    def close(self) -> None:
        self.env.close()


# several of them, each in a process of its own


class PipeWorker(Tally):
    """`args.num_workers` Workers in processes of their own, with the interface of one over all their environments.

    Rollout k is collected with the weights after update k - lag, whatever the processes' speed: a run repeats itself.
    While the Learner works on rollout k, the Workers are at the `lag` rollouts after it.

    env: one Worker's environments, of which only the shapes are taken. args: a `for_children` Config.
    say: takes a line for the user.
    cut: takes the columns (n,) whose next rows do not continue the ones before, as a lost Worker was replaced.
    """

    def __init__(
        self,
        env: Any,
        agent: Any,
        args: Config,
        threads: int,
        say: Callable[[str], None],
        cut: Callable[[Tensor], None],
        first_id: int = 0,
    ):
        workers = args.num_workers
        super().__init__(env.num_envs * workers, env.autoreset)
        self.agent, self.args, self.say, self.cut = agent, args, say, cut
        self.lag = int(agent.if_off_policy) if args.worker_lag is None else args.worker_lag
        self.ids = tuple(range(first_id, first_id + workers))
        self.shared = SharedTrajectories(agent.new_trajectory(env, int(args.horizon_len)), workers, self.lag + 1)
        self.trajectories = [self.shared.slot(slot) for slot in range(self.lag + 1)]
        self.weights = SharedTensors.like(agent.acting_state(), self.lag + 1)
        shared = (self.shared, self.weights)
        self.children = [
            Child(f"Worker {self.ids[i]}", work, (args, i), shared, threads, args.worker_timeout)
            for i in range(workers)
        ]
        self.look: Callable[[], None] = self.hear  # called while it waits
        self.seams: set[tuple[int, int]] = set()  # places, and the first rollouts of Workers that were put there
        self.begun = 0  # rollouts that were asked for
        self.ended = 0  # rollouts that were handed on
        self.restarts = 0

    def start(self) -> None:
        for child in self.children:
            child.start()

    def restart(self, *seeds: int) -> None:
        """Resets every Worker's environments by a seed of its own; what is being collected is dropped."""
        self.wait_for(self.begun)
        self.ended = self.begun
        self.running.zero_()
        self.agent.cut()
        for child, seed in zip(self.children, seeds, strict=True):
            child.seed = seed
            child.send("restart", seed)

    def explore(self, if_random: bool = False) -> Trajectory:
        """The next rollout of all environments (T, W * N, ...), valid until the next call. Raises ProcessFault."""
        while self.begun <= self.ended + (0 if if_random else self.lag):
            slot = self.begun % (self.lag + 1)
            self.weights.write(slot, self.agent.acting_state())
            for child in self.children:
                child.ask("explore", slot, self.agent.progress, if_random)
            self.begun += 1
        self.wait_for(self.ended + 1)
        trajectory = self.trajectories[self.ended % (self.lag + 1)]
        for place in range(len(self.children)):
            if (place, self.ended) in self.seams and self.ended > 0:
                columns = torch.arange(self.running.numel())[self.shared.columns(place)]
                self.running[columns] = 0.0
                self.cut(columns)
        self.count(trajectory)
        self.ended += 1
        return trajectory

    def wait_for(self, rollouts: int) -> None:
        """Until every Worker has delivered so many. Raises what a Worker raised."""
        while any(self.delivered(child) < rollouts for child in self.children):
            self.look()

    def hear(self, timeout: float = LOOK) -> None:
        """Takes what they say within `timeout` seconds. Raises what a Worker raised."""
        for child, (kind, *values) in listen(self.children, timeout):
            if kind == "done":
                child.answered()
            elif kind == "lost":
                self.replace(child, *values)

    def delivered(self, child: Child) -> int:
        return self.begun - len(child.todo)

    def replace(self, child: Child, why: str) -> None:
        """Starts another Worker in the place of a lost one. Raises ProcessFault where `max_restarts` are used up."""
        told, limit = f"{child.name} (seed {child.seed}) {why}", self.args.max_restarts
        if self.restarts >= limit:
            raise ProcessFault(f"{told}. max_restarts={limit}: with more, another Worker would have taken its place.")
        self.restarts += 1
        self.say(f"{told}. Restart {self.restarts} of {limit} (max_restarts).")
        place = self.children.index(child)
        self.seams.add((place, self.delivered(child)))
        child.seed = self.args.seed_for("worker", self.ids[place], self.restarts)
        child.restart(("restart", child.seed))

    def close(self) -> None:
        for child in self.children:
            child.tell_to_close()
        for child in self.children:
            child.close()


def work(link: Link, args: Config, place: int, shared: SharedTrajectories, weights: SharedTensors) -> None:
    """A Worker's process: it answers every "explore" by "done"."""
    with closing(link.watch(build_vec_env(args))) as env:
        agent = build_agent(args)
        worker = Worker(env, agent, args)
        trajectories = [shared.slot(slot, place) for slot in range(weights.slots)]
        link.say("ready")
        for kind, *what in link:
            if kind == "restart":
                (seed,) = what
                seed_everything(args.seed_for("explore", seed))
                worker.restart(seed)
            else:
                slot, agent.progress, if_random = what
                weights.read(slot, agent.acting_state())
                worker.trajectory = trajectories[slot]
                worker.explore(if_random)
                link.say("done")
