"""Evaluation as a service: watches folders of runs and ranks their newest policies. The trainers know nothing of it.

    python -m elegantrl.train.evaluator CWD [CWD ...]

A run is known by its checkpoint.pth, which a trainer writes every `checkpoint_per_step` steps and at its end; its
newest policy is that, or an actor file that is newer. All policies play the same episodes. The ranking is a CSV file.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from elegantrl import storage
from elegantrl.train.config import Config, build_vec_env
from elegantrl.train.evaluator import play_greedily
from elegantrl.train.load import import_by_name, load_agent

COLUMNS = ("rank", "env_name", "agent", "cwd", "policy", "step", "avgR", "stdR", "avgS", "episodes")
ACTOR = re.compile(r"actor__(\d{12})(_-?\d+\.\d{3})?\.pt")


class Leaderboard:
    """The newest result of each run in `folders`; `file` is rewritten whenever one changes.

    seed: of the episodes, so that all policies play the same ones.
    """

    def __init__(self, folders: Sequence[str | Path], file: str | Path, episodes: int = 16, seed: int = 0):
        self.folders = [Path(folder) for folder in folders]
        self.file, self.episodes, self.seed = Path(file), episodes, seed
        self.rows: dict[Path, dict[str, Any]] = {}
        self.seen: dict[Path, tuple[Path, int]] = {}  # of each run the policy that was evaluated, and its time stamp
        self.told: set[str] = set()

    def look(self) -> int:
        """Evaluates every policy that is new; returns how many there were."""
        count = 0
        for folder in self.folders:
            try:
                policy = newest_policy(folder)
                mark = (policy, policy.stat().st_mtime_ns)
                if self.seen.get(folder) != mark:
                    self.rows[folder] = self.evaluate(folder, policy)
                    self.seen[folder] = mark
                    count += 1
            except (FileNotFoundError, ImportError, ValueError) as error:  # not there yet, or not to be understood
                self.tell_once(f"{folder}: {error}")
        if count:
            self.write()
        return count

    def evaluate(self, folder: Path, policy: Path) -> dict[str, Any]:
        checkpoint = storage.load_checkpoint(folder)
        saved, step = checkpoint["config"], checkpoint["worker"]["total_step"]
        agent = load_agent(str(folder))
        if match := ACTOR.fullmatch(policy.name):
            agent.act.load_state_dict(storage.load(policy).state_dict())
            step = int(match[1])
        env_class, eval_env_class = (as_source(saved[name]) for name in ("env_class", "eval_env_class"))
        shared = {name: saved[name] for name in ("env_args", "eval_env_args", "num_envs", "max_step")}
        args = Config(type(agent), env_class, eval_env_class=eval_env_class, eval_times=self.episodes, **shared)
        env = build_vec_env(args, if_eval=True)
        returns, lengths = play_greedily(env, agent, -(-self.episodes // env.num_envs), self.seed)
        env.close()
        return {
            **{"env_name": saved["env_name"], "agent": type(agent).__name__, "cwd": str(folder), "policy": policy.name},
            **{"step": step, "avgR": returns.mean(), "stdR": returns.std(), "avgS": lengths.mean()},
            "episodes": len(returns),
        }

    def write(self) -> None:
        """The ranking: of each task the best first."""
        rows = sorted(self.rows.values(), key=lambda row: (row["env_name"], -row["avgR"]))
        ranks: dict[str, int] = {}
        for row in rows:
            row["rank"] = ranks[row["env_name"]] = ranks.get(row["env_name"], 0) + 1
            print(f"{row['env_name']} {row['rank']:3}. {row['avgR']:10.2f}  step {row['step']:,}  {row['cwd']}")

        def write_rows(path: str) -> None:
            with open(path, "w", newline="") as file:
                table = csv.DictWriter(file, COLUMNS)
                table.writeheader()
                table.writerows(rows)

        storage.atomic_write(self.file, write_rows)

    def tell_once(self, text: str) -> None:
        if text not in self.told:
            self.told.add(text)
            print(text, flush=True)


def newest_policy(folder: Path) -> Path:
    """The checkpoint, or an actor file that is newer. FileNotFoundError: no checkpoint."""
    checkpoint = folder / "checkpoint.pth"
    if not checkpoint.exists():
        raise FileNotFoundError(
            "no checkpoint.pth yet (a run writes one every checkpoint_per_step steps, and at its end)"
        )
    actors = [path for path in folder.glob("actor__*.pt") if ACTOR.fullmatch(path.name)]
    return max([checkpoint, *actors], key=lambda path: (path.stat().st_mtime_ns, path == checkpoint))


def as_source(saved: Any) -> Any:
    """The env_class that a checkpoint names: an id, None, or a class. ImportError: its module is not imported."""
    is_class = isinstance(saved, str) and ":" in saved and not re.search(r"-v\d+$", saved)
    return import_by_name(saved) if is_class else saved


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "python -m elegantrl.train.evaluator", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cwd", nargs="+", help="folders of runs, running or finished")
    parser.add_argument("--out", default="leaderboard.csv", help="the file to write")
    parser.add_argument("--episodes", type=int, default=16, help="of each evaluation")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two looks")
    parser.add_argument("--once", action="store_true", help="look once and end")
    parser.add_argument(
        "--import", dest="modules", nargs="*", default=(), help="modules of own environments and agents"
    )
    options = parser.parse_args(arguments)
    for module in options.modules:
        importlib.import_module(module)
    board = Leaderboard(options.cwd, options.out, options.episodes)
    board.look()
    while not options.once:
        try:
            time.sleep(options.every)
            board.look()
        except KeyboardInterrupt:
            break


if __name__ == "__main__":
    main()
