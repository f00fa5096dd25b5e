"""Runs in several processes: what they repeat, what becomes of faults, and that nothing is left behind."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import elegantrl
from elegantrl.agents import AgentPPO, AgentSAC
from elegantrl.train.processes import ProcessFault, check_subprocess, safely_terminate_process
from elegantrl.train.run import load_agent, train_agent, train_and_evaluate_mp
from elegantrl.train.worker import EnvironmentFault
from unit_tests.tasks import Call, Clock, Counter, config
from unit_tests.train.test_resume import differences
from unit_tests.train.test_run import complete

ROOT = str(Path(elegantrl.__file__).parents[1])
ENVIRONMENT = {**os.environ, "PYTHONPATH": ROOT}
pytestmark = pytest.mark.timeout(100)  # each of these takes a few seconds on free cores


@pytest.fixture(autouse=True)
def _nothing_is_left():
    """No child, no zombie, no shared memory, and the caller's start method and threads are as before."""
    method, threads = multiprocessing.get_start_method(allow_none=True), torch.get_num_threads()
    before = shared_memory()
    yield
    assert multiprocessing.active_children() == []
    assert shared_memory() <= before
    assert multiprocessing.get_start_method(allow_none=True) == method and torch.get_num_threads() == threads


def shared_memory():
    return {name for name in os.listdir("/dev/shm") if name.startswith(f"torch_{os.getpid()}")}


