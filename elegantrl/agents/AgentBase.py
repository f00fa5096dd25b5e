"""What every agent has, then the two templates: learn from a replay buffer, or from the newest trajectory.

Letters: T horizon, N environments, B batch, K ensemble, M agents, S state, A action, L rows of a window, H memory.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from itertools import repeat
from numbers import Integral
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from ..compat import renamed_keywords
from ..device import device_of
from ..trajectory import Batch, Record, Rollout, Trajectory, loss_weight, widen
from .deploy import Deployed
from .functional import LinearSchedule, alone, at_progress, gae, soft_update, weighted_mean
from .h_term import HTerm, WithHTerm
from .net import (
    ActorDiscreteMAPPO,
    ActorDiscretePPO,
    ActorMAPPO,
    ActorPPO,
    CriticOfMemory,
    CriticPPO,
    FlatAdam,
    FlatParameters,
    NetBase,
    NoNormaliser,
    Objective,
    Team,
    gradients,
)
from .options import Compiled, CumulativeRewards, Normalisers, Option, VTrace
from .recurrent import Recurrence

OPTIONS: dict[type[Option], tuple[str, ...]] = {  # what is attached to an agent where one of these settings is not 0
    Normalisers: ("state_value_tau", "if_norm_state", "if_norm_value", "if_norm_reward"),
    Compiled: ("if_compile",),
    CumulativeRewards: ("lambda_fit_cum_r",),
    VTrace: ("if_use_v_trace",),
    Recurrence: ("rnn_dim",),
    HTerm: ("lambda_h_term",),
}


@contextmanager
def float32_by_default() -> Iterator[None]:
    """States and rewards are float32, so networks are, whatever the caller's default is."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def whole_sizes(name: str, sizes: Any) -> tuple[int, ...]:
    """Sizes, or one, as a tuple. ValueError: there is none, or one is no positive whole number."""
    found = (sizes,) if isinstance(sizes, Integral) or not hasattr(sizes, "__iter__") else tuple(sizes)
    if not found or not all(isinstance(size, Integral) and int(size) > 0 for size in found):
        raise ValueError(f"{name} is {sizes!r}: a positive whole number, or several for a shape, is needed")
    return tuple(int(size) for size in found)


