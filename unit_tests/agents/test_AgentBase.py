"""What all agents share: counting, normalisers, a user's own networks, schedules, saving and acting."""

from __future__ import annotations

import copy
import warnings

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from elegantrl import agents
from elegantrl.agents import AgentD3QN, AgentDDPG, AgentDQN, AgentPPO, AgentSAC, AgentTD3
from elegantrl.agents.functional import LinearSchedule
from elegantrl.agents.net import Actor, ActorBase, CriticBase, QNet
from elegantrl.envs import ActionCodec
from elegantrl.train.config import Config
from elegantrl.train.replay_buffer import ReplayBuffer
from unit_tests.agents.test_values import OFF_POLICY, ON_POLICY, name
from unit_tests.tasks import Clock, Counter, Match, Settings, build, train


def filled(env, rows=400, **how):
    """A buffer of random transitions."""
    buffer = ReplayBuffer(rows, env.state_dim, env.action_dim, -1, if_discrete=env.if_discrete, **how)
    actions = torch.randint(2, (rows, 1)) if env.if_discrete else torch.rand(rows, 1, 1) * 2 - 1
    flags = torch.ones(rows, 1)
    buffer.update((torch.randn(rows, 1, env.state_dim), actions, torch.randn(rows, 1), flags, flags))
    return buffer


def update(agent, buffer, transitions=8):
    """The updates for so many new transitions."""
    buffer.add_size = transitions
    return agent.update_net(buffer)


def parameters(net):
    return [p.detach().clone() for p in net.parameters()]


def equal(these, those):
    return all(torch.equal(x, y) for x, y in zip(these, those, strict=True))


class Values(CriticBase):
    """A user's critic: -(a - 0.5)^2, or whatever shape was asked for."""

    def __init__(self, shape=(-1,)):
        super().__init__()
        self.weight, self.shape = nn.Parameter(torch.ones(())), shape

    def forward(self, state, action=None):
        action = state if action is None else action
        return (-self.weight * (action[..., 0] - 0.5).square()).reshape(self.shape)


def test_one_agent_with_a_replay_buffer_does_not_clip():
    """Clipped, the ends of LunarLanderContinuous's episodes (-100) were outvoted: the critic put them at -2000."""
    for agent_class, _ in OFF_POLICY:
        assert agent_class.hyper_parameters()["clip_grad_norm"] == np.inf


# --- counting ---
@pytest.mark.parametrize("agent_class, if_discrete", OFF_POLICY, ids=name)
def test_updates_are_those_of_the_rollout_however_full_the_buffer_is(agent_class, if_discrete):
    env = Clock(if_discrete=if_discrete)
    for rows in (20, 400):
        buffer = filled(env, rows)
        agent = build(agent_class, env, utd=0.3125, batch_size=8)
        counts = []
        for _ in range(5):
            update(agent, buffer)
            counts.append(agent.update_count)
        assert counts == [2, 5, 7, 10, 12]  # 2.5 each, the fraction is carried on


def test_repeat_times_is_how_often_a_transition_is_used():
    agent = build(AgentSAC, Clock(), repeat_times=4.0, batch_size=16)
    update(agent, filled(Clock()))
    assert agent.update_count == 2  # 8 transitions, each in 4 batches of 16


def test_on_policy_epochs():
    env = Clock()
    agent = build(AgentPPO, env, repeat_times=3, batch_size=16)
    agent.update_net(agent.explore(env, agent.new_trajectory(env, 8)))
    assert agent.update_count == 3 * 2


@pytest.mark.parametrize("agent_class", [AgentTD3, AgentDDPG])
def test_delays_count_over_the_whole_run(agent_class):
    """One update a rollout, each delay still sees every third."""
    agent, buffer = build(agent_class, Clock(), update_freq=3, target_delay=3, batch_size=8), filled(Clock())
    for i in range(1, 7):
        before = parameters(agent.cri_target)
        update(agent, buffer, transitions=1)
        assert agent.actor_count == i // 3
        assert equal(before, parameters(agent.cri_target)) == (i % 3 != 0)


def test_the_buffer_is_told_of_the_steps_of_a_return_and_of_the_progress():
    agent, buffer, seen = build(AgentSAC, Clock(), n_step=3, batch_size=8), filled(Clock(), if_use_per=True), []
    look_ahead = buffer.look_ahead
    buffer.look_ahead = lambda index, gamma, n_step: seen.append(n_step) or look_ahead(index, gamma, n_step)
    agent.progress = 0.5
    update(agent, buffer)
    assert seen == [3] * 8 and buffer.tree.beta == pytest.approx(0.7)


