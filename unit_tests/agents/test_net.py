"""Networks and normalisers: what they compute is known beforehand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from elegantrl.agents import net as nets
from elegantrl.agents.net import ConvNet, CriticEnsemble, CriticPPO, EnsembleMLP, Normaliser, QNet, QNetDuel

CRITICS = [
    *((q, lambda net, s, a: net.q_values(s)) for q in (QNet, QNetDuel, nets.QNetTwin, nets.QNetTwinDuel)),
    *((q, lambda net, s, a: net.q_values(s)) for q in (nets.QNetEnsemble, nets.QNetEmbed)),
    *((q, lambda net, s, a: net(s, a)) for q in (nets.Critic, CriticEnsemble, nets.CriticTwin, nets.CriticREDQ)),
    (CriticPPO, lambda net, s, a: net(s)),
]


# --- normalisers ---
def test_running_statistics_are_those_of_all_the_data():
    data = np.random.default_rng(0).normal([3.0, -1000.0], [0.5, 100.0], (1000, 2))
    norm = Normaliser(2)
    for i, part in enumerate(np.split(data, [1, 10, 500, 990])):
        norm.watch(torch.from_numpy(part))
        if i != 2:  # two parts may wait for one commit
            norm.commit()
    np.testing.assert_allclose(norm.mean, data.mean(0), rtol=1e-5)
    np.testing.assert_allclose(norm.std, data.std(0), rtol=1e-5)
    assert float(norm.moments[0, 0]) == 1000


def test_statistics_move_at_commit_only():
    norm = Normaliser(1)
    norm.watch(torch.tensor([[1.0], [3.0]]))
    assert norm(torch.tensor([[2.0]])).item() == 2.0
    norm.commit()
    assert norm(torch.tensor([[2.0], [3.0]])).tolist() == [[0.0], [1.0]]
    norm.commit()  # nothing new
    assert (norm.mean.item(), norm.std.item()) == (2.0, 1.0)


def test_exponential_statistics_weigh_the_newest_data_by_tau():
    """Means 0 then 4, tau 0.25: mean 1; variances 1 then 1: 1 + 0.25 * 0.75 * (4 - 0)^2 = 4, of the mixture."""
    norm = Normaliser((), tau=0.25)
    for part in ([-1.0, 1.0], [3.0, 5.0]):
        norm.watch(torch.tensor(part))
        norm.commit()
    assert norm.mean.item() == pytest.approx(1.0)
    assert norm.std.item() == pytest.approx(2.0)


def test_restore_is_the_inverse_and_outliers_are_clipped():
    norm = Normaliser(1)
    norm.watch(torch.tensor([[900.0], [1100.0]]))
    norm.commit()
    x = torch.tensor([[800.0], [1234.0]])
    torch.testing.assert_close(norm.restore(norm(x)), x)
    assert norm(torch.tensor([[1e9]])).item() == 10.0
    assert norm.shrink(torch.tensor([200.0])).item() == 2.0


def test_a_policy_with_normalisers_is_copied_by_its_named_parameters():
    """FinRL's way: it asks for no buffers."""
    nets_ = [nets.Actor((8,), 3, 2) for _ in range(2)]
    for net in nets_:
        net.state_norm = Normaliser(3)
    nets_[0].state_norm.watch(torch.randn(50, 3) * 5)
    nets_[0].state_norm.commit()
    nets_[1].load_state_dict({name: p.detach().clone() for name, p in nets_[0].named_parameters()})
    x = torch.randn(9, 3)
    assert torch.equal(nets_[0](x), nets_[1](x))
    assert not any(p.requires_grad for p in nets_[0].state_norm.parameters())


def test_constant_data_stays_finite():
    norm = Normaliser(1)
    norm.watch(torch.full((5, 1), 7.0))
    norm.commit()
    assert norm(torch.tensor([[7.0]])).item() == 0.0 and norm.std.item() > 0