class AgentBase(Deployed):
    """What every agent has, beside what `Deployed` adds to it: to explore, and to learn from what came.

    Annotated class attributes are the hyper-parameters: type, default, meaning. A subclass says only what differs.

    net_dims: widths of the hidden layers. state_dim: S, or the shape of an image. action_dim: A, or the number of
    actions. gpu_id: -1 or a machine without CUDA means the CPU. args: a Config, or None for the defaults.
    """

    if_off_policy: ClassVar[bool] = True
    log_names: ClassVar[tuple[str, ...]] = ("objC", "objA")  # what `update_net` returns
    target_nets: ClassVar[tuple[str, ...]] = ()  # which of act, cri have a copy that follows slowly
    action_kinds: ClassVar[tuple[str, ...]] = ("continuous",)  # or "discrete", or both
    act_needs: ClassVar[tuple[str, ...]] = ()  # methods that act must have beside forward
    cri_needs: ClassVar[tuple[str, ...]] = ()
    unused: ClassVar[tuple[str, ...]] = ()  # hyper-parameters of its bases that have no effect on it
    if_team: ClassVar[bool] = False  # for several agents that act at once
    if_team_reward: ClassVar[bool] = False  # learns one value for the whole team
    if_discrete: bool = False  # indices instead of [-1, 1]; read from the environment
    num_agents: int = 0  # M of a team, 0: one agent without that axis; read from the environment
    global_dim: int = 0  # G of info["global_state"], 0: there is none; read from the environment
    rnn_dim = 0  # H of the memory; a setting of the agents that can have one

    # no annotation, as these are no hyper-parameters
    window = 1  # rows of a sample; with a memory, of a sequence of them
    gradients = staticmethod(gradients)  # of an objective
    summed = averaged = staticmethod(alone)  # over all Learners that work on this agent together
    soft_update = staticmethod(soft_update)

    net_dims: tuple[int, ...] = (256, 256)  # widths of the hidden layers
    activation: str = "relu"  # relu, tanh, gelu or elu
    gamma: float = 0.99  # discount factor of future rewards
    reward_scale: float = 1.0  # factor on every reward, in updates only
    learning_rate: float | LinearSchedule = 3e-4  # step size of Adam, a number or a schedule
    adam_eps: float = 1e-8  # epsilon of Adam
    clip_grad_norm: float = 3.0  # largest gradient norm, for each network of an ensemble
    batch_size: int | None = 256  # transitions in one update
    horizon_len: int = 16  # steps of each environment in one rollout
    state_value_tau: float = 0.0  # > 0: normalise states and values by exponential statistics with this weight
    if_norm_state: bool = False  # normalise states by running statistics
    if_norm_value: bool = False  # normalise values by running statistics (PopArt)
    if_norm_reward: bool = False  # divide rewards by the running std of the discounted return
    if_compile: bool = False  # compile losses with gradients, 10 to 30 s: updates 1.7 times (64 wide), 1.2 times (256)

    def __init__(
        self,
        net_dims: int | tuple[int, ...] | list[int] | None = None,
        state_dim: int | tuple[int, ...] | None = None,
        action_dim: int | None = None,
        gpu_id: int = 0,
        args: Any = None,
    ):
        self.codec: Any = None  # the environment's ActionCodec, so that select_action answers in its units
        if state_dim is not None and action_dim is not None:
            self.init(net_dims, state_dim, action_dim, gpu_id, args)

    @renamed_keywords(net_dim="net_dims")
    def init(
        self,
        net_dims: int | tuple[int, ...] | list[int] | None,
        state_dim: int | tuple[int, ...],
        action_dim: int,
        gpu_id: int = 0,
        args: Any = None,
    ) -> None:
        """Builds the networks; `AgentPPO()` followed by `agent.init(...)` is the documents' older style."""
        given: Mapping[str, Any] = vars(args) if args is not None else {}
        known = self.hyper_parameters()
        for name, value in given.items():
            if name in known:
                setattr(self, name, value)
        kind, other = ("discrete", "AgentD3QN") if self.if_discrete else ("continuous", "AgentSAC")
        if kind not in self.action_kinds:
            raise ValueError(
                f"{type(self).__name__} is for {' or '.join(self.action_kinds)} actions, the environment's are {kind}. "
                f"For {kind} actions there are AgentPPO, AgentA2C, {other}."
            )
        if bool(self.num_agents) != self.if_team:
            kinds = "AgentQMix, AgentVDN, AgentMADDPG, AgentMATD3 and AgentMAPPO are for teams"
            raise ValueError(
                f"{type(self).__name__} is for {'teams' if self.if_team else 'one agent'}, the environment has "
                f"{f'{self.num_agents} agents' if self.num_agents else 'no agent axis (num_agents)'}: {kinds}."
            )
        self.net_dims = whole_sizes("net_dims", self.net_dims if net_dims is None else net_dims)
        sizes = whole_sizes("state_dim", state_dim)
        self.state_dim = sizes[0] if isinstance(state_dim, Integral) else sizes
        self.action_dim = whole_sizes("action_dim", [action_dim])[0]
        self.device = device_of(gpu_id)

        self.progress = 0.0  # share of the run that is done, for schedules
        self.update_count = 0  # critic updates over the whole run
        self.actor_count = 0  # actor updates over the whole run
        self.carry = 0.0  # fraction of an update that the next rollout inherits
        self.last: Record | None = None  # (N, ...), where the next rollout begins
        self.last_done: Tensor | None = None  # (N,), whether an episode ended just before it
        self.finals: dict[int, Record] = {}  # row of this rollout -> final observations (N, S) known there, on-policy
        self.followers: dict[str, tuple[FlatParameters, FlatParameters]] = {}  # of each target and of its network
        self.state_norm = self.value_norm = self.reward_norm = NoNormaliser()
        self.critic_terms: list[Callable[[Batch, Tensor], Tensor]] = []  # of a batch and Q(s, a), each (K,)
        self.policy_step: Callable[..., tuple[Tensor, ...]] = self.minimize  # on the actor's objective
        is_on = {name for names in OPTIONS.values() for name in names if name in known and getattr(self, name)}
        with float32_by_default():
            self.options = [option(self) for option, names in OPTIONS.items() if is_on & {*names}]
            self.build_nets()

    @classmethod
    def hyper_parameters(cls) -> dict[str, Any]:
        """Every hyper-parameter of this agent and its default: the annotated class attributes."""
        kinds: dict[str, Any] = {}
        for owner in reversed(cls.__mro__):  # what a subclass annotates again has an effect again
            kinds |= inspect.get_annotations(owner)
            kinds |= dict.fromkeys(vars(owner).get("unused", ()), "ClassVar")
        return {n: getattr(cls, n) for n, kind in kinds.items() if hasattr(cls, n) and "ClassVar" not in str(kind)}

    # networks

    def build_nets(self) -> None:
        """Sets self.act and self.cri."""
        raise NotImplementedError(f"{type(self).__name__} must define build_nets().")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("act", "cri"):
            self.adopt(name, value)
        else:
            super().__setattr__(name, value)

    def adopt(self, name: str, net: nn.Module) -> None:
        """Takes a network, ours or a user's, as act or cri: shares the normalisers, makes its target and optimizer."""
        missing = [method for method in getattr(self, f"{name}_needs") if not hasattr(net, method)]
        if missing:
            raise TypeError(
                f"{type(self).__name__} needs a network {name} with {' and '.join(missing)}; {type(net).__name__} has "
                f"none. {type(getattr(self, name)).__name__} in elegantrl/agents/net.py shows what to take and return."
            )
        self.__dict__[name] = self.share(net.to(self.device, torch.float32))
        target = self.share(deepcopy(net).requires_grad_(False)) if name in self.target_nets else net
        self.__dict__[f"{name}_target"] = target
        optimizer = self.build_optimizer(name, net)
        self.__dict__[f"{name}_optimizer"] = optimizer
        if target is not net:
            twins = dict(zip(net.parameters(), target.parameters(), strict=True))
            leader = optimizer.flats[0]
            self.followers[name] = FlatParameters([twins[p] for p in leader.params], leader.members), leader

    def share(self, net: nn.Module) -> nn.Module:
        if isinstance(net, NetBase):
            net.state_norm, net.value_norm = self.state_norm, self.value_norm
        elif self.state_norm.learns or self.value_norm.learns:
            raise TypeError(
                f"A normaliser is on, so {type(net).__name__} must derive from ActorBase or CriticBase and use "
                "self.state_norm (and value_norm.restore), or turn if_norm_state, if_norm_value, state_value_tau off."
            )
        return net

    def build_optimizer(self, name: str, net: nn.Module) -> FlatAdam:
        """What steps the network that is named act or cri; its first parameter group is the network's own."""
        params = [p for p in net.parameters() if p.requires_grad]
        groups = [{"params": params, "members": getattr(net, "members", 1)}]
        return FlatAdam(groups, at_progress(self.learning_rate, 0.0), eps=self.adam_eps)

    def minimize(self, objective: Objective, batch: Any, *optimizers: FlatAdam) -> tuple[Tensor, ...]:
        """One step of gradient descent, the only place where gradients flow; returns what objective(batch) returned.

        The first of these is what is minimised. Each parameter group, and in it each member of an ensemble, is clipped
        by itself. A step whose gradient is not finite is skipped, so that parameters stay finite; the log shows it.
        """
        params = [p for optimizer in optimizers for p in optimizer.params]
        grads, values = self.gradients(objective, params, batch)
        for optimizer in optimizers:
            own, grads = grads[: len(optimizer.params)], grads[len(optimizer.params) :]
            optimizer.descend(own, self.clip_grad_norm)
        return values

    def optimizer_backward(self, optimizer: FlatAdam, objective: Tensor) -> None:
        """The same for a loss () that is there already."""
        self.minimize(lambda loss: (loss,), objective, optimizer)

    def start_update(self) -> None:
        """Moves the learning rate along its schedule."""
        rate = at_progress(self.learning_rate, self.progress)
        for optimizer in {self.act_optimizer, self.cri_optimizer}:
            for group in optimizer.param_groups:
                group["lr"] = rate

    def scaled(self, rewards: Tensor) -> Tensor:
        """Rewards in the units of the values that are learned."""
        return self.reward_norm.shrink(rewards * self.reward_scale)

    def update_statistics(self, trajectory: Trajectory) -> None:
        """Called after an update and before the next rollout."""
        for option in self.options:
            option.update(trajectory)

    # acting

    def explore_action(self, state: Tensor, action_mask: Tensor | None = None) -> Any:
        """The action (N, A) or (N,) to learn from; on-policy agents return its log-probability (N,) too."""
        raise NotImplementedError(f"{type(self).__name__} must define explore_action(state).")

    def random_action(self, record: Record) -> Tensor:
        """Uniform over the action space, or over the allowed actions. (N, A) or (N,)"""
        lead = record.states.shape[: 1 + (self.num_agents > 0)]
        if not self.if_discrete:
            return torch.rand(*lead, self.action_dim, device=record.states.device) * 2 - 1
        if record.action_mask is None:
            return torch.randint(self.action_dim, lead, device=record.states.device)
        chance = torch.rand(record.action_mask.shape, device=record.states.device)
        return (chance * record.action_mask).argmax(-1)  # any action where none is allowed: a row that only resets

    def greedy(self, state: Tensor, action_mask: Tensor | None = None) -> Tensor:
        """The action that the policy holds for best, in its own units. (N, S) -> (N, A) in [-1, 1], or (N,) index"""
        return self.act(state) if action_mask is None else self.act(state, action_mask)

    def decide(self, trajectory: Trajectory, t: int) -> None:
        """Writes the actions of row t (N, A) or (N,), and what the algorithm needs of them."""
        raise NotImplementedError

    def new_trajectory(self, env: Any, horizon_len: int) -> Trajectory:
        """A trajectory that fits the environment; resets the environment if this agent has not begun."""
        if self.last is None or self.last.states.shape[0] != env.num_envs:
            self.begin(*env.reset())
        assert self.last is not None
        sizes, team = (horizon_len, self.last, self.action_dim), (self.num_agents,) if self.num_agents else ()
        return Trajectory.allocate(*sizes, self.if_discrete, not self.if_off_policy, team, self.if_team_reward)

    def begin(self, state: Tensor, info: Mapping[str, Any]) -> None:
        """The next rollout starts here, at the states (N, S) that a reset returned."""
        self.cut()
        self.last = Record.of(state, info)
        self.last_done = torch.zeros(state.shape[0], dtype=torch.bool, device=state.device)

    def cut(self, columns: Tensor | None = None) -> None:
        """The next rollout does not continue these environments (n,), or any."""
        for option in self.options:
            option.cut(columns)

    def look(self, record: Record, is_next: bool = True) -> Record:
        """What the networks see of the newest record, or of one that is_next to none. Without a memory, the record."""
        return record.seen_on(self.device)

    def credit(self, reward: Tensor) -> Tensor:
        """The environments' reward as this algorithm learns from it: for the team (N,), or for each agent (N, M)."""
        return reward

    def undone(self, terminal: Tensor, reward: Tensor) -> Tensor:
        """Where the task goes on, in a shape that goes with `credit`. terminal (N,), reward as the environment's."""
        return ~terminal

    @torch.no_grad()
    def explore(self, env: Any, trajectory: Trajectory, if_random: bool = False) -> Trajectory:
        """Fills the trajectory with T steps of the environments (vector contract) and returns it.

        With next-step auto-reset the row after an episode's end ignores its action and begins at the true last state,
        so only that row is masked. With same-step auto-reset the state after a time-out is lost: its own row is masked,
        unless the value of a known final observation completes it (on-policy).
        """
        assert self.last is not None and self.last_done is not None, "call new_trajectory or begin first"
        tr, same_step = trajectory, env.autoreset == "same_step"
        dones, timeouts = [], []  # written and completed for all rows at once: small operations are what a row costs
        self.finals.clear()
        tr.unmasks.fill_(True)
        for t in range(tr.horizon):
            tr.put(t, self.last)
            if if_random:
                tr.actions[t] = self.random_action(self.last)
            else:
                self.decide(tr, t)
            state, reward, terminal, truncate, info = env.step(tr.actions[t])
            row = tr.rewards[t].copy_(self.credit(reward))  # to whom self.last was shown
            self.last, done = Record.of(state, info), terminal | truncate
            tr.undones[t] = widen(self.undone(done if same_step else terminal, reward), row)
            if same_step:
                timeouts.append(truncate & ~terminal)
                self.keep_final(t, info)
            else:
                masked = widen(self.last_done, row)
                row.masked_fill_(masked, 0.0)
                tr.unmasks[t] = ~masked
            self.last_done = done
            dones.append(done)
            for option in self.options:
                option.acted(tr, t)
        tr.put(tr.horizon, self.last)
        torch.stack(dones, out=tr.dones)
        if same_step:
            self.settle(tr, torch.stack(timeouts))
        return tr

    def keep_final(self, t: int, info: Mapping[str, Any]) -> None:
        """Takes from row t's info what `settle` needs of the states that a same-step reset replaced."""

    def settle(self, trajectory: Trajectory, timeouts: Tensor) -> None:
        """Masks the rows (T, N) that a time limit ended: a same-step reset has replaced their successor."""
        tr, lost = trajectory, widen(timeouts, trajectory.undones)
        tr.undones.logical_or_(lost)
        tr.unmasks.logical_and_(~lost)

    # learning

    def observe(self, trajectory: Trajectory) -> None:
        """Shows a rollout, on the learning device, to the options, before it is stored or learned from."""
        for option in self.options:
            option.observe(trajectory)

    def state_value(self, record: Record) -> Tensor:
        """The value of the states of a trajectory, (T + 1, N, S) -> (T + 1, N)."""
        raise NotImplementedError(f"{type(self).__name__} must define state_value(record).")

    def update_net(self, buffer: Any) -> tuple[float, ...]:
        """Learns from the newest data. Returns the floats that `log_names` names."""
        raise NotImplementedError

    def read_logs(self, sums: Tensor, counts: Sequence[float]) -> tuple[float, ...]:
        """Means of the logged sums, NaN of nothing; one look at the device per rollout.

        Raises FloatingPointError if training has left the finite.
        """
        totals = sums.tolist()
        for name, mean in zip(self.log_names, totals, strict=True):
            if not math.isfinite(mean):
                raise FloatingPointError(
                    f"{type(self).__name__}: {name} is {mean} at update {self.update_count}. Steps with such gradients "
                    "were skipped, the parameters are finite. Lower learning_rate, or reward_scale, or turn a "
                    "normaliser on (if_norm_state, if_norm_reward)."
                )
        return tuple(total / count if count else math.nan for total, count in zip(totals, counts, strict=True))


