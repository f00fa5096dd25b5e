"""Speed and memory against Stable-Baselines3, as ratios measured in turn in one run, with one thread.

    python benchmarks/speed.py                        # everything, about ten minutes
    python benchmarks/speed.py --only updates --repeats 11
    python benchmarks/speed.py --only ppo memory

Three parts. `updates`: gradient updates per second of SAC, TD3, DQN from a filled replay buffer; same network, batch
and data on both sides. `ppo`: environment steps per second of a whole training without evaluation, in three rows:
Stable-Baselines3 with the settings of its zoo, Stable-Baselines3 with our number of environments, horizon, minibatch
and epochs, and ours. `memory`: bytes per transition of the replay buffers.
The sides take turns within each repeat, so that a busy moment of the machine strikes all of them; a ratio is the
median of the repeats' ratios, with their least and greatest. Seconds are those of the process on its core (CPU time of
its one thread), which other processes do not change much. Written to results/speed.md and, raw, results/speed.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported

import gymnasium as gym
import numpy as np
import torch
from learning import CARTPOLE_PPO

import elegantrl
import elegantrl.agents
from elegantrl import Config, train_agent
from elegantrl.train.replay_buffer import ReplayBuffer

try:
    import stable_baselines3 as sb3
    from stable_baselines3.common import buffers, callbacks, env_util, logger, vec_env
except ImportError:
    sys.exit("benchmarks/speed.py needs Stable-Baselines3: pip install -r benchmarks/requirements.txt (or: make bench)")

torch.set_num_threads(1)

RESULTS = Path(__file__).resolve().parent / "results"
ROWS = 10_000  # transitions in the replay buffer
WIDTHS = (256, 64)
UPDATES = [("SAC", "Pendulum-v1", 256), ("TD3", "Pendulum-v1", 256), ("DQN", "CartPole-v1", 64)]  # agent, task, batch
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm"}
MEMORY = ("Pendulum-v1", "HalfCheetah-v5")

Rate = Callable[[], float]  # does a fixed amount of work and answers how much of it was done per second


# -- gradient updates ------------------------------------------------------------------------------------------------


def random_rows(task: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """States (ROWS + 1, S), actions (ROWS, A) in [-1, 1] or indices (ROWS,), rewards (ROWS,): one unbroken episode."""
    env = gym.make(task)
    rng = np.random.default_rng(0)
    state_dim = env.observation_space.shape[0]
    states = rng.normal(size=(ROWS + 1, state_dim)).astype(np.float32)
    rewards = rng.normal(size=ROWS).astype(np.float32)
    if isinstance(env.action_space, gym.spaces.Discrete):
        actions = rng.integers(env.action_space.n, size=ROWS)
    else:
        actions = rng.uniform(-1, 1, size=(ROWS, env.action_space.shape[0])).astype(np.float32)
    return states, actions, rewards


def our_update(
    name: str, task: str, width: int, batch_size: int, count: int, if_compile: bool = False
) -> tuple[Any, Callable[[], None]]:
    """An agent, and what makes `count` updates of it."""
    agent_class = getattr(elegantrl.agents, f"Agent{name}")
    args = Config(agent_class, task, net_dims=(width, width), batch_size=batch_size, utd=1.0, if_compile=if_compile)
    agent = agent_class(args.net_dims, args.state_dim, args.action_dim, gpu_id=-1, args=args)
    states, actions, rewards = (torch.as_tensor(x) for x in random_rows(task))
    flags = torch.ones(ROWS, 1, dtype=torch.bool)  # undones, unmasks
    buffer = ReplayBuffer(
        ROWS, args.state_dim, args.action_dim, gpu_id=-1, num_seqs=1, if_discrete=args.if_discrete, args=args
    )
    buffer.update((states[:-1, None], actions[:, None], rewards[:, None], flags, flags))

    def update() -> None:
        buffer.add_size = count  # as if so many transitions had just come: with utd 1, so many updates
        agent.update_net(buffer)

    return agent, update


def our_updates(*setup: Any, if_compile: bool = False) -> Rate:
    agent, update = our_update(*setup, if_compile=if_compile)
    return lambda: per_second(update, lambda: agent.update_count, setup[-1])


def share_of_products(*setup: Any) -> float:
    """How much of the time of our updates goes into matrix products, which no implementation can leave out."""
    _, update = our_update(*setup)
    update()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        update()
    times = {event.key: event.self_cpu_time_total for event in profile.key_averages()}
    products = sum(time for name, time in times.items() if name.removeprefix("aten::") in PRODUCTS)
    return products / sum(times.values())


def sb3_updates(name: str, task: str, width: int, batch_size: int, count: int) -> Rate:
    extra = {"target_update_interval": 1, "tau": 0.005} if name == "DQN" else {}
    model = getattr(sb3, name)(
        "MlpPolicy", task, batch_size=batch_size, buffer_size=ROWS, policy_kwargs={"net_arch": [width, width]},
        device="cpu", seed=0, **extra,
    )  # fmt: skip
    model.set_logger(logger.configure(None, []))
    states, actions, rewards = random_rows(task)
    buffer = model.replay_buffer
    buffer.observations[:, 0] = states[:-1]
    buffer.next_observations[:, 0] = states[1:]
    buffer.actions[:, 0] = actions.reshape(ROWS, -1)
    buffer.rewards[:, 0] = rewards
    buffer.full = True

    def update() -> None:
        model.train(gradient_steps=count, batch_size=batch_size)

    return lambda: per_second(update, lambda: model._n_updates, count)


def per_second(update: Callable[[], None], counter: Callable[[], int], count: int) -> float:
    """Updates per second by the side's own counter. RuntimeError if it did another number of them than asked."""
    before, start = counter(), time.process_time()
    update()
    seconds, done = time.process_time() - start, counter() - before
    if done != count:
        raise RuntimeError(f"{done} updates were done where {count} were asked for: the rate would mean nothing.")
    return done / seconds


