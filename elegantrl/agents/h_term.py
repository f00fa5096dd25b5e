"""The Hamiltonian term: an add-on to an actor's loss that makes good windows of past episodes likely.

docs/tutorials/h_term.md derives it. Letters: T horizon, N environments, L windows, K steps of each, R rows, A action.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from ..trajectory import Record, Trajectory
from .functional import gae
from .net import FlatAdam, Objective
from .options import Option

LEAST, MOST = -16.0, 2.0  # what a path's log-probability is cut to, beyond which it has no gradient
ADVANTAGE_LAMBDA = 0.95  # of the generalised advantage estimate
FLAGS = {"undones", "unmasks"}
DEFAULT_ROWS = 256  # of all windows of one update, for an agent without minibatches

# a path's energy from the log-probability of its first k actions (L, K), and k times the number of action dimensions
FORMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": lambda path, count: path.clamp(LEAST, MOST),  # as its authors last wrote it
    "mean": lambda path, count: (path / count).clamp(LEAST, MOST),  # of each step and dimension: no K reaches the cut
    "product": lambda path, count: path.clamp(LEAST, MOST).exp(),  # the path's probability, as they first derived it
}


def h_term(logprobs: Tensor, weights: Tensor, gamma: float, form: str = "sum", dims: int = 1) -> Tensor:
    """-mean over windows of sum_k gamma^k form(sum_{j <= k} log pi_j) w_k, (). logprobs, weights (L, K)."""
    k = torch.arange(1, logprobs.shape[1] + 1, device=logprobs.device)
    energy = FORMS[form](logprobs.cumsum(1), k * dims)
    return -(gamma**k * energy * weights).sum(1).mean()


def unit_range(rewards: Tensor) -> Tensor:
    """Scaled to [0, 1] over all of them; 0 where they do not differ. (R,)"""
    low, high = rewards.aminmax()
    return (rewards - low) / (high - low).clamp(min=1e-8)


def standardised(advantages: Tensor) -> Tensor:
    """Moved to mean 0 and std 1 over all of them. (R,)"""
    return (advantages - advantages.mean()) / (advantages.std(correction=0) + 1e-5)


def advantages(agent: Any, trajectory: Trajectory) -> Tensor:
    """By the values that the agent now gives, (T, N)."""
    tr, rewards = trajectory, agent.scaled(trajectory.rewards)
    if tr.bootstraps is not None:
        rewards = rewards + tr.bootstraps
    return gae(rewards, tr.undones, tr.unmasks, agent.state_value(tr), agent.gamma, ADVANTAGE_LAMBDA)


# what weighs a path: how it is found for a rollout, and how it is scaled over the archive
WEIGHTS: dict[str, tuple[Callable[[Any, Trajectory], Tensor], Callable[[Tensor], Tensor]]] = {
    "reward": (lambda agent, trajectory: trajectory.rewards, unit_range),
    "advantage": (advantages, standardised),
}


@dataclass(kw_only=True)
class Windows(Record):
    """Windows of past episodes, (L * K, ...)."""

    actions: Tensor  # (L * K, A) float, or (L * K,) long
    weights: Tensor  # (L * K,)


class HTerm(Option):
    """An archive of the best finished episodes, and the term that windows drawn from it add to the actor's loss.

    After each rollout that finishes episodes, the fraction h_term_drop_rate of all goes, those with the lowest returns,
    as long as enough stays: a batch must be no more than the fraction h_term_sample_rate of the archive's rows.
    """

    name = "h_term"

    def __init__(self, agent: Any):
        super().__init__(agent)
        if agent.num_agents or agent.rnn_dim:
            raise ValueError(
                f"lambda_h_term={agent.lambda_h_term}: the H-term is for one agent without a memory, not for teams or "
                f"rnn_dim={agent.rnn_dim}. Set lambda_h_term to 0."
            )
        agent.h_term, agent.policy_step = self, self.step
        batch_rows = agent.batch_size or DEFAULT_ROWS
        self.steps = agent.h_term_k_step  # K
        self.count = max(1, batch_rows // self.steps)  # L, as many windows as a batch has rows for
        # whole episodes seldom fill an archive to its last row
        self.enough = min(agent.h_term_buffer_size / 2, batch_rows / agent.h_term_sample_rate)
        self.dims = 1 if agent.if_discrete else agent.action_dim
        self.weigh, self.scale = WEIGHTS[agent.h_term_weight]
        self.has_observed = False
        self.cut()
        self.arrange([])

    # the archive

    def cut(self, columns: Tensor | None = None) -> None:
        """The episodes under way in these environments are dropped."""
        if columns is None:
            self.open: dict[str, Tensor] = {}  # rows of the episodes under way, (P, N, ...)
            self.starts = torch.zeros(0, dtype=torch.long)  # the row of `open` in which each environment's began, (N,)
        elif self.open:
            self.starts[columns.cpu()] = len(self.open["rewards"])

    @torch.no_grad()
    def observe(self, trajectory: Trajectory) -> None:
        """Takes the episodes that a rollout finishes into the archive."""
        tr, self.has_observed = trajectory, True
        flags = {"undones": tr.undones, "unmasks": tr.unmasks}
        scores = {"rewards": tr.rewards, "weights": self.weigh(self.agent, tr)}
        rows = {**tr.at(slice(0, -1)).state_like(), "actions": tr.actions, **scores, **flags}
        if not self.open:
            self.open = {name: x[:0] for name, x in rows.items()}
            self.starts = torch.zeros(tr.rewards.shape[1], dtype=torch.long)
        self.open = {name: torch.cat([self.open[name], x]) for name, x in rows.items()}
        if found := self.finished():
            self.keep_best([*self.episodes, *found])
        first = int(self.starts.min())
        self.open = {name: x[first:].clone() for name, x in self.open.items()}
        self.starts -= first

    def finished(self) -> list[dict[str, Tensor]]:
        """The episodes that have ended, as rows (length, ...); those under way begin after them.

        An end is an undone of 0, or a masked row that follows. What outgrows its environment's share of the archive is
        cut into pieces.
        """
        undones, unmasks = (self.open[name].cpu() for name in ("undones", "unmasks"))
        follows = torch.cat([unmasks[1:], torch.ones_like(unmasks[:1])])  # what comes next is not known yet
        row = torch.arange(len(unmasks))[:, None]
        share = max(self.steps, self.agent.h_term_buffer_size // unmasks.shape[1])
        ends = unmasks & (row >= self.starts) & (~undones | ~follows)
        begins = torch.cat([self.starts[None], torch.where(ends, row + 1, 0)[:-1]]).cummax(0).values  # of each row
        ends |= unmasks & (row >= begins) & ((row - begins + 1) % share == 0)
        found = []
        for n, end in ends.T.nonzero().tolist():
            start = int(self.starts[n])
            start += int((~unmasks[start:end, n]).sum())  # reset rows come before an episode's first row
            self.starts[n] = end + 1
            if end + 1 - start >= self.steps:
                found.append({name: self.open[name][start : end + 1, n].clone() for name in self.open.keys() - FLAGS})
        return found

    def keep_best(self, episodes: list[dict[str, Tensor]]) -> None:
        """Drops the episodes with the lowest returns: what must go, and the fraction that may."""
        agent = self.agent
        episodes = sorted(episodes, key=lambda episode: float(episode["rewards"].sum()), reverse=True)
        rows = list(accumulate(len(episode["rewards"]) for episode in episodes))
        wished = len(episodes) - int(agent.h_term_drop_rate * len(episodes))
        least, most = bisect_left(rows, self.enough) + 1, bisect_right(rows, agent.h_term_buffer_size)
        self.arrange(episodes[: min(max(wished, least), max(1, most))])

    def arrange(self, episodes: list[dict[str, Tensor]]) -> None:
        """Lays the archive out for drawing: all rows in one tensor of each kind, and where windows may begin."""
        self.episodes = episodes
        if episodes:
            self.rows = joined(episodes)
            self.rows["weights"] = self.scale(self.rows["weights"])
            lengths = [len(episode["rewards"]) for episode in episodes]
            begins = zip(accumulate(lengths, initial=0), lengths, strict=False)
            starts = [torch.arange(begin, begin + length + 1 - self.steps) for begin, length in begins]
            self.begins = torch.cat(starts).to(self.agent.device)

    # the term

    @property
    def is_due(self) -> bool:
        """Every h_term_update_gap-th actor update, once the archive is large enough."""
        if not self.has_observed and not self.episodes:
            raise ValueError(
                "lambda_h_term needs each rollout: call agent.observe(trajectory) before agent.update_net, as "
                "Learner.store does."
            )
        has_enough = bool(self.episodes) and len(self.rows["weights"]) >= self.enough
        return has_enough and self.agent.actor_count % self.agent.h_term_update_gap == 0

    def draw(self) -> Windows:
        """Windows, each of one episode, with equal chances."""
        device = self.begins.device
        begin = self.begins[torch.randint(len(self.begins), (self.count,), device=device)]
        index = (begin[:, None] + torch.arange(self.steps, device=device)).flatten()
        return Windows(**{name: x[index] for name, x in self.rows.items() if name != "rewards"})

    def loss(self, windows: Windows) -> Tensor:
        """lambda times the term, ()."""
        agent, shape = self.agent, (self.count, self.steps)
        logprobs = agent.log_density(windows, windows.actions).view(shape)
        energy = h_term(logprobs, windows.weights.view(shape), agent.h_term_gamma, agent.h_term_form, self.dims)
        return agent.lambda_h_term * energy

    def step(self, objective: Objective, batch: Any, *optimizers: FlatAdam) -> tuple[Tensor, ...]:
        """`minimize`, with the term where it is due."""
        if not self.is_due:
            return self.agent.minimize(objective, batch, *optimizers)
        return self.agent.minimize(self.with_term, (objective, batch, self.draw()), *optimizers)

    def with_term(self, both: tuple[Objective, Any, Windows]) -> tuple[Tensor, ...]:
        """What `objective(batch)` returns, the first of it with the term."""
        objective, batch, windows = both
        loss, *others = objective(batch)
        return loss + self.loss(windows), *others

    def state_dict(self) -> dict[str, Any]:
        """The archive. A checkpoint cuts the episodes under way."""
        lengths = torch.tensor([len(episode["rewards"]) for episode in self.episodes], dtype=torch.long)
        return {"rows": joined(self.episodes), "lengths": lengths}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        state = state or {"rows": {}, "lengths": torch.zeros(0)}  # of an agent without the term
        lengths = state["lengths"].long().tolist()
        parts = {name: x.to(self.agent.device).split(lengths) for name, x in state["rows"].items()}
        self.arrange([{name: parts[name][i] for name in parts} for i in range(len(lengths))])


def joined(episodes: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The rows of all episodes, one after the other, by name; nothing of none."""
    names = sorted(episodes[0]) if episodes else []
    return {name: torch.cat([episode[name] for episode in episodes]) for name in names}


class WithHTerm:
    """The settings of the term. An agent with them defines `log_density` and `state_value`."""

    lambda_h_term: float = 0.0  # weight of the Hamiltonian term in the actor's loss; 0: off
    h_term_k_step: int = 4  # steps of a window
    h_term_gamma: float = 0.8  # discount of the steps of a window
    h_term_sample_rate: float = 2**-4  # the largest share of the archive that a batch may be
    h_term_drop_rate: float = 2**-3  # share of the archive that goes when new episodes come
    h_term_update_gap: int = 1  # actor updates for each one with the term
    h_term_buffer_size: int = 2**16  # transitions that the archive keeps at most
    h_term_form: str = "sum"  # sum, mean or product of a path's probabilities
    h_term_weight: str = "reward"  # reward or advantage

    def log_density(self, record: Record, actions: Tensor) -> Tensor:
        """log pi(a|s) under today's policy, (B,)."""
        raise NotImplementedError(f"{type(self).__name__} must define log_density(record, actions) for lambda_h_term.")
