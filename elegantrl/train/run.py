"""Wires Worker, Learner and Evaluator: explore, store, update, evaluate."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .. import storage
from ..ranks import Ranks
from .checks import check_callbacks
from .config import Arguments as Arguments  # older scripts take it from elegantrl.run
from .config import Config, build_agent, build_vec_env, seed_everything
from .config import build_env as build_env
from .evaluator import Evaluator, EvaluatorProc, NoEvaluator
from .learner import Learner, PipeLearner
from .load import MUST_STAY
from .load import init_agent as init_agent
from .load import load_agent as load_agent
from .load import render_agent as render_agent
from .load import valid_agent as valid_agent
from .processes import LOOK, Link, cores, why_not_elsewhere
from .processes import check_subprocess as check_subprocess
from .processes import safely_terminate_process as safely_terminate_process
from .worker import PipeWorker, Worker

LAST_SECONDS = 10.0  # that the evaluation after Ctrl-C may take
ONE_THREAD_UP_TO = 512  # width of hidden layers; on busy cores a second thread makes small networks many times slower


# one training run


class Run:
    """A training run in one process: who takes part and where it stands. It is what callbacks are given."""

    rank, size, here = 0, 1, 1  # of the Learners of one agent: this one, which writes if it is 0; all; on this machine

    def __init__(self, args: Config):
        self.args = args
        self.stop_reason: str | None = None
        self.logs: dict[str, float] = {}  # means of the newest update
        self.checkpoints = 0  # how many were written; each begins its own stream of environment seeds
        self.checkpoint_step = 0
        self.has_begun = False  # until then nothing is written: a resume that fails must leave what it found
        self.is_in_step = True  # whether all Learners are where this one is
        check_callbacks(args.callbacks)
        seed_everything(args.seed_for("learner"))
        self.agent = build_agent(args)
        self.build_parts()
        self.console = self.evaluator.console
        resumes = args.continue_train and os.path.exists(os.path.join(args.cwd, "checkpoint.pth"))
        self.claim = storage.claim(args.cwd) if self.rank == 0 else ExitStack()
        must_move = self.rank == 0 and not resumes and (args.if_remove or not storage.is_run(args.cwd))
        if must_move and (moved := storage.set_aside(args.cwd)):  # not before everything above has been found right
            self.console.line(f"Files of an earlier run, or under the names of a run's files, are now in {moved}.")

    def build_parts(self) -> None:
        """Who explores, learns and evaluates."""
        args = self.args
        self.env, self.eval_env = build_vec_env(args), build_vec_env(args, if_eval=True)
        self.worker: Any = Worker(self.env, self.agent, args)
        self.worker.ids = (self.rank,)
        self.learner = Learner(self.agent, args)
        self.evaluator: Any = self.evaluator_of(lambda: Evaluator(args.cwd, self.eval_env, args))

    def evaluator_of(self, build: Callable[[], Any]) -> Any:
        """The Evaluator of the one Learner that writes files."""
        if self.rank > 0:
            return NoEvaluator(self.args)
        storage.check_writable(self.args.cwd)
        return build()

    def start_parts(self) -> None:
        """Called once it is clear that the run begins."""

    def look(self, timeout: float = LOOK) -> None:
        """Raises what has failed in another process, or fails there within `timeout` seconds."""

    def close_parts(self) -> None:
        """What does not concern files."""
        self.eval_env.close()
        self.worker.close()

    @property
    def total_step(self) -> int:
        """Steps of all environments together, without reset rows."""
        return self.worker.total_step

    def begin(self) -> None:
        """Resumes from cwd if asked, else seeds the environments; then collects what must be there before learning."""
        resumed = self.resume() if self.args.continue_train else False
        self.evaluations = len(self.evaluator.records.rows)  # of which callbacks have been told
        self.start_parts()
        self.restart_worker(*(("checkpoint", self.checkpoints) if resumed else ("worker",)))
        self.has_begun = True
        buffer = self.learner.buffer
        if buffer is not None:  # by random actions, or by the policy that was loaded
            rows = min(buffer.rows, max(2, -(-self.agent.buffer_init_size // buffer.num_seqs)))
            while self.agree(buffer.cur_size < rows) and not self.is_over():
                self.learner.store(self.worker.explore(if_random=not resumed))
                self.agent.update_statistics(self.learner.trajectory)
                buffer.add_size = 0  # no update is owed for these
        elif not (resumed or self.is_over()) and (self.agent.state_norm.learns or self.agent.reward_norm.learns):
            self.agent.update_statistics(self.worker.explore(if_random=True))

    def evaluate(self, force: bool = False) -> None:
        """Evaluates where it is due."""
        exp_r, train_return = self.worker.summary()
        logs = {**self.learner.summary(), "trainR": train_return}
        if self.evaluator.evaluate_and_save(self.agent, self.total_step, exp_r, logs, force):
            self.worker.clear_summary()
            self.learner.clear_summary()
        while self.evaluations < len(self.evaluator.records.rows):  # in another process it takes its time
            self.evaluations += 1
            self.call("on_evaluate")

    def interrupted(self) -> None:
        """Ctrl-C ends the run, after a last evaluation for at most LAST_SECONDS or until another Ctrl-C."""
        self.break_off("interrupted")
        if not self.logs:  # nothing has been learned
            self.console.line("Interrupted: the run is being ended.")
            return
        self.console.line(f"Interrupted: a last evaluation of {LAST_SECONDS:g} seconds at most, Ctrl-C leaves it out.")
        self.evaluator.deadline = time.monotonic() + LAST_SECONDS
        try:
            self.evaluate(force=True)
        except (KeyboardInterrupt, Exception) as error:  # whatever an interrupted environment raises
            self.console.line(f"The last evaluation was left out: {type(error).__name__} {error}")

    def call(self, hook: str) -> None:
        """Gives the run to every callback that has this hook."""
        for callback in self.args.callbacks:
            getattr(callback, hook, lambda run: None)(self)

    def is_over(self) -> bool:
        """Whether the run ends here; also tells the agent's schedules how far it is."""
        if self.total_step >= self.args.break_step:
            self.stop(f"break_step {self.args.break_step:,} was reached")
        self.stop_reason = self.agree(self.stop_reason or self.evaluator.should_stop())
        length = self.args.break_step
        self.agent.progress = min(1.0, self.total_step / length) if 0 < length < math.inf else 1.0
        return self.stop_reason is not None

    def agree(self, value: Any) -> Any:
        """The value, which all Learners of an agent must have in common: rank 0's."""
        return value

    def collect(self, value: Any) -> list[Any]:
        """Each Learner's value, for rank 0."""
        return [value]

    def deal(self, values: list[Any]) -> Any:
        """This Learner's own of the values that rank 0 has; None where there is none."""
        return values[0]

    def stop(self, reason: str) -> None:
        """Ends the run after the current rollout. For callbacks."""
        self.stop_reason = self.stop_reason or reason

    def break_off(self, reason: str) -> None:
        """What this rank met with, the others may not have."""
        self.stop_reason, self.is_in_step = reason, self.size == 1

    # saving and resuming

    def checkpoint_if_due(self) -> None:
        gap = self.args.checkpoint_per_step
        if gap and self.total_step // gap > self.checkpoint_step // gap:
            self.checkpoint()
            self.restart_worker("checkpoint", self.checkpoints)

    def restart_worker(self, *key: str | int) -> None:
        """Resets the environments by a seed of each Worker's own."""
        self.worker.restart(*(self.args.seed_for(*key, i) for i in self.worker.ids))

    def checkpoint(self) -> None:
        """Writes all that a resume needs.

        Environments cannot save their state: their episodes are cut here, and the run goes on, in this process or in
        the one that resumes, from a reset by a seed of this checkpoint's own.
        """
        self.checkpoints += 1
        self.checkpoint_step = self.total_step
        buffer = self.learner.buffer
        if buffer is not None:
            buffer.cut()
        own = {"random": storage.random_states(), "buffer": None}
        if buffer is not None and self.args.if_save_buffer:
            own["buffer"] = buffer.state_dict()
        ranks = self.collect(own) if self.is_in_step else [own]
        if self.rank > 0:
            return
        state = {
            "config": self.args.to_dict(),
            "agent": self.agent.state_dict(),
            "worker": self.worker.state_dict(),
            "evaluator": self.evaluator.state_dict(),
            "learner": self.learner.sums,
            "run": {"checkpoints": self.checkpoints, "checkpoint_step": self.checkpoint_step},
            "ranks": ranks,
        }
        self.agent.save_or_load_agent(self.args.cwd, if_save=True)
        storage.atomic_save(state, os.path.join(self.args.cwd, "checkpoint.pth"))

    def resume(self) -> bool:
        """Loads cwd's checkpoint, random states last. False, and a line that says so, where there is none."""
        path = os.path.join(self.args.cwd, "checkpoint.pth")
        if not self.agree(os.path.exists(path)):
            self.console.line(f"continue_train: {path} does not exist, a new run begins.")
            return False
        state = storage.load_checkpoint(self.args.cwd) if self.rank == 0 else {"ranks": []}
        count, own = len(state["ranks"]), self.deal(state.pop("ranks"))
        state = self.agree(state)
        saved, now = ({n: config.get(n) for n in MUST_STAY} for config in (state["config"], self.args.to_dict()))
        for settings in (saved, now):  # the module of a class has another name where a script is imported later
            settings["agent_class"] = str(settings["agent_class"]).rpartition(":")[2]
        other = [n for n in MUST_STAY if saved[n] != now[n]]
        if other:
            lines = "; ".join(f"{n} was {saved[n]!r}, is {now[n]!r}" for n in other)
            raise ValueError(f"continue_train: the run in {self.args.cwd} was another one: {lines}.")
        with storage.refusing_misfits(path, self.agent):
            self.agent.load_state_dict(state["agent"])
        self.worker.load_state_dict(state["worker"])
        self.evaluator.load_state_dict(state["evaluator"])
        self.learner.sums = state["learner"]
        for name, value in state["run"].items():
            setattr(self, name, value)
        if own is not None:  # of a rank that was there
            if self.learner.buffer is not None and own["buffer"] is not None:
                self.learner.buffer.load_state_dict(own["buffer"])
            storage.set_random_states(own["random"])  # then the environments are reset, as in the run that went on
        others = "" if count == self.size else f" by {self.size} Learner(s), of {count}"
        self.console.line(f"continue_train: resumed from step {self.total_step:,}{others}.")
        return True

    def end(self) -> None:
        """Completes the files, whatever the reason for the end. What fails here does not stop the rest."""
        with ExitStack() as ending:  # from the last to the first
            ending.callback(self.claim.close)
            ending.callback(self.say_how_it_ended)
            ending.callback(self.close_parts)
            if self.has_begun:
                ending.callback(self.evaluator.close)
                ending.callback(self.call, "on_end")
            ending.callback(self.part)
            is_due = self.checkpoint_step != self.total_step and self.is_in_step
            if self.has_begun and (is_due or not self.checkpoints):
                self.checkpoint()

    def part(self) -> None:
        """Called after the last checkpoint: nothing is agreed on any more."""

    def say_how_it_ended(self) -> None:
        files = f"Files and LearningCurve.jpg: {self.args.cwd}" if self.has_begun else "Nothing was written."
        steps = f"{self.total_step:,} (and {self.worker.reset_rows:,} reset rows)"
        self.console.line(f"Ended at step {steps}: {self.stop_reason}. {files}")


