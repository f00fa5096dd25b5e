"""Wires Worker, Learner and Evaluator: explore, store, update, evaluate. Also loads, scores and shows agents."""

from __future__ import annotations

import importlib
import math
import operator
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .. import storage
from ..envs import ActionCodec
from ..ranks import ONE_RANK, OneRank, Ranks
from .config import Arguments as Arguments  # older scripts take it from elegantrl.run
from .config import Config, build_agent, build_env, build_vec_env
from .evaluator import Evaluator, EvaluatorProc, NoEvaluator, get_rewards_and_steps
from .learner import Learner, PipeLearner
from .processes import Link, cores, interrupts_ignored, why_not_elsewhere
from .processes import check_subprocess as check_subprocess
from .processes import safely_terminate_process as safely_terminate_process
from .seeds import random_states, seed_everything, set_random_states
from .worker import PipeWorker, Worker

ONE_THREAD_UP_TO = 512  # width of hidden layers; on busy cores a second thread makes small networks many times slower
MUST_STAY = (
    *("agent_class", "env_name", "num_envs", "state_dim", "action_dim", "if_discrete", "net_dims", "activation"),
    *("num_agents", "global_dim", "if_share_params", "if_agent_id", "rnn_dim"),
    *("num_ensembles", "if_norm_state", "if_norm_value", "if_norm_reward", "state_value_tau"),
)
HOOKS = {"on_rollout", "on_update", "on_evaluate", "on_end"}


# one training run