# --- what a critic fits beside its label ---
def test_cumulative_rewards_are_bootstrapped_by_the_targets():
    """gamma 0.5, episodes of 3 steps that pay 1, cut by time; each state is worth 8 to the target.

    From the end of an episode: 1 + 4, 1 + 2.5, 1 + 1.75; its reset row is its state's value; two rows go on later.
    """
    env = Clock(num_envs=1, length=3)
    agent = build(AgentDDPG, env, gamma=0.5, lambda_fit_cum_r=1.0, reward_scale=1.0)
    agent.cri_target = lambda state, action: torch.full((len(state),), 8.0)
    trajectory = agent.explore(env, agent.new_trajectory(env, 6))
    agent.observe(trajectory)
    assert trajectory.cum_rewards[:, 0].tolist() == [2.75, 3.5, 5.0, 8.0, 3.5, 5.0]
    buffer = ReplayBuffer(20, 2, 1, -1)
    buffer.update(trajectory)
    batch = buffer.sample(50)
    assert torch.equal(batch.cum_rewards, trajectory.cum_rewards[batch.index, 0])
    again = ReplayBuffer(20, 2, 1, -1)
    again.load_state_dict(buffer.state_dict())
    assert torch.equal(again.columns["cum_rewards"], buffer.columns["cum_rewards"])


@pytest.mark.parametrize("agent_class", [AgentTD3, AgentD3QN])
def test_the_mean_of_a_batch_fits_the_mean_of_its_cumulative_rewards(agent_class):
    """Weights 1 and 0 of two rows: Q 7 against G 1 in the first is a mean gap of 3."""
    agent = build(agent_class, Clock(if_discrete=agent_class is AgentD3QN), lambda_fit_cum_r=2.0)
    batch = filled(Clock(if_discrete=agent_class is AgentD3QN)).sample(2)
    batch.weight, batch.cum_rewards = torch.tensor([1.0, 0.0]), torch.tensor([1.0, 100.0])
    q = torch.tensor([[7.0, 50.0], [1.0, 0.0]])
    terms = [term(batch, q) for term in agent.critic_terms]
    assert len(terms) == 1 and terms[0].tolist() == [2 * 9.0, 0.0]
    assert build(agent_class, Clock(if_discrete=agent_class is AgentD3QN)).critic_terms == []


def test_the_level_of_the_values_is_that_of_the_rewards():
    """Labels of 0 (gamma 0 and no reward), cumulative rewards of 4: weighed 3 to 1 the values lie at 3."""
    agent, buffer = build(AgentDDPG, Clock(), gamma=0.0, lambda_fit_cum_r=3.0, learning_rate=1e-2), filled(Clock())
    buffer.columns["rewards"].zero_()
    buffer.columns["cum_rewards"] = torch.full((400,), 4.0)
    update(agent, buffer, transitions=150)
    batch = buffer.sample(400)
    with torch.no_grad():
        assert agent.q_value(batch).mean().item() == pytest.approx(3.0, abs=0.1)


def test_cumulative_rewards_that_are_missing_are_told():
    agent = build(AgentSAC, Clock(), lambda_fit_cum_r=0.1, batch_size=8)
    with pytest.raises(ValueError, match=r"agent\.observe\(trajectory\)"):
        update(agent, filled(Clock()))


# --- constructing ---
def test_agents_name_the_alternatives_for_the_wrong_kind_of_action():
    with pytest.raises(ValueError, match="AgentD3QN"):
        build(AgentSAC, Clock(if_discrete=True))
    with pytest.raises(ValueError, match="AgentSAC"):
        build(AgentDQN, Clock(), if_discrete=False)


@pytest.mark.parametrize("net_dims", [8, (8,), [8]])
def test_net_dims_of_any_kind(net_dims):
    agent = AgentSAC(net_dims, 3, np.int64(2))
    assert agent.net_dims == (8,) and agent.act(torch.zeros(1, 3)).shape == (1, 2)


def test_an_empty_agent_is_built_later():
    agent = AgentPPO()
    agent.init((8,), 3, 2, -1)
    assert agent.act(torch.zeros(1, 3)).shape == (1, 2)
    assert agent.act_target is agent.act and agent.cri_target is agent.cri


def test_an_empty_agent_is_built_by_older_keywords():
    agent = AgentPPO()
    with pytest.warns(DeprecationWarning, match="net_dim is now called net_dims") as caught:
        agent.init(net_dim=64, state_dim=3, action_dim=1)
    assert (agent.net_dims, agent.state_dim, caught[0].filename) == ((64,), 3, __file__)


