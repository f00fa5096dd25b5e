"""From the raw rows of learning.py to tables and pictures: results/report.md and results/report/*.png.

    python benchmarks/report.py

Score: the mean of a run's last ten greedy evaluations. IQM: the mean of the middle half of the runs. Intervals: 95 %,
percentiles of a bootstrap that draws runs anew within each task (stratified), as in arXiv:2108.13264 (rliable, with
which unit_tests/benchmarks/test_matrix.py compares). Normalised score: 0 at a random policy's, 1 at the threshold.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from learning import RESULTS, SCORE_EVALUATIONS, TASKS, THRESHOLDS, csv_path, finished_seeds, read_run
from numpy.typing import NDArray
from rows import RANDOM, Row
from scipy import stats
from torch import Tensor

from elegantrl import Config
from elegantrl.agents import AgentPPO
from elegantrl.train.config import build_vec_env
from elegantrl.train.evaluator import play_episodes

Scores = NDArray[np.float64]  # (R,), of the runs of one row
Groups = Sequence[Scores]  # one for each task
REPEATS = 2_000  # of the bootstrap
FEW = 3  # runs below which an interval says nothing
SB3 = {
    **dict.fromkeys(("AgentDQN", "AgentDoubleDQN", "AgentDuelingDQN", "AgentD3QN"), "sb3-DQN"),
    **dict.fromkeys(("AgentPPO", "AgentDiscretePPO"), "sb3-PPO"),
    **dict.fromkeys(("AgentA2C", "AgentDiscreteA2C"), "sb3-A2C"),
    **dict.fromkeys(("AgentSAC", "AgentModSAC"), "sb3-SAC"),
    **{"AgentTD3": "sb3-TD3", "AgentDDPG": "sb3-DDPG"},
}
# strong colours, each with a pale one for its nearest kin (those of TD3 and DDPG, which have none, for others)
KIN = (
    *("PPO", "DiscretePPO", "SAC", "ModSAC", "A2C", "DiscreteA2C", "D3QN", "DuelingDQN", "DQN", "DoubleDQN"),
    *("TD3", "EnsembleDQN", "DDPG", "EmbedDQN", "REDQ"),
)
COLOURS = dict(zip(KIN, plt.get_cmap("tab20").colors, strict=False))


# statistics


def iqm(scores: Scores) -> float:
    return float(stats.trim_mean(scores, 0.25))


def overall_iqm(groups: Groups) -> float:
    return iqm(np.concatenate(groups))


def iqr(scores: Scores) -> float:
    return float(np.subtract(*np.percentile(scores, (75, 25))))


def worst_decile(scores: Scores) -> float:
    """Mean of the lowest tenth of the runs, at least one."""
    return float(np.sort(scores)[: math.ceil(len(scores) / 10)].mean())


def largest_fall(curve: NDArray) -> float:
    """Of an evaluation from the highest one before it."""
    return float((np.maximum.accumulate(curve) - curve).max())


def improvement(ours: Groups, theirs: Groups) -> float:
    """P(a run of ours is better than one of theirs), ties count half; the mean over tasks."""
    ahead = [np.sign(x[:, None] - y) for x, y in zip(ours, theirs, strict=True)]
    return float(np.mean([(sign.mean() + 1) / 2 for sign in ahead]))


def spread_p(ours: Scores, theirs: Scores) -> float:
    """Brown and Forsythe's test: the chance of so different spreads where there is no difference."""
    return float(stats.levene(ours, theirs, center="median").pvalue)


def interval(statistic: Callable[..., float], *sides: Groups) -> tuple[float, float]:
    """95 % of the bootstrap's values of statistic(*sides); runs are drawn anew within each group of each side."""
    rng = np.random.default_rng(0)
    values = [statistic(*([rng.choice(x, len(x)) for x in side] for side in sides)) for _ in range(REPEATS)]
    low, high = np.nanpercentile(values, (2.5, 97.5))
    return float(low), float(high)


def profile(groups: Groups, levels: NDArray) -> NDArray:
    """Share of runs above each level (L,), the mean over tasks."""
    return np.mean([(x > levels[:, None]).mean(1) for x in groups], axis=0)


# raw rows


@dataclass(frozen=True)
class Runs:
    """The finished runs of one row."""

    row: Row
    steps: NDArray  # (E,)
    curves: NDArray  # (R, E)

    @property
    def scores(self) -> Scores:
        return self.curves[:, -SCORE_EVALUATIONS:].mean(1)

    @property
    def normalised(self) -> Scores:
        low = RANDOM[self.row.task]
        return (self.scores - low) / (THRESHOLDS[self.row.task] - low)


