"""The agents: DQN, DDPG, SAC and PPO, from the oldest idea to the newest. Read them in this order.

Letters in shapes: T steps of a rollout, B batch, S numbers in a state, A numbers in an action (or how many there are).
Letters in formulas: s state, a action, r reward, s' next state, a' next action, Q' the target copy of the network Q.
"""

from __future__ import annotations

from copy import deepcopy
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from config import Config
from env import GymEnv
from net import Actor, ActorDiscretePPO, ActorPPO, ActorSAC, Critic, CriticPPO, Dims, QNet


class Transitions(NamedTuple):
    """What happened in T steps, or in the B steps of a batch: one row for each."""

    states: Tensor  # (T, S) what the agent saw
    actions: Tensor  # (T, A) float in [-1, 1], or (T,) long: what it did
    rewards: Tensor  # (T,) what it got
    next_states: Tensor  # (T, S) what it saw then
    undones: Tensor  # (T,) 0 where the task is over: nothing more can be earned. 1 at a time limit!
    keeps: Tensor  # (T,) 0 where the episode ended, for either reason: the next row belongs to another one


class ReplayBuffer:
    """A ring of the newest transitions: when it is full, the oldest are overwritten."""

    def __init__(self, max_size: int):
        self.max_size, self.cur_size, self.head = max_size, 0, 0  # capacity, rows in it, next row to write
        self.columns: Transitions | None = None

    def update(self, new: Transitions) -> None:
        """Appends T rows."""
        if self.columns is None:  # the first rows tell shapes and types
            self.columns = Transitions(*(x.new_empty((self.max_size, *x.shape[1:])) for x in new))
        T = len(new.rewards)
        index = (self.head + torch.arange(T, device=new.rewards.device)) % self.max_size  # (T,)
        for column, x in zip(self.columns, new, strict=True):
            column[index] = x
        self.head = (self.head + T) % self.max_size
        self.cur_size = min(self.cur_size + T, self.max_size)

    def sample(self, batch_size: int) -> Transitions:
        """B rows, each as likely as every other."""
        index = torch.randint(self.cur_size, (batch_size,), device=self.columns.rewards.device)  # (B,)
        return Transitions(*(column[index] for column in self.columns))


class AgentBase:
    """What all agents do alike: play, take a gradient step, let a target network follow."""

    if_off_policy = True  # whether it may learn from experience that an older policy collected
    act: nn.Module  # the policy; act(state) is the greedy action

    def __init__(self, net_dims: Dims, state_dim: int, action_dim: int, gpu_id: int = -1, args: Config | None = None):
        self.args = args or Config()
        torch.manual_seed(self.args.random_seed)  # the same seed: the same weights, the same exploration
        self.device = torch.device(f"cuda:{gpu_id}" if gpu_id >= 0 and torch.cuda.is_available() else "cpu")
        self.action_dim = action_dim
        self.progress = 0.0  # share of the run that is over, which train() keeps: what falls during a run looks here
        self.last_state: NDArray | None = None  # (S,) where the next rollout begins
        self.build_nets(net_dims, state_dim, action_dim)

    def build_nets(self, net_dims: Dims, state_dim: int, action_dim: int) -> None:
        """Sets networks, their targets and their optimizers."""
        raise NotImplementedError

    def optimizer_of(self, *nets: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam([p for net in nets for p in net.parameters()], self.args.learning_rate)

    def explore_action(self, state: Tensor) -> Tensor:
        """An action to learn from: mostly good, sometimes new. (S,) -> (A,) or ()"""
        raise NotImplementedError

    @torch.no_grad()
    def select_action(self, state: NDArray) -> NDArray:
        """The best action that the agent knows. (S,) -> (A,) or ()"""
        return self.act(torch.as_tensor(state, device=self.device)).cpu().numpy()

    @torch.no_grad()
    def explore_env(self, env: GymEnv, horizon_len: int, if_random: bool = False) -> Transitions:
        """Plays T = horizon_len steps from where it stopped last time."""
        rows = []
        state = self.last_state if self.last_state is not None else env.reset(seed=self.args.random_seed)[0]
        for _ in range(horizon_len):
            seen = torch.as_tensor(state, device=self.device)  # (S,)
            action = (env.random_action() if if_random else self.explore_action(seen)).cpu().numpy()  # (A,) or ()
            next_state, reward, terminal, truncate, _ = env.step(action)
            end = terminal or truncate
            rows.append((state, action, reward * self.args.reward_scale, next_state, not terminal, not end))
            state = env.reset()[0] if end else next_state
        self.last_state = state
        columns = (torch.as_tensor(np.stack(column), device=self.device) for column in zip(*rows, strict=True))
        return Transitions(*(x if x.dtype == torch.long else x.float() for x in columns))

    def optimizer_backward(self, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
        """One step of gradient descent on a loss ()."""
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], self.args.clip_grad_norm)
        for group in optimizer.param_groups:
            group["lr"] = self.args.learning_rate * (1 - self.progress)  # large steps first, then ever finer ones
        optimizer.step()

    @torch.no_grad()
    def soft_update(self, target: nn.Module, net: nn.Module) -> None:
        """target <- (1 - tau) target + tau net: a slow copy, so that the label does not run away from the learner."""
        for p_target, p in zip(target.parameters(), net.parameters(), strict=True):
            p_target.lerp_(p, self.args.soft_update_tau)

    def update_net(self, data: ReplayBuffer | Transitions) -> tuple[float, float]:
        """Learns, and returns for the log: the mean loss of the critic, the mean gain of the actor."""
        raise NotImplementedError