@pytest.mark.parametrize(
    "wrong, dims",
    [
        ("state_dim", (16, "3", 1)),
        ("state_dim", (16, 2.5, 1)),
        ("state_dim", (16, (), 1)),
        ("action_dim", (16, 3, 0)),
        ("action_dim", (16, 3, (1, 2))),
        ("net_dims", ((), 3, 1)),
        ("net_dims", ((16, -1), 3, 1)),
    ],
)
def test_dims_of_a_wrong_kind_are_refused(wrong, dims):
    with pytest.raises(ValueError, match=f"{wrong} is .*a positive whole number"):
        AgentPPO(*dims)


@pytest.mark.parametrize("agent_class, if_discrete", OFF_POLICY + ON_POLICY, ids=name)
def test_networks_are_float32_whatever_the_default_is(agent_class, if_discrete):
    torch.set_default_dtype(torch.float64)
    try:
        how = {"if_discrete": if_discrete, "if_norm_state": True, "if_norm_value": True, "if_norm_reward": True}
        agent = agent_class(16, 3, 2, -1, args=Settings(**how))
        agent.select_action(np.zeros(3))
        norms = [agent.state_norm.mean, agent.value_norm.std, agent.reward_norm.std]
        tensors = [
            *(p for net in (agent.act, agent.cri_target) for name, p in net.named_parameters() if "norm" not in name),
            *norms,
            getattr(agent, "log_alpha", norms[0]),
        ]
        assert {x.dtype for x in tensors} == {torch.float32}
        agent.cri = copy.deepcopy(agent.cri).double()
        assert next(agent.cri.parameters()).dtype == torch.float32
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_hyper_parameters_are_the_annotated_attributes():
    names = AgentPPO.hyper_parameters()
    assert names["ratio_clip"] == 0.25 and names["net_dims"] == (64, 64) and names["gamma"] == 0.99
    assert not {"if_off_policy", "log_names", "saved", "update_net"} & names.keys()
    assert AgentDQN.hyper_parameters()["utd"] == 0.25 and "ratio_clip" not in AgentDQN.hyper_parameters()
    assert agents.AgentDiscretePPO.hyper_parameters()["if_discrete"] is True
    assert "update_freq" in AgentTD3.hyper_parameters()
    for without in (AgentDQN, agents.AgentModSAC, agents.AgentQMix):  # what has no effect is no setting
        assert "update_freq" not in without.hyper_parameters()


def test_what_a_subclass_annotates_again_is_a_setting_of_it():
    class WithActor(AgentDQN):
        update_freq: int = 4

    assert WithActor.hyper_parameters()["update_freq"] == 4
    assert Config(WithActor, "CartPole-v1", update_freq=2).update_freq == 2


def test_every_setting_of_an_agent_reaches_it():
    agent = AgentTD3((8,), 2, 1, -1, Settings(gamma=0.5, policy_noise_clip=0.1, unknown=1))
    assert (agent.gamma, agent.policy_noise_clip) == (0.5, 0.1) and not hasattr(agent, "unknown")


# --- a user's own networks ---
@pytest.mark.parametrize("agent_class", [AgentDDPG, AgentTD3, AgentSAC])
def test_a_users_critic_gets_its_target_and_optimizer(agent_class):
    agent = build(agent_class, Clock(), soft_update_tau=0.5, target_delay=1, batch_size=8)
    critic = Values((1, -1) if agent_class is not AgentDDPG else (-1,))
    if agent_class is AgentTD3:
        critic.forward = lambda state, action, members=None: Values.forward(critic, state, action)
    agent.cri = critic
    assert agent.cri_target is not critic and agent.cri_target.weight.item() == 1
    assert agent.cri_optimizer.param_groups[0]["params"] == [critic.weight]
    update(agent, filled(Clock()))
    assert critic.weight.item() != 1 and agent.cri_target.weight.item() != 1


def test_a_users_actor_learns():
    class Constant(ActorBase):
        def __init__(self):
            super().__init__()
            self.action = nn.Parameter(torch.zeros(1))

        def forward(self, state, action_mask=None):
            return self.action.expand(len(state), 1)

    agent = build(AgentDDPG, Clock(), learning_rate=0.01, batch_size=8)
    agent.act, agent.cri = Constant(), Values()
    update(agent, filled(Clock()), transitions=200)
    assert agent.act.action.item() == pytest.approx(0.5, abs=0.05)  # the top of -(a - 0.5)^2
    assert agent.act_target.action.item() > 0.1