def load(rows: list[Row], results: Path) -> dict[tuple[str, str], Runs]:
    found = {}
    for row in rows:
        tables = [read_run(csv_path(row, seed, results))[1] for seed in finished_seeds(row, results)]
        if tables:
            length = min(map(len, tables))
            curves = np.array([[evaluation["avgR"] for evaluation in table[-length:]] for table in tables])
            found[row.task, row.name] = Runs(row, np.array([e["step"] for e in tables[0][-length:]]), curves)
    return found


def opponents(row: Row) -> list[str]:
    """Names of the rows with which one of ours is compared, on its task."""
    if row.agent == "AgentREDQ":
        return ["AgentSAC@64"]  # of networks as small
    peer = SB3.get(row.agent, "")
    if row.variant.startswith("+"):
        return ["AgentPPO", peer, f"{peer}@defaults"]
    return [peer + row.variant] if row.variant else [peer, f"{peer}@defaults"]


def pairs(found: dict[tuple[str, str], Runs]) -> list[tuple[Runs, Runs]]:
    return [
        (runs, found[task, name])
        for (task, _), runs in found.items()
        for name in opponents(runs.row)
        if (task, name) in found
    ]


def random_return(task: str) -> float:
    args = Config(AgentPPO, task, num_envs=10, eval_times=10)
    env = build_vec_env(args, if_eval=True)

    def act(state: Tensor, action_mask: Tensor | None) -> Tensor:
        if env.if_discrete:
            return torch.randint(env.action_dim, (len(state),))
        return torch.rand(len(state), env.action_dim) * 2 - 1

    return round(float(play_episodes(env, act, episodes=5, seed=0)[0].mean()), 1)


# tables


def span(statistic: Callable[..., float], *sides: Groups, digits: int = 1) -> str:
    """The statistic with its interval."""
    value = f"{statistic(*sides):.{digits}f}"
    if min(len(x) for side in sides for x in side) < FEW:
        return value
    low, high = interval(statistic, *sides)
    return f"{value} [{low:.{digits}f}, {high:.{digits}f}]"


def table(head: str, lines: list[list[str]]) -> list[str]:
    columns = head.split(" | ")
    return ["", *("| " + " | ".join(cells) + " |" for cells in [columns, ["---"] * len(columns), *lines]), ""]


def of_first(statistic: Callable[[Scores], float]) -> Callable[[Groups], float]:
    return lambda groups: statistic(groups[0])


def iqr_ratio(ours: Groups, theirs: Groups) -> float:
    wide = iqr(theirs[0])
    return iqr(ours[0]) / wide if wide > 0 else math.nan


def stability_line(runs: Runs) -> list[str]:
    scores, falls = runs.scores, [largest_fall(curve) for curve in runs.curves]
    failed = int((scores < THRESHOLDS[runs.row.task]).sum())
    return [
        *(runs.row.name, str(runs.row.break_step), str(len(scores)), f"{scores.mean():.1f}"),
        *(span(of_first(iqm), [scores]), span(of_first(iqr), [scores]), f"{worst_decile(scores):.1f}"),
        *(f"{np.median(falls):.1f} ({max(falls):.1f})", f"{failed}/{len(scores)}"),
    ]


def pair_line(ours: Runs, theirs: Runs) -> list[str]:
    x, y = ours.scores, theirs.scores
    few = min(len(x), len(y)) < FEW
    return [
        *(ours.row.task, ours.row.name, theirs.row.name, f"{len(x)} / {len(y)}", f"{x.mean() - y.mean():.1f}"),
        *(span(improvement, [x], [y], digits=2), span(iqr_ratio, [x], [y], digits=2)),
        "" if few or x.std() + y.std() == 0 else f"{spread_p(x, y):.2f}",
    ]


def family_lines(found: dict[tuple[str, str], Runs]) -> list[list[str]]:
    """Each agent of ours against its peer over all tasks that both have run without a variant."""
    lines = []
    for agent, peer in SB3.items():
        both = [task for task in THRESHOLDS if (task, agent) in found and (task, peer) in found]
        if both:
            x, y = ([found[task, name].normalised for task in both] for name in (agent, peer))
            values = (span(overall_iqm, x, digits=2), span(overall_iqm, y, digits=2), span(improvement, x, y, digits=2))
            lines.append([agent, peer, ", ".join(both), *values])
    return lines


