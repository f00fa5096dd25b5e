"""The Hamiltonian term: its value and gradient by hand, what its archive keeps, and where the agents add it."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

from elegantrl.agents import AgentDDPG, AgentModSAC, AgentPPO, AgentREDQ, AgentSAC, AgentTD3
from elegantrl.agents.h_term import FORMS, h_term, standardised, unit_range
from elegantrl.agents.net import ActorBase, ActorSAC
from elegantrl.trajectory import Record, Trajectory
from unit_tests.agents.test_AgentBase import filled, parameters, update
from unit_tests.tasks import Clock, Counter, Match, build, score, train

AGENTS = [AgentDDPG, AgentTD3, AgentSAC, AgentModSAC, AgentREDQ, AgentPPO]


# --- the formula ---
def test_by_hand():
    """gamma 0.5, log-probabilities -1 and -2, rewards 1 and 0.5: -(0.5 * -1 * 1 + 0.25 * -3 * 0.5) = 0.875.

    The second window: 3 is cut to 2, 3 - 20 to -16: -(0.5 * 2 * 1 + 0.25 * -16 * 1) = 3. Their mean is 1.9375.
    """
    logprobs, weights = torch.tensor([[-1.0, -2.0], [3.0, -20.0]]), torch.tensor([[1.0, 0.5], [1.0, 1.0]])
    assert h_term(logprobs[:1], weights[:1], 0.5).item() == 0.875
    assert h_term(logprobs, weights, 0.5).item() == 1.9375
    assert h_term(-logprobs[:1], weights[:1], 0.5).item() == -0.75  # 1, then 3 cut to 2


def test_the_gradient_by_hand():
    """d/d log pi_1 = -(0.5 * 1 + 0.25 * 0.5), d/d log pi_2 = -0.25 * 0.5; none where the path is cut."""
    logprobs = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    h_term(logprobs, torch.tensor([[1.0, 0.5]]), 0.5).backward()
    assert logprobs.grad.tolist() == [[-0.625, -0.125]]
    cut = torch.tensor([[-1.0, -16.0]], requires_grad=True)
    h_term(cut, torch.tensor([[1.0, 0.5]]), 0.5).backward()
    assert cut.grad.tolist() == [[-0.5, 0.0]]


@pytest.mark.parametrize("form", FORMS)
def test_the_gradient_is_the_numerical_one(form):
    logprobs = (torch.randn(5, 3, dtype=torch.float64) * 0.3).requires_grad_()
    weights = torch.rand(5, 3, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: h_term(x, weights, 0.8, form, dims=2), logprobs)


def test_forms_by_hand():
    """Two steps of log-probability 1.5 in three dimensions: sums 1.5 and 2 (cut), means 0.5, products e^1.5 and e^2."""
    logprobs, weights = torch.full((1, 2), 1.5), torch.ones(1, 2)
    results = {form: -h_term(logprobs, weights, 1.0, form, dims=3).item() for form in FORMS}
    assert results == pytest.approx({"sum": 3.5, "mean": 1.0, "product": math.exp(1.5) + math.exp(2.0)})


def test_weights_are_scaled():
    assert unit_range(torch.tensor([-2.0, 0.0, 2.0])).tolist() == [0.0, 0.5, 1.0]
    assert unit_range(torch.ones(3)).tolist() == [0.0] * 3
    x = standardised(torch.tensor([1.0, 2.0, 6.0]))
    assert x.mean().item() == pytest.approx(0, abs=1e-6) and x.std(correction=0).item() == pytest.approx(1, abs=1e-4)


# --- the archive ---
def archive(**how):
    """An agent whose archive is full with the first window; state, action and reward of a row are its number."""
    how = {"batch_size": 4, "h_term_k_step": 2, "h_term_sample_rate": 1.0, "h_term_drop_rate": 0.0, **how}
    return build(AgentDDPG, Clock(num_envs=1), lambda_h_term=1.0, **how).h_term


def rows(*columns, unmasks=None, undones=None):
    """A trajectory of one list of rewards for each environment; marks are lists of (t, n) that are False."""
    x = torch.tensor(columns, dtype=torch.float).T
    flags = torch.ones(2, *x.shape, dtype=torch.bool)
    for flag, places in zip(flags, (unmasks or [], undones or []), strict=True):
        for t, n in places:
            flag[t, n] = False
    states = torch.cat([x, x[-1:] + 1])[..., None].expand(-1, -1, 2)
    return Trajectory(states, actions=x[..., None], rewards=x, unmasks=flags[0], undones=flags[1], dones=~flags[1])


def rewards_of(term):
    return [episode["rewards"].tolist() for episode in term.episodes]


def test_episodes_are_put_together_over_rollouts_and_sorted_by_return():
    """One environment is terminated in row 1 and by time before row 5; the other ends in the second rollout."""
    term = archive()
    term.observe(rows([1, 2, 0, 4], [50, 51, 52, 53], undones=[(1, 0)], unmasks=[(2, 0)]))
    assert rewards_of(term) == [[1, 2]]
    term.observe(rows([5, 0, 7, 8], [54, 0, 56, 57], unmasks=[(1, 0), (1, 1)], undones=[(0, 1)]))
    assert rewards_of(term) == [[50, 51, 52, 53, 54], [4, 5], [1, 2]]
    term.observe(rows([0, 10, 11, 12], [58, 59, 60, 61], unmasks=[(0, 0)], undones=[(3, 1)]))
    assert rewards_of(term) == [[56, 57, 58, 59, 60, 61], [50, 51, 52, 53, 54], [7, 8], [4, 5], [1, 2]]
    assert len(term.open["rewards"]) <= 4  # nothing is kept of what has been taken


def test_no_episode_is_taken_twice():
    """One environment's episodes end while the other's goes on, so that their rows are kept."""
    term = archive()
    term.observe(rows([1, 2, 3, 4], [5, 6, 7, 8], undones=[(1, 0), (3, 0)]))
    term.observe(rows([5, 6, 7, 8], [9, 10, 11, 12]))
    assert rewards_of(term) == [[3, 4], [1, 2]]


def test_an_episode_that_was_cut_is_dropped():
    term = archive()
    term.observe(rows([1, 2, 3, 4]))
    term.cut()
    term.observe(rows([5, 6, 7, 8], undones=[(2, 0)]))
    assert rewards_of(term) == [[5, 6, 7]]


def test_environments_may_be_cut_one_by_one():
    """As where one of several Workers was restarted; its discounted return starts anew too."""
    agent = build(AgentDDPG, Clock(num_envs=2), lambda_h_term=1.0, h_term_k_step=2, if_norm_reward=True)
    agent.options[0].return_carry = torch.tensor([3.0, 4.0])
    agent.observe(rows([1, 2, 3], [11, 12, 13]))
    agent.cut(torch.tensor([1]))
    agent.observe(rows([4, 5, 6], [14, 15, 16], undones=[(1, 0), (1, 1)]))
    assert rewards_of(agent.h_term) == [[14, 15], [1, 2, 3, 4, 5]]
    assert agent.options[0].return_carry.tolist() == [3.0, 0.0]


def test_windows_stay_within_an_episode_and_all_come():
    term = archive(h_term_k_step=3, batch_size=900, h_term_buffer_size=60)
    term.observe(rows([*range(20)], undones=[(4, 0), (6, 0), (14, 0)]))  # lengths 5, 2 (too short), 8
    windows = term.draw()
    states, actions = windows.states[:, 0].view(-1, 3), windows.actions.view(-1, 3)
    assert torch.equal(states, actions) and len(states) == 300
    assert torch.equal(states[:, 1:], states[:, :-1] + 1)
    assert sorted(states[:, 0].unique().tolist()) == [0, 1, 2, 7, 8, 9, 10, 11, 12]
    torch.testing.assert_close(windows.weights.view(-1, 3), states / 14)  # rewards 0 to 14 in [0, 1]


def test_the_worst_go_as_long_as_enough_stays():
    """Half of the episodes may go; 4 rows are enough, so of two of 2 rows each none goes."""
    term = archive(h_term_drop_rate=0.5)
    term.observe(rows([1, 1, 5, 5], undones=[(1, 0), (3, 0)]))
    assert rewards_of(term) == [[5, 5], [1, 1]]
    term.observe(rows([4, 4, 2, 2], undones=[(1, 0), (3, 0)]))
    assert rewards_of(term) == [[5, 5], [4, 4]]


def test_the_archive_is_bounded():
    term = archive(h_term_buffer_size=6)
    for k in range(10):
        term.observe(rows([k, k, -k, -k], undones=[(1, 0), (3, 0)]))
        assert len(term.rows["rewards"]) <= 6 and len(term.open["rewards"]) <= 6
    assert rewards_of(term) == [[9, 9], [8, 8], [7, 7]]


def test_an_endless_episode_comes_in_pieces():
    term = archive(h_term_buffer_size=6)
    for k in range(0, 20, 4):
        term.observe(rows([k, k + 1, k + 2, k + 3]))
        assert len(term.open["rewards"]) <= 6
    assert rewards_of(term) == [[12, 13, 14, 15, 16, 17]]


def test_a_long_rollout_comes_in_as_many_pieces_as_it_has():
    """Of 6 rows each, of which the archive keeps one: what is left of 20 rows is 2, and an end takes them."""
    term = archive(h_term_buffer_size=6)
    term.observe(rows([*range(20)]))
    assert rewards_of(term) == [[12, 13, 14, 15, 16, 17]] and len(term.open["rewards"]) == 2
    term.observe(rows([90, 91, *range(10)], undones=[(1, 0)]))
    assert rewards_of(term) == [[18, 19, 90, 91]] and len(term.open["rewards"]) == 4


def test_all_state_like_fields_come_along():
    agent = build(AgentPPO, Clock(if_discrete=True), lambda_h_term=1.0, batch_size=2, h_term_sample_rate=1.0)
    trajectory = rows([1, 2, 3, 4, 5], undones=[(4, 0)])
    trajectory.actions = trajectory.actions[..., 0].long() % 2
    trajectory.action_mask = torch.ones(6, 1, 2, dtype=torch.bool)
    trajectory.action_mask[2:, 0, 0] = False
    agent.observe(trajectory)
    windows = agent.h_term.draw()
    assert torch.equal(windows.action_mask[:, 0], windows.states[:, 0] < 3)
    assert agent.h_term.dims == 1 and windows.actions.dtype == torch.long


def test_advantages_weigh_by_the_values_of_the_time():
    """gamma 0 and a value of 1 everywhere: the advantage is the reward minus 1, standardised over the archive."""
    agent = build(AgentPPO, Clock(), lambda_h_term=1.0, h_term_weight="advantage", gamma=0.0, h_term_k_step=2)
    agent.cri = lambda_critic = Constant()
    agent.observe(rows([3, 7, 2, 4], undones=[(3, 0)]))
    assert lambda_critic.value.item() == 1.0
    assert agent.h_term.episodes[0]["weights"].tolist() == [2.0, 6.0, 1.0, 3.0]
    torch.testing.assert_close(agent.h_term.rows["weights"], standardised(torch.tensor([2.0, 6.0, 1.0, 3.0])))


def test_an_advantage_at_a_time_limit_has_the_final_observations_value():
    """Values 1, gamma 0.9: at a known final observation reward 1 + 0.9 - 1, as between other rows; at a true end 0."""
    agent = build(AgentPPO, Clock(), lambda_h_term=1.0, h_term_weight="advantage", gamma=0.9, h_term_k_step=2)
    agent.cri = Constant()
    trajectory = rows([1, 1, 1, 1], undones=[(1, 0), (3, 0)])
    trajectory.bootstraps = torch.tensor([0.0, 0.9, 0.0, 0.0])[:, None]
    agent.observe(trajectory)
    by_time, by_task = (episode["weights"] for episode in agent.h_term.episodes)
    torch.testing.assert_close(by_time, torch.tensor([0.9 + 0.9 * 0.95 * 0.9, 0.9]))
    torch.testing.assert_close(by_task, torch.tensor([0.9, 0.0]))


class Constant(nn.Module):
    def __init__(self):
        super().__init__()
        self.value = nn.Parameter(torch.ones(()))

    def forward(self, state):
        return self.value.expand(state.shape[:-1])


# --- the densities ---
def test_ddpgs_density_is_that_of_its_noise():
    """One action 0.1 off the policy's by a std of 0.1: log N(1) - log 0.1."""
    agent = build(AgentDDPG, Clock(), explore_noise_std=0.1)
    state = torch.randn(6, 2)
    density = agent.log_density(Record(state), agent.act(state) + 0.1)
    torch.testing.assert_close(density, torch.full((6,), -0.5 - 0.5 * math.log(2 * math.pi) + math.log(10)))
    agent.explore_noise_std = 0.0
    assert bool(torch.isfinite(agent.log_density(Record(state), agent.act(state) + 0.1)).all())