def compare_updates(repeats: int, seconds: float) -> list[dict[str, Any]]:
    rows = []
    for name, task, batch_size in UPDATES:
        for width in WIDTHS:
            probe = sb3_updates(name, task, width, batch_size, 20)
            probe()  # the first calls of a process allocate and warm caches
            count = max(20, int(probe() * seconds))
            sides = {
                "ours": our_updates(name, task, width, batch_size, count),
                "compiled": our_updates(name, task, width, batch_size, count, if_compile=True),
                "sb3": sb3_updates(name, task, width, batch_size, count),
            }
            row = {"agent": name, "task": task, "net": [width, width], "batch": batch_size, "updates": count}
            row["products"] = share_of_products(name, task, width, batch_size, min(count, 100))
            rows.append(row | in_turn(sides, repeats))
            show(f"{name} ({width}, {width})", rows[-1]["ours"], rows[-1]["sb3"], "updates/s")
    return rows


# -- PPO, end to end -------------------------------------------------------------------------------------------------

OUR_PPO = {
    "CartPole-v1": CARTPOLE_PPO,
    "Hopper-v5": {
        "net_dims": (64, 64), "num_envs": 32, "horizon_len": 64, "batch_size": 256, "repeat_times": 10,
        "learning_rate": 3e-4, "if_norm_state": True, "if_norm_reward": True,
    },
}  # fmt: skip
PPO_STEPS = {"CartPole-v1": 40_960, "Hopper-v5": 20_480}
# rl-baselines3-zoo, hyperparams/ppo.yml (Hopper: its v4 entry), as known; learning rates and clip ranges that the zoo
# anneals stand at their first value, which costs the same time.
ZOO_PPO: dict[str, dict[str, Any]] = {
    "CartPole-v1": {
        "num_envs": 8, "n_steps": 32, "batch_size": 256, "n_epochs": 20, "gamma": 0.98, "gae_lambda": 0.8,
        "ent_coef": 0.0, "learning_rate": 1e-3, "clip_range": 0.2,
    },
    "Hopper-v5": {
        "num_envs": 1, "n_steps": 512, "batch_size": 32, "n_epochs": 5, "gamma": 0.999, "gae_lambda": 0.99,
        "ent_coef": 0.00229519, "learning_rate": 9.80828e-5, "clip_range": 0.2, "max_grad_norm": 0.7,
        "vf_coef": 0.835671,
        "policy_kwargs": {
            "log_std_init": -2, "ortho_init": False, "activation_fn": torch.nn.ReLU,
            "net_arch": {"pi": [256, 256], "vf": [256, 256]},
        },
    },
}  # fmt: skip


def sb3_with_ours(task: str) -> dict[str, Any]:
    """Our number of environments, horizon, minibatch, epochs and network, said in Stable-Baselines3's words."""
    ours = Config(elegantrl.agents.AgentPPO, task, **OUR_PPO[task])
    return {
        "num_envs": ours.num_envs, "n_steps": ours.horizon_len, "batch_size": ours.batch_size,
        "n_epochs": int(ours.repeat_times), "learning_rate": ours.learning_rate, "gamma": ours.gamma,
        "gae_lambda": ours.lambda_gae_adv, "policy_kwargs": {"net_arch": list(ours.net_dims)},
    }  # fmt: skip


Mark = tuple[float, int]  # when, and after how many environment steps (reset rows are none)


