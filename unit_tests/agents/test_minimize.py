"""One vector per network: Adam, clipping by member, skipped steps, parameters that move, targets that follow."""

import copy
import shutil
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from elegantrl.agents import AgentDDPG, AgentDQN, AgentPPO, AgentSAC, AgentTD3
from elegantrl.agents.functional import clip_by_norm
from elegantrl.agents.net import EnsembleMLP, FlatAdam, FlatParameters
from elegantrl.train.replay_buffer import ReplayBuffer
from elegantrl.trajectory import Record, Trajectory


def small_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))


def loss_of(net: nn.Module, seed: int) -> torch.Tensor:
    return net(torch.randn(5, 3, generator=torch.Generator().manual_seed(seed))).square().mean()


def descend(net: nn.Module, adam: FlatAdam, seed: int, max_norm: float = float("inf")) -> None:
    adam.descend(torch.autograd.grad(loss_of(net, seed), adam.params), max_norm)


def assert_same(net: nn.Module, other: nn.Module) -> None:
    for p, q in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, q)


def test_the_steps_are_those_of_torch_adam():
    ours, theirs = small_net(), small_net()
    flat = FlatAdam([{"params": ours.parameters()}], lr=1e-2, eps=1e-5)
    adam = torch.optim.Adam(theirs.parameters(), lr=1e-2, eps=1e-5)
    for seed in range(20):
        flat.param_groups[0]["lr"] = adam.param_groups[0]["lr"] = 1e-2 / (1 + seed)
        descend(ours, flat, seed, max_norm=0.1)
        adam.zero_grad()
        loss_of(theirs, seed).backward()
        nn.utils.clip_grad_norm_(theirs.parameters(), 0.1)
        adam.step()
    assert_same(ours, theirs)


def test_step_takes_the_gradients_that_backward_left():
    ours, theirs = small_net(), small_net()
    flat, adam = FlatAdam([{"params": ours.parameters()}], lr=1e-2), torch.optim.Adam(theirs.parameters(), lr=1e-2)
    for net, optimizer in ((ours, flat), (theirs, adam)):
        for seed in range(3):
            optimizer.zero_grad()
            loss_of(net, seed).backward()
            optimizer.step()
    assert_same(ours, theirs)


@pytest.mark.parametrize("of_torch", [False, True])
def test_a_state_dict_of_adam_continues_the_run(of_torch):
    net = small_net()
    if of_torch:
        adam = torch.optim.Adam(net.parameters(), lr=1e-2)
        loss_of(net, 0).backward()
        adam.step()
    else:
        adam = FlatAdam([{"params": net.parameters()}], lr=1e-2)
        descend(net, adam, 0)
    again = copy.deepcopy(net)
    flat = FlatAdam([{"params": again.parameters()}], lr=1.0)
    saved = copy.deepcopy(adam.state_dict())
    flat.load_state_dict({**saved, "param_groups": [{**group, "members": 1} for group in saved["param_groups"]]})
    twin = FlatAdam([{"params": net.parameters()}], lr=1.0)
    twin.load_state_dict(flat.state_dict())
    for seed in (1, 2):
        descend(again, flat, seed)
        descend(net, twin, seed)
    assert flat.state_dict()["state"][0]["step"] == 3 and flat.param_groups[0]["lr"] == 1e-2
    assert_same(again, net)


def test_each_member_is_clipped_by_itself():
    grads = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    norms = clip_by_norm(grads, max_norm=1.0)
    torch.testing.assert_close(norms, torch.tensor([[5.0], [0.5], [0.0]]))
    torch.testing.assert_close(grads, torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]]))


def test_a_row_is_a_member_of_the_ensemble():
    net = EnsembleMLP(3, [2, 4, 1])
    first = torch.cat([p[0].flatten() for p in net.parameters()]).detach().clone()
    flat = FlatParameters(net.parameters(), members=3)
    assert torch.equal(flat.matrix()[0], first)
    flat.matrix()[1:] = 0.0
    out = net(torch.ones(5, 2))
    assert (out[1:] == 0).all() and (out[0] != 0).all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_step_whose_gradient_is_not_finite_changes_nothing(bad):
    net, extra = small_net(), nn.Parameter(torch.ones(()))
    adam = FlatAdam([{"params": net.parameters()}, {"params": [extra]}], lr=1e-2)
    adam.descend([torch.ones_like(p) for p in adam.params], 1.0)
    before = copy.deepcopy((net.state_dict(), extra, adam.state_dict()["state"]))
    grads = [torch.ones_like(p) for p in adam.params]
    grads[0][0, 0] = bad
    adam.descend(grads, 1.0)
    torch.testing.assert_close((net.state_dict(), extra, adam.state_dict()["state"]), before)
    adam.descend([torch.ones_like(p) for p in adam.params], 1.0)
    assert adam.state_dict()["state"][0]["step"] == 2 and not torch.equal(extra, before[1])


