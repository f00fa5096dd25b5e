"""Shared memory: what one side writes the other reads, and columns of Workers do not touch each other."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from elegantrl.train import shared
from elegantrl.train.shared import SharedTensors, SharedTrajectories
from elegantrl.trajectory import Record, Trajectory

MIXED = {"a": torch.arange(5), "b": torch.rand(3, 2), "c": torch.tensor(True), "d": torch.rand(2, dtype=torch.float64)}


def test_slots_hold_tensors_of_any_kind():
    block = SharedTensors.like(MIXED, slots=2)
    assert block.block.is_shared()
    block.write(1, MIXED)
    into = {name: torch.zeros_like(x) for name, x in MIXED.items()}
    block.read(1, into)
    assert all(torch.equal(into[name], x) for name, x in MIXED.items())
    assert not any(bool(x.any()) for x in block.views(0).values())
    block.views(1)["a"][2] = 77  # a view is the memory itself
    assert block.views(1)["a"].tolist() == [0, 1, 77, 3, 4] and block.views(1)["b"].equal(MIXED["b"])


def test_parameters_are_read_in_place():
    net = torch.nn.Linear(2, 1)
    block = SharedTensors.like(net.state_dict())
    block.write(0, {"weight": torch.tensor([[3.0, 4.0]]), "bias": torch.tensor([5.0])})
    addresses = [p.data_ptr() for p in net.parameters()]
    block.read(0, net.state_dict())
    assert net(torch.ones(2)).item() == 12.0 and [p.data_ptr() for p in net.parameters()] == addresses


def test_workers_write_their_columns_of_one_trajectory():
    one = Trajectory.allocate(
        4, Record(torch.zeros(3, 2), torch.ones(3, 5).bool()), 5, if_discrete=True, if_logprob=True
    )
    trajectories = SharedTrajectories(one, workers=2, slots=2)
    whole = trajectories.slot(1)
    assert whole.states.shape == (5, 6, 2) and whole.action_mask.shape == (5, 6, 5) and whole.logprobs.shape == (4, 6)
    assert whole.actions.dtype == torch.long and whole.undones.dtype == torch.bool and whole.bootstraps is None
    for worker in (0, 1):
        own = trajectories.slot(1, worker)
        own.put(4, Record(torch.full((3, 2), float(worker + 1))))
        own.rewards[2] = worker + 1
    assert whole.states[4, :, 0].tolist() == whole.rewards[2].tolist() == [1, 1, 1, 2, 2, 2]
    assert not trajectories.slot(0).states.any() and not whole.states[:4].any()


def test_too_little_shared_memory_is_told(monkeypatch):
    monkeypatch.setattr(shared.os, "statvfs", lambda path: SimpleNamespace(f_bavail=64, f_frsize=2**20))
    SharedTensors({"x": ((2**20,), torch.uint8)}, slots=64)
    with pytest.raises(MemoryError, match=r"need 65 MiB of shared memory, .* has 64 free: enlarge it .*--shm-size"):
        SharedTensors({"x": ((2**20,), torch.uint8)}, slots=65)