def test_a_users_q_network_is_act_and_cri():
    agent = build(AgentDQN, Clock(if_discrete=True))
    agent.act = net = QNet((4,), 2, 2)
    assert agent.cri is net and agent.act_target is agent.cri_target and agent.act_optimizer is agent.cri_optimizer


@pytest.mark.parametrize("agent_class", [AgentDDPG, AgentSAC])
def test_a_column_from_a_critic_is_an_error(agent_class):
    agent = build(agent_class, Clock(), batch_size=8)
    agent.cri = Values((-1, 1)) if agent_class is AgentDDPG else Values((1, -1, 1))
    with pytest.raises(ValueError, match=r"Values answers in shape .*8, 1\), a batch has shape \(8,\):"):
        update(agent, filled(Clock()))


@pytest.mark.parametrize("num_envs", [1, 3, 8])
def test_a_column_from_an_on_policy_critic_is_an_error(num_envs):
    env = Clock(num_envs)
    agent = build(AgentPPO, env)
    agent.cri = nn.Sequential(nn.Linear(2, 1))
    with pytest.raises(ValueError, match=rf"Sequential.*\(9, {num_envs}, 1\)"):
        agent.update_net(agent.explore(env, agent.new_trajectory(env, 8)))


def test_a_plain_module_is_refused_where_a_normaliser_is_on():
    agent = build(AgentDDPG, Clock(), if_norm_state=True)
    with pytest.raises(TypeError, match="ActorBase"):
        agent.act = nn.Linear(2, 1)


# --- normalisers ---
@pytest.mark.parametrize("agent_class, if_discrete", OFF_POLICY + ON_POLICY, ids=name)
def test_one_normaliser_for_all_networks_of_an_agent(agent_class, if_discrete):
    agent = build(agent_class, Clock(if_discrete=if_discrete), if_norm_state=True, if_norm_value=True)
    nets = {agent.act, agent.cri, agent.act_target, agent.cri_target}
    assert all(net.state_norm is agent.state_norm and net.value_norm is agent.value_norm for net in nets)


@pytest.mark.parametrize(
    "agent_class, if_discrete, tau",
    [
        (AgentSAC, False, 0.1),
        (AgentDDPG, False, 0.0),
        (AgentD3QN, True, 0.0),
        (AgentPPO, False, 0.1),
        (AgentPPO, False, 0.0),
    ],
    ids=name,
)
def test_match_is_learned_with_states_and_rewards_of_any_scale(agent_class, if_discrete, tau):
    """Observations of 1000 times the size, rewards of 100 times."""
    env = Match(if_discrete=if_discrete, scale=1000.0)
    how = {"state_value_tau": tau} if tau else {"if_norm_state": True, "if_norm_value": True}
    own = {"batch_size": 64, "utd": 0.5} if agent_class.if_off_policy else {"batch_size": 128, "repeat_times": 8}
    agent = build(agent_class, env, net_dims=(32,), learning_rate=1e-2, reward_scale=100.0, **how, **own)
    train(agent, env, rounds=4 if agent_class.if_off_policy else 20, horizon=16)
    state = torch.rand(1000, 2) * 1.6 - 0.8
    with torch.no_grad():
        action = agent.greedy(state * 1000)
    if if_discrete:
        assert (action == state.argmax(-1)).float().mean() > 0.9
    else:
        assert (action[:, 0] - state[:, 0]).square().mean() < 0.06


def test_state_statistics_are_of_true_rows_and_move_after_the_update():
    env = Clock(num_envs=1, ends="terminate", length=2)
    agent = build(AgentPPO, env, if_norm_state=True)
    trajectory = agent.explore(env, agent.new_trajectory(env, 6))
    agent.update_net(trajectory)
    assert agent.state_norm.mean.tolist() == [0.0, 0.0, 0.0]
    agent.update_statistics(trajectory)
    assert agent.state_norm.mean.tolist() == [0.5, 0.5, 0.0]  # times 0 and 1; the state at 2 is a reset row's


