"""What several processes gain and cost: whole trainings against one process and Stable-Baselines3, and the transport.

    python benchmarks/processes.py              # about twenty minutes
    python benchmarks/processes.py --quick      # a minute: the same with few steps, for a look
    python benchmarks/processes.py --only transport

`sac` (HalfCheetah-v5) and `ppo` (Hopper-v5): environment steps per second of our single process, of 1 and of 2 Workers,
and of Stable-Baselines3 with SubprocVecEnv, all with the same number of environments in all, the same rollouts and the
same number of updates on minibatches of the same size; one thread each. Timed from update to update, so that start-up
is left out. SAC's Workers are one rollout ahead (pipelined), PPO's are not. `sac` is measured at several updates per
step (UTD): much is gained where collecting and updating take about as long, nothing where one of them is all the time.
`transport`: seconds (lower decile) of a rollout of one step in an environment that does nothing, with W Workers, less
that of a Worker in this process, and the line a + b W that fits best; bytes are counted.
The sides take turns within each repeat; ratios are medians of the repeats' ratios. Written to results/processes.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported; the processes of the runs inherit it

import numpy as np
import torch
from speed import Rate, RolloutClock, SB3RolloutClock, in_turn, ratio, spell, steps_per_second

import elegantrl
from elegantrl import Config, train_agent
from elegantrl.agents import AgentPPO, AgentSAC
from elegantrl.envs import ActionCodec
from elegantrl.train.config import build_agent
from elegantrl.train.worker import PipeWorker, Worker

try:
    import stable_baselines3 as sb3
    from stable_baselines3.common import env_util, vec_env
except ImportError as error:
    raise SystemExit("benchmarks/processes.py needs Stable-Baselines3: make bench installs it") from error

torch.set_num_threads(1)

RESULTS = Path(__file__).resolve().parent / "results"
SAC: dict[str, Any] = {"net_dims": (256, 256), "batch_size": 256, "horizon_len": 64}
SAC_ENVS = 2
SAC_UTDS = (1 / 8, 1 / 16, 1 / 32, 1 / 64)
PPO: dict[str, Any] = {"net_dims": (64, 64), "batch_size": 256, "horizon_len": 256, "repeat_times": 4}
PPO_ENVS = 8
SIDES = {"one": "one process", "workers1": "1 Worker", "workers2": "2 Workers", "sb3": "SB3, SubprocVecEnv"}


def ours(agent_class: type, task: str, steps: int, envs: int, workers: int, settings: dict[str, Any]) -> Rate:
    """workers 0: one process. `envs` environments in all."""

    def rate() -> float:
        clock = RolloutClock()
        with tempfile.TemporaryDirectory() as cwd, open(os.devnull, "w") as console:
            args = Config(agent_class, task, num_envs=envs // max(1, workers), **settings)
            args.break_step, args.eval_per_step, args.eval_times, args.if_keep_save = steps, 10 * steps, 1, False
            args.cwd, args.num_threads, args.callbacks, args.num_workers = cwd, 1, (clock,), max(1, workers)
            with contextlib.redirect_stdout(console):
                train_agent(args, if_single_process=workers == 0)
        return steps_per_second(clock.marks[3:])

    return rate


def theirs(name: str, task: str, steps: int, envs: int, settings: dict[str, Any]) -> Rate:
    def rate() -> float:
        env = env_util.make_vec_env(
            task, envs, seed=0, vec_env_cls=vec_env.SubprocVecEnv, vec_env_kwargs={"start_method": "spawn"}
        )
        clock = SB3RolloutClock()
        policy = {"net_arch": list(settings["net_dims"])}
        if name == "SAC":
            rows = settings["horizon_len"] * envs
            how = {
                "train_freq": settings["horizon_len"],
                "gradient_steps": round(settings["utd"] * rows),
                "learning_starts": 1000,
                "batch_size": settings["batch_size"],
            }
        else:
            how = {
                "n_steps": settings["horizon_len"],
                "n_epochs": settings["repeat_times"],
                "batch_size": settings["batch_size"],
            }
        model = getattr(sb3, name)("MlpPolicy", env, policy_kwargs=policy, device="cpu", seed=0, **how)
        model.learn(steps, callback=clock)
        env.close()
        return steps_per_second(clock.marks[-(len(clock.marks) // 2) :] if name == "SAC" else clock.marks[1:])

    return rate


def sides_of(agent: str, task: str, steps: int, envs: int, settings: dict[str, Any]) -> dict[str, Rate]:
    agent_class = {"SAC": AgentSAC, "PPO": AgentPPO}[agent]
    found = {f"workers{w}" if w else "one": ours(agent_class, task, steps, envs, w, settings) for w in (0, 1, 2)}
    return {**found, "sb3": theirs(agent, task, steps, envs, settings)}


def compare(part: str, steps: int, repeats: int, utds: Sequence[float]) -> list[dict[str, Any]]:
    rows = []
    for utd in utds if part == "sac" else (None,):
        agent, task, envs = ("SAC", "HalfCheetah-v5", SAC_ENVS) if part == "sac" else ("PPO", "Hopper-v5", PPO_ENVS)
        settings = {**SAC, "utd": utd} if part == "sac" else PPO
        rates = in_turn(sides_of(agent, task, steps, envs, settings), repeats)
        row = {"agent": agent, "task": task, "steps": steps, "envs": envs, "settings": spell(settings), **rates}
        rows.append(row)
        print(f"{agent} {spell(settings)}", {side: round(statistics.median(rates[side])) for side in SIDES}, flush=True)
    return rows


# -- the transport ---------------------------------------------------------------------------------------------------


class Still:
    """An environment under the vector contract that does nothing: states of 17 numbers, 6 actions, as HalfCheetah."""

    env_name, num_envs, max_step, state_dim, action_dim, if_discrete = "Still", 1, 1000, 17, 6, False
    autoreset, device, state_dtype, codec = "next_step", torch.device("cpu"), torch.float32, ActionCodec.plain(6, False)

    def __init__(self) -> None:
        self.state, self.zero, self.no = torch.zeros(1, 17), torch.zeros(1), torch.zeros(1, dtype=torch.bool)

    def reset(self, seed: int | None = None) -> Any:
        return self.state, {}

    def step(self, action: torch.Tensor) -> Any:
        return self.state, self.zero, self.no, self.no, {}

    def close(self) -> None:
        pass


def transport(rollouts: int) -> dict[str, Any]:
    """Seconds of a rollout of one step, with the Workers behind (lag 0), by their number; and the bytes."""
    args = Config(AgentSAC, Still, horizon_len=1, net_dims=(256, 256), worker_lag=0)
    args.init_before_training()
    agent = build_agent(args)
    here = Worker(Still(), agent, args)
    here.restart(0)
    seconds = {0: per_rollout(here, rollouts)}
    for workers in (1, 2, 3, 4):
        args.num_workers = workers
        there = PipeWorker(Still(), agent, args.for_children(), 1, print, lambda columns: None)
        there.start()
        there.restart(*range(workers))
        seconds[workers] = per_rollout(there, rollouts)
        there.close()
        print(f"transport, {workers} Workers: {1e6 * (seconds[workers] - seconds[0]):.0f} microseconds", flush=True)
    counts = np.array([1, 2, 3, 4])
    slope, offset = np.polyfit(counts, [seconds[w] - seconds[0] for w in counts], 1)
    weights = sum(x.numel() * x.element_size() for x in agent.acting_state().values())
    row = sum(x[:1, :1].numel() * x.element_size() for x in here.trajectory.__dict__.values() if x is not None)
    return {
        **{"seconds": seconds, "offset": offset, "slope": slope, "weight_bytes": weights, "row_bytes": row},
        "write": min(timed(lambda: there.weights.write(0, agent.acting_state()), 20) for _ in range(20)),
    }


def per_rollout(worker: Any, rollouts: int) -> float:
    """Seconds of `explore`: the lower decile, since what else the machine does is of no interest here."""
    for _ in range(20):
        worker.explore()
    return statistics.quantiles([timed(worker.explore, 1) for _ in range(rollouts)], n=10)[0]


def timed(function: Any, count: int = 200) -> float:
    start = time.perf_counter()
    for _ in range(count):
        function()
    return (time.perf_counter() - start) / count


# -- the report ------------------------------------------------------------------------------------------------------


def report(result: dict[str, Any]) -> str:
    about = ", ".join(f"{name} {value}" for name, value in result["about"].items())
    lines = [
        "# Several processes",
        "",
        "Made by `python benchmarks/processes.py` (its first lines say how); raw rates are in `processes.json`.",
        f"Environment steps per second, medians; ratios with the least and greatest of the repeats. {about}.",
    ]
    for part in ("sac", "ppo"):
        if rows := result.get(part):
            lines += ["", f"## {rows[0]['agent']}, {rows[0]['task']}, {rows[0]['envs']} environments", ""]
            lines += [f"| settings | {' | '.join(SIDES.values())} | 1 Worker / one | 2 Workers / one | best / SB3 |"]
            lines += ["|---" * (len(SIDES) + 4) + "|"]
            for row in rows:
                rates = " | ".join(f"{statistics.median(row[side]):.0f}" for side in SIDES)
                best = max(("one", "workers1", "workers2"), key=lambda side: statistics.median(row[side]))
                ratios = [ratio(row[f"workers{w}"], row["one"]) for w in (1, 2)] + [ratio(row[best], row["sb3"])]
                lines.append(f"| {row['settings']} | {rates} | {' | '.join(ratios)} |")
            if part == "sac" and len(rows) > 1:
                utds = [float(row["settings"].partition("utd=")[2].strip("`")) for row in rows]
                update, collect = np.polyfit(utds, [1e6 / statistics.median(row["one"]) for row in rows], 1)
                lines += [
                    "",
                    f"One process takes {collect:.0f} + {update:.0f} UTD microseconds for each step (a line through",
                    f"its rates): collecting and updating take as long at a UTD of {collect / update:.3f}.",
                ]
    if found := result.get("transport"):
        seconds = {int(w): value for w, value in found["seconds"].items()}
        extra = {w: 1e6 * (seconds[w] - seconds[0]) for w in seconds if w}
        a, b = 1e6 * found["offset"], 1e6 * found["slope"]
        weights, steps = found["weight_bytes"], SAC["horizon_len"]
        lines += [
            "",
            "## Transport",
            "",
            f"A row of HalfCheetah's size is {found['row_bytes']} bytes. A Worker writes where the Learner reads: no",
            "byte of a trajectory is copied on the way. A rollout costs one copy of the weights",
            f"({weights:,} bytes, {1e6 * found['write']:.0f} microseconds), in each Worker one more",
            "to take them, and two messages of about 30 bytes for each Worker.",
            "",
            "Microseconds beyond a Worker in the Learner's process, and bytes copied (weights), for each rollout and",
            f"for each step where `horizon_len={steps}`:",
            "",
            "| Workers | microseconds of a rollout | of a step | bytes of a rollout | of a step |",
            "|---|---|---|---|---|",
            *(
                f"| {w} | {value:.0f} | {value / steps:.1f} | {copied:,} | {copied / steps:,.0f} |"
                for w, value in extra.items()
                for copied in [weights * (1 + w)]
            ),
            "",
            f"Model: {a:.0f} + {b:.0f} W microseconds and {weights:,} (1 + W) bytes for each rollout, both divided by",
            "`horizon_len` for each step. More Workers than cores share them: that is in the slope.",
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ("sac", "ppo", "transport")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=16_000)
    parser.add_argument("--utds", nargs="+", type=float, default=SAC_UTDS, help="updates per step of SAC")
    parser.add_argument("--quick", action="store_true", help="few steps, once; nothing is written")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    steps, repeats = (4_000, 1) if options.quick else (options.steps, options.repeats)
    file = options.results / "processes.json"
    result: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    result["about"] = {
        **{"elegantrl": elegantrl.__version__, "stable-baselines3": sb3.__version__, "torch": torch.__version__},
        **{"cores": os.cpu_count(), "repeats": repeats},
    }
    for part in options.only:
        if part == "transport":
            result[part] = transport(200 if options.quick else 2000)
        else:
            result[part] = compare(part, steps, repeats, options.utds)
    if options.quick:
        print(report({"about": result["about"], **{part: result[part] for part in options.only}}))
        return
    options.results.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result, indent=1) + "\n")
    (options.results / "processes.md").write_text(report(result))
    print(f"table: {options.results / 'processes.md'}")


if __name__ == "__main__":
    main()