class Run:
    """A training run in one process: who takes part and where it stands. It is what callbacks are given.

    ranks: the Learners that work on its agent together, of which this process has one.
    """

    def __init__(self, args: Config, ranks: OneRank = ONE_RANK):
        self.args, self.ranks = args, ranks
        self.stop_reason: str | None = None
        self.logs: dict[str, float] = {}  # means of the newest update
        self.checkpoints = 0  # how many were written; each begins its own stream of environment seeds
        self.checkpoint_step = 0
        self.has_begun = False  # until then nothing is written: a resume that fails must leave what it found
        self.is_in_step = True  # whether all ranks are where this one is
        if classes := [callback.__name__ for callback in args.callbacks if isinstance(callback, type)]:
            raise ValueError(f"callbacks: objects are needed, {classes[0]} is a class: give {classes[0]}() instead")
        for name in {name for callback in args.callbacks for name in dir(callback) if name.startswith("on_")} - HOOKS:
            warnings.warn(f"a callback has {name}, which nothing calls; there are {sorted(HOOKS)}", stacklevel=4)
        seed_everything(args.seed_for("learner"))
        self.agent = build_agent(args)
        self.agent.ranks = ranks
        self.build_parts()
        self.worker.ranks = ranks
        self.console = self.evaluator.console
        resumes = args.continue_train and os.path.exists(os.path.join(args.cwd, "checkpoint.pth"))
        self.claim = storage.claim(args.cwd) if self.is_writer else ExitStack()
        must_move = self.is_writer and not resumes and (args.if_remove or not storage.is_run(args.cwd))
        if must_move and (moved := storage.set_aside(args.cwd)):  # not before everything above has been found right
            self.console.line(f"Files of an earlier run, or under the names of a run's files, are now in {moved}.")

    @property
    def is_writer(self) -> bool:
        """Whether this process writes the run's files."""
        return self.ranks.rank == 0

    def build_parts(self) -> None:
        """Who explores, learns and evaluates."""
        args = self.args
        self.env, self.eval_env = build_vec_env(args), build_vec_env(args, if_eval=True)
        self.worker: Any = Worker(self.env, self.agent, args)
        self.worker.ids = (self.ranks.rank,)
        self.learner = Learner(self.agent, args)
        self.evaluator: Any = self.evaluator_of(lambda: Evaluator(args.cwd, self.eval_env, args))

    def evaluator_of(self, build: Callable[[], Any]) -> Any:
        """The Evaluator of the one rank that writes files."""
        if not self.is_writer:
            return NoEvaluator(self.args)
        storage.check_writable(self.args.cwd)
        return build()

    def start_parts(self) -> None:
        """Called once it is clear that the run begins."""

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
        if self.ranks.rank > 0:
            seed_everything(self.args.seed_for("learner", self.ranks.rank))
        resumed = self.resume() if self.args.continue_train else False
        self.ranks.equal(self.agent.tensors())
        self.start_parts()
        self.restart_worker(*(("checkpoint", self.checkpoints) if resumed else ("worker",)))
        self.has_begun = True
        if self.is_over():
            return
        buffer = self.learner.buffer
        if buffer is not None:  # by random actions, or by the policy that was loaded
            rows = min(buffer.rows, max(2, -(-self.agent.buffer_init_size // buffer.num_seqs)))
            while self.ranks.any(buffer.cur_size < rows):
                self.learner.store(self.worker.explore(if_random=not resumed))
                self.agent.update_statistics(self.learner.trajectory)
                buffer.add_size = 0  # no update is owed for these
        elif not resumed and (self.agent.state_norm.learns or self.agent.reward_norm.learns):
            self.agent.update_statistics(self.worker.explore(if_random=True))

    def evaluate(self, force: bool = False) -> None:
        """Evaluates where it is due."""
        exp_r, train_return = self.worker.summary()
        logs, known = {**self.learner.summary(), "trainR": train_return}, len(self.evaluator.records.rows)
        if self.evaluator.evaluate_and_save(self.agent, self.total_step, exp_r, logs, force):
            self.worker.clear_summary()
            self.learner.clear_summary()
        for _ in range(len(self.evaluator.records.rows) - known):  # in another process it takes its time
            self.call("on_evaluate")

    def call(self, hook: str) -> None:
        """Gives the run to every callback that has this hook."""
        for callback in self.args.callbacks:
            getattr(callback, hook, lambda run: None)(self)

    def is_over(self) -> bool:
        """Whether the run ends here; also tells the agent's schedules how far it is."""
        if self.total_step >= self.args.break_step:
            self.stop(f"break_step {self.args.break_step:,} was reached")
        self.stop_reason = self.ranks.agree(self.stop_reason or self.evaluator.should_stop())
        length = self.args.break_step
        self.agent.progress = min(1.0, self.total_step / length) if 0 < length < math.inf else 1.0
        return self.stop_reason is not None

    def stop(self, reason: str) -> None:
        """Ends the run after the current rollout. For callbacks."""
        self.stop_reason = self.stop_reason or reason

    def break_off(self, reason: str) -> None:
        """What this rank met with, the others may not have."""
        self.stop_reason, self.is_in_step = reason, self.ranks.size == 1

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
        own = {"random": random_states(), "buffer": None}
        if buffer is not None and self.args.if_save_buffer:
            own["buffer"] = buffer.state_dict()
        ranks = self.ranks.collect(own) if self.is_in_step else [own]
        if not self.is_writer:
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
        if not self.ranks.agree(os.path.exists(path)):
            self.console.line(f"continue_train: {path} does not exist, a new run begins.")
            return False
        state = storage.load_checkpoint(self.args.cwd) if self.is_writer else {"ranks": []}
        count, own = len(state["ranks"]), self.ranks.deal(state.pop("ranks"))
        state = self.ranks.agree(state)
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
            set_random_states(own["random"])  # then the environments are reset, as in the run that went on
        others = "" if count == self.ranks.size else f" by {self.ranks.size} Learner(s), of {count}"
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
            ending.callback(self.ranks.close)
            is_due = self.checkpoint_step != self.total_step and self.is_in_step
            if self.has_begun and (is_due or not self.checkpoints):
                self.checkpoint()

    def say_how_it_ended(self) -> None:
        files = f"Files and LearningCurve.jpg: {self.args.cwd}" if self.has_begun else "Nothing was written."
        steps = f"{self.total_step:,} (and {self.worker.reset_rows:,} reset rows)"
        self.console.line(f"Ended at step {steps}: {self.stop_reason}. {files}")


class ProcessRun(Run):
    """The same run with Workers and Evaluator in processes of their own, and the Learner in this one."""

    def build_parts(self) -> None:
        args, workers = self.args, self.args.num_workers
        self.threads = threads = own_threads(args, processes=self.ranks.here * (1 + workers) + 1)
        torch.set_num_threads(threads)
        twin = args.for_children()
        with closing(build_vec_env(twin)) as env:
            first_id = self.ranks.rank * workers
            self.worker = PipeWorker(env, self.agent, twin, threads, self.say, self.cut, first_id)
        args.__dict__["num_envs"] = twin.num_envs  # which the environment may have said
        self.learner = Learner(self.agent, args, num_envs=workers * args.num_envs)
        self.evaluator = self.evaluator_of(lambda: EvaluatorProc(args, self.agent, threads))

    def say(self, text: str) -> None:
        self.console.line(text)

    def cut(self, columns: Tensor) -> None:
        self.learner.cut(columns)

    def start_parts(self) -> None:
        self.say(
            f"{self.ranks.size} Learner(s), {self.args.num_workers} Worker(s) of each, an Evaluator: {self.threads} of "
            f"{cores()} threads for each process. Workers are {self.worker.lag} rollout(s) ahead (worker_lag)."
        )
        self.worker.start()
        self.evaluator.start()

    def close_parts(self) -> None:
        self.worker.close()
        self.evaluator.stop()


def train(args: Config, kind: type[Run], ranks: OneRank = ONE_RANK) -> Run:
    """The loop of every run: explore, store, update, evaluate."""
    args.init_before_training()
    with closing(ranks), own_settings(args, ranks.here):
        run = kind(args, ranks)
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
            run.break_off("interrupted")
            run.console.line("Interrupted: the run is being ended.")
        except BaseException as error:
            run.break_off(type(error).__name__)
            raise
        finally:
            with interrupts_ignored():
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
        return train(args, kind, ranks)


def learn(link: Link, args: Config, kind: type[Run], rank: int, size: int, port: int) -> None:
    """The process of another rank."""
    link.say("ready")
    train(args, kind, Ranks(rank, size, args.device, dist.TCPStore("127.0.0.1", port)))


def train_as_told_by_torchrun(args: Config, kind: type[Run]) -> Run:
    """This process is the rank that the environment variables say, on the GPU of its place on its machine."""
    rank, size, place = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    ids = args.learner_gpu_ids or tuple(range(torch.cuda.device_count())) or (-1,)
    args.gpu_id = ids[place % len(ids)]
    if rank > 0:
        args = args.for_children(args.gpu_id)
    return train(args, kind, Ranks(rank, size, args.device, here=int(os.environ.get("LOCAL_WORLD_SIZE", size))))


def init_agent(args: Config, gpu_id: int = -1, env: Any = None) -> Any:
    """The agent of a Config with what args.cwd holds loaded into it; a new one, said in a line, where it holds nothing.

    Where args do not say how the networks are built, the checkpoint there does.
    env: an environment to read dimensions from, where the Config does not know them.
    """
    args.gpu_id = gpu_id
    if env is not None and args.env_class is None:
        args.env_class = env
    saved = None
    if os.path.exists(os.path.join(args.cwd, "checkpoint.pth")):
        saved = storage.load_checkpoint(args.cwd)
        for name, value in saved_hyper_parameters(args.agent_class, saved["config"]).items():
            if name in MUST_STAY and name not in vars(args):
                setattr(args, name, value)
    agent = build_agent(args)
    with storage.refusing_misfits(args.cwd, agent):
        if saved is not None:
            agent.load_state_dict(saved["agent"])
            return agent
        if os.path.exists(os.path.join(args.cwd, "actor.pth")):
            agent.save_or_load_agent(args.cwd, if_save=False)
            return agent
    print(f"init_agent: {args.cwd} holds no actor.pth, the agent is new.", flush=True)
    return agent


def load_agent(cwd: str, gpu_id: int = -1, agent_class: type | None = None, best: bool = False) -> Any:
    """The agent that a run left in cwd: `load_agent(cwd).select_action(state)` answers in the environment's units.

    agent_class: needed only where the class was defined in a script or notebook and cannot be imported by its name.
    best: the policy of the best evaluation (of the actor__{step}_{return}.pt files) instead of the run's last one.
    """
    checkpoint = storage.load_checkpoint(cwd)
    saved = checkpoint["config"]
    cls: Any = agent_class or import_by_name(saved["agent_class"])
    args = SimpleNamespace(**saved_hyper_parameters(cls, saved))
    agent = cls(saved["net_dims"], saved["state_dim"], saved["action_dim"], gpu_id=gpu_id, args=args)
    agent.codec = ActionCodec.from_dict(saved["codec"])
    with storage.refusing_misfits(cwd, agent):
        agent.load_state_dict(checkpoint["agent"])
        if best:
            agent.act.load_state_dict(storage.load(storage.best_actor(cwd), agent.device).state_dict())
    return agent


def saved_hyper_parameters(agent_class: Any, saved: dict[str, Any]) -> dict[str, Any]:
    """What a checkpoint's config says of an agent's hyper-parameters; of a function it has the name alone: left out."""
    defaults = agent_class.hyper_parameters()
    numbers = {name for name, value in defaults.items() if isinstance(value, int | float) or callable(value)}
    return {n: saved[n] for n in defaults if n in saved and not (n in numbers and isinstance(saved[n], str))}


def import_by_name(name: str) -> Any:
    """The class that "module:qualname" names: the library's, or one whose module is imported already.

    A file decides no further what is imported. ImportError, with what to do, where the class is not there.
    """
    module, _, qualname = name.partition(":")
    try:
        found = importlib.import_module(module) if module.startswith("elegantrl.") else sys.modules[module]
        return operator.attrgetter(qualname)(found)
    except (ImportError, AttributeError, KeyError) as error:
        raise ImportError(f"{name} is not imported here: give load_agent the class itself, agent_class=...") from error


def valid_agent(
    env_class: Any,
    env_args: dict[str, Any],
    net_dims: Any,
    agent_class: type,
    actor_path: str,
    render_times: int = 8,
    if_render: bool = False,
) -> list[float]:
    """Plays greedy episodes with a saved actor (a module or a state dict), prints and returns their returns.

    A state dict does not say how the network is built: the checkpoint.pth in the same folder does, if there is one.
    """
    if if_render:
        env_args = {"render_mode": "human", **env_args}
    env = build_env(env_class, env_args)
    actor = storage.load(actor_path, "cpu")
    if not isinstance(actor, torch.nn.Module):
        folder = os.path.dirname(actor_path)
        settings: dict[str, Any] = {f"if_norm_{kind}": f"{kind}_norm.mean" in actor for kind in ("state", "value")}
        if os.path.exists(os.path.join(folder, "checkpoint.pth")):
            settings = saved_hyper_parameters(agent_class, storage.load_checkpoint(folder)["config"])
        agent = build_agent(Config(agent_class, env, **{**settings, "net_dims": net_dims}))
        with storage.refusing_misfits(actor_path, agent):
            agent.act.load_state_dict(actor)
        actor = agent.act
    returns = []
    for i in range(render_times):
        episode_return, steps = get_rewards_and_steps(env, actor, if_render)
        print(f"episode {i:4}   return {episode_return:10.3f}   steps {steps:6}", flush=True)
        returns.append(episode_return)
    env.close()
    return returns


def render_agent(
    env_class: Any, env_args: dict[str, Any], net_dims: Any, agent_class: type, actor_path: str, render_times: int = 8
) -> list[float]:
    """`valid_agent` in a window."""
    return valid_agent(env_class, env_args, net_dims, agent_class, actor_path, render_times, if_render=True)


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