def test_sacs_density_is_that_of_its_samples():
    actor, state = ActorSAC((8,), 3, 2), torch.randn(50, 3)
    action, logprob = actor.sample(state)
    torch.testing.assert_close(actor.logprob(state, action), logprob, rtol=1e-3, atol=1e-3)
    edge = actor.logprob(state, torch.ones(50, 2))  # a random action, clipped, may lie on the edge
    edge.sum().backward()
    assert bool(torch.isfinite(edge).all() & torch.isfinite(actor.net[0].weight.grad).all())


# --- the hook ---
class Fixed(ActorBase):
    """The same action everywhere."""

    def __init__(self):
        super().__init__()
        self.action = nn.Parameter(torch.zeros(1))

    def forward(self, state, action_mask=None):
        return self.action.expand(len(state), 1)


def ddpg(**how):
    """DDPG whose critic is flat, so that the term alone moves the actor; the archive has the action 0.05, paid 1."""
    agent = build(AgentDDPG, Clock(), batch_size=4, h_term_sample_rate=1.0, h_term_k_step=1, learning_rate=1e-3, **how)
    agent.act = Fixed()
    trajectory = rows([0.05] * 4 + [5.0], undones=[(4, 0)])
    trajectory.rewards = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0])[:, None]  # in [0, 1] as they are
    agent.observe(trajectory)
    return agent