def sensitivity_lines(found: dict[tuple[str, str], Runs]) -> list[list[str]]:
    variants = ("", "@lr_third", "@lr_thrice", "@batch_half", "@batch_twice")
    lines = []
    for task in THRESHOLDS:
        for agent in ("AgentPPO", "sb3-PPO", "AgentSAC", "sb3-SAC"):
            if any((task, agent + variant) in found for variant in variants[1:]):
                runs = [found.get((task, agent + variant)) for variant in variants]
                cells = [f"{r.scores.mean():.1f} ({r.scores.min():.1f})" if r else "not run" for r in runs]
                lines.append([task, agent, *cells])
    return lines


def report(rows: list[Row], found: dict[tuple[str, str], Runs]) -> str:
    lines = ["# What the matrix shows", "", *__doc__.splitlines()[4:], ""]
    lines += [
        f"Made from {sum(len(runs.curves) for runs in found.values())} runs.",
        f"{len(rows) - len(found)} of {len(rows)} rows have not run: see `learning.md`, with settings, versions and",
        "each seed's score. `sb3-PPO@defaults` has not the zoo's settings but the defaults with VecNormalize; seeds",
        "0, 1 and 3 come from another script, on another day, with ten greedy episodes each 50,000 steps, on seeds of",
        "its own.",
        "",
        "## Ours against Stable-Baselines3, over tasks",
        "",
        "IQM of normalised scores, and the probability that a run of ours is better (mean over the tasks).",
    ]
    families = family_lines(found)
    if families:
        lines += table("agent | peer | tasks | IQM | peer's IQM | P(better)", families)
        lines += ["![performance profiles](report/profiles.png)"]
    else:
        lines += ["", "No task has both yet."]
    lines += [
        "",
        "![probability of improvement](report/improvement.png)",
        "",
        "## Pairs",
        "",
        "Spread: ratio of the interquartile ranges, and Brown and Forsythe's test of it.",
    ]
    head = "task | agent | against | runs | difference of means | P(better) | IQR ratio | p of spread"
    lines += table(head, [pair_line(*pair) for pair in pairs(found)])
    lines += [
        "## Stability",
        "",
        "Across seeds: interquartile range and the mean of the worst tenth of the runs. Fall: the largest from the",
        "running peak of a run's evaluations, median of the runs (and the worst). Failed: scores below the threshold.",
        "",
    ]
    head = "agent | steps | runs | mean | IQM | IQR | worst decile | fall | failed"
    for task, threshold in THRESHOLDS.items():
        of_task = [stability_line(runs) for (name, _), runs in found.items() if name == task]
        if of_task:
            lines += [f"### {task}: {threshold:.0f}", *table(head, of_task)]
    lines += ["![learning curves](report/curves.png)", "", "![scores](report/scores.png)", "", "## Sensitivity", ""]
    lines += ["Mean score (worst seed) with the row's settings, and with one of them changed."]
    head = "task | agent | as it is | lr / 3 | lr x 3 | batch / 2 | batch x 2"
    lines += table(head, sensitivity_lines(found)) if sensitivity_lines(found) else ["", "Not run yet."]
    return "\n".join(lines).rstrip() + "\n"


# pictures


def panels(count: int, title: str) -> tuple[plt.Figure, list[plt.Axes]]:
    columns = max(2, min(3, count))
    rows = max(1, math.ceil(count / columns))
    figure, axes = plt.subplots(rows, columns, figsize=(4.6 * columns, 3.4 * rows), squeeze=False, layout="constrained")
    figure.suptitle(title)
    for ax in axes.flat[count:]:
        ax.axis("off")
    return figure, list(axes.flat[:count])


def plain_rows(found: dict[tuple[str, str], Runs]) -> dict[str, list[Runs]]:
    """By task, without the rows of the sensitivity table and of settings compared with themselves."""
    return {
        task: kept
        for task in THRESHOLDS
        if (kept := [r for (t, name), r in found.items() if t == task and "@lr" not in name and "@batch" not in name])
    }


def style(runs: Runs) -> dict[str, object]:
    """A colour for the algorithm, dashes for the peer, dots and dashes for a variant of ours."""
    row = runs.row
    line = "--" if row.agent.startswith("sb3-") else "-." if row.variant else "-"
    return {"color": COLOURS[row.agent.removeprefix("Agent").removeprefix("sb3-")], "linestyle": line}