class AgentOffPolicy(AgentBase):
    """y = r + discount * next_value(s'), minimise (q_value(s, a) - y)^2, then actor_loss(s); targets follow slowly."""

    target_nets: ClassVar[tuple[str, ...]] = ("act", "cri")

    clip_grad_norm = math.inf  # the rare, large errors at an episode's end are what Q has to learn from
    batch_size: int = 256  # transitions in one update
    buffer_size: int = 1_000_000  # transitions that the replay buffer keeps, of all environments together
    buffer_init_size: int = 1000  # transitions by random actions before the first update
    utd: float = 1.0  # critic updates for each collected transition
    repeat_times: float | None = None  # if set: how often each transition is used, so utd = repeat_times / batch_size
    soft_update_tau: float = 5e-3  # share of the network that its target takes over at each target update
    target_delay: int = 1  # critic updates for each target update
    update_freq: int = 1  # critic updates for each actor update
    n_step: int = 1  # rewards that are summed before the value of a state takes over
    lambda_fit_cum_r: float = 0.0  # weight of the loss between a batch's mean Q and its mean cumulative reward

    # the nouns that an algorithm defines

    def q_value(self, batch: Batch) -> Tensor:
        """Q(s, a), (B,) or (K, B)."""
        raise NotImplementedError

    def next_value(self, batch: Batch) -> Tensor:
        """The value of the next state, (B,). Called without gradient."""
        raise NotImplementedError

    def actor_loss(self, batch: Batch) -> Tensor:
        """What the actor minimises, ()."""
        raise NotImplementedError

    def actor_due(self) -> bool:
        return self.update_count % self.update_freq == 0

    # the template

    def decide(self, trajectory: Trajectory, t: int) -> None:
        record = self.look(trajectory.at(t))
        trajectory.actions[t] = self.explore_action(record.states, record.action_mask)

    def count_updates(self, transitions: int) -> int:
        """Updates after a rollout of so many transitions; the fraction is carried to the next."""
        utd = self.utd if self.repeat_times is None else self.repeat_times / (self.batch_size or 1)
        self.carry += utd * transitions
        count = int(self.carry + 1e-6)  # 2.4 * 5 is 12, whatever the last bit says
        self.carry -= count
        return count

    def update_net(self, buffer: Any) -> tuple[float, ...]:
        """Learns from a ReplayBuffer. Returns the floats that `log_names` names."""
        self.start_update()
        self.sums = torch.zeros(len(self.log_names), device=self.device)
        updates, actor_start = self.count_updates(buffer.add_size), self.actor_count
        buffer.add_size = 0
        buffer.anneal(self.progress)
        for batch in buffer.batches(updates, self.batch_size, self.gamma, n_step=self.n_step, length=self.window):
            td = self.update_critic(batch)
            buffer.feedback(batch, td)
            if self.actor_due():
                self.update_actor(batch)
            if self.update_count % self.target_delay == 0:
                self.update_targets()
        actor_updates = self.actor_count - actor_start
        return self.read_logs(self.averaged(self.sums), (updates, *[actor_updates] * (len(self.log_names) - 1)))

    def critic_objective(self, batch: Batch) -> tuple[Tensor, ...]:
        """Loss of the critics summed () and as their mean (), temporal differences (B,) or (K, B), labels (B,).

        B is (B, M) where each agent has a value, and (B, L) for windows.
        """
        with torch.no_grad():
            label = self.scaled(batch.rewards) + batch.discount * self.next_value(batch)  # (B,)
        q = self.q_value(batch)
        if q.shape[-label.dim() :] != label.shape or q.dim() > label.dim() + 1:
            raise ValueError(
                f"The critic {type(self.cri).__name__} answers in shape {tuple(q.shape)}, a batch has shape "
                f"{tuple(batch.weight.shape)}: expected that or (K, *that). Squeeze the critic's last axis."
            )
        td = q - label
        loss = weighted_mean(self.value_norm.shrink(td).square(), batch.weight)  # (K,)
        total = loss
        for term in self.critic_terms:
            total = total + term(batch, q)
        return total.sum(), loss.mean(), td, label

    def state_value(self, record: Record) -> Tensor:
        rows = Record(**{name: x.flatten(0, 1) for name, x in record.state_like().items()})
        return self.next_value(cast(Batch, SimpleNamespace(next=rows))).unflatten(0, record.states.shape[:2])

    def actor_objective(self, batch: Batch) -> tuple[Tensor, ...]:
        """What the actor minimises (), then what the log shows of it, each (): first what it gains."""
        loss = self.actor_loss(batch)
        return loss, -loss

    def update_critic(self, batch: Batch) -> Tensor:
        """One step on the temporal difference, which it returns, (B,) or (K, B)."""
        _, loss, td, label = self.minimize(self.critic_objective, batch, self.cri_optimizer)
        self.value_norm.watch(label.flatten(), batch.weight.flatten())
        self.update_count += 1
        self.sums[0].add_(loss)
        return td

    def update_actor(self, batch: Batch) -> None:
        _, *logs = self.policy_step(self.actor_objective, batch, self.act_optimizer)
        self.actor_count += 1
        self.sums[1:].add_(torch.stack(logs))

    def update_targets(self) -> None:
        for name in self.target_nets:
            target, net = self.followers[name]
            target.matrix().lerp_(net.matrix(), self.soft_update_tau)


