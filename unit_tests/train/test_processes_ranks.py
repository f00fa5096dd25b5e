"""Several Learners are one: two ranks (Gloo, on the CPU) make the update of one process on the joined batch."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from multiprocessing import resource_tracker
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from elegantrl.agents import AgentA2C, AgentD3QN, AgentModSAC, AgentPPO, AgentSAC
from elegantrl.ranks import Ranks
from elegantrl.train.learner import PipeLearner
from elegantrl.train.processes import ProcessFault
from elegantrl.train.run import train_agent
from elegantrl.train.worker import EnvironmentFault
from elegantrl.trajectory import Batch, Record, Trajectory
from unit_tests.tasks import Call, Clock, Match, build, config
from unit_tests.train.test_processes import ENVIRONMENT, children_of, of_group, processes_now
from unit_tests.train.test_resume import differences
from unit_tests.train.test_run import complete

pytestmark = pytest.mark.timeout(600)
ROWS, T = 64, 8
NORMS = {"if_norm_state": True, "if_norm_value": True, "if_norm_reward": True}
CASES = {
    "PPO": (AgentPPO, {"batch_size": None, "repeat_times": 3, "lambda_entropy": 0.01}),
    "PPO, normalisers, KL": (AgentPPO, {"batch_size": None, "repeat_times": 50, "target_kl": 0.3, **NORMS}),
    "A2C": (AgentA2C, {}),
    "SAC": (AgentSAC, {}),
    "SAC, normalisers": (AgentSAC, NORMS),
    "ModSAC": (AgentModSAC, {}),
    "D3QN": (AgentD3QN, {"if_norm_value": True}),
}


class Fixed:
    """A buffer that always gives these batches."""

    def __init__(self, batches):
        self.all, self.add_size = batches, len(batches)

    def anneal(self, progress):
        pass

    def batches(self, count, batch_size, gamma, **window):
        assert count == len(self.all)
        return iter(self.all)

    def feedback(self, batch, td):
        assert td.shape[-1] == len(batch.weight)


def rollout(generator, is_discrete, part):
    """A random trajectory (T, ROWS) with masked rows and ends, of which a rank has some columns.

    The KL from its policy is 0.2 in one half of the columns and 0.7 in the other.
    """

    def rand(*shape):
        return torch.rand(*shape, generator=generator)[:, part]

    actions = (rand(T, ROWS) < 0.5).long() if is_discrete else rand(T, ROWS, 1) * 2 - 1
    flags = {name: rand(T, ROWS) < 0.9 for name in ("undones", "unmasks", "dones")}
    logprobs = -1 - rand(T, ROWS) - 0.5 * (torch.arange(ROWS) >= ROWS // 2)[part]
    numbers = {"rewards": rand(T, ROWS), "logprobs": logprobs}
    return Trajectory(states=rand(T + 1, ROWS, 2) * 3, actions=actions, **numbers, **flags)


def batch(tr):
    """Its first rows as a batch from a replay buffer."""
    columns = {name: getattr(tr, name)[0] for name in ("states", "actions", "rewards", "undones")}
    weight, index = tr.unmasks[0] * tr.rewards[1], torch.arange(tr.rewards.shape[1])
    return Batch(**columns, discount=0.9 * tr.undones[0], weight=weight, index=index, next=Record(tr.states[1]))


def learn(name, ranks=None):
    """Every tensor and number of an agent after two updates on this rank's part of the data."""
    agent_class, how = CASES[name]
    part = slice(ranks.rank * ROWS // ranks.size, (ranks.rank + 1) * ROWS // ranks.size) if ranks else slice(ROWS)
    noise, data = (torch.Generator().manual_seed(seed) for seed in (3, 4))
    is_discrete, randn_like = agent_class is AgentD3QN, torch.randn_like
    torch.manual_seed(0)
    agent = build(agent_class, Match(ROWS, is_discrete), utd=1.0, **how)
    if ranks:
        ranks.join(agent)
    torch.randn_like = lambda x: torch.randn(ROWS, *x.shape[1:], generator=noise)[part]
    try:
        for _ in range(2):
            tr = rollout(data, is_discrete, part)
            off_policy = agent.if_off_policy
            logs = agent.update_net(Fixed([batch(tr), batch(rollout(data, is_discrete, part))]) if off_policy else tr)
            agent.update_statistics(tr)
    finally:
        torch.randn_like = randn_like
    numbers = [agent.update_count, agent.actor_count, *logs]
    numbers += [float(agent.log_alpha.detach())] if isinstance(agent, AgentSAC) else []
    numbers += [agent.critic_loss] if isinstance(agent, AgentModSAC) else []
    return [torch.tensor(numbers), *(x.float().clone() for x in agent.tensors())]


def other_rank(link, port):
    link.say("ready")
    ranks = Ranks(1, 2, torch.device("cpu"), dist.TCPStore("127.0.0.1", port))
    for name in CASES:
        for x in learn(name, ranks):
            ranks.gather(x)
    assert ranks.collect("second") == [] and ranks.deal([]) is None and ranks.deal([]) == {"second": 2}
    ranks.close()


def test_two_ranks_make_the_update_of_one_process_on_the_joined_batch():
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    other = PipeLearner(1, other_rank, (store.port,))
    try:
        other.wait_ready()
        ranks = Ranks(0, 2, torch.device("cpu"), store)
        ranks.watched = [other.check]
        for name in CASES:
            joined = learn(name)
            assert 2 <= joined[0][0] < 100, "no update, or the KL has stopped none"
            for i, (x, alone) in enumerate(zip(learn(name, ranks), joined, strict=True)):
                here, there = ranks.gather(x)
                assert torch.equal(here, there), f"{name}: the ranks differ in tensor {i}"
                torch.testing.assert_close(
                    here, alone, rtol=1e-3, atol=2e-5, msg=lambda text, n=name, i=i: f"{n} {i}: {text}"
                )
        assert ranks.collect("first") == ["first", "second"]
        assert ranks.deal([1]) == 1 and ranks.deal([{"first": 1}, {"second": 2}, None]) == {"first": 1}
        ranks.close()
        with pytest.raises(ProcessFault, match="Learner 1 ended with exit code 0"):  # all is as the other one asserts
            other.check(patience=60.0)
    finally:
        other.close()


class Equal(AgentPPO):
    """Looks whether all ranks have the same networks after each update."""

    def update_net(self, buffer):
        logs = super().update_net(buffer)
        for x in self.tensors():
            here, there = self.ranks.gather(x)
            assert torch.equal(here, there)
        return logs


class Late(Clock):
    """The environments of Worker 1 fail in their step 50."""

    def step(self, action):
        if self.calls == 49 and self.is_second:
            raise OSError("the exchange is closed")
        return super().step(action)

    def reset(self, seed=None):
        self.is_second = seed == config(AgentPPO).seed_for("worker", 1)
        return super().reset(seed)


def test_a_fault_behind_another_learner_is_raised_here():
    how = {"learner_gpu_ids": (-1, -1), "num_workers": 1, "if_norm_state": True, "break_step": 10**6}
    with pytest.raises(EnvironmentFault, match=r"Learner 1: Worker 1 .*Late raised OSError in its step") as caught:
        train_agent(config(Equal, Late, eval_per_step=10**6, **how))
    assert "the exchange is closed" in str(caught.value) and not dist.is_initialized()
    step = torch.load("run/checkpoint.pth")["worker"]["total_step"]
    assert step % 2 == 0 and step > 2 * 4 * 30  # the steps of both
    complete()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("workers, moment", [(1, "on_rollout"), (1, "on_evaluate"), (0, "on_update")])
def test_a_learner_that_is_killed_ends_the_run(workers, moment):
    killed = []

    def kill(run):
        (learner,) = (child for child in multiprocessing.active_children() if child.name == "Learner 1")
        killed.extend([learner.pid, *children_of(learner.pid)])
        os.kill(learner.pid, signal.SIGKILL)
        killed.append(time.monotonic())

    how = {"learner_gpu_ids": (-1, -1), "num_workers": workers, "eval_per_step": 100, "break_step": 10**6}
    with pytest.raises(
        ProcessFault, match=r"^Learner 1 was killed by SIGKILL .*cannot go on without one of its Learners"
    ):
        train_agent(config(AgentPPO, callbacks=[Call(moment, kill, at=2)], **how))
    *pids, then = killed
    assert time.monotonic() - then < 20 and len(pids) == 1 + workers and not dist.is_initialized()
    while any(pid in (now := processes_now()) and now[pid][0] != "Z" for pid in pids):  # its Worker: an orphan by now
        assert time.monotonic() - then < 20
        time.sleep(0.1)
    assert children_of(os.getpid()) <= {resource_tracker._resource_tracker._pid}
    complete()


TORCHRUN = """
import torch
from unit_tests.tasks import config
from unit_tests.train.test_processes_ranks import Equal
from elegantrl import train_agent
run = train_agent(config(Equal, num_workers=0, break_step=300))
print(f"rank {run.ranks.rank} of {run.ranks.size} ended at {run.total_step}: {run.stop_reason}", flush=True)
"""


def torchrun(script):
    """The exit code, what two ranks have printed, and their process group."""
    Path("script.py").write_text(script)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "script.py"]
    path = f"{ENVIRONMENT['PYTHONPATH']}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    environment = {**ENVIRONMENT, "PYTHONPATH": path, "MASTER_PORT": "0"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, env=environment, start_new_session=True, **pipes) as process:
        told, _ = process.communicate(timeout=500)
    return process.returncode, told, process.pid


