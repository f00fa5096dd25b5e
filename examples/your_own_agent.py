"""Your own algorithm: a subclass that overrides the nouns of the theory which differ. Here soft Q-learning. Minutes.

What there is to override: off-policy `q_value`, `next_value`, `actor_loss` (SAC: `actor_objective`), `explore_action`;
on-policy `policy_loss`, `value`, `returns`. Everything else (replay, targets, masks, saving, resuming) is inherited.
"""

from __future__ import annotations

import torch
from torch import Tensor

from elegantrl import Config, train_agent
from elegantrl.agents import AgentDQN
from elegantrl.trajectory import Batch
from quick import quick


class AgentSoftDQN(AgentDQN):
    """Q-learning that is paid for randomness, arXiv:1702.08165: pi(a|s) is proportional to exp(Q / temperature)."""

    temperature: float = 0.05  # annotated, so it is a hyper-parameter: Config(AgentSoftDQN, ..., temperature=0.1)

    def explore_action(self, state: Tensor, action_mask: Tensor | None = None) -> Tensor:
        """A sample of that policy. (N, S) -> (N,)"""
        logits = self.cri.q_values(state, action_mask) / self.temperature  # (N, A)
        return torch.distributions.Categorical(logits=logits).sample()

    def next_value(self, batch: Batch) -> Tensor:
        """V'(s') = temperature * log sum_a exp(Q'(s', a) / temperature), a maximum with soft corners. (B,)"""
        q = self.cri_target.q_values(batch.next.states, batch.next.action_mask)  # (B, A)
        return self.temperature * torch.logsumexp(q / self.temperature, dim=-1)


def main() -> None:
    args = Config(AgentSoftDQN, "CartPole-v1", temperature=0.1, break_step=100_000, break_score=495)
    args.net_dims, args.gamma, args.learning_rate = (128, 128), 0.98, 1e-3
    args.horizon_len, args.utd, args.eval_per_step = 32, 0.5, 2_500
    train_agent(quick(args), if_single_process=True)


if __name__ == "__main__":
    main()
