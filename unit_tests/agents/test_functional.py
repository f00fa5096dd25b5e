"""The pure functions against closed forms, hand-computed numbers and slow references."""

from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import Categorical, Normal, TanhTransform, TransformedDistribution

from elegantrl.agents.functional import (
    LinearSchedule,
    at_progress,
    clipped_surrogate,
    cumulative_rewards,
    discounted_sums,
    gae,
    gaussian_entropy,
    gaussian_logprob,
    mask_illegal,
    squashed_gaussian,
    vtrace,
    weighted_mean,
)
from elegantrl.agents.net import ActorDiscretePPO


def slow_gae(rewards, terminal, masked, values, gamma, lam):
    """The sum of eq. 16, one row after the other: an episode ends by itself (terminal) or before a masked row."""
    result = torch.zeros_like(rewards)
    for t in range(len(rewards)):
        weight = 1.0
        for i in range(t, len(rewards)):
            if masked[i]:
                break
            next_value = 0.0 if terminal[i] else values[i + 1]
            result[t] += weight * (rewards[i] + gamma * next_value - values[i])
            weight *= gamma * lam
            if terminal[i]:
                break
    return result


def test_gae_equals_a_slow_reference():
    """Sequence 0 is terminated at row 3 (reset row 4) and truncated at row 8 (reset row 9); 1 has no such rows."""
    rewards, values = torch.randn(12, 2), torch.randn(13, 2)
    terminal, masked = torch.zeros(12, 2, dtype=torch.bool), torch.zeros(12, 2, dtype=torch.bool)
    terminal[3, 0] = masked[4, 0] = masked[9, 0] = terminal[5, 1] = True
    result = gae(rewards, ~terminal, ~masked, values, 0.9, 0.8)
    for n in range(2):
        expected = slow_gae(rewards[:, n], terminal[:, n], masked[:, n], values[:, n], 0.9, 0.8)
        torch.testing.assert_close(result[:, n], expected)


def test_gae_by_hand():
    """gamma = lambda = 0.5. Row 1 ends: A1 = 3 - 2 = 1; A0 = 1 + 0.5 * 2 - 1 + 0.25 * A1 = 1.25."""
    column = lambda *x: torch.tensor(x)[:, None]  # noqa: E731
    result = gae(column(1.0, 3.0), column(True, False), column(True, True), column(1.0, 2.0, 100.0), 0.5, 0.5)
    assert result[:, 0].tolist() == [1.25, 1.0]


def an_episode_of_each_kind():
    """Sequence 0 is terminated at row 3 (reset row 4) and truncated at row 8 (reset row 9); 1 ends at row 5, same step.

    Of 1 row 10 is masked too: a time limit after which the state is lost. Rewards and values of masked rows are poison.
    """
    rewards, values = torch.randn(12, 2), torch.randn(13, 2)
    terminal, masked = torch.zeros(12, 2, dtype=torch.bool), torch.zeros(12, 2, dtype=torch.bool)
    terminal[3, 0] = masked[4, 0] = masked[9, 0] = terminal[5, 1] = masked[10, 1] = True
    return torch.where(masked, 1000.0, rewards), terminal, masked, values


def slow_vtrace(rewards, terminal, masked, values, ratio, gamma, lam):
    """The sum of eq. 1, one row after the other; the advantage is delta + gamma lambda (v' - V')."""
    v, advantages = values[:-1].clone(), torch.zeros_like(rewards)

    def delta(i):
        return rewards[i] + (0.0 if terminal[i] else gamma * values[i + 1]) - values[i]

    for s in range(len(rewards)):
        product = 1.0
        for i in range(s, len(rewards)):
            if masked[i]:
                break
            v[s] += product * min(1.0, ratio[i]) * delta(i)
            product *= gamma * lam * min(1.0, ratio[i])
            if terminal[i]:
                break
    for s in range(len(rewards)):
        if not masked[s]:
            later = v[s + 1] - values[s + 1] if s + 1 < len(rewards) and not terminal[s] else 0.0
            advantages[s] = delta(s) + gamma * lam * later
    return advantages, v


@pytest.mark.parametrize("lam", [1.0, 0.8])
def test_vtrace_equals_a_slow_reference(lam):
    rewards, terminal, masked, values = an_episode_of_each_kind()
    logratios = torch.randn(12, 2)
    results = vtrace(rewards, ~terminal, ~masked, values, logratios, 0.9, lam)
    for n in range(2):
        columns = (x[:, n] for x in (rewards, terminal, masked, values, logratios.exp()))
        for result, expected in zip(results, slow_vtrace(*columns, 0.9, lam), strict=True):
            torch.testing.assert_close(result[:, n], expected)