def of_group(group):
    """Living processes of a process group, zombies included."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group:
            found.append(int(stat.parent.name))
    return found


# --- what they repeat ---
def test_a_run_of_two_workers_resumes_bit_for_bit_while_pipelined():
    how = {"checkpoint_per_step": 120, "if_save_buffer": True, "eval_per_step": 10**6, "if_norm_reward": True}
    run = train_agent(config(AgentSAC, cwd="whole", break_step=240, **how))
    assert run.worker.lag == 1 and run.learner.buffer.num_seqs == 8
    train_agent(config(AgentSAC, cwd="parts", break_step=120, **how))
    resumed = train_agent(config(AgentSAC, cwd="parts", break_step=240, continue_train=True, **how))
    assert resumed.checkpoints == run.checkpoints == 2 and differences("whole", "parts") == []


def test_the_same_seed_gives_the_same_run_to_the_last_file(capsys):
    seen = Call()
    for cwd, seed in (("first", 1), ("again", 1), ("other", 2)):
        torch.manual_seed(len(cwd))
        args = config(AgentPPO, cwd=cwd, random_seed=seed, worker_lag=0, num_workers=1 + (seed == 1), callbacks=[seen])
        run = train_agent(args)
        assert run.total_step >= 300 and run.args.break_step == 300
    first, again, other = (torch.load(f"{cwd}/actor.pth") for cwd in ("first", "again", "other"))
    assert all(torch.equal(first[key], again[key]) for key in first)
    np.testing.assert_array_equal(complete("first"), complete("again"))
    assert len(complete("first")) > 2 and complete("first")[-1, 0] >= 300
    assert not all(torch.equal(first[key], other[key]) for key in first)
    assert seen.counts["on_evaluate"] == sum(len(complete(cwd)) for cwd in ("first", "again", "other"))
    assert seen.counts["on_end"] == 3
    out = capsys.readouterr().out
    cores = len(os.sched_getaffinity(0))
    assert f"2 Worker(s) of each, an Evaluator: {max(1, cores // 4)} of {cores} threads" in out


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
    raise OSError("the exchange is closed")


def faulty(harm, **how):
    env_args = {"harm": harm, "num_envs": 2}
    return config(AgentSAC, Faulty, env_args, eval_env_args={"is_marked": False}, break_step=10**6, **how)


def test_an_exception_in_a_worker_is_raised_here():
    start = time.monotonic()
    with pytest.raises(EnvironmentFault) as caught:
        train_agent(faulty(closed, max_restarts=5))
    text = str(caught.value)
    assert re.search(r"Worker [01] \(seed \d+\): Faulty raised OSError in its step 4\d .*on the actions \[\[", text)
    assert "the exchange is closed" in text and "Traceback" in text and "in closed" in text
    assert time.monotonic() - start < 60
    complete()


@pytest.mark.parametrize(
    "harm, told",
    [
        (lambda: os._exit(3), "ended with exit code 3"),
        (lambda: time.sleep(1000), r"gave no sign of life for 2 seconds \(worker_timeout\) after step 49"),
    ],
)
def test_a_worker_that_dies_or_hangs_ends_the_run(harm, told):
    with pytest.raises(ProcessFault, match=rf"Worker 0 \(seed \d+\) {told}.*max_restarts=0"):
        train_agent(faulty(harm, worker_timeout=2, num_workers=1))
    complete()


def kill_once(file):
    def harm():
        if not os.path.exists(file):
            Path(file).touch()
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
    batch = run.learner.buffer.sample(3000)
    assert torch.equal(batch.weight > 0, (batch.next.states == batch.states + 1)[:, 0])
    assert len(batch.index[batch.weight == 0].unique()) == 2  # the lost Worker's two environments, once


class Restless(Faulty):
    """A time that never ends is its state."""

    state_dim = 1

    def __init__(self, harm, at=50, num_envs=2):
        super().__init__(harm, at, num_envs)
        self.length = 10**6
        self.max_step = 20
        self.state_dim = 1

    def observe(self):
        return self.t[:, None].float()


# --- doors and ends ---
SCRIPT = """
import gymnasium as gym
from elegantrl import train_and_evaluate_mp
from elegantrl.agents import AgentPPO
from elegantrl.train.config import Config
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
args.eval_per_step, args.eval_times, args.break_step = 64, 1, STEPS
run = train_and_evaluate_mp(args)
print("ended:", run.stop_reason, flush=True)
"""


def test_a_script_without_a_main_guard_and_an_interrupt():
    Path("script.py").write_text(SCRIPT.replace("STEPS", "10**9"))
    script = subprocess.Popen(
        [sys.executable, "script.py"], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    while not Path("run/recorder.npy").exists():
        assert script.poll() is None
        time.sleep(0.1)
    os.killpg(script.pid, signal.SIGINT)  # as Ctrl-C in a terminal does
    out, _ = script.communicate(timeout=60)
    assert script.returncode == 0 and out.count("the script runs") == 1 and "ended: interrupted" in out
    complete()
    assert of_group(script.pid) == [] and load_agent.__name__


def test_a_notebook_trains_in_processes_too():
    """A notebook's __main__ has no file, and neither has that of a script from standard input."""
    code = SCRIPT.replace("STEPS", "200")
    done = subprocess.run([sys.executable], input=code, env=ENVIRONMENT, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0 and "ended: break_step 200 was reached" in done.stdout, done.stderr
    complete()


def test_a_killed_group_leaves_nothing_and_resumes():
    code = SCRIPT.replace("STEPS", "10**9").replace("run = ", "args.checkpoint_per_step = 100; run = ")
    Path("script.py").write_text(code)
    script = subprocess.Popen([sys.executable, "script.py"], env=ENVIRONMENT, start_new_session=True)
    while not Path("run/checkpoint.pth").exists():
        assert script.poll() is None
        time.sleep(0.1)
    os.killpg(script.pid, signal.SIGKILL)
    script.wait()
    step = torch.load("run/checkpoint.pth")["worker"]["total_step"]
    code = code.replace("10**9", str(step + 200)).replace("run = ", "args.continue_train = True; run = ")
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, timeout=90)
    assert f"resumed from step {step:,}" in done.stdout and "ended: break_step" in done.stdout, done.stderr
    complete()


def test_what_cannot_travel_trains_in_this_process(capsys):
    args = config(AgentPPO, break_step=50)
    args.env_args["ends"] = threading.Lock()
    run = train_agent(args)
    assert "trains in one process: the environment or the agent cannot travel" in capsys.readouterr().out
    assert run.total_step >= 50 and train_and_evaluate_mp is not None


def test_safely_terminate_process_leaves_no_zombie(capsys):
    stubborn = subprocess_that_ignores_terminate()
    safely_terminate_process(stubborn)
    assert stubborn.exitcode == -signal.SIGKILL and not Path(f"/proc/{stubborn.pid}").exists()
    assert check_subprocess(0.1) == []


def subprocess_that_ignores_terminate():
    process = multiprocessing.get_context("fork").Process(target=ignore_terminate)
    process.start()
    return process


def ignore_terminate():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(1000)