def test_popart_moves_the_statistics_and_keeps_the_values():
    env = Clock(num_envs=1)
    agent = build(AgentTD3, env, if_norm_value=True, batch_size=8)
    buffer = filled(env)
    update(agent, buffer)
    state, action = torch.randn(20, 2), torch.rand(20, 1)
    before = [net(state, action).detach() for net in (agent.cri, agent.cri_target)]
    agent.update_statistics(agent.explore(env, agent.new_trajectory(env, 4)))
    assert agent.value_norm.std.item() != 1
    for old, net in zip(before, (agent.cri, agent.cri_target), strict=True):
        torch.testing.assert_close(net(state, action), old, rtol=1e-4, atol=1e-4)


def test_reward_normaliser_divides_by_the_spread_of_the_discounted_return():
    """Episodes of 2 steps that pay 1 and 2, gamma 0.5: returns 1, 2.5 (reset row left out): std 0.75."""
    env = Counter(num_envs=1, length=2)
    agent = build(AgentSAC, env, if_norm_reward=True, gamma=0.5)
    for horizon in (4, 2):  # a rollout may end within an episode
        agent.update_statistics(agent.explore(env, agent.new_trajectory(env, horizon)))
    assert agent.reward_norm.std.item() == pytest.approx(0.75)
    assert agent.scaled(torch.tensor([3.0])).item() == pytest.approx(4.0)


def test_reward_scale():
    agent = build(AgentSAC, Clock(), reward_scale=0.1)
    assert agent.scaled(torch.tensor([3.0])).item() == pytest.approx(0.3)


# --- schedules ---
def test_learning_rate_follows_its_schedule():
    agent, buffer = build(AgentSAC, Clock(), learning_rate=LinearSchedule(1e-3, 1e-4), batch_size=8), filled(Clock())
    for progress, rate in ((0.0, 1e-3), (0.5, 5.5e-4), (1.0, 1e-4)):
        agent.progress = progress
        update(agent, buffer)
        rates = [group["lr"] for net in ("act", "cri") for group in getattr(agent, f"{net}_optimizer").param_groups]
        assert rates == pytest.approx([rate] * 3)  # the temperature's too


def test_adam_takes_its_settings():
    agent = build(AgentSAC, Clock(), adam_eps=1e-3, learning_rate=2e-3)
    assert agent.act_optimizer.defaults["eps"] == 1e-3 and agent.cri_optimizer.defaults["lr"] == 2e-3


# --- acting and saving ---
def test_select_action_answers_in_the_environments_units():
    agent = build(AgentDDPG, Clock())
    agent.codec = ActionCodec.from_space(gym.spaces.Box(np.array([10.0]), np.array([30.0]), dtype=np.float64))
    state = np.array([[0.3, -2.0], [1.0, 0.0]])
    greedy = agent.act(torch.tensor(state, dtype=torch.float32)).detach().numpy()
    np.testing.assert_allclose(agent.select_action(state), 20 + 10 * greedy, rtol=1e-6)
    np.testing.assert_allclose(agent.select_action(list(state[0])), 20 + 10 * greedy[0], rtol=1e-6)
    assert agent.select_action(state[0]).dtype == np.float64