def test_the_term_alone_pulls_the_actor_to_what_paid():
    agent = ddpg(lambda_h_term=1.0, h_term_gamma=0.5)
    agent.cri = Flat()
    windows = agent.h_term.draw()
    windows.actions, windows.weights = torch.tensor([[0.05], [0.05], [5.0], [0.05]]), torch.tensor([1.0, 1.0, 0.0, 1.0])
    loss = agent.h_term.loss(windows)
    # log N: -0.5 * 0.25 - 0.9189 + 2.3026 = 1.2587, of three in four, times gamma
    assert loss.item() == pytest.approx(-0.5 * 0.75 * 1.25865, rel=1e-4)
    agent.h_term_form, agent.h_term.dims = "mean", 2
    assert agent.h_term.loss(windows).item() == pytest.approx(loss.item() / 2)
    agent.h_term_form = "sum"
    # d log N / d mu = (0.05 - 0) / 0.01 = 5
    assert torch.autograd.grad(loss, agent.act.action)[0].item() == pytest.approx(-0.5 * 0.75 * 5, rel=1e-4)
    update(agent, filled(Clock()), transitions=50)
    assert agent.act.action.item() == pytest.approx(0.05, abs=0.01)


class Flat(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, state, action):
        return 0 * action[:, 0] + self.weight


