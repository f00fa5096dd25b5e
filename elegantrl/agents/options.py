"""What a setting attaches to an agent once, when it is built, so that no update asks whether it is on.

Letters: T horizon, N environments, B batch, K ensemble, S state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ..trajectory import Batch, Rollout, Trajectory, loss_weight, widen
from .functional import cumulative_rewards, discounted_sums, vtrace, weighted_mean
from .net import Normaliser, compiled_gradients


class Option:
    """Does nothing wherever an option may have something to do. A subclass also sets what it changes of its agent."""

    name = ""  # under which the agent's checkpoint holds its state, if it has one
    gather: Callable[[Tensor], list[Tensor]] = staticmethod(lambda x: [x])  # from all Learners of the agent

    def __init__(self, agent: Any):
        self.agent = agent

    def acted(self, trajectory: Trajectory, t: int) -> None:
        """Row t of a rollout is complete, where this agent acts."""

    def observe(self, trajectory: Trajectory) -> None:
        """A rollout is there, on the learning device, and neither stored nor learned from yet."""

    def update(self, trajectory: Trajectory) -> None:
        """It has been learned from, and the next one is not begun."""

    def cut(self, columns: Tensor | None = None) -> None:
        """The next rollout does not continue these environments (n,), or any."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass


class Compiled(Option):
    """Losses and gradients as compiled programs."""

    def __init__(self, agent: Any):
        super().__init__(agent)
        agent.gradients = compiled_gradients()


class Normalisers(Option):
    """Those of states, values and rewards that the settings ask for. They move between an update and the next rollout,
    so that old log-probabilities stay right.
    """

    def __init__(self, agent: Any):
        super().__init__(agent)
        tau, shape = agent.state_value_tau or None, agent.state_dim
        self.return_carry: Tensor | None = None  # (N,), the discounted return that reward_norm has run up so far
        if (agent.if_norm_state or tau) and isinstance(shape, int):  # images are scaled, and no more
            agent.state_norm = Normaliser(shape, tau).to(agent.device)
        if agent.if_norm_value or tau:
            agent.value_norm = Normaliser((), tau).to(agent.device)
        if agent.if_norm_reward:
            agent.reward_norm = Normaliser().to(agent.device)

    def cut(self, columns: Tensor | None = None) -> None:
        if columns is None:
            self.return_carry = None
        elif self.return_carry is not None:
            self.return_carry[columns] = 0.0

    def update(self, trajectory: Trajectory) -> None:
        agent, unmasks, alive = self.agent, trajectory.unmasks, trajectory.at(slice(0, -1)).alive
        if agent.state_norm.learns:
            states = trajectory.states[:-1][unmasks if alive is None else widen(unmasks, alive) & alive]
            agent.state_norm.watch(states.reshape(-1, states.shape[-1]))
            agent.state_norm.commit(self.gather)
        if agent.reward_norm.learns:
            start = self.return_carry if self.return_carry is not None else torch.zeros_like(trajectory.rewards[0])
            keeps = trajectory.keeps
            sums = discounted_sums(trajectory.rewards, keeps, start, agent.gamma)
            self.return_carry = agent.gamma * keeps[-1] * sums[-1]
            agent.reward_norm.watch(sums[loss_weight(unmasks, alive) > 0])
            agent.reward_norm.commit(self.gather)
        if agent.value_norm.learns:
            mean, std = agent.value_norm.mean.clone(), agent.value_norm.std.clone()
            agent.value_norm.commit(self.gather)
            for net in {agent.cri, agent.cri_target}:
                net.keep_outputs(mean, std)


class VTrace(Option):
    """V-trace in place of GAE, with the log-probabilities of today's policy, computed anew for each epoch."""

    def __init__(self, agent: Any):
        super().__init__(agent)
        agent.returns, agent.epochs = self.returns, self.epochs

    def returns(self, trajectory: Trajectory) -> tuple[Tensor, Tensor]:
        agent, tr = self.agent, trajectory
        rewards, values = agent.rewards_and_values(tr)
        assert tr.logprobs is not None
        logratios = agent.log_density(tr.at(slice(0, -1)), tr.actions) - tr.logprobs
        return vtrace(rewards, tr.undones, tr.unmasks, values, logratios, agent.gamma, agent.lambda_gae_adv)

    def epochs(self, trajectory: Trajectory) -> Iterator[Rollout]:
        return (self.agent.rows(trajectory) for _ in range(int(self.agent.repeat_times)))


class CumulativeRewards(Option):
    """A term of the critic's loss: the level of the values is that of the rewards that came."""

    def __init__(self, agent: Any):
        super().__init__(agent)
        agent.critic_terms.append(self.term)

    def term(self, batch: Batch, q: Tensor) -> Tensor:
        """lambda_fit_cum_r * (mean Q - mean G)^2, (K,).

        Of the means alone, as in ElegantRL: a single G is the noisy return of an older policy.
        """
        if batch.cum_rewards is None:
            raise ValueError(
                "lambda_fit_cum_r needs the cumulative rewards of each rollout: call agent.observe(trajectory) before "
                "buffer.update(trajectory), as Learner.store does."
            )
        gap = weighted_mean(q - batch.cum_rewards, batch.weight)
        return self.agent.lambda_fit_cum_r * self.agent.value_norm.shrink(gap).square()

    @torch.no_grad()
    def observe(self, trajectory: Trajectory) -> None:
        """What came after each row until its episode ends; where time or the rollout ends first, the targets' value.

        That value is the one of the moment, and a row keeps its sum: where episodes seldom end by themselves, or the
        ring is large, the sums lag behind what the policy now earns, and the weight should be small.
        """
        agent, tr = self.agent, trajectory
        rewards, values = agent.scaled(tr.rewards), agent.state_value(tr)
        tr.cum_rewards = cumulative_rewards(rewards, tr.undones, tr.unmasks, values, agent.gamma)
