"""Runs in several processes: what they repeat, what becomes of faults, and that nothing is left behind."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import resource_tracker
from pathlib import Path
from types import SimpleNamespace

import nbformat
import numpy as np
import pytest
import torch
from nbclient import NotebookClient

import elegantrl
from elegantrl.agents import AgentPPO, AgentSAC
from elegantrl.train import evaluator, processes
from elegantrl.train.processes import ProcessFault, check_subprocess, safely_terminate_process
from elegantrl.train.run import train_agent, train_and_evaluate_mp
from elegantrl.train.worker import EnvironmentFault
from unit_tests.tasks import Call, Clock, Match, config
from unit_tests.train.test_resume import differences
from unit_tests.train.test_run import complete

ROOT = str(Path(elegantrl.__file__).parents[1])
ENVIRONMENT = {**os.environ, "PYTHONPATH": ROOT}
pytestmark = pytest.mark.timeout(600)  # a few seconds on free cores; each process imports torch for a second or two


@pytest.fixture(autouse=True)
def _nothing_is_left(monkeypatch):
    """No child, no zombie, no shared memory, and the caller's start method and threads are as before.

    Only Python's own tracker of resources, which it starts before the first process, lives as long as this process.
    """
    monkeypatch.setattr(evaluator, "draw_learning_curve", lambda table, title, path, score: Path(path).touch())
    method, threads = multiprocessing.get_start_method(allow_none=True), torch.get_num_threads()
    before = shared_memory()
    yield
    assert children_of(os.getpid()) <= {resource_tracker._resource_tracker._pid}
    assert multiprocessing.active_children() == []  # asked later: it reaps zombies
    assert shared_memory() <= before
    assert multiprocessing.get_start_method(allow_none=True) == method and torch.get_num_threads() == threads


def shared_memory():
    return {name for name in os.listdir("/dev/shm") if name.startswith(f"torch_{os.getpid()}")}


def processes_now():
    """State, parent and group of every process by its id."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent, group, *_ = stat.read_text().rpartition(")")[2].split()
            found[int(stat.parent.name)] = state, int(parent), int(group)
    return found


def children_of(pid):
    """Its children, zombies included."""
    return {child for child, (_, parent, _) in processes_now().items() if parent == pid}


def of_group(group):
    """Processes of a process group, without zombies of which the parent is dead: init alone can reap those."""
    now = processes_now()
    mine = {pid for pid, (_, _, own) in now.items() if own == group}
    return [pid for pid in mine if now[pid][0] != "Z" or now[pid][1] in {*mine, os.getpid()}]


# --- what they repeat ---
def test_a_run_of_two_workers_resumes_bit_for_bit_while_pipelined():
    how = {"checkpoint_per_step": 120, "if_save_buffer": True, "eval_per_step": 10**6, "if_norm_reward": True}
    keep = Call()  # what a killed run would leave
    keep.on_rollout = lambda run: run.checkpoints == 1 and shutil.copytree("whole", "parts", dirs_exist_ok=True)
    run = train_agent(config(AgentSAC, cwd="whole", break_step=240, callbacks=[keep], **how))
    assert run.worker.lag == 1 and run.learner.buffer.num_seqs == 8
    resumed = train_agent(config(AgentSAC, cwd="parts", break_step=240, continue_train=True, callbacks=[Call()], **how))
    assert resumed.checkpoints == run.checkpoints == 2 and differences("whole", "parts") == []


def test_the_same_seed_gives_the_same_run_to_the_last_file(capsys):
    seen = Call()
    for cwd in ("first", "again"):
        torch.manual_seed(len(cwd))  # what the caller did before does not matter
        run = train_agent(config(AgentPPO, cwd=cwd, random_seed=1, worker_lag=0, callbacks=[seen]))
    first, again = (torch.load(f"{cwd}/actor.pth") for cwd in ("first", "again"))
    assert all(torch.equal(first[key], again[key]) for key in first)
    np.testing.assert_array_equal(complete("first"), complete("again"))
    assert len(complete("first")) > 2 and complete("first")[-1, 0] == run.total_step >= 300
    states = run.worker.trajectories[0].states
    assert not bool((states[:, :4] == states[:, 4:]).any())  # each Worker has seeds of its own
    assert seen.counts["on_evaluate"] == 2 * len(complete("first")) and seen.counts["on_end"] == 2
    cores = len(os.sched_getaffinity(0))
    assert f"2 Worker(s) of each, an Evaluator: {max(1, cores // 4)} of {cores} threads" in capsys.readouterr().out