def draw_curves(found: dict[tuple[str, str], Runs]) -> plt.Figure:
    by_task = plain_rows(found)
    figure, axes = panels(len(by_task), "Greedy return: IQM of the runs, and their interquartile range")
    for ax, (task, rows) in zip(axes, by_task.items(), strict=True):
        for runs in rows:
            ax.plot(runs.steps, [iqm(x) for x in runs.curves.T], label=runs.row.name, linewidth=1.2, **style(runs))
            ax.fill_between(
                runs.steps, *np.percentile(runs.curves, (25, 75), 0), alpha=0.12, color=style(runs)["color"]
            )
        ax.axhline(THRESHOLDS[task], color="grey", linewidth=0.8, linestyle=":")
        ax.set(title=task, xlabel="steps", xscale="log")
        ax.legend(fontsize=5.5, loc="best")
    return figure


def draw_scores(found: dict[tuple[str, str], Runs]) -> plt.Figure:
    by_task = plain_rows(found)
    figure, axes = panels(len(by_task), "Score of each run, and their IQM (bar)")
    for ax, (task, rows) in zip(axes, by_task.items(), strict=True):
        for place, runs in enumerate(rows):
            colour = style(runs)["color"]
            ax.scatter(runs.scores, np.full(len(runs.scores), place), s=14, color=colour, alpha=0.7)
            ax.plot([iqm(runs.scores)] * 2, [place - 0.35, place + 0.35], color=colour, linewidth=2)
        ax.axvline(THRESHOLDS[task], color="grey", linewidth=0.8, linestyle=":")
        ax.set_yticks(range(len(rows)), [runs.row.name for runs in rows], fontsize=6)
        ax.invert_yaxis()
        ax.set(title=task)
    return figure


def draw_profiles(found: dict[tuple[str, str], Runs]) -> plt.Figure:
    """Each family's agent that bears its name, against its peer."""
    families = [line[:2] for line in family_lines(found) if line[0].removeprefix("Agent") == line[1][len("sb3-") :]]
    figure, axes = panels(len(families), "Performance profiles: share of runs above a normalised score")
    levels = np.linspace(-0.2, 1.4, 81)
    for ax, names in zip(axes, families, strict=True):
        tasks = [task for task in THRESHOLDS if all((task, name) in found for name in names)]
        for name in names:
            groups = [found[task, name].normalised for task in tasks]
            rng = np.random.default_rng(0)
            again = [profile([rng.choice(x, len(x)) for x in groups], levels) for _ in range(500)]
            look = style(found[tasks[0], name])
            ax.plot(levels, profile(groups, levels), label=name, **look)
            ax.fill_between(levels, *np.percentile(again, (2.5, 97.5), 0), alpha=0.15, color=look["color"])
        ax.set(title=f"{len(tasks)} tasks", xlabel="normalised score", ylim=(-0.03, 1.03))
        ax.legend(fontsize=7)
    return figure


def draw_improvement(found: dict[tuple[str, str], Runs]) -> plt.Figure:
    shown = [pair for pair in pairs(found) if min(len(runs.scores) for runs in pair) >= FEW]
    figure, ax = plt.subplots(figsize=(8, 1.2 + 0.24 * len(shown)), layout="constrained")
    for place, (ours, theirs) in enumerate(shown):
        sides, colour = ([ours.scores], [theirs.scores]), style(ours)["color"]
        ax.plot(interval(improvement, *sides), [place] * 2, color=colour, linewidth=3, alpha=0.4)
        ax.plot(improvement(*sides), place, "o", color=colour)
    labels = [f"{ours.row.task}: {ours.row.name} > {theirs.row.name}" for ours, theirs in shown]
    ax.set_yticks(range(len(shown)), labels, fontsize=7)
    ax.axvline(0.5, color="grey", linewidth=0.8, linestyle=":")
    ax.set(title="Probability that a run of ours is better, with 95 % interval", xlim=(-0.03, 1.03))
    ax.invert_yaxis()
    return figure


PICTURES = {
    "curves": draw_curves, "scores": draw_scores, "profiles": draw_profiles, "improvement": draw_improvement,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--results", type=Path, default=RESULTS, help="folder with learning/, for report.md and report/"
    )
    parser.add_argument("--random", action="store_true", help="only play RANDOM's policy and print its returns")
    options = parser.parse_args()
    if options.random:
        print({task: random_return(task) for task in RANDOM})
        return
    results = options.results
    found = load(TASKS, results)
    (results / "report").mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        if name == "profiles" and not family_lines(found):
            continue
        figure = draw(found)
        figure.savefig(results / "report" / f"{name}.png", dpi=110)
        plt.close(figure)
    (results / "report.md").write_text(report(TASKS, found), encoding="utf-8")
    print(results / "report.md")


if __name__ == "__main__":
    main()