@pytest.mark.parametrize("net_class, value", CRITICS, ids=lambda x: getattr(x, "__name__", ""))
def test_popart_keeps_the_outputs(net_class, value):
    net = net_class((8,), 3, 2)
    net.value_norm = norm = Normaliser()
    state, action = torch.randn(20, 3), torch.randn(20, 2)
    for data in (torch.tensor([10.0, 50.0]), torch.tensor([-300.0, 7.0, 90.0])):
        with torch.no_grad():
            before = value(net, state, action)
            mean, std = norm.mean.clone(), norm.std.clone()
            norm.watch(data)
            norm.commit()
            assert not torch.allclose(value(net, state, action), before, rtol=0.1)
            net.keep_outputs(mean, std)
            torch.testing.assert_close(value(net, state, action), before, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("net_class, value", CRITICS, ids=lambda x: getattr(x, "__name__", ""))
def test_a_bare_load_gives_the_network(net_class, value, tmp_path):
    net, state, action = net_class((8,), 3, 2), torch.randn(5, 3), torch.randn(5, 2)
    torch.save(net, tmp_path / "net.pth")
    again = torch.load(tmp_path / "net.pth")
    assert type(again) is net_class and torch.equal(value(again, state, action), value(net, state, action))


# --- images ---
@pytest.mark.parametrize("shape", [(3, 16, 12), (1, 84, 84)])
def test_convnet_takes_both_orders_and_scales_bytes_once(shape):
    torch.manual_seed(0)
    first = ConvNet(shape, 32)
    torch.manual_seed(0)
    last = ConvNet((*shape[1:], shape[0]), 32)
    image = torch.randint(256, (5, 2, *shape), dtype=torch.uint8)
    out = first(image)
    assert out.shape == (5, 2, 32) and not first.channel_last and last.channel_last
    torch.testing.assert_close(last(image.movedim(-3, -1)), out)
    torch.testing.assert_close(first(image / 255), out)


def test_convnet_refuses_a_shape_that_is_no_image():
    with pytest.raises(ValueError, match=r"\(4, 4\)"):
        ConvNet((4, 4))


def test_networks_take_images():
    state, action = torch.randint(256, (4, 3, 16, 16), dtype=torch.uint8), torch.rand(4, 2)
    for net_class in (QNet, QNetDuel, nets.QNetEmbed):
        assert net_class((8,), (3, 16, 16), 2).q_values(state).shape == (4, 2)
    assert nets.Actor((8,), (3, 16, 16), 2)(state).shape == (4, 2)
    assert CriticEnsemble((8,), (3, 16, 16), 2, 3)(state, action).shape == (3, 4)
    assert CriticPPO((8,), (3, 16, 16))(state).shape == (4,)
    with pytest.raises(ValueError, match="QNetTwin"):
        nets.QNetTwin((8,), (3, 16, 16), 2)


# --- ensembles ---
def test_an_ensemble_is_independent_perceptrons():
    ensemble, x = EnsembleMLP(3, [4, 8, 2]), torch.randn(5, 4)
    out = ensemble(x)
    assert out.shape == (3, 5, 2)
    for k in range(3):
        alone = nets.build_mlp([4, 8, 2])
        for layer, batched in zip([alone[0], alone[2]], ensemble.layers, strict=True):
            layer.weight.data, layer.bias.data = batched.weight.data[k].T, batched.bias.data[k, 0]
        torch.testing.assert_close(alone(x), out[k])
    torch.testing.assert_close(ensemble(x, slice(0, 1)), out[:1])
    torch.testing.assert_close(ensemble(x, torch.tensor([2, 0])), out[[2, 0]])


def test_members_begin_differently_in_the_range_of_a_linear_layer():
    weight = EnsembleMLP(2, [100, 50]).layers[0].weight
    assert weight.abs().max() <= 0.1 < 1.02 * weight.abs().max() and not torch.equal(weight[0], weight[1])


def test_twin_values_are_the_smaller_of_two():
    net, state = nets.QNetTwin((8,), 3, 4), torch.randn(6, 3)
    torch.testing.assert_close(net.q_values(state), net.q_members(state).min(0).values)
    assert not torch.equal(*net.q_members(state))


# --- policies and values ---
@pytest.mark.parametrize("net_class", [QNetDuel, nets.QNetTwinDuel])
def test_dueling_advantages_have_mean_zero(net_class):
    """The mean over actions is the value alone, so a constant added to every advantage changes nothing."""
    net, state = net_class((8,), 3, 4), torch.randn(6, 3)
    before = (net.q_members(state) if net_class is nets.QNetTwinDuel else net.q_values(state)).detach()
    if net_class is QNetDuel:
        net.advantage.bias.data += 5
        after = net.q_values(state)
    else:
        net.net.layers[-1].bias.data[..., 1:] += 5
        after = net.q_members(state)
    torch.testing.assert_close(before, after, rtol=1e-4, atol=1e-4)


def test_dueling_value_head_gets_the_whole_gradient():
    net = QNetDuel((8,), 3, 4)
    net.q_values(torch.randn(6, 3))[:, 2].sum().backward()
    assert net.value.bias.grad.item() == pytest.approx(6.0)
    torch.testing.assert_close(net.advantage.bias.grad, torch.tensor([-1.5, -1.5, 4.5, -1.5]))


def test_greedy_actions_are_in_the_policys_box():
    state = torch.randn(7, 2, 3) * 100
    for net_class in (nets.Actor, nets.ActorSAC, nets.ActorPPO):
        actor = net_class((8,), 3, 2)
        for parameter in actor.parameters():
            parameter.data.mul_(50)
        action = actor(state)
        assert action.shape == (7, 2, 2) and action.abs().max() <= 1


def test_ppo_samples_have_the_probability_that_is_said():
    actor, state = nets.ActorPPO((8,), 3, 2, log_std_init=-0.7), torch.randn(5000, 3)
    with torch.no_grad():
        action, logprob = actor.sample(state)
        again, entropy = actor.logprob_entropy(state, action)
    torch.testing.assert_close(logprob, again, rtol=1e-4, atol=1e-4)
    noise = (action - actor.mean(state)) / np.exp(-0.7)
    assert noise.mean().abs() < 0.05 and abs(noise.std().item() - 1) < 0.03
    assert -logprob.mean().item() == pytest.approx(entropy.item(), abs=0.05)


def test_sac_samples_around_the_greedy_action():
    actor = nets.ActorSAC((8,), 3, 1)
    state = torch.randn(1, 3).expand(20000, 3)
    with torch.no_grad():
        action, logprob = actor.sample(state)
        assert action.abs().max() < 1 and logprob.shape == (20000,)
        assert action.median().item() == pytest.approx(actor(state)[0].item(), abs=0.05)


@pytest.mark.parametrize("activation, kind", [("relu", nn.ReLU), ("tanh", nn.Tanh), ("gelu", nn.GELU), ("elu", nn.ELU)])
def test_activation(activation, kind):
    layers = list(nets.build_mlp([3, 4, 4, 2], activation))
    kinds = (nn.Linear, kind, nn.Linear, kind, nn.Linear)
    assert all(isinstance(layer, kind) for layer, kind in zip(layers, kinds, strict=True))
    assert isinstance(nets.EnsembleMLP(2, [3, 4, 2], activation).activation, kind)


def test_orthogonal_layers():
    layer = nets.layer_init_with_orthogonal(nn.Linear(6, 4), std=2.0, bias_const=0.5)
    torch.testing.assert_close(layer.weight @ layer.weight.T, 4 * torch.eye(4))
    assert layer.bias.tolist() == [0.5] * 4
    assert nets.ActorPPO((64, 64), 3, 2)(torch.randn(9, 3)).abs().max() < 0.1  # begins near 0 by its last layer's 0.01