# --- faults ---
class Faulty(Clock):
    """Does `harm()` in its step `at`, in training only."""

    def __init__(self, harm, at=50, num_envs=2, is_marked=True):
        super().__init__(num_envs)
        self.harm, self.at, self.is_marked = harm, at, is_marked

    def step(self, action):
        if self.is_marked and self.calls + 1 == self.at:
            self.harm()
        return super().step(action)


def closed():
    Path("raised").touch()
    raise OSError("the exchange is closed")


def faulty(harm, **how):
    env_args = {"harm": harm, "num_envs": 2}
    return config(AgentSAC, Faulty, env_args, eval_env_args={"is_marked": False}, break_step=10**6, **how)


def test_an_exception_in_a_worker_is_raised_here():
    with pytest.raises(EnvironmentFault) as caught:
        train_agent(faulty(closed, max_restarts=5))
    assert time.time() - Path("raised").stat().st_mtime < 30  # the picture of the end was drawn in between
    text = str(caught.value)
    assert re.search(r"Worker [01] \(seed \d+\): Faulty raised OSError in its step 4\d .*on the actions \[\[", text)
    assert "the exchange is closed" in text and "Traceback" in text and "in closed" in text
    complete()


class Busy(AgentSAC):
    """Its first update is short, its second one takes an hour."""

    def count_updates(self, transitions):
        return 10**6 if self.update_count else 1


@pytest.mark.timeout(300)
@pytest.mark.parametrize("where", ["Worker", "Evaluator"])
def test_an_exception_is_raised_while_the_learner_updates(where):
    """It was raised after the update, however long that took."""
    env_args = {"harm": closed, "num_envs": 2, "at": 28, "is_marked": where == "Worker"}  # the first update is done
    how = {"eval_env_args": {"at": 3, "is_marked": where == "Evaluator"}, "eval_per_step": 1}
    keep = Call()
    with pytest.raises(ProcessFault, match=f"^{where}.*the exchange is closed") as caught:
        train_agent(config(Busy, Faulty, env_args, break_step=10**6, callbacks=[keep], **how))
    assert time.time() - Path("raised").stat().st_mtime < 20 and "in closed" in str(caught.value)
    assert keep.counts["on_update"] == 1  # the second one was broken off
    complete()


def test_evaluations_that_end_during_an_update_are_told_once_each():
    seen, rows = Call(), []
    seen.on_evaluate = lambda run: rows.append(len(run.evaluator.records.rows))
    agent = type("Steady", (AgentSAC,), {"count_updates": lambda self, transitions: 500})  # longer than LOOK
    train_agent(config(agent, callbacks=[seen], break_step=130, eval_per_step=1))
    assert len(rows) == len(complete()) > 2 and rows[-1] == len(complete())


def die_then_hang():
    if not os.path.exists(FIRST):
        Path(FIRST).touch()
        os._exit(3)
    time.sleep(1000)


FIRST = "has_died"  # of a Worker


def test_a_worker_that_dies_is_replaced_and_one_that_hangs_ends_the_run(capsys):
    told = (
        r"Worker 0 \(seed \d+\) gave no sign of life for 2 seconds \(worker_timeout\) after step 49\. max_restarts=1:"
    )
    with pytest.raises(ProcessFault, match=told):
        train_agent(faulty(die_then_hang, worker_timeout=2, num_workers=1, max_restarts=1))
    assert re.search(r"Worker 0 \(seed \d+\) ended with exit code 3\. Restart 1 of 1", capsys.readouterr().out)
    complete()


class Restless(Faulty):
    """A time that never ends is its state."""

    def __init__(self, harm, at=50, num_envs=2):
        super().__init__(harm, at, num_envs)
        self.length, self.max_step, self.state_dim = 10**6, 20, 1

    def observe(self):
        return self.t[:, None].float()


def kill_once(file):
    """Kills the first process that asks."""

    def harm():
        with contextlib.suppress(FileExistsError), open(file, "x"):
            os.kill(os.getpid(), signal.SIGKILL)

    return harm