def test_a_layer_that_two_optimizers_share_is_moved_by_both():
    ours, theirs = small_net(), small_net()
    pairs = []
    for net, kind in ((ours, FlatAdam), (theirs, torch.optim.Adam)):
        pairs.append([kind([{"params": list(part.parameters())}], lr=1e-2) for part in (net, net[0])])
    for seed in range(4):
        for flat, adam in zip(*pairs, strict=True):
            descend(ours, flat, seed)
            adam.zero_grad()
            loss_of(theirs, seed).backward()
            adam.step()
    assert_same(ours, theirs)


def test_parameters_given_other_memory_are_still_the_ones_that_move():
    net = small_net()
    adam = FlatAdam([{"params": net.parameters()}], lr=1e-2)
    net.double().float()
    net[0].weight.data = torch.zeros(8, 3)
    descend(net, adam, 0)
    assert net[0].weight.abs().max() > 0 and net[0].weight.data_ptr() == adam.flats[0].matrix().data_ptr()


def test_frozen_and_unused_parameters_stay_and_targets_follow_the_others():
    agent = AgentTD3((8,), 3, 2, gpu_id=-1)
    critic = copy.deepcopy(agent.cri)
    critic.unused = nn.Parameter(torch.ones(2, 1))
    critic.net.layers[0].bias.requires_grad_(False)
    agent.cri = critic
    frozen, weight = critic.net.layers[0].bias.clone(), critic.net.layers[0].weight.detach().clone()
    agent.optimizer_backward(agent.cri_optimizer, critic(torch.ones(4, 3), torch.ones(4, 2)).square().mean())
    agent.update_targets()
    assert torch.equal(critic.net.layers[0].bias, frozen) and torch.equal(critic.unused, torch.ones(2, 1))
    moved, target = critic.net.layers[0].weight, agent.cri_target.net.layers[0].weight
    assert not torch.equal(moved, weight)
    torch.testing.assert_close(target, torch.lerp(weight, moved.detach(), agent.soft_update_tau))


def test_a_copied_agent_learns_by_itself():
    agent = AgentSAC((8,), 3, 2, gpu_id=-1)
    twin = copy.deepcopy(agent)
    for each in (agent, twin):
        torch.manual_seed(0)
        each.optimizer_backward(each.act_optimizer, each.act(torch.ones(4, 3)).sum())
    assert_same(agent.act, twin.act)
    agent.optimizer_backward(agent.act_optimizer, agent.act(torch.ones(4, 3)).sum())
    assert not torch.equal(next(agent.act.parameters()), next(twin.act.parameters()))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling needs g++")
@pytest.mark.parametrize("agent_class", [AgentDDPG, AgentDQN, AgentPPO])
def test_compiled_updates_are_the_same(agent_class):
    if_discrete = agent_class is AgentDQN
    agents = []
    for if_compile in (False, True):
        torch.manual_seed(0)
        args = SimpleNamespace(if_compile=if_compile, if_discrete=if_discrete, utd=0.5, batch_size=16)
        args.repeat_times = None if agent_class.if_off_policy else 2
        agent = agent_class((8,), 3, 2, gpu_id=-1, args=args)
        rows = Trajectory.allocate(32, Record(torch.zeros(2, 3)), 2, if_discrete, if_logprob=not agent.if_off_policy)
        rows.states.normal_()
        rows.rewards.normal_()
        rows.undones[:] = rows.unmasks[:] = True
        buffer = rows
        if agent.if_off_policy:
            buffer = ReplayBuffer(100, 3, 2, -1, num_seqs=2, if_discrete=if_discrete)
            buffer.update(rows)
        logs = agent.update_net(buffer)
        agents.append((agent.act.state_dict(), agent.cri.state_dict(), logs))
    torch.testing.assert_close(*agents, rtol=1e-3, atol=1e-5)