def test_vtrace_of_the_same_policy_is_gae():
    rewards, terminal, masked, values = an_episode_of_each_kind()
    advantages, targets = vtrace(rewards, ~terminal, ~masked, values, torch.zeros(12, 2), 0.9, 0.8)
    expected = gae(rewards, ~terminal, ~masked, values, 0.9, 0.8)
    torch.testing.assert_close(advantages, expected)
    torch.testing.assert_close(targets, expected + values[:-1])


def test_vtrace_by_hand():
    """gamma 0.5, lambda 1, ratios 0.5 and 4. Row 1 ends: v1 - V1 = 1 * (3 - 2) = 1, A1 = 1.

    Row 0: delta = 1 + 0.5 * 2 - 1 = 1; v0 = 1 + 0.5 * 1 + 0.5 * 0.5 * 1 = 1.75; A0 = 1 + 0.5 * 1 = 1.5.
    """
    column = lambda *x: torch.tensor(x)[:, None]  # noqa: E731
    rest = (column(1.0, 2.0, 100.0), column(0.5, 4.0).log(), 0.5, 1.0)
    advantages, targets = vtrace(column(1.0, 3.0), column(True, False), column(True, True), *rest)
    assert advantages[:, 0].tolist() == [1.5, 1.0] and targets[:, 0].tolist() == pytest.approx([1.75, 3.0])


def test_vtrace_survives_a_ratio_without_bound():
    column = lambda *x: torch.tensor(x)[:, None]  # noqa: E731
    yes = column(True, True)
    results = vtrace(column(1.0, 1.0), yes, yes, column(0.0, 0.0, 0.0), column(1e4, -1e4), 0.9, 1.0)
    assert all(bool(torch.isfinite(x).all()) for x in results) and results[1][1] == 0.0


def slow_cumulative(rewards, terminal, masked, values, gamma):
    result = torch.zeros_like(rewards)
    for t in range(len(rewards)):
        for i in range(t, len(rewards) + 1):
            if i == len(rewards) or masked[i]:
                result[t] += gamma ** (i - t) * values[i]
                break
            result[t] += gamma ** (i - t) * rewards[i]
            if terminal[i]:
                break
    return result


def test_cumulative_rewards_equal_a_slow_reference():
    rewards, terminal, masked, values = an_episode_of_each_kind()
    result = cumulative_rewards(rewards, ~terminal, ~masked, values, 0.9)
    for n in range(2):
        expected = slow_cumulative(rewards[:, n], terminal[:, n], masked[:, n], values[:, n], 0.9)
        torch.testing.assert_close(result[:, n], expected)


def test_discounted_sums_by_hand():
    """0.5 carried in; 1 + 0.5 = 1.5; 2 + 0.75 = 2.75, an episode ends; 4; 1 + 2 = 3."""
    keeps = torch.tensor([True, False, True, True])[:, None]
    sums = discounted_sums(torch.tensor([1.0, 2.0, 4.0, 1.0])[:, None], keeps, torch.tensor([0.5]), 0.5)
    assert sums[:, 0].tolist() == [1.5, 2.75, 4.0, 3.0]


@pytest.mark.parametrize(
    "ratio, advantage, slope",
    [(5.0, 1.0, 0.0), (0.1, 1.0, 0.1), (0.1, -1.0, 0.0), (5.0, -1.0, -5.0), (1.1, 1.0, 1.1), (1.1, -1.0, -1.1)],
)
def test_clipped_surrogate_has_gradient_only_where_it_would_undo_a_step(ratio, advantage, slope):
    logratio = torch.tensor([math.log(ratio)], requires_grad=True)
    clipped_surrogate(logratio, torch.tensor([advantage]), 0.25).sum().backward()
    assert float(logratio.grad) == pytest.approx(slope)  # d (r A) / d log r = r A


def test_clipped_surrogate_by_hand():
    logratio = torch.tensor([2.0, 0.5, 1.2, 2.0]).log()
    result = clipped_surrogate(logratio, torch.tensor([1.0, 1.0, 2.0, -1.0]), 0.25)
    torch.testing.assert_close(result, torch.tensor([1.25, 0.5, 2.4, -2.0]))