class AgentOnPolicy(WithHTerm, AgentBase):
    """Advantages and returns of the newest rollout; minimise policy_loss - entropy, and (V - return)^2.

    The networks are small by default, with tanh and orthogonal layers. Discrete or continuous by the environment.
    """

    if_off_policy = False
    action_kinds: ClassVar[tuple[str, ...]] = ("continuous", "discrete")
    log_names = ("objC", "objA", "entropy", "kl")
    act_needs = ("sample", "logprob_entropy")

    net_dims = (64, 64)
    activation = "tanh"
    adam_eps = 1e-5
    clip_grad_norm = 0.5
    log_std_init: float = 0.0  # log of the Gaussian policy's std at the start
    horizon_len = 1024
    repeat_times: float = 10  # epochs over each rollout
    lambda_gae_adv: float = 0.95  # lambda of the generalised advantage estimate
    lambda_entropy: float = 0.0  # weight of the entropy bonus
    target_kl: float = float("inf")  # no further epoch once the mean KL from the old policy exceeds this
    if_use_v_trace: bool = False  # V-trace in place of GAE, computed anew for each epoch
    rnn_dim: int = 0  # width of a memory (GRU) for what one state does not show; 0: none
    seq_len: int = 16  # rows through which the memory's gradient flows; divides horizon_len

    def build_nets(self) -> None:
        dims = (self.net_dims, self.state_dim, self.action_dim, self.activation)
        if self.rnn_dim:
            self.act = self.build_team_actor(Team(rnn_dim=self.rnn_dim))
            self.cri = CriticOfMemory(self.net_dims, self.rnn_dim, activation=self.activation)
        else:
            self.act = ActorDiscretePPO(*dims) if self.if_discrete else ActorPPO(*dims, self.log_std_init)
            self.cri = CriticPPO(*dims)

    def build_team_actor(self, team: Team) -> ActorMAPPO | ActorDiscreteMAPPO:
        dims = (self.net_dims, self.state_dim, self.action_dim, team, self.activation)
        return ActorDiscreteMAPPO(*dims) if self.if_discrete else ActorMAPPO(*dims, self.log_std_init)

    # the nouns that an algorithm defines

    def policy_loss(self, logprobs: Tensor, batch: Rollout) -> Tensor:
        """What each row adds to the actor's loss, (B,). logprobs (B,): of batch.actions, under today's policy."""
        raise NotImplementedError

    def value(self, record: Record) -> Tensor:
        """V(s), (..., S) -> (...)"""
        return self.cri(record.states)

    def state_value(self, record: Record) -> Tensor:
        return self.value(record)

    def log_density(self, record: Record, actions: Tensor) -> Tensor:
        return self.act.logprob_entropy(record.states, actions, record.action_mask)[0]

    def explore_action(self, state: Tensor, action_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self.act.sample(state, action_mask)

    def new_trajectory(self, env: Any, horizon_len: int) -> Trajectory:
        trajectory = super().new_trajectory(env, horizon_len)
        if env.autoreset == "same_step":
            trajectory.bootstraps = torch.zeros_like(trajectory.rewards)
        return trajectory

    def decide(self, trajectory: Trajectory, t: int) -> None:
        record = self.look(trajectory.at(t))
        assert trajectory.logprobs is not None
        trajectory.actions[t], trajectory.logprobs[t] = self.explore_action(record.states, record.action_mask)

    def keep_final(self, t: int, info: Mapping[str, Any]) -> None:
        final = Record.final(info)
        if final is not None:
            self.finals[t] = self.look(final, is_next=False)

    def settle(self, trajectory: Trajectory, timeouts: Tensor) -> None:
        """Values the known final observations of a rollout at once: few are needed, and looking makes the host wait."""
        assert trajectory.bootstraps is not None
        trajectory.bootstraps.zero_()
        rows = [t for t in timeouts.any(1).nonzero()[:, 0].tolist() if t in self.finals]
        if rows:
            known = torch.zeros_like(timeouts)
            known[rows] = timeouts[rows]
            columns = zip(*(self.finals[t].state_like().items() for t in rows), strict=True)
            needed = timeouts[rows].to(self.device)
            record = Record(**{column[0][0]: torch.stack([x for _, x in column])[needed] for column in columns})
            trajectory.bootstraps[known] = self.gamma * self.value(record).to(known.device)
            timeouts = timeouts & ~known
        self.finals.clear()
        super().settle(trajectory, timeouts)

    def returns(self, trajectory: Trajectory) -> tuple[Tensor, Tensor]:
        """Advantages and value targets of every row, (T, N) each: GAE, and the lambda-return."""
        tr, (rewards, values) = trajectory, self.rewards_and_values(trajectory)
        advantages = gae(rewards, tr.undones, tr.unmasks, values, self.gamma, self.lambda_gae_adv)
        return advantages, advantages + values[:-1]

    def rewards_and_values(self, trajectory: Trajectory) -> tuple[Tensor, Tensor]:
        """Rewards (T, N) in the units of the values, and the values of all states, (T + 1, N)."""
        tr, rewards = trajectory, self.scaled(trajectory.rewards)
        if tr.bootstraps is not None:
            rewards = rewards + tr.bootstraps
        values = self.value(tr)  # (T + 1, N)
        expected = (tr.horizon + 1, *rewards.shape[1:])
        if values.shape != expected:
            raise ValueError(
                f"The critic {type(self.cri).__name__} answers in shape {tuple(values.shape)}, expected {expected}: "
                "squeeze its last axis."
            )
        return rewards, values

    # the template

    def update_net(self, buffer: Any) -> tuple[float, ...]:
        """Learns from a Trajectory, or from the tuple of `explore_env`. Returns the floats that `log_names` names."""
        if not isinstance(buffer, Trajectory):
            assert self.last_state is not None
            buffer = Trajectory.from_tuple(buffer, self.last_state)
        self.start_update()
        self.sums = torch.zeros(len(self.log_names) + 1, device=self.device)  # of the logs, and of the weights
        for rollout in self.epochs(buffer.to(self.device)):
            before = self.sums.clone()
            for batch in rollout.minibatches(self.batch_size and max(1, self.batch_size // self.window)):
                self.update_once(batch)
            if self.is_far(self.summed(self.sums - before)):
                break
        sums = self.summed(self.sums)
        return self.read_logs(sums[:-1], [float(sums[-1])] * len(self.log_names))

    def epochs(self, trajectory: Trajectory) -> Iterator[Rollout]:
        """The rows for each epoch."""
        return repeat(self.rows(trajectory), int(self.repeat_times))

    @torch.no_grad()
    def rows(self, trajectory: Trajectory) -> Rollout:
        """The trajectory as rows (T * N, ...), with advantages and returns."""
        columns = self.columns(trajectory, trajectory)
        return Rollout(**{name: x.flatten(0, 1) for name, x in columns.items()})

    def columns(self, trajectory: Trajectory, seen: Trajectory) -> dict[str, Tensor]:
        """What an update needs of each row, (T, N, ...). seen: the trajectory as the networks see it."""
        tr, before = trajectory, trajectory.at(slice(0, -1))
        assert tr.logprobs is not None
        weight = loss_weight(tr.unmasks, before.alive)
        advantages, returns = self.returns(seen)
        self.value_norm.watch(returns.flatten(), weight.flatten())
        learned = {"advantages": self.standardised(advantages, weight), "returns": returns, "weight": weight}
        return {**before.state_like(), "actions": tr.actions, "logprobs": tr.logprobs, **learned}

    def standardised(self, advantages: Tensor, weight: Tensor) -> Tensor:
        """Advantages moved to mean 0 and std 1 over the unmasked rows of all Learners, (T, N)."""
        count, total = self.summed(torch.stack([weight.sum(), (advantages * weight).sum()]))
        count = count.clamp(min=1.0)
        mean = total / count
        std = self.summed(((advantages - mean).square() * weight).sum()).div(count).sqrt()
        return (advantages - mean) / (std + 1e-5)

    def is_far(self, sums: Tensor) -> bool:
        """Whether an epoch with these sums of logs and weights took the policy further than `target_kl`."""
        return self.target_kl < math.inf and float(sums[-2] / sums[-1]) > self.target_kl

    def objective(self, batch: Rollout) -> tuple[Tensor, ...]:
        """What both networks minimise, 1707.06347 eq. 9 with c1 = 1 (they share nothing), and what is logged (5,)."""
        logprobs, entropy = self.act.logprob_entropy(batch.states, batch.actions, batch.action_mask)
        entropy = weighted_mean(entropy, batch.weight)
        policy_loss = weighted_mean(self.policy_loss(logprobs, batch), batch.weight)
        td = self.value_norm.shrink(self.value(batch) - batch.returns)
        value_loss = weighted_mean(td.square(), batch.weight)
        with torch.no_grad():
            logratio = logprobs - batch.logprobs
            kl = weighted_mean(logratio.exp() - 1 - logratio, batch.weight)  # an estimate that is never negative
            logs = torch.stack([value_loss, -policy_loss, entropy, kl, batch.weight.mean()])
        return policy_loss - self.lambda_entropy * entropy + value_loss, logs

    def update_once(self, batch: Rollout) -> None:
        """One step of the policy and of the value."""
        _, logs = self.policy_step(self.objective, batch, self.act_optimizer, self.cri_optimizer)
        self.update_count += 1
        self.actor_count += 1
        self.sums.add_(logs)