@pytest.mark.parametrize("gap, due", [(1, [0, 1, 2, 3, 4, 5]), (3, [0, 3])])
def test_every_so_manieth_actor_update_has_the_term(gap, due, monkeypatch):
    agent, drawn = ddpg(lambda_h_term=1.0, h_term_update_gap=gap), []
    draw = agent.h_term.draw
    monkeypatch.setattr(agent.h_term, "draw", lambda: drawn.append(agent.actor_count) or draw())
    for _ in range(3):
        update(agent, filled(Clock()), transitions=2)
    assert drawn == due


def test_a_small_archive_is_not_drawn_from(monkeypatch):
    """A batch of 4 may be half of it: 8 rows are enough."""
    agent = build(AgentSAC, Clock(), batch_size=4, lambda_h_term=1.0, h_term_sample_rate=0.5, h_term_k_step=2)
    drawn = []
    draw = agent.h_term.draw
    monkeypatch.setattr(agent.h_term, "draw", lambda: drawn.append(1) or draw())
    for expected in (0, 2):
        agent.observe(rows([0.1] * 5, undones=[(4, 0)]))
        update(agent, filled(Clock()), transitions=2)
        assert len(drawn) == expected


def test_an_archive_that_is_as_full_as_it_can_be_is_large_enough():
    """Episodes of 2 rows never fill 7, and a batch of 4 would be half of 8."""
    term = archive(h_term_buffer_size=7, h_term_sample_rate=0.5)
    for expected in (False, True, True, True):
        term.observe(rows([1, 2], undones=[(1, 0)]))
        assert term.is_due == expected