class AgentDQN(AgentBase):
    """Deep Q-learning, arXiv:1312.5602. Learns what each action is worth and takes the best. Discrete actions."""

    def build_nets(self, net_dims: Dims, state_dim: int, action_dim: int) -> None:
        self.act = self.cri = QNet(net_dims, state_dim, action_dim).to(self.device)  # one network is both
        self.cri_target = deepcopy(self.cri)
        self.cri_optimizer = self.optimizer_of(self.cri)

    def explore_action(self, state: Tensor) -> Tensor:
        """Epsilon-greedy, Algorithm 1: any action, at first always, later now and then. (S,) -> ()"""
        if torch.rand(()) < max(self.args.explore_rate, 1 - 5 * self.progress):
            return torch.randint(self.action_dim, ())
        return self.act(state)

    def update_net(self, buffer: ReplayBuffer) -> tuple[float, float]:
        losses, values = [], []
        for _ in range(int(self.args.horizon_len * self.args.updates_per_step)):
            loss, value = self.critic_loss(buffer.sample(self.args.batch_size))
            self.optimizer_backward(self.cri_optimizer, loss)
            self.soft_update(self.cri_target, self.cri)
            losses.append(loss.item())
            values.append(value.item())
        return float(np.mean(losses)), float(np.mean(values))

    def critic_loss(self, batch: Transitions) -> tuple[Tensor, Tensor]:
        """(y - Q(s, a))^2, eq. 2, and the mean of Q for the log. (), ()"""
        with torch.no_grad():  # the label is a fixed number
            next_q = self.cri_target.q_values(batch.next_states).amax(dim=1)  # (B,) max_a' Q'(s', a')
            label = batch.rewards + self.args.gamma * batch.undones * next_q  # (B,) y, below eq. 2
        q = self.cri.q_values(batch.states).gather(1, batch.actions[:, None]).squeeze(1)  # (B,) Q(s, a)
        return F.mse_loss(q, label), q.mean().detach()