class ProcessRun(Run):
    """The same run with Workers and Evaluator in processes of their own, and the Learner in this one."""

    def build_parts(self) -> None:
        args, workers = self.args, self.args.num_workers
        self.threads = threads = own_threads(args, processes=self.here * (1 + workers) + 1)
        torch.set_num_threads(threads)
        twin = args.for_children()
        with closing(build_vec_env(twin)) as env:
            first_id = self.rank * workers
            self.worker = PipeWorker(env, self.agent, twin, threads, self.say, self.cut, first_id)
        args.__dict__["num_envs"] = twin.num_envs  # which the environment may have said
        self.learner = Learner(self.agent, args, num_envs=workers * args.num_envs)
        self.evaluator = self.evaluator_of(lambda: EvaluatorProc(args, self.agent, threads))
        self.worker.look, self.looked = self.look, time.monotonic()
        self.gradients, self.agent.gradients = self.agent.gradients, self.gradients_and_look

    def gradients_and_look(self, *what: Any) -> Any:
        """The agent's gradients, and every LOOK seconds a look between them: an update may be long."""
        if time.monotonic() > self.looked + LOOK:
            self.look(timeout=0.0)
        return self.gradients(*what)

    def look(self, timeout: float = LOOK) -> None:
        self.worker.hear(timeout)
        self.evaluator.hear(wait=False)
        self.looked = time.monotonic()

    def say(self, text: str) -> None:
        self.console.line(text)

    def cut(self, columns: Tensor) -> None:
        self.learner.cut(columns)

    def start_parts(self) -> None:
        self.say(
            f"{self.size} Learner(s), {self.args.num_workers} Worker(s) of each, an Evaluator: {self.threads} of "
            f"{cores()} threads for each process. Workers are {self.worker.lag} rollout(s) ahead (worker_lag)."
        )
        self.worker.start()
        self.evaluator.start()

    def close_parts(self) -> None:
        self.agent.gradients = self.gradients  # as found: who goes on with the agent has no such processes
        self.worker.close()
        self.evaluator.stop()


