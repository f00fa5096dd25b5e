"""Measures the greedy policy on environments of its own; keeps the records, the best actors and the learning curve."""

from __future__ import annotations

import math
import random
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elegantrl.envs import as_vec_env, is_instance, make_env
from elegantrl.envs.watch import WatchedEnv
from elegantrl.storage import atomic_save, atomic_write
from elegantrl.train.config import Config, build_agent, build_vec_env
from elegantrl.train.console import Console, SilentConsole
from elegantrl.train.plots import Film, draw_learning_curve
from elegantrl.train.processes import Child, Link, ProcessFault, listen
from elegantrl.train.recorder import MEASURED, Recorder, TeamTally
from elegantrl.train.shared import SharedTensors

Policy = Callable[[Tensor, Tensor | None], Tensor]  # (state (N, S), action_mask (N, A) or None) -> action
DRAW_GAP = 30.0  # seconds: drawing takes about half of one
MAX_LOSSES = 3  # of processes in a row


class Scores:
    """What the evaluations of a run have shown so far, and what follows: when the next is due, whether the run ends."""

    def __init__(self, cwd: str | Path, args: Any, console: Any = None):
        self.cwd, self.args = Path(cwd), args
        self.records = Recorder()
        self.elapsed_before, self.started = 0.0, time.monotonic()
        self.evaluated_at = -math.inf
        self.deadline = math.inf  # of time.monotonic(), for the evaluation under way
        self.stop_seen = self._stop_mark()
        self.console = console or Console(args.break_step)
        if self.stop_seen is not None and console is None:
            self.console.line(f"{self.cwd / 'stop'} was there before this run and is ignored: touch it to stop.")

    def is_due(self, total_step: int, force: bool = False) -> bool:
        """Whether to evaluate at `total_step`: by its multiples and `eval_gap`, or `force`, but not twice at one."""
        due = total_step >= self.next_step and time.monotonic() - self.evaluated_at >= self.args.eval_gap
        done = bool(self.records.rows) and total_step == self.records.last_step
        return not done and (due or force)

    def check_time(self) -> None:
        """Called during an evaluation. TimeoutError: the deadline is over."""
        if time.monotonic() > self.deadline:
            raise TimeoutError("it takes too long")

    @property
    def next_step(self) -> int:
        """The environment step at which the next evaluation is due: multiples of `eval_per_step`."""
        gap = max(1, int(self.args.eval_per_step))
        return (self.records.last_step // gap + 1) * gap

    @property
    def elapsed(self) -> float:
        """Seconds of training, those before a resume included."""
        return self.elapsed_before + time.monotonic() - self.started

    def should_stop(self) -> str | None:
        """Why the run should end now, or None: `break_score` reached, `break_patience` used up, or a `stop` file."""
        if self._stop_mark() not in (None, self.stop_seen):
            return f"{self.cwd / 'stop'} was found"
        rows, best, patience = self.records.rows, self.records.best_return, self.args.break_patience
        if not rows:
            return None
        latest = rows[-1]["avgR"]
        if latest >= self.args.break_score:
            return f"break_score {self.args.break_score:g} was reached: avgR {latest:.2f}"
        if 0 < patience < len(rows) and all(row["avgR"] < best for row in rows[-patience:]):
            return f"the last {patience} evaluations (break_patience) stayed below the best avgR {best:.2f}"
        return None

    def _stop_mark(self) -> int | None:
        """Time stamp of the `stop` file or folder: compared with the one at the start, never with this clock."""
        try:
            return (self.cwd / "stop").stat().st_mtime_ns
        except FileNotFoundError:
            return None

    def state_dict(self) -> dict[str, Any]:
        """Plain data and one tensor: all that a resumed run needs to go on evaluating as this one would."""
        return {"records": self.records.state_dict(), "elapsed": self.elapsed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.records.load_state_dict(state["records"])
        self.elapsed_before, self.started = state["elapsed"], time.monotonic()

    def complete_files(self) -> None:
        self.records.save(self.cwd)
        title = f"{self.args.env_name} · {getattr(self.args.agent_class, '__name__', 'agent')}"
        picture = self.cwd / "LearningCurve.jpg"
        table, score = self.records.array, self.args.break_score
        atomic_write(picture, lambda path: draw_learning_curve(table, title, path, score))
        atomic_write(self.cwd / "plot_learning_curve.jpg", lambda path: shutil.copyfile(picture, path))


class NoEvaluator(Scores):
    """Of a Learner that is not rank 0: it evaluates nothing, says nothing and writes no file."""

    def __init__(self, args: Any):
        super().__init__(args.cwd, args, SilentConsole())

    def evaluate_and_save(self, *what: Any) -> bool:
        return False

    def should_stop(self) -> str | None:
        return None

    def hear(self, wait: bool = False) -> None:
        pass

    start = stop = close = hear


class Evaluator(Scores):
    """Plays greedy episodes every `args.eval_per_step` environment steps and writes what they showed to `cwd`.

    env: a vector environment (or a single one) that nobody else uses. It is seeded anew for each evaluation, so that
    an evaluation neither depends on training nor changes it. if_tensorboard needs the package tensorboard.
    """

    def __init__(self, cwd: str | Path, env: Any, args: Any, if_tensorboard: bool = False, console: Any = None):
        self.writer_class = _summary_writer_class() if if_tensorboard or args.if_tensorboard else None
        super().__init__(cwd, args, console)
        self.cwd.mkdir(parents=True, exist_ok=True)
        self.env = as_vec_env(env, args.device)
        self.episodes = max(1, math.ceil(args.eval_times / self.env.num_envs))  # of each environment
        self.drawn_at = time.monotonic()
        self.writer: Any = None

    # --- measuring ---
    def evaluate_and_save(
        self, agent: Any, total_step: int, exp_r: float, logs: dict[str, float], force: bool = False
    ) -> bool:
        """Evaluate if one is due at `total_step` (or `force`), then record, save and print; True if it took place.

        agent: an agent, or an actor module. exp_r: mean reward of an exploration step. logs: name -> mean of the
        updates since the last evaluation, objC and objA among them.
        """
        self.console.progress(total_step)
        if not self.is_due(total_step, force):
            return False
        seed = self.args.seed_for("evaluate", len(self.records.rows))
        tally = TeamTally()
        returns, lengths = play_greedily(self.env, agent, self.episodes, seed, self.check_time, tally)
        previous_step = self.records.last_step
        is_best = returns.mean() > self.records.best_return
        row = {"total_step": total_step, "avgR": returns.mean(), "stdR": returns.std(), "expR": exp_r}
        row = self.records.append(
            row | logs | tally.means(len(returns)) | {"avgS": lengths.mean(), "stdS": lengths.std()}
        )

        self._save_actor(getattr(agent, "act", agent), total_step, is_best)
        self.records.save(self.cwd)
        self.console.table_row(row, self.elapsed, is_best)
        self._write_tensorboard(row)
        film_gap = int(self.args.eval_record_step)
        if film_gap > 0 and total_step // film_gap > previous_step // film_gap:
            self._film(agent, total_step)
        if time.monotonic() - self.drawn_at >= DRAW_GAP:
            self.complete_files()
            self.drawn_at = time.monotonic()
        self.evaluated_at = time.monotonic()
        return True

    # --- ending ---
    def close(self) -> None:
        """Complete the files; the environment stays open, it is the caller's."""
        self.complete_files()
        self.close_writer()
        self.console.close()

    def close_writer(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None

    # --- files ---
    def _save_actor(self, act: Any, total_step: int, is_best: bool) -> None:
        if not self.args.if_keep_save:
            return
        if is_best and self.args.if_over_write:
            atomic_save(act, self.cwd / "actor.pt")
        elif not self.args.if_over_write:
            if is_best:
                atomic_save(act, self.cwd / f"actor__{total_step:012d}_{self.records.best_return:09.3f}.pt")
            if self.args.save_gap > 0 and len(self.records.rows) % self.args.save_gap == 0:
                atomic_save(act, self.cwd / f"actor__{total_step:012d}.pt")

    def _film(self, agent: Any, total_step: int) -> None:
        """One greedy episode on an environment of its own as `render_{step}.gif`; a failure is only told."""
        args = self.args
        env_class = args.eval_env_class or args.env_class
        env_args = {"env_name": args.env_name, **(args.env_args or {}), **(args.eval_env_args or {})}
        try:
            if is_instance(env_class):
                raise ValueError("env_class is an environment already in use, a class or an id is needed")
            env = make_env(env_class, {**env_args, "num_envs": 1, "render_mode": "rgb_array"})
            seed = args.seed_for("evaluate", len(self.records.rows))
            film = Film(env)
            play_greedily(as_vec_env(env, args.device), agent, episodes=1, seed=seed, watch=film.take)
            env.close()
            atomic_write(self.cwd / f"render_{total_step:012d}.gif", film.save)
        except Exception as error:  # whatever a foreign renderer raises
            self.console.line(f"eval_record_step: no film of {args.env_name}: {error}")

    def _write_tensorboard(self, row: dict[str, float]) -> None:
        if self.writer_class is None:
            return
        step = int(row["total_step"])
        if self.writer is None:  # only now is the step known from which a resumed run replaces what a killed one wrote
            self.writer = self.writer_class(str(self.cwd / "tensorboard"), purge_step=step)
        for name, value in row.items():
            if name != "total_step" and math.isfinite(value):
                self.writer.add_scalar(f"{'evaluate' if name in MEASURED else 'train'}/{name}", value, step)
        self.writer.flush()


# --- in a process of its own ---
class EvaluatorProc(Scores):
    """An Evaluator in a process of its own, with the interface of one. Here are the scores, there is the playing.

    Whenever it is idle and an evaluation is due, it gets the newest weights. Training waits for it at the end only, and
    where `worker_lag=0` asks for a run that repeats itself to the last file.
    """

    def __init__(self, args: Config, agent: Any, threads: int):
        super().__init__(args.cwd, args)
        self.weights = SharedTensors.like(agent.acting_state())
        what, shared = (args.for_children(),), (self.weights,)
        self.child = Child("Evaluator", evaluate, what, shared, threads, args.worker_timeout)
        self.losses = 0  # of processes since the last evaluation that succeeded

    def start(self) -> None:
        self.child.start(*self.opening())

    def opening(self) -> tuple[tuple, ...]:
        return (("rows", self.records.rows, self.elapsed),)

    def evaluate_and_save(
        self, agent: Any, total_step: int, exp_r: float, logs: dict[str, float], force: bool = False
    ) -> bool:
        """Begins an evaluation if one is due and none is under way; True if so. With `force` it is done on return."""
        self.console.progress(total_step)
        self.hear(wait=force)
        if self.child.todo or not self.is_due(total_step, force):
            return False
        self.weights.write(0, agent.acting_state())
        self.child.ask("evaluate", total_step, exp_r, logs)
        self.hear(wait=force or self.args.worker_lag == 0)
        return True

    def hear(self, wait: bool) -> None:
        """Takes what the process has said; `wait`: until it is idle. Raises ProcessFault; TimeoutError if it waits."""
        while True:
            for kind, *values in self.child.messages() if not wait else (m for _, m in listen([self.child])):
                if kind == "line":
                    self.console.line(*values)
                elif kind == "row":
                    self.child.answered()
                    self.take(*values)
                elif kind == "lost":
                    self.replace(*values)
            if not (wait and self.child.todo):
                return
            self.check_time()

    def take(self, row: dict[str, float]) -> None:
        is_best = row["avgR"] > self.records.best_return
        self.records.append(row)
        self.console.table_row(row, self.elapsed, is_best)
        self.evaluated_at, self.losses = time.monotonic(), 0

    def replace(self, why: str) -> None:
        """Starts another process. Raises ProcessFault where the last MAX_LOSSES have achieved nothing."""
        if self.losses >= MAX_LOSSES:
            raise ProcessFault(f"The Evaluator {why}, and so did {self.losses} before it.")
        self.losses += 1
        self.console.line(f"The Evaluator {why}. Another one takes its place.")
        self.child.restart(*self.opening())

    def stop(self) -> None:
        """Ends the process, whatever it is at."""
        self.child.close()

    def close(self) -> None:
        """Ends the process and completes the files."""
        self.stop()
        self.complete_files()
        self.console.close()


class RemoteConsole(SilentConsole):
    """A child's console: its lines are the parent's, who knows the rows and the progress itself."""

    def __init__(self, link: Link):
        self.link = link

    def line(self, text: str) -> None:
        self.link.say("line", text)


def evaluate(link: Link, args: Config, weights: SharedTensors) -> None:
    """The Evaluator's process: it answers every "evaluate" by a "row"."""
    with closing(link.watch(build_vec_env(args, if_eval=True))) as env:
        agent = build_agent(args)
        evaluator = Evaluator(args.cwd, env, args, console=RemoteConsole(link))
        link.say("ready")
        for kind, *what in link:
            if kind == "rows":
                evaluator.records.rows, evaluator.elapsed_before = what
                evaluator.started = time.monotonic()
            else:
                total_step, exp_r, logs = what
                weights.read(0, agent.acting_state())
                evaluator.evaluate_and_save(agent, total_step, exp_r, logs, force=True)
                link.say("row", evaluator.records.rows[-1])
        evaluator.close_writer()


def _summary_writer_class() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        message = "if_tensorboard=True needs the package tensorboard: pip install 'elegantrl[tensorboard]'"
        raise ImportError(message) from error
    return SummaryWriter


# --- playing ---
def play_greedily(
    env: Any,
    agent: Any,
    episodes: int,
    seed: int | None = None,
    watch: Callable[[], Any] | None = None,
    tally: TeamTally | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """`play_episodes` by `agent.greedy(state, action_mask)`, or by an actor module's actions or action values.

    watch is called before each step.
    """
    act = getattr(agent, "act", agent)
    modules = list(act.modules()) if isinstance(act, torch.nn.Module) else []
    device = next((p.device for module in modules for p in module.parameters()), torch.device("cpu"))

    forget = getattr(act, "forget", lambda ended=None: None)  # of an actor with a memory

    def policy(state: Tensor, action_mask: Tensor | None) -> Tensor:
        if watch is not None:
            watch()
        state, mask = state.to(device), None if action_mask is None else action_mask.to(device)
        if hasattr(agent, "greedy"):
            return agent.greedy(state, mask)
        action = act(state) if mask is None else act(state, mask)
        return action.argmax(dim=-1) if env.if_discrete and action.is_floating_point() else action

    in_training = [module for module in modules if module.training]
    try:
        for module in in_training:  # dropout is off, batch statistics stay
            module.training = False
        return play_episodes(env, policy, episodes, seed, tally, forget)
    finally:
        forget()
        for module in in_training:
            module.training = True


def play_episodes(
    env: Any,
    policy: Policy,
    episodes: int,
    seed: int | None = None,
    tally: TeamTally | None = None,
    forget: Callable[[Tensor], None] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns and lengths (steps) of the first `episodes` episodes of each environment, both (episodes * N,) float64.

    The first ones, not the first to end: those would be the short ones. Reset rows of next-step environments are not
    counted. The reward of a team is the mean over its agents; `tally` takes their own. `forget` is told in which
    environments (N,) an episode begins. Global random states are those of before afterwards.
    An episode that overruns the environment's `max_step` ends the play: it is counted as it stands, with a warning.
    Raises EnvironmentFault where the environment raises, FloatingPointError where a state or reward is not finite.
    """
    num_envs, next_step = env.num_envs, env.autoreset == "next_step"
    steps = torch.zeros(num_envs, dtype=torch.long)
    env = WatchedEnv(env, lambda: steps, "evaluation")
    totals = torch.zeros((2, episodes + 1, num_envs), dtype=torch.float64)  # the last row takes what is not wanted
    with own_random_states(seed, torch.device(env.device)), torch.no_grad():
        state, info = env.reset(seed=seed)
        column = torch.arange(num_envs)
        done = torch.zeros(num_envs, dtype=torch.bool)
        episode = torch.zeros(num_envs, dtype=torch.long)
        if forget is not None:
            forget(~done)
        for _ in range(1, episodes * (env.max_step + 2)):
            resetting = done if next_step else torch.zeros_like(done)
            steps += ~resetting
            state, reward, terminal, truncate, info = env.step(policy(state, info.get("action_mask")))
            each = reward
            reward = reward.reshape(num_envs, -1).mean(dim=1).cpu().double()
            _check_finite("state", state, steps, env)
            _check_finite("reward", reward.masked_fill(resetting, 0.0), steps, env)
            index = torch.where(resetting, episodes, episode)
            totals[0, index, column] += reward
            totals[1, index, column] += 1
            done = (terminal | truncate).cpu() & ~resetting
            if tally is not None:
                tally.add(each.cpu(), done, index < episodes, info)
            if forget is not None:
                forget(resetting if next_step else done)
            episode = (episode + done).clamp_(max=episodes)
            if int(episode.min()) == episodes:
                break
        else:
            warnings.warn(f"{env.env_name} overran its max_step {env.max_step} in evaluation", stacklevel=2)
    returns, lengths = totals[:, :episodes].reshape(2, -1).numpy()
    return returns[lengths > 0], lengths[lengths > 0]


@contextmanager
def own_random_states(seed: int | None, device: torch.device) -> Iterator[None]:
    """Inside, the global generators of Python, NumPy and torch start at `seed`; afterwards they are as before.

    Many environments draw from the global generators, and would otherwise carry the evaluation into training.
    """
    states = random.getstate(), np.random.get_state()
    on_gpu = device.type == "cuda"  # no other GPU is touched: that would create a context on it
    try:
        with torch.random.fork_rng(devices=[device] if on_gpu else []):
            if seed is not None:
                random.seed(seed)
                np.random.seed(seed)
                torch.default_generator.manual_seed(seed)
                if on_gpu:
                    torch.cuda.default_generators[device.index or 0].manual_seed(seed)
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


def _check_finite(name: str, tensor: Tensor, steps: Tensor, env: Any) -> None:
    finite = torch.isfinite(tensor)
    if not finite.all():
        which = int(torch.nonzero(~finite)[0, 0])
        raise FloatingPointError(
            f"evaluation: the {name} of {env.env_name}[{which}] is not finite at step {int(steps[which])}"
        )


def get_rewards_and_steps(env: Any, actor: Any, if_render: bool = False) -> tuple[float, int]:
    """Return and length (steps) of one greedy episode of a single environment; actor: a module or an agent."""
    returns, lengths = play_greedily(as_vec_env(env), actor, episodes=1, watch=env.render if if_render else None)
    return float(returns[0]), int(lengths[0])


def get_cumulative_rewards_and_step_from_vec_env(env: Any, actor: Any) -> list[tuple[float, int]]:
    """(return, length in steps) of the first episode of each environment of a vector environment."""
    returns, lengths = play_greedily(env, actor, episodes=1)
    return [(float(total), int(length)) for total, length in zip(returns, lengths, strict=True)]


get_episode_return_and_step = get_rewards_and_steps


def save_learning_curve(
    recorder: Any, cwd: str | Path = ".", save_title: str = "learning curve", fig_name: str = "plot_learning_curve.jpg"
) -> None:
    """Draw `recorder` (R, >= 6) to `cwd/fig_name`."""
    draw_learning_curve(recorder, save_title, str(Path(cwd) / fig_name))


if __name__ == "__main__":
    from elegantrl.train.leaderboard import main

    main()