class AgentDDPG(AgentBase):
    """Deep deterministic policy gradient, arXiv:1509.02971. DQN for continuous actions: an actor finds the best one."""

    def build_nets(self, net_dims: Dims, state_dim: int, action_dim: int) -> None:
        self.act = Actor(net_dims, state_dim, action_dim).to(self.device)
        self.cri = Critic(net_dims, state_dim, action_dim).to(self.device)
        self.act_target, self.cri_target = deepcopy(self.act), deepcopy(self.cri)
        self.act_optimizer, self.cri_optimizer = self.optimizer_of(self.act), self.optimizer_of(self.cri)

    def explore_action(self, state: Tensor) -> Tensor:
        """mu(s) plus noise, eq. 7. (S,) -> (A,)"""
        action = self.act(state)  # (A,)
        return (action + self.args.explore_noise_std * torch.randn_like(action)).clamp(-1, 1)

    def update_net(self, buffer: ReplayBuffer) -> tuple[float, float]:
        """Algorithm 1."""
        losses, gains = [], []
        for _ in range(int(self.args.horizon_len * self.args.updates_per_step)):
            batch = buffer.sample(self.args.batch_size)
            critic_loss = self.critic_loss(batch)
            self.optimizer_backward(self.cri_optimizer, critic_loss)
            actor_loss = self.actor_loss(batch)
            self.optimizer_backward(self.act_optimizer, actor_loss)
            self.soft_update(self.cri_target, self.cri)
            self.soft_update(self.act_target, self.act)
            losses.append(critic_loss.item())
            gains.append(-actor_loss.item())
        return float(np.mean(losses)), float(np.mean(gains))

    def critic_loss(self, batch: Transitions) -> Tensor:
        """(Q(s, a) - y)^2, eq. 4. -> ()"""
        with torch.no_grad():
            next_q = self.cri_target(batch.next_states, self.act_target(batch.next_states))  # (B,) Q'(s', mu'(s'))
            label = batch.rewards + self.args.gamma * batch.undones * next_q  # (B,) y, eq. 5
        return F.mse_loss(self.cri(batch.states, batch.actions), label)

    def actor_loss(self, batch: Transitions) -> Tensor:
        """-Q(s, mu(s)): its gradient, eq. 6, moves mu(s) to where the critic sees more value. -> ()"""
        return -self.cri(batch.states, self.act(batch.states)).mean()


class AgentSAC(AgentDDPG):
    """Soft actor-critic, arXiv:1812.05905. DDPG that is paid for randomness, and trusts the lower of two critics."""

    def build_nets(self, net_dims: Dims, state_dim: int, action_dim: int) -> None:
        self.act = self.act_target = ActorSAC(net_dims, state_dim, action_dim).to(self.device)  # it has no slow copy
        self.cri = nn.ModuleList(Critic(net_dims, state_dim, action_dim) for _ in range(2)).to(self.device)
        self.cri_target = deepcopy(self.cri)
        self.log_alpha = torch.zeros((), device=self.device, requires_grad=True)  # (), log of the price of randomness
        self.act_optimizer, self.cri_optimizer = self.optimizer_of(self.act), self.optimizer_of(self.cri)
        self.act_optimizer.add_param_group({"params": [self.log_alpha]})

    def explore_action(self, state: Tensor) -> Tensor:
        """A sample of the policy. (S,) -> (A,)"""
        return self.act.sample(state)[0]

    def critic_loss(self, batch: Transitions) -> Tensor:
        """(Q_k(s, a) - y)^2, summed over both critics, eq. 5. -> ()"""
        with torch.no_grad():
            action, logprob = self.act.sample(batch.next_states)  # (B, A), (B,)
            next_q = torch.min(*(cri(batch.next_states, action) for cri in self.cri_target))  # (B,) min_k Q'_k(s', a')
            next_value = next_q - self.log_alpha.exp() * logprob  # (B,) V(s'), eq. 3
            label = batch.rewards + self.args.gamma * batch.undones * next_value  # (B,)
        return sum(F.mse_loss(cri(batch.states, batch.actions), label) for cri in self.cri)

    def actor_loss(self, batch: Transitions) -> Tensor:
        """alpha log pi(a|s) - min_k Q_k(s, a), eq. 7; and for alpha: up where the entropy is below -A, eq. 18. -> ()"""
        action, logprob = self.act.sample(batch.states)  # (B, A), (B,)
        q = torch.min(*(cri(batch.states, action) for cri in self.cri))  # (B,)
        entropy, target_entropy = -logprob.detach().mean(), -self.action_dim
        alpha_loss = self.log_alpha * (entropy - target_entropy)  # ()
        return (self.log_alpha.exp().detach() * logprob - q).mean() + alpha_loss