class InRanks(Run):
    """Put before a kind of run: one of several Learners that work on one agent together."""

    ranks: Ranks

    def __init__(self, args: Config):
        super().__init__(args)
        self.ranks.join(self.agent)
        self.worker.summed = self.ranks.sum
        if self.rank > 0:
            seed_everything(args.seed_for("learner", self.rank))

    def start_parts(self) -> None:
        self.ranks.equal(self.agent.tensors())
        super().start_parts()

    def look(self, timeout: float = LOOK) -> None:
        super().look(timeout)
        for check in self.ranks.watched:
            check(0.0)

    def agree(self, value: Any) -> Any:
        return self.ranks.agree(value)

    def collect(self, value: Any) -> list[Any]:
        return self.ranks.collect(value)

    def deal(self, values: list[Any]) -> Any:
        return self.ranks.deal(values)

    def part(self) -> None:
        self.ranks.close()


def train(args: Config, kind: type[Run]) -> Run:
    """The loop of every run: explore, store, update, evaluate."""
    args.init_before_training()
    with own_settings(args, kind.here):
        run = kind(args)
        run.console.line(f"{type(run.agent).__name__} on {args.env_name}, {args.num_envs} environment(s): {args.cwd}")
        try:
            run.begin()
            while not run.is_over():
                run.learner.store(run.worker.explore())
                run.call("on_rollout")
                run.logs = run.learner.update()
                run.call("on_update")
                run.evaluate()
                run.checkpoint_if_due()
            run.evaluate(force=True)
        except KeyboardInterrupt:
            run.interrupted()
        except BaseException as error:
            run.break_off(type(error).__name__)
            raise
        finally:
            with storage.interrupts_ignored():
                run.end()
    return run