class RolloutClock:
    """A callback of train_agent: a mark after each update, the first of which may compile."""

    def __init__(self) -> None:
        self.marks: list[Mark] = []

    def on_update(self, run: Any) -> None:
        self.marks.append((time.process_time(), run.total_step))


class SB3RolloutClock(callbacks.BaseCallback):
    """The same for Stable-Baselines3."""

    def __init__(self) -> None:
        super().__init__()
        self.marks: list[Mark] = []

    def _on_rollout_end(self) -> None:
        self.marks.append((time.process_time(), self.num_timesteps))

    def _on_step(self) -> bool:
        return True


def steps_per_second(marks: list[Mark]) -> float:
    """From the first mark to the last: start-up, compiling and final saving are not counted."""
    (start, first), *_, (end, last) = marks
    return (last - first) / (end - start)


def our_ppo(task: str, steps: int, if_compile: bool = False) -> Rate:
    settings = {**OUR_PPO[task], "if_compile": if_compile}

    def rate() -> float:
        clock = RolloutClock()
        with tempfile.TemporaryDirectory() as cwd, open(os.devnull, "w") as console:
            args = Config(elegantrl.agents.AgentPPO, task, **settings)
            args.break_step, args.eval_per_step, args.if_keep_save = steps, 10 * steps, False
            args.cwd, args.num_threads, args.callbacks = cwd, 1, (clock,)
            with contextlib.redirect_stdout(console):
                train_agent(args, if_single_process=True)
        return steps_per_second(clock.marks)

    return rate


def sb3_ppo(task: str, steps: int, settings: dict[str, Any]) -> Rate:
    settings = dict(settings)
    num_envs = settings.pop("num_envs")

    def rate() -> float:
        env = env_util.make_vec_env(task, n_envs=num_envs, seed=0)
        if task == "Hopper-v5":
            env = vec_env.VecNormalize(env)  # as its zoo says, and as ours normalises
        clock = SB3RolloutClock()
        sb3.PPO("MlpPolicy", env, device="cpu", seed=0, **settings).learn(steps, callback=clock)
        env.close()
        return steps_per_second(clock.marks)

    return rate


def compare_ppo(repeats: int) -> list[dict[str, Any]]:
    rows = []
    for task, steps in PPO_STEPS.items():
        sides = {
            "sb3_zoo": sb3_ppo(task, steps, ZOO_PPO[task]),
            "sb3_ours": sb3_ppo(task, steps, sb3_with_ours(task)),
            "ours": our_ppo(task, steps),
            "compiled": our_ppo(task, steps, if_compile=True),
        }
        rows.append({"task": task, "steps": steps} | in_turn(sides, repeats))
        show(f"PPO {task}", rows[-1]["ours"], rows[-1][faster(rows[-1])], "steps/s")
    return rows


def faster(row: dict[str, Any]) -> str:
    """Which of Stable-Baselines3's two rows ours is compared with."""
    return max(("sb3_zoo", "sb3_ours"), key=lambda side: statistics.median(row[side]))


# -- memory ----------------------------------------------------------------------------------------------------------


def compare_memory() -> list[dict[str, Any]]:
    """Bytes per transition of everything a replay buffer allocates, at 100 000 transitions."""
    size, rows = 100_000, []
    for task in MEMORY:
        env = gym.make(task)
        args = Config(elegantrl.agents.AgentSAC, task)
        ours = ReplayBuffer(size, args.state_dim, args.action_dim, gpu_id=-1, num_seqs=1, if_discrete=False, args=args)
        theirs = buffers.ReplayBuffer(size, env.observation_space, env.action_space, device="cpu")
        tensors = [x for x in (*vars(ours).values(), *ours.columns.values()) if isinstance(x, torch.Tensor)]
        arrays = [x for x in vars(theirs).values() if isinstance(x, np.ndarray)]
        our_bytes = sum(x.numel() * x.element_size() for x in tensors) / size
        rows.append({"task": task, "ours": our_bytes, "sb3": sum(x.nbytes for x in arrays) / size})
        print(f"memory {task}: {our_bytes:.1f} against {rows[-1]['sb3']:.1f} bytes per transition", flush=True)
    return rows


# -- measuring and reporting -----------------------------------------------------------------------------------------


def in_turn(sides: dict[str, Rate], repeats: int) -> dict[str, list[float]]:
    """Each side's rates; one warm-up each, then the sides alternate."""
    for rate in sides.values():
        rate()
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, rate in sides.items():
            rates[name].append(rate())
    return rates


def ratio(ours: list[float], theirs: list[float]) -> str:
    ratios = sorted(a / b for a, b in zip(ours, theirs, strict=True))
    return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"