def test_gaussian_equals_torch_distributions():
    mean, log_std, x = torch.randn(50, 3), torch.randn(3), torch.randn(50, 3)
    reference = Normal(mean, log_std.exp())
    noise = (x - mean) / log_std.exp()
    torch.testing.assert_close(gaussian_logprob(noise, log_std), reference.log_prob(x).sum(-1))
    torch.testing.assert_close(gaussian_entropy(log_std), reference.entropy()[0].sum())


def test_squashed_gaussian_equals_torch_distributions():
    mean, log_std, noise = torch.randn(50, 3), torch.randn(50, 3) * 0.3, torch.randn(50, 3)
    action, logprob = squashed_gaussian(mean, log_std, noise)
    reference = TransformedDistribution(Normal(mean, log_std.exp()), TanhTransform(cache_size=1))
    u = mean + log_std.exp() * noise
    torch.testing.assert_close(action, u.tanh())
    torch.testing.assert_close(logprob, reference.log_prob(reference.transforms[0](u)).sum(-1), rtol=1e-4, atol=1e-4)


def test_squashed_gaussian_density_integrates_to_one():
    """And its mean log-probability over drawn noise equals the numeric integral within 1 %."""
    noise = torch.linspace(-8, 8, 20001, dtype=torch.float64)[:, None]
    mean, log_std = torch.full_like(noise, 0.4), torch.full_like(noise, -0.5)
    action, logprob = squashed_gaussian(mean, log_std, noise)
    density = logprob.exp()
    assert float(torch.trapezoid(density, action[:, 0])) == pytest.approx(1.0, abs=1e-5)
    integral = float(torch.trapezoid(density * logprob, action[:, 0]))
    drawn = squashed_gaussian(torch.tensor([0.4]), torch.tensor([-0.5]), torch.randn(400_000, 1))[1]
    assert float(drawn.mean()) == pytest.approx(integral, rel=0.01)


def test_squashed_gaussian_is_finite_far_out():
    mean = torch.tensor([[-40.0], [40.0]], requires_grad=True)
    action, logprob = squashed_gaussian(mean, torch.full((2, 1), 2.0), torch.tensor([[-9.0], [9.0]]))
    logprob.sum().backward()
    assert bool(torch.isfinite(logprob).all() & torch.isfinite(mean.grad).all()) and action.abs().max() <= 1


def test_masked_categorical_is_that_of_the_allowed_actions():
    """Two of four actions: the others have probability 0, the entropy is that of the two, the frequencies too."""
    actor = ActorDiscretePPO((4,), 1, 4)
    actor.net[-1].bias.data = torch.tensor([1.0, 5.0, 0.0, 5.0])
    actor.net[-1].weight.data.zero_()
    mask = torch.tensor([[True, False, True, False]]).expand(8000, 4)
    reference = Categorical(logits=torch.tensor([1.0, 0.0]))
    state = torch.zeros(8000, 1)
    with torch.no_grad():
        action, logprob = actor.sample(state, mask)
        again, entropy = actor.logprob_entropy(state, action, mask)
        assert actor(state, mask).eq(0).all() and actor(state)[0] in (1, 3)
    assert sorted(action.unique().tolist()) == [0, 2]
    assert float((action == 0).float().mean()) == pytest.approx(float(reference.probs[0]), abs=0.02)
    torch.testing.assert_close(logprob, again)
    torch.testing.assert_close(logprob, reference.log_prob(action // 2))
    torch.testing.assert_close(entropy[0], reference.entropy())


def test_a_mask_that_allows_nothing_gives_no_nan():
    values = mask_illegal(torch.randn(2, 3), torch.zeros(2, 3, dtype=torch.bool))
    assert bool(torch.isfinite(values.log_softmax(-1)).all()) and float((values * 0).sum()) == 0


def test_weighted_mean_divides_by_the_count_of_rows():
    """(1 * 2 + 0 * 100 + 0.5 * 4 + 0 * 1) / 4 = 1, whatever the weights' sum; leading axes stay."""
    x, weight = torch.tensor([2.0, 100.0, 4.0, 1.0]), torch.tensor([1.0, 0.0, 0.5, 0.0])
    assert float(weighted_mean(x, weight)) == 1.0
    assert weighted_mean(torch.stack([x, 2 * x, 0 * x]), weight).tolist() == [1.0, 2.0, 0.0]


def test_linear_schedule():
    schedule = LinearSchedule(1.0, 0.2, fraction=0.5)
    assert [schedule(p) for p in (0.0, 0.25, 0.5, 1.0)] == pytest.approx([1.0, 0.6, 0.2, 0.2])
    assert at_progress(schedule, 0.25) == pytest.approx(0.6) and at_progress(0.3, 0.25) == 0.3
