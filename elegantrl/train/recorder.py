"""The numbers of a run, one row for each evaluation. Letters: N environments, M agents of a team."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elegantrl.storage import atomic_write

COLUMNS = ("total_step", "avgR", "stdR", "expR", "objC", "objA")  # the first ones, in this order
LENGTHS = ("avgS", "stdS")  # the last ones: steps of the evaluated episodes
MEASURED = ("total_step", "avgR", "stdR", *LENGTHS)  # what an evaluation measures; all else comes from training


class Recorder:
    """Rows of name -> value. No clock among them: two runs of one seed leave the same file."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def append(self, row: dict[str, Any]) -> dict[str, float]:
        """Add `row`, its values as float and NaN for what it lacks of COLUMNS; returns what was added."""
        self.rows.append({name: float(value) for name, value in (dict.fromkeys(COLUMNS, math.nan) | row).items()})
        return self.rows[-1]

    @property
    def names(self) -> list[str]:
        """COLUMNS, then the agent's own in the order of their appearance, then LENGTHS."""
        return list(dict.fromkeys([*COLUMNS, *(n for row in self.rows for n in row if n not in LENGTHS), *LENGTHS]))

    @property
    def array(self) -> np.ndarray:
        """(R, C) float64, columns as in `names`; NaN where nothing was logged."""
        names = self.names
        table = [[row.get(name, math.nan) for name in names] for row in self.rows]
        return np.array(table, dtype=np.float64).reshape(-1, len(names))

    @property
    def last_step(self) -> int:
        """The environment step of the last row, 0 before the first."""
        return int(self.rows[-1]["total_step"]) if self.rows else 0

    @property
    def best_return(self) -> float:
        return max((row["avgR"] for row in self.rows), default=-math.inf)

    def save(self, cwd: Path) -> None:
        """Write `recorder.npy` (the array) and `recorder.json` (a list of its column names)."""
        atomic_write(cwd / "recorder.npy", lambda path: np.save(path, self.array))
        atomic_write(cwd / "recorder.json", lambda path: Path(path).write_text(json.dumps(self.names)))

    def state_dict(self) -> dict[str, Any]:
        return {"names": self.names, "rows": torch.from_numpy(self.array)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rows = [dict(zip(state["names"], row, strict=True)) for row in state["rows"].tolist()]


class TeamTally:
    """What one evaluation of a team shows beside the mean return of its agents.

    Sums over the episodes that are played: each agent's reward, and the wins where the task tells of them."""

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