# the doors to it


def train_agent(args: Config, if_single_process: bool = False) -> Run:
    """Trains args.agent_class on args.env_class until break_step, break_score, break_patience, a `stop` file, Ctrl-C or
    an error. In each case the files in args.cwd are complete afterwards, and no process is left. An error is raised
    again, an interrupt is not. Returns the finished run.

    `args.num_workers` processes explore, one evaluates, this one learns. if_single_process: this one does all.
    """
    return train_agent_single_process(args) if if_single_process else train_agent_multiprocessing(args)


def train_agent_single_process(args: Config) -> Run:
    """Trains in this process; see `train_agent`."""
    return train(args, Run)


def train_and_evaluate(args: Config) -> Run:
    """Trains in this process; see `train_agent`."""
    return train(args, Run)


def train_agent_multiprocessing(args: Config) -> Run:
    """Trains in several processes; in this one, and a line says why, where that is impossible. See `train_agent`.

    Several Learners: one for each of `args.learner_gpu_ids`, or one for each process that torchrun has started. Each
    has Workers of its own; gradients are averaged. ValueError: a GPU that is not there.
    """
    args.init_before_training()
    ids = check_learners(args.learner_gpu_ids)
    args.gpu_id = ids[0] if ids else args.gpu_id
    if args.num_workers == 0:
        why: str | None = "num_workers is 0"
    elif args.device.type == "cuda" and hasattr(args.env_class, "autoreset"):
        why = "its environments live on the GPU, beside what learns from them"
    else:
        why = why_not_elsewhere(args.for_children())
    if why:
        print(f"train_agent: one process does all, since {why}.", flush=True)
    kind = Run if why else ProcessRun
    if int(os.environ.get("WORLD_SIZE", 1)) > 1 and "LOCAL_RANK" in os.environ:
        return train_as_told_by_torchrun(args, kind)
    return train(args, kind) if len(ids) < 2 else train_in_ranks(args, kind)