def test_select_action_takes_any_array_of_the_right_shape():
    agent, state = AgentDDPG(8, 6, 2, -1), np.arange(6.0)
    expected = agent.select_action(state)
    several = [
        [state, state],
        np.stack([state, state]),
        torch.tensor([[0, 1, 2, 3, 4, 5]] * 2),
        [state.reshape(2, 3)] * 2,
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for same in (list(state), np.broadcast_to(state, (6,)), state.reshape(2, 3), [state[:3], state[3:]]):
            assert (agent.select_action(same) == expected).all()
        for both in several:
            np.testing.assert_allclose(agent.select_action(both), [expected] * 2, rtol=1e-6)


@pytest.mark.parametrize(
    "state", [np.zeros(4), np.zeros(12), np.zeros((2, 5, 6)), np.zeros((6, 2)), [], 0.0], ids=np.shape
)
def test_select_action_refuses_another_shape(state):
    with pytest.raises(ValueError, match=r"expects a state \(6,\) or \(N, 6\) and got shape"):
        AgentDDPG(8, 6, 2, -1).select_action(state)
    with pytest.raises(ValueError, match="pass the state only"):
        AgentDDPG(8, 6, 2, -1).select_action((state, {}))
    with pytest.raises(ValueError, match=r"spaces\.flatten"):
        AgentDDPG(8, 6, 2, -1).select_action({"a": state})


@pytest.mark.parametrize("agent_class, if_discrete", OFF_POLICY + ON_POLICY, ids=name)
def test_a_saved_agent_is_the_loaded_one(agent_class, if_discrete, tmp_path):
    """Networks, optimizers, temperature, normalisers and counters; the next update is the same, and is one."""
    env = Clock(if_discrete=if_discrete)
    how = {"if_norm_state": True, "if_norm_reward": True, "batch_size": 8, "repeat_times": 2, "update_freq": 1}
    agent = build(agent_class, env, **how)
    train(agent, env, rounds=2, horizon=16)
    saved = copy.deepcopy(agent.state_dict())
    torch.manual_seed(5)
    again = build(agent_class, env, **how)
    again.load_state_dict(saved)

    state = torch.randn(9, 2)
    assert torch.equal(agent.greedy(state), again.greedy(state))
    assert torch.equal(agent.state_norm.std, again.state_norm.std) and agent.reward_norm.std == again.reward_norm.std
    data = filled(env) if agent.if_off_policy else agent.explore(env, agent.new_trajectory(env, 8))
    before, results = parameters(again.act), []
    for one in (agent, again):
        torch.manual_seed(1)
        logs = update(one, data) if one.if_off_policy else one.update_net(data)
        results.append((logs, parameters(one.act), parameters(one.cri_target), one.update_count))
    assert results[0][0] == results[1][0] and results[0][3] == results[1][3]
    assert equal(results[0][1], results[1][1]) and equal(results[0][2], results[1][2])
    assert not equal(before, parameters(again.act))


def test_files_of_save_or_load_agent(tmp_path):
    agent, again = build(AgentTD3, Clock(), batch_size=8), build(AgentTD3, Clock(), batch_size=8)
    update(agent, filled(Clock()))
    agent.save_or_load_agent(str(tmp_path), if_save=True)
    files = {"act", "actor", "cri", "act_target", "cri_target", "act_optimizer", "cri_optimizer"}
    assert {file.stem for file in tmp_path.iterdir()} == files
    again.save_or_load_agent(str(tmp_path), if_save=False)
    for net in ("act", "cri", "act_target", "cri_target"):
        assert equal(parameters(getattr(agent, net)), parameters(getattr(again, net)))
    assert again.cri_optimizer.state_dict()["state"][0]["step"] == 8
    module = torch.load(tmp_path / "act.pth")
    assert isinstance(module, Actor) and torch.equal(module(torch.ones(1, 2)), agent.act(torch.ones(1, 2)))
    with pytest.raises(FileNotFoundError):
        again.save_or_load_agent(str(tmp_path / "nothing"), if_save=False)


def test_a_bare_load_of_an_actor_for_images(tmp_path):
    agent = AgentDQN((8,), (1, 10, 10), 3, gpu_id=-1)
    agent.save_or_load_agent(str(tmp_path), if_save=True)
    image = torch.randint(256, (2, 1, 10, 10), dtype=torch.uint8)
    assert torch.equal(torch.load(tmp_path / "act.pth").q_values(image), agent.act.q_values(image))


# --- numbers that go wrong ---
def test_an_infinite_loss_stops_with_finite_parameters():
    agent, buffer = build(AgentSAC, Clock(), batch_size=8), filled(Clock())
    buffer.columns["rewards"].fill_(3e38)
    with pytest.raises(FloatingPointError, match="AgentSAC: objC is inf"):
        update(agent, buffer)
    assert all(bool(torch.isfinite(p).all()) for net in (agent.act, agent.cri) for p in net.parameters())


class OneCritic(nn.Module):
    """A user's own: a single Q(s, a), (B,)."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(3, 1)

    def forward(self, state, action):
        return self.net(torch.cat([state, action], -1)).squeeze(-1)


@pytest.mark.parametrize("agent_class", [AgentSAC, AgentTD3])
def test_a_users_single_critic_is_no_minimum_over_the_batch(agent_class):
    """Rewards of 0 and 10: the value of each row is its own."""
    agent = build(agent_class, Clock(), batch_size=2)
    agent.cri = OneCritic()
    batch = filled(Clock()).sample(32)
    assert agent.next_value(batch).shape == (32,)
    agent.cri_target.net.weight.data.copy_(torch.tensor([[5.0, -5.0, 0.0]]))
    assert agent.next_value(batch).std() > 1
    agent.sums = torch.zeros(len(agent.log_names))
    agent.update_critic(batch)
    agent.update_actor(batch)


def test_what_a_users_network_lacks_is_told_at_once():
    agent = build(AgentSAC, Clock())
    with pytest.raises(TypeError, match=r"AgentSAC needs a network act with sample; Linear has none"):
        agent.act = nn.Linear(2, 1)
    assert type(agent.act).__name__ == "ActorSAC"