class AgentPPO(AgentBase):
    """Proximal policy optimisation, arXiv:1707.06347. Makes good actions likelier, but never by much. Continuous."""

    if_off_policy = False
    act_class: type[nn.Module] = ActorPPO

    def build_nets(self, net_dims: Dims, state_dim: int, action_dim: int) -> None:
        self.act = self.act_class(net_dims, state_dim, action_dim).to(self.device)
        self.cri = CriticPPO(net_dims, state_dim).to(self.device)
        self.act_optimizer, self.cri_optimizer = self.optimizer_of(self.act), self.optimizer_of(self.cri)

    def explore_action(self, state: Tensor) -> Tensor:
        """A sample of the policy. (S,) -> (A,) or ()"""
        return self.act.get_action(state)

    def update_net(self, rollout: Transitions) -> tuple[float, float]:
        """Algorithm 1: several epochs over one rollout, whose policy "old" is the one before the first step."""
        with torch.no_grad():
            advantages = self.get_advantages(rollout)  # (T,)
            returns = advantages + self.cri(rollout.states)  # (T,) what the critic shall predict
            logprobs = self.act.get_logprob_entropy(rollout.states, rollout.actions)[0]  # (T,) log pi_old(a|s)
            advantages = (advantages - advantages.mean()) / (advantages.std(correction=0) + 1e-5)  # (T,)
        losses, gains = [], []
        for _ in range(self.args.repeat_times):
            order = torch.randperm(len(logprobs), device=self.device)  # (T,), each row once in an epoch
            for index in order.split(self.args.batch_size):  # (B,)
                states, actions = rollout.states[index], rollout.actions[index]  # (B, S), (B, A) or (B,)
                critic_loss = self.critic_loss(states, returns[index])
                self.optimizer_backward(self.cri_optimizer, critic_loss)
                actor_loss = self.actor_loss(states, actions, logprobs[index], advantages[index])
                self.optimizer_backward(self.act_optimizer, actor_loss)
                losses.append(critic_loss.item())
                gains.append(-actor_loss.item())
        return float(np.mean(losses)), float(np.mean(gains))

    def get_advantages(self, rollout: Transitions) -> Tensor:
        """How much better than expected each action turned out: GAE, arXiv:1506.02438 eq. 16. (T,)"""
        gamma, lam = self.args.gamma, self.args.lambda_gae_adv
        next_values = rollout.undones * self.cri(rollout.next_states)  # (T,) V(s'), 0 if the task is over
        deltas = rollout.rewards + gamma * next_values - self.cri(rollout.states)  # (T,) r + gamma V(s') - V(s), eq. 11
        advantages, advantage = torch.empty_like(deltas), 0.0
        for t in reversed(range(len(deltas))):  # A_t = delta_t + gamma lambda A_{t+1}, but not across episodes
            advantages[t] = advantage = deltas[t] + gamma * lam * rollout.keeps[t] * advantage
        return advantages

    def critic_loss(self, states: Tensor, returns: Tensor) -> Tensor:
        """(V(s) - return)^2, the L^VF of eq. 9. (B, S), (B,) -> ()"""
        return F.mse_loss(self.cri(states), returns)

    def actor_loss(self, states: Tensor, actions: Tensor, logprobs: Tensor, advantages: Tensor) -> Tensor:
        """-min(ratio A, clip(ratio) A), eq. 7, minus the entropy bonus of eq. 9. -> ()"""
        new_logprobs, entropy = self.act.get_logprob_entropy(states, actions)  # (B,), (B,) or ()
        ratio = (new_logprobs - logprobs).exp()  # (B,) pi(a|s) / pi_old(a|s)
        clipped = ratio.clamp(1 - self.args.ratio_clip, 1 + self.args.ratio_clip)  # (B,)
        surrogate = torch.min(ratio * advantages, clipped * advantages)  # (B,)
        return -surrogate.mean() - self.args.lambda_entropy * entropy.mean()


class AgentDiscretePPO(AgentPPO):
    """PPO for discrete actions: another policy, the same algorithm."""

    act_class = ActorDiscretePPO