def test_the_same_script_under_torchrun():
    code, told, _ = torchrun(TORCHRUN)
    assert code == 0, told
    for rank in (0, 1):
        assert f"rank {rank} of 2 ended at 320: break_step 300 was reached" in told
    assert told.count("Ended at step") == 1  # rank 0 alone speaks and writes
    complete()


KILLED = """
import os, signal
from unit_tests.tasks import config
from elegantrl import train_agent
from elegantrl.agents import AgentPPO
class Killed(AgentPPO):
    def update_net(self, buffer):
        if self.ranks.rank == 1 and self.update_count > 10:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().update_net(buffer)
train_agent(config(Killed, num_workers=1, break_step=10**6))
"""


def test_a_learner_that_is_killed_under_torchrun():
    code, told, group = torchrun(KILLED)
    assert code == 1 and re.search(r"rank +: 1 .*\n.*exitcode +: -9", told), told
    assert of_group(group) == []


def test_two_learners_resume_bit_for_bit_each_with_its_own_buffer(capsys):
    how = {"learner_gpu_ids": (-1, -1), "num_workers": 0, "checkpoint_per_step": 120, "if_save_buffer": True}
    how |= {"eval_per_step": 10**6, "eval_times": 1}
    keep = Call()  # what a killed run would leave
    keep.on_rollout = lambda run: run.checkpoints == 1 and shutil.copytree("whole", "parts", dirs_exist_ok=True)
    train_agent(config(AgentSAC, cwd="whole", break_step=240, callbacks=[keep], **how))
    first, second = torch.load("whole/checkpoint.pth")["ranks"]
    assert not torch.equal(first["buffer"]["columns"]["states"], second["buffer"]["columns"]["states"])
    assert not torch.equal(first["random"]["torch"], second["random"]["torch"])
    train_agent(config(AgentSAC, cwd="parts", break_step=240, continue_train=True, callbacks=[Call()], **how))
    assert differences("whole", "parts") == []
    train_agent(config(AgentSAC, cwd="parts", break_step=260, continue_train=True, if_save_buffer=True), True)
    assert "resumed from step 256 by 1 Learner(s), of 2" in capsys.readouterr().out


@pytest.mark.parametrize("ids, told", [((0, 1), "has no GPU"), ((-1, 0), "has no GPU"), ((-2,), "has no GPU")])
def test_learners_that_have_no_gpu_are_refused(ids, told, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    start = time.monotonic()
    with pytest.raises(ValueError, match=f"learner_gpu_ids=.*this machine {told}"):
        train_agent(config(AgentPPO, learner_gpu_ids=ids))
    assert time.monotonic() - start < 5


def test_learners_that_share_a_gpu_are_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ValueError, match=r"has the GPUs 0, 1\. Give ids of these, each once"):
        train_agent(config(AgentPPO, learner_gpu_ids=(1, 1)))