def test_killed_workers_and_evaluators_are_replaced(capsys):
    """The ring has no seam where the Worker was lost."""
    env_args = {"harm": kill_once(os.path.abspath("killed_worker")), "num_envs": 2}
    eval_env_args = {"harm": kill_once(os.path.abspath("killed_evaluator")), "at": 3}
    args = config(AgentSAC, Restless, env_args, eval_env_args=eval_env_args, max_restarts=1, break_step=600)
    run = train_agent(args)
    out = capsys.readouterr().out
    assert re.search(r"Worker [01] \(seed \d+\) was killed by SIGKILL .*Restart 1 of 1", out)
    assert "The Evaluator was killed by SIGKILL" in out
    assert run.worker.restarts == 1 and complete()[-1, 0] == run.total_step >= 600
    size, columns = run.learner.buffer.cur_size, run.learner.buffer.columns
    states, unmasks = (columns[name].view(-1, 4)[:size] for name in ("states", "unmasks"))
    assert torch.equal(unmasks[:-1], states[1:] == states[:-1] + 1)
    assert int((~unmasks[:-1]).sum()) == 2  # the lost Worker's two environments, once


# --- doors and ends ---
SCRIPT = """
import signal
import gymnasium as gym
from elegantrl import train_and_evaluate_mp
from elegantrl.agents import AgentPPO
from elegantrl.train.config import Config
signal.signal(signal.SIGINT, signal.default_int_handler)  # pytest may run in the background, where it is ignored
print("the script runs", flush=True)

class Room(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}
    def step(self, action):
        return self.observation_space.sample(), float(action == 1), self.np_random.random() < 0.1, False, {}

class MyPPO(AgentPPO):
    pass

gym.register("Room-v0", Room, max_episode_steps=20)
args = Config(MyPPO, "Room-v0", net_dims=(8,), horizon_len=32, cwd="run", num_workers=1)
args.eval_per_step, args.eval_times, args.break_step, args.checkpoint_per_step = 64, 1, 10**9, 100
run = train_and_evaluate_mp(args)
print("ended:", run.stop_reason, flush=True)
"""


DOCUMENTS = """
from elegantrl.train.config import Arguments
from elegantrl.train.run import train_and_evaluate, train_and_evaluate_mp
from elegantrl.envs.Chasing import ChasingEnv
from elegantrl.agents.AgentPPO import AgentPPO
# Step 1
args = Arguments(agent=AgentPPO(), env_func=ChasingEnv)
# Step 2
train_and_evaluate_mp(args)
"""  # it has no end


def test_a_script_without_a_main_guard_is_killed_and_resumed_in_a_notebook_and_interrupted(monkeypatch):
    """The notebook's own classes travel too. Its second call is the one of ElegantRL's documents, to the letter."""
    monkeypatch.setenv("PYTHONPATH", ROOT)
    Path("script.py").write_text(SCRIPT)
    script = subprocess.Popen([sys.executable, "script.py"], start_new_session=True)
    while not Path("run/checkpoint.pth").exists():
        assert script.poll() is None
        time.sleep(0.1)
    os.killpg(script.pid, signal.SIGKILL)
    script.wait()
    step = torch.load("run/checkpoint.pth")["worker"]["total_step"]

    definitions, call = SCRIPT.split("args = Config")
    call = call.replace("run = ", "args.continue_train = True; run = ")
    cells = [nbformat.v4.new_code_cell(code) for code in (definitions, f"args = Config{call}", DOCUMENTS)]
    client = NotebookClient(nbformat.v4.new_notebook(cells=cells), timeout=300, startup_timeout=300)
    kernels = []

    def printed(cell):
        return "".join(output.get("text", "") for output in cell.outputs)

    def sit_in_front_of_it():
        while printed(cells[1]).count("|") < 20:  # a row of the table
            time.sleep(0.1)
        kernels.append(client.km.provisioner.pid)
        os.killpg(kernels[0], signal.SIGINT)  # as the button does
        while "Learner(s)" not in printed(cells[2]):
            time.sleep(0.1)
        Path("PointChasingEnv_PPO_0/stop").touch()

    threading.Thread(target=sit_in_front_of_it, daemon=True).start()
    client.execute()
    assert "the script runs" in printed(cells[0])
    assert f"resumed from step {step:,}" in printed(cells[1]) and "ended: interrupted" in printed(cells[1])
    assert "stop was found" in printed(cells[2]) and complete()[-1, 0] > step
    for cwd in ("run", "PointChasingEnv_PPO_0"):  # a last evaluation, after Ctrl-C and after the file `stop`
        assert complete(cwd)[-1, 0] == torch.load(f"{cwd}/checkpoint.pth")["worker"]["total_step"]
    while of_group(script.pid) or of_group(kernels[0]):  # Python's own tracker of resources ends a moment later
        time.sleep(0.1)