def show(label: str, ours: list[float], theirs: list[float], unit: str) -> None:
    rates = f"{statistics.median(ours):.0f} against {statistics.median(theirs):.0f} {unit}"
    print(f"{label}: {rates}, ratio {ratio(ours, theirs)}", flush=True)


def report(result: dict[str, Any]) -> str:
    """The results as Markdown."""
    about = result["about"]
    lines = [
        "# Speed and memory against Stable-Baselines3",
        "",
        "Made by `python benchmarks/speed.py` (its first lines say how); raw rates are in `speed.json`. Ratios: ours /",
        "theirs, median of the repeats (least to greatest). One thread. "
        + ", ".join(f"{k} {v}" for k, v in about.items())
        + ".",
    ]
    if rows := result.get("updates"):
        lines += ["", "## Gradient updates per second", ""]
        lines += [
            "| agent | task | network | batch | ours | products | ours, `if_compile` | Stable-Baselines3 | ratio "
            "| ratio compiled |",
            "|---|---|---|---|---|---|---|---|---|---|",
        ]
        for row in rows:
            lines.append(
                f"| {row['agent']} | {row['task']} | {tuple(row['net'])} | {row['batch']} "
                f"| {statistics.median(row['ours']):.0f} | {row['products']:.0%} "
                f"| {statistics.median(row['compiled']):.0f} "
                f"| {statistics.median(row['sb3']):.0f} "
                f"| {ratio(row['ours'], row['sb3'])} | {ratio(row['compiled'], row['sb3'])} |"
            )
        lines += [
            "",
            "Products: the share of our time (torch.profiler, without `if_compile`) in matrix products, which both",
            "sides need alike. The rest is what many small operations cost to call, and `if_compile` joins them.",
            "DQN: Stable-Baselines3 updates its target outside of what is timed, ours inside.",
        ]
    if rows := result.get("ppo"):
        lines += ["", "## PPO, environment steps per second of the whole training", ""]
        lines += [
            "| task | steps | Stable-Baselines3, its zoo's settings | Stable-Baselines3, our settings | ours "
            "| ours, `if_compile` | ratio to the faster | ratio compiled |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for row in rows:
            medians = (f"{statistics.median(row[side]):.0f}" for side in ("sb3_zoo", "sb3_ours", "ours", "compiled"))
            peer = row[faster(row)]
            lines.append(
                f"| {row['task']} | {row['steps']} | {' | '.join(medians)} | {ratio(row['ours'], peer)} "
                f"| {ratio(row['compiled'], peer)} |"
            )
        lines += ["", "Settings:", ""]
        for row in rows:
            task = row["task"]
            lines.append(f"- {task}, ours: {spell(OUR_PPO[task])}")
            lines.append(f"- {task}, Stable-Baselines3 with ours: {spell(sb3_with_ours(task))}")
            lines.append(f"- {task}, Stable-Baselines3's zoo: {spell(ZOO_PPO[task])}")
        lines += ["", "On Hopper-v5 all three normalise states and rewards (Stable-Baselines3 by its VecNormalize)."]
    if rows := result.get("memory"):
        lines += ["", "## Replay memory, bytes per transition", ""]
        lines += ["| task | ours | Stable-Baselines3 | ratio |", "|---|---|---|---|"]
        lines += [f"| {r['task']} | {r['ours']:.1f} | {r['sb3']:.1f} | {r['ours'] / r['sb3']:.2f} |" for r in rows]
        lines += ["", "Stable-Baselines3 with its defaults, which store the next state too."]
    return "\n".join(lines) + "\n"


CLASS, BARE_NAME = r"<class '(?:\w+\.)*(\w+)'>", r"\1"


def spell(settings: dict[str, Any]) -> str:
    return ", ".join(f"`{k}={re.sub(CLASS, BARE_NAME, str(v))}`" for k, v in settings.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ("updates", "ppo", "memory")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of Stable-Baselines3's updates per repeat")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()

    result: dict[str, Any] = {
        "about": {
            "elegantrl": elegantrl.__version__,
            "stable-baselines3": sb3.__version__,
            "torch": torch.__version__,
            "gymnasium": gym.__version__,
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "repeats": options.repeats,
        }
    }
    if "updates" in options.only:
        result["updates"] = compare_updates(options.repeats, options.seconds)
    if "ppo" in options.only:
        result["ppo"] = compare_ppo(options.repeats)
    if "memory" in options.only:
        result["memory"] = compare_memory()
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "speed.json").write_text(json.dumps(result, indent=1) + "\n")
    (options.results / "speed.md").write_text(report(result))
    print(f"table: {options.results / 'speed.md'}")


if __name__ == "__main__":
    main()