train_and_evaluate_mp = train_agent_multiprocessing
train_agent_multiprocessing_multi_gpu = train_agent_multiprocessing


def check_learners(gpu_ids: Any) -> tuple[int, ...]:
    """The GPUs of the Learners; -1 is the CPU. ValueError: not these, and why."""
    ids = (gpu_ids,) if isinstance(gpu_ids, int) else tuple(gpu_ids)
    count = torch.cuda.device_count()
    are_cpu = all(i == -1 for i in ids)
    if not are_cpu and (len(set(ids)) < len(ids) or not all(0 <= i < count for i in ids)):
        there = f"has the GPUs {', '.join(map(str, range(count)))}" if count else "has no GPU that PyTorch can use"
        raise ValueError(
            f"learner_gpu_ids={ids}: this machine {there}. Give ids of these, each once, or -1 for each Learner on the "
            "CPU."
        )
    return ids


def train_in_ranks(args: Config, kind: type[Run]) -> Run:
    """Rank 0 in this process, the others in processes of their own."""
    ids, store = args.learner_gpu_ids, dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with ExitStack() as learners:
        others = []
        for rank in range(1, len(ids)):
            others.append(PipeLearner(rank, learn, (args.for_children(ids[rank]), kind, rank, len(ids), store.port)))
            learners.callback(others[-1].close)
        for other in others:
            other.wait_ready()
        ranks = Ranks(0, len(ids), args.device, store)
        ranks.watched = [other.check for other in others]
        return train_as_rank(args, kind, ranks)


def train_as_rank(args: Config, kind: type[Run], ranks: Ranks) -> Run:
    """Trains with one of several Learners in this process."""
    what = {name: getattr(ranks, name) for name in ("rank", "size", "here")} | {"ranks": ranks}
    with closing(ranks):
        return train(args, type(kind.__name__, (InRanks, kind), what))


def learn(link: Link, args: Config, kind: type[Run], rank: int, size: int, port: int) -> None:
    """The process of another rank."""
    link.say("ready")
    train_as_rank(args, kind, Ranks(rank, size, args.device, dist.TCPStore("127.0.0.1", port)))


def train_as_told_by_torchrun(args: Config, kind: type[Run]) -> Run:
    """This process is the rank that the environment variables say, on the GPU of its place on its machine."""
    rank, size, place = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    ids = args.learner_gpu_ids or tuple(range(torch.cuda.device_count())) or (-1,)
    args.gpu_id = ids[place % len(ids)]
    if rank > 0:
        args = args.for_children(args.gpu_id)
    return train_as_rank(args, kind, Ranks(rank, size, args.device, here=int(os.environ.get("LOCAL_WORLD_SIZE", size))))


# the process's settings


def own_threads(args: Config, processes: int) -> int:
    """torch's threads of each of so many processes."""
    return args.num_threads or max(1, cores() // processes)


@contextmanager
def own_settings(args: Config, processes: int = 1) -> Iterator[None]:
    """Inside, the thread count of the run, and gradients are on; afterwards all is as the caller had it."""
    before = torch.get_num_threads()
    small = max(args.net_dims) <= ONE_THREAD_UP_TO and isinstance(args.state_dim, int)
    torch.set_num_threads(1 if small and not args.num_threads else own_threads(args, processes))
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_num_threads(before)