def test_ctrl_c_while_a_process_is_started(monkeypatch):
    """It was answered by an AssertionError about a process that had not been started."""

    def pressed():
        raise KeyboardInterrupt

    monkeypatch.setattr(processes, "plain_main", pressed)
    assert train_agent(config(AgentPPO)).stop_reason == "interrupted"
    assert not Path("run/recorder.npy").exists()


def what_is_blocked(link):
    link.say("ready", signal.pthread_sigmask(signal.SIG_BLOCK, ()))


def test_ctrl_c_while_the_first_process_imports():
    """Python's tracker of resources, which is started before it, made it hear Ctrl-C: it died of a traceback."""
    resource_tracker._resource_tracker._stop()
    child = processes.Child("Worker 0", what_is_blocked, ())
    child.start()
    told = []
    while not told:
        told = [blocked for _, (_, blocked) in processes.listen([child])]
    child.close()
    assert told == [{signal.SIGINT}]


class Watch:
    """A clock that stands still until it is set, in the place of the module `time`."""

    now = 0.0

    def monotonic(self):
        return self.now


def busy_child(monkeypatch, timeout):
    monkeypatch.setattr(processes, "time", Watch())
    child = processes.Child("Worker 0", print, (), timeout=timeout)
    child.signs, child.steps, child.is_ready = {"steps": torch.zeros(())}, 0, True
    child.heard = child.looked = 0.0
    child.todo = [("explore",)]
    return child, processes.time


def test_start_up_does_not_count_and_yet_has_an_end(monkeypatch):
    """The first reset and step, in which simulators compile their kernels, are of it."""
    child, watch = busy_child(monkeypatch, timeout=5.0)
    for child.is_ready in (False, True):
        watch.now = processes.START_UP
        assert child.hangs() is None
        watch.now += 1
        assert child.hangs() == "gave no sign of life for 1800 seconds (start-up) after step 0"
    child.signs["steps"] += 7
    assert child.hangs() is None
    watch.now += 6
    assert child.hangs() == "gave no sign of life for 5 seconds (worker_timeout) after step 7"


def test_a_pause_of_all_processes_is_no_silence_of_one(monkeypatch):
    """Ctrl-Z, and `fg` after longer than worker_timeout."""
    child, watch = busy_child(monkeypatch, timeout=5.0)
    child.signs["steps"] += 1
    assert child.hangs() is None
    child.pipe, child.process = SimpleNamespace(poll=lambda: False), SimpleNamespace(is_alive=lambda: True, sentinel=0)
    pauses = iter([600.0, 0.2, 5.0])
    monkeypatch.setattr(
        processes, "connection", SimpleNamespace(wait=lambda *what: setattr(watch, "now", watch.now + next(pauses)))
    )
    assert list(processes.listen([child])) == [] == list(processes.listen([child]))
    ((_, (kind, _)),) = processes.listen([child])
    assert kind == "lost"


def test_numpy_has_the_threads_of_its_process(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS")
    with processes.threads_of_children(3):
        assert os.environ["OMP_NUM_THREADS"] == "3"
    assert "OMP_NUM_THREADS" not in os.environ
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with processes.threads_of_children(3):
        assert os.environ["OMP_NUM_THREADS"] == "1"  # the caller says so


def test_what_cannot_travel_trains_in_this_process(capsys):
    class Locked(Match):
        lock = threading.Lock()

    run = train_and_evaluate_mp(config(AgentPPO, Locked, break_step=50))
    told = (
        "one process does all, since the environment or the agent cannot travel to another process (TypeError: cannot"
    )
    assert told in capsys.readouterr().out and run.total_step >= 50


def test_safely_terminate_process_leaves_no_zombie(monkeypatch):
    stubborn = multiprocessing.get_context("fork").Process(target=ignore_terminate)
    stubborn.start()
    while not Path("ignores").exists():
        time.sleep(0.01)
    monkeypatch.setattr(processes, "GRACE", 0.1)
    safely_terminate_process(stubborn)
    assert stubborn.exitcode == -signal.SIGKILL and not Path(f"/proc/{stubborn.pid}").exists()
    assert check_subprocess(0.1) == []


def ignore_terminate():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path("ignores").touch()
    time.sleep(1000)