def test_rollouts_that_are_not_shown_are_told():
    agent = build(AgentSAC, Clock(), batch_size=4, lambda_h_term=1.0)
    with pytest.raises(ValueError, match=r"agent\.observe\(trajectory\)"):
        update(agent, filled(Clock()))


@pytest.mark.parametrize("agent_class", AGENTS)
def test_the_term_changes_the_actor_and_nothing_else(agent_class):
    """One update with and without it, from the same numbers: critics agree, policies do not."""
    results = []
    for weight in (0.0, 1.0):
        torch.manual_seed(0)
        env = Clock()
        how = {
            "batch_size": 8,
            "repeat_times": 1.0,
            "h_term_sample_rate": 1.0,
            "update_freq": 1,
            "lambda_h_term": weight,
        }
        agent = build(agent_class, env, **how)
        agent.observe(rows([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], undones=[(7, 0)]))
        data = filled(env) if agent.if_off_policy else agent.explore(env, agent.new_trajectory(env, 2))
        torch.manual_seed(1)
        _ = update(agent, data, transitions=8) if agent.if_off_policy else agent.update_net(data)
        assert agent.actor_count == agent.update_count == 1
        results.append((parameters(agent.act), parameters(agent.cri)))
    (act, cri), (act_h, cri_h) = results
    assert all(torch.equal(x, y) for x, y in zip(cri, cri_h, strict=True))
    assert any(not torch.equal(x, y) for x, y in zip(act, act_h, strict=True))


@pytest.mark.parametrize("agent_class", AGENTS)
def test_match_is_learned_with_the_term(agent_class):
    env = Match(length=4)
    how = {"batch_size": 64, "h_term_sample_rate": 0.5, "lambda_h_term": 0.05, "net_dims": (32,), "learning_rate": 1e-2}
    if agent_class.if_off_policy:
        agent = build(agent_class, env, utd=0.5, alpha_init=0.01, update_freq=1, gamma=0.5, **how)
        train(agent, env, rounds=4, horizon=25)
    else:
        agent = build(agent_class, env, repeat_times=8, gamma=0.5, **how)
        train(agent, env, rounds=20, horizon=16)
    assert len(agent.h_term.episodes) > 10
    state = torch.rand(1000, 2) * 1.6 - 0.8
    with torch.no_grad():
        assert score(state, agent.greedy(state), False).mean() > -0.06


# --- saving ---
@pytest.mark.parametrize("agent_class", [AgentTD3, AgentPPO])
def test_the_archive_is_saved(agent_class, tmp_path):
    env = Counter(num_envs=2, length=5)
    how = {"lambda_h_term": 0.1, "batch_size": 8, "repeat_times": 2}
    agent, again = build(agent_class, env, **how), build(agent_class, env, **how)
    train(agent, env, rounds=2, horizon=16)
    torch.save(agent.state_dict(), tmp_path / "agent.pth")
    again.load_state_dict(torch.load(tmp_path / "agent.pth", weights_only=True))
    assert len(agent.h_term.episodes) > 1 and again.h_term.rows.keys() == agent.h_term.rows.keys()
    for name, x in agent.h_term.rows.items():
        assert torch.equal(x, again.h_term.rows[name])
    assert torch.equal(agent.h_term.begins, again.h_term.begins)
    plain = build(agent_class, env)
    plain.load_state_dict(agent.state_dict())  # the term may be turned off, and on again, with an empty archive
    again.load_state_dict(plain.state_dict())
    assert again.h_term.episodes == []


def test_a_copied_agent_has_an_archive_of_its_own():
    agent = ddpg(lambda_h_term=1.0)
    twin = copy.deepcopy(agent)
    assert twin.h_term.agent is twin and twin.options == [twin.h_term]
    twin.observe(rows([1, 2, 3], undones=[(2, 0)]))
    assert len(twin.h_term.episodes) == 2 and len(agent.h_term.episodes) == 1


def test_a_memory_is_refused():
    with pytest.raises(ValueError, match=r"not for teams or rnn_dim=8\. Set lambda_h_term to 0"):
        build(AgentPPO, Match(4), lambda_h_term=0.1, rnn_dim=8)
