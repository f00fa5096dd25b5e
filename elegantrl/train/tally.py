"""What evaluations of a team show beside the mean return of its agents. Letters: N environments, M agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


class TeamTally:
    """Sums over the episodes that are played: each agent's reward, and the wins where the task tells of them."""

    def __init__(self) -> None:
        self.each = torch.zeros(0, dtype=torch.float64)  # (M,), or nothing where rewards are the team's or one agent's
        self.wins, self.has_wins = 0, False

    def add(self, reward: Tensor, done: Tensor, counts: Tensor, info: Mapping[str, Any]) -> None:
        """reward (N, M) or (N,), done and counts (N,) bool: whether the episode ended, whether it is wanted.

        info["win"] (N,) bool: whether an episode that ended in this step was won.
        """
        if reward.dim() == 2:
            sums = (reward.double() * counts[:, None]).sum(0)
            self.each = self.each + sums if len(self.each) else sums
        if "win" in info:
            self.has_wins = True
            self.wins += int((info["win"].cpu() & done & counts).sum())

    def means(self, episodes: int) -> dict[str, float]:
        """teamR: the sum of the agents' returns; agentR_m: each agent's own; winrate: the share of episodes won."""
        each = (self.each / episodes).tolist()
        wins = {"winrate": self.wins / episodes} if self.has_wins else {}
        own = {f"agentR_{m}": value for m, value in enumerate(each)}
        return {**({"teamR": sum(each)} if each else {}), **own, **wins}
