"""Do teams learn? Each row of ROWS for several seeds, one thread each; raw evaluations and a table.

    python benchmarks/teams.py                                    # everything that is not finished yet (hours)
    python benchmarks/teams.py --tasks spread --agents QMix MAPPO --seeds 1
    python benchmarks/teams.py --report                           # only rewrite the table from the raw rows

Protocol: as benchmarks/learning.py; the score is the mean of a run's last evaluations (EVALUATIONS of them, EPISODES
greedy episodes each) on the tensor-native task. Trained policies of spread and speaker are then played on mpe2 itself.
Units: avgR is the mean over agents of an agent's return in mpe2's units. Published numbers for spread are those of the
original environment, where each agent gets the sum over agents of distances and collisions, that of an agent with
itself (-1 a step) among them; mpe2 halves both and leaves that one out. So they are 6 avgR - 75: random actions are at
-235, `assigned` (below) at -128, where the published numbers end. Those for speaker are sums over both agents, 2 avgR.
Raw rows: results/teams/{task}/{agent}_{seed}.csv; its first line holds the settings and the versions.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import platform
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported

import torch
from learning import RESULTS, EvaluationClock, Row, plain, read_run, write_run
from torch import Tensor

import elegantrl
from elegantrl import Config, agents, build_env, train_agent
from elegantrl.agents.functional import LinearSchedule
from elegantrl.envs.mpe import DAMPING, DT, SimpleSpeakerListener, SimpleSpread
from elegantrl.envs.teams import Battle
from elegantrl.train.evaluator import play_greedily

EPISODES = 100
EVALUATIONS = 3  # the score is the mean of so many last ones
TASKS = {"spread": SimpleSpread, "speaker": SimpleSpeakerListener, "battle": Battle}
MPE2 = {"spread": "simple_spread_v3", "speaker": "simple_speaker_listener_v4"}
UNIT = {
    "spread": (6, -75),
    "speaker": (2, 0),
    "battle": (1, 0),
}  # what makes published numbers of avgR: a factor, a sum
PUBLISHED = {
    ("spread", "QMix"): -127, ("spread", "VDN"): -131, ("spread", "MAPPO"): -134, ("spread", "MADDPG"): -142,
}  # fmt: skip

BATTLE = {
    "num_envs": 64, "net_dims": (64, 64), "horizon_len": 25, "batch_size": 256, "utd": 1 / 32, "buffer_size": 200_000,
    "learning_rate": LinearSchedule(1e-3), "soft_update_tau": 0.01,
}  # fmt: skip
SPREAD = {
    "num_envs": 64, "net_dims": (128, 128), "horizon_len": 25, "batch_size": 256, "buffer_size": 200_000,
    "learning_rate": LinearSchedule(1e-3), "gamma": 0.95, "soft_update_tau": 0.01, "if_norm_state": True,
}  # fmt: skip
VALUES, JOINT = SPREAD | {"utd": 1 / 32}, SPREAD | {"utd": 1 / 64}
MAPPO = {
    "num_envs": 128, "net_dims": (128, 128), "horizon_len": 25, "batch_size": 1600,
    "learning_rate": LinearSchedule(1e-3), "gamma": 0.95, "if_norm_state": True,
}  # fmt: skip
MAPPO_BATTLE = {"num_envs": 64, "horizon_len": 50, "batch_size": 800, "learning_rate": LinearSchedule(7e-4)}


def rows() -> list[Row]:
    """Steps are those of the environments; 2M (off-policy) and 20M (on-policy) are published."""
    found = [Row("spread", "QMix", 2_000_000, 200_000, VALUES, 3), Row("spread", "VDN", 1_000_000, 100_000, VALUES, 3)]
    for name in ("MADDPG", "MATD3"):
        found += [Row(task, name, 1_000_000, 100_000, JOINT, 3) for task in ("spread", "speaker")]
    found += [
        Row("spread", "MAPPO", 2_000_000, 200_000, MAPPO, 3),
        Row("speaker", "MAPPO", 1_000_000, 100_000, MAPPO, 3),
    ]
    found += [Row("battle", name, 150_000, 15_000, BATTLE, 3) for name in ("QMix", "VDN")]
    return [*found, Row("battle", "MAPPO", 600_000, 60_000, MAPPO_BATTLE | {"repeat_times": 5}, 3)]


def path_of(row: Row, seed: int, results: Path) -> Path:
    return results / "teams" / row.task / f"{row.agent}_{seed}.csv"


def told(row: Row) -> dict[str, Any]:
    return row.told() | {"eval_times": EPISODES}


def is_finished(row: Row, seed: int, results: Path) -> bool:
    path = path_of(row, seed, results)
    return path.exists() and read_run(path)[0]["settings"] == plain(told(row))


def run_row(row: Row, seed: int, results: Path) -> None:
    """Trains one agent with one seed, plays it on mpe2, writes its raw rows."""
    cwd, clock, cpu = Path(tempfile.mkdtemp(prefix="teams_")), EvaluationClock(), time.process_time()
    settings = told(row)
    env_args = {"num_envs": settings.pop("num_envs")}
    agent_class = getattr(agents, f"Agent{row.agent}")
    args = Config(agent_class, TASKS[row.task], env_args, **settings, random_seed=seed, cwd=cwd, callbacks=[clock])
    try:
        with open(cwd / "console.txt", "w") as console, contextlib.redirect_stdout(console):
            run = train_agent(args, if_single_process=True)
        facts = {
            "settings": told(row),
            "wall_seconds": round(time.perf_counter() - clock.start, 1),
            "cpu_seconds": round(time.process_time() - cpu, 1),
            "mpe2": on_mpe2(run.agent, row.task),
            "versions": {
                "elegantrl": elegantrl.__version__,
                "torch": torch.__version__,
                "python": platform.python_version(),
            },
        }
        write_run(path_of(row, seed, results), facts, cwd, clock.seconds)
    finally:
        shutil.rmtree(cwd)


def on_mpe2(agent: Any, task: str) -> float | None:
    """The mean return of an agent over EPISODES greedy episodes of mpe2's own environment."""
    if task not in MPE2:
        return None
    maker = __import__(f"mpe2.{MPE2[task]}", fromlist=["parallel_env"]).parallel_env
    returns, _ = play_greedily(build_env(maker, {"num_envs": 10}), agent, EPISODES // 10, seed=1)
    return round(float(returns.mean()), 3)


def random(state: Tensor, action_mask: Tensor | None = None) -> Tensor:
    return torch.randint(5, state.shape[:2])


def assigned(state: Tensor, action_mask: Tensor | None = None) -> Tensor:
    """Each agent steers to its landmark of the assignment with the least sum of distances. (N, 3, S) -> (N, 3)"""
    ways = state[..., 4:10].unflatten(-1, (3, 2))  # from each agent to each landmark
    orders = torch.tensor(list(itertools.permutations(range(3))))
    costs = ways.norm(dim=-1)[:, torch.arange(3), orders].sum(-1)  # (N, orders)
    chosen = orders[costs.argmin(1)][..., None, None].expand(-1, -1, 1, 2)
    way = ways.gather(2, chosen).squeeze(2) - state[..., :2] * DT / DAMPING  # from where it would roll to a stop
    axis = way.abs().argmax(-1, keepdim=True)
    size = way.gather(-1, axis).squeeze(-1)
    return (1 + 2 * axis.squeeze(-1) + (size > 0)) * (size.abs() > 0.1)


def published_unit(task: str, score: float) -> float:
    factor, offset = UNIT[task]
    return factor * score + offset


def report(results: Path) -> str:
    """The table of all finished runs as Markdown."""
    lines = ["# Teams", "", *__doc__.partition("Protocol: ")[2].strip().splitlines(), ""]
    lines += ["| task | agent | steps | published | in its unit, per seed | avgR per seed | on mpe2 | wins | CPU s |"]
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    torch.manual_seed(0)
    for policy in (random, assigned):
        score = float(play_greedily(SimpleSpread(1000), policy, 1, seed=1)[0].mean())
        unit = published_unit("spread", score)
        lines.append(f"| spread | {policy.__name__} policy | 0 |  | {unit:.1f} | {score:.2f} |  |  |  |")
    for row in rows():
        runs = [read_run(path_of(row, s, results)) for s in range(row.seeds) if is_finished(row, s, results)]
        last = [evaluations[-EVALUATIONS:] for _, evaluations in runs]
        scores = [statistics.fmean(e["avgR"] for e in part) for part in last]
        wins = [statistics.fmean(e["winrate"] for e in part) for part in last if "winrate" in part[0]]
        cells = [
            *(row.task, row.agent, f"{row.break_step:,}", PUBLISHED.get((row.task, row.agent), "")),
            ", ".join(f"{published_unit(row.task, score):.1f}" for score in scores) or "not run",
            ", ".join(f"{score:.2f}" for score in scores),
            ", ".join(f"{facts['mpe2']:.2f}" for facts, _ in runs if facts["mpe2"] is not None),
            ", ".join(f"{100 * win:.0f} %" for win in wins),
            ", ".join(f"{facts['cpu_seconds']:.0f}" for facts, _ in runs),
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    settings = (f"- {r.task}, {r.agent}: " + ", ".join(f"`{k}={v}`" for k, v in told(r).items()) for r in rows())
    return "\n".join([*lines, "", "Settings:", "", *settings, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--agents", nargs="+", default=["QMix", "VDN", "MADDPG", "MATD3", "MAPPO"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--report", action="store_true", help="run nothing, only write the table")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for row in rows():
        wanted = not options.report and row.task in options.tasks and row.agent in options.agents
        for seed in options.seeds if wanted else []:
            if not is_finished(row, seed, options.results):
                run_row(row, seed, options.results)
                print(f"{row.task} {row.agent} seed {seed}: done", flush=True)
    (options.results / "teams.md").write_text(report(options.results))


if __name__ == "__main__":
    main()
