"""What all five agents of teams have in common: values, masks, the dead, files, errors."""

from __future__ import annotations

import math

import pytest
import torch

from elegantrl import Config, agents, load_agent, train_agent
from elegantrl.agents.AgentBase import AgentOffPolicy
from elegantrl.envs.teams import Battle, Rendezvous
from elegantrl.train.worker import EnvironmentFault, Worker
from elegantrl.trajectory import Record
from unit_tests.tasks import Clock, Settings, config
from unit_tests.teams import Recall, TeamClock, TeamMasked, batch, build, ring, train

GAMMA = 0.9
VALUES, JOINT, MAPPO = (agents.AgentVDN, agents.AgentQMix), (agents.AgentMADDPG, agents.AgentMATD3), agents.AgentMAPPO
TEAMS = (*VALUES, *JOINT, MAPPO)
BOTH = [*((c, True) for c in TEAMS), *((c, False) for c in (*JOINT, MAPPO))]


def name(value) -> str:
    return getattr(value, "__name__", {True: "discrete", False: "continuous"}.get(value, str(value)))


def learned_values(agent_class, env, mean=True, **settings):
    """(R,) learned and true values of the team, or the mean of its agents', or (R, M) each agent's."""
    common = {"gamma": GAMMA, "learning_rate": 1e-2, "batch_size": 64, "lambda_entropy": 0.0, **settings}
    if issubclass(agent_class, AgentOffPolicy):
        agent = build(agent_class, env, **common, soft_update_tau=0.2, target_delay=1, utd=1.0)
        train(agent, env, rounds=3 if mean else 8, horizon=40)
    else:
        agent = build(agent_class, env, **common, repeat_times=4, clip_grad_norm=10.0, if_norm_value=False)
        train(agent, env, rounds=25 if mean else 60, horizon=24)
    states, true = env.values(GAMMA)
    actions = torch.zeros(len(states), 2) if env.if_discrete else torch.zeros(len(states), 2, 1)
    rows = batch(states, actions.long() if env.if_discrete else actions, torch.ones(len(states)))
    with torch.no_grad():
        if not agent.if_off_policy:
            values = agent.value(rows)
        else:
            values = agent.q_value(rows)
            values = values if values.dim() == 1 else values.mean(0)
    return values.mean(-1) if mean and values.dim() == 2 else values, true


@pytest.mark.parametrize("ends", ["truncate", "terminate"])
@pytest.mark.parametrize("agent_class, if_discrete", BOTH, ids=name)
def test_values_are_those_of_the_closed_form(agent_class, if_discrete, ends):
    """Case 9. Reward 1, 5 steps: 1 / (1 - gamma) = 10 through a time limit, else (1 - gamma^left) / (1 - gamma)."""
    env = TeamClock(if_discrete=if_discrete, ends=ends, own=agent_class in JOINT)
    values, true = learned_values(agent_class, env)
    torch.testing.assert_close(values, true, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("final", ["never", "always"])
@pytest.mark.parametrize("agent_class", [agents.AgentQMix, agents.AgentMATD3, MAPPO], ids=name)
def test_values_with_same_step_reset(agent_class, final):
    values, true = learned_values(agent_class, TeamClock(if_discrete=True, autoreset="same_step", final=final))
    torch.testing.assert_close(values, true, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("agent_class", [*VALUES, MAPPO], ids=name)
def test_values_with_a_memory(agent_class):
    env = TeamClock(if_discrete=True)
    settings = {"rnn_dim": 8, "seq_len": 8} | ({"burn_in": 4} if agent_class is not MAPPO else {})
    agent = build(agent_class, env, gamma=GAMMA, learning_rate=1e-2, batch_size=64, soft_update_tau=0.2, **settings)
    train(agent, env, rounds=12, horizon=24)
    assert agent.recurrence.hidden.shape == (4, 2, 8)


@pytest.mark.parametrize("agent_class", TEAMS, ids=name)
def test_forbidden_actions_are_never_chosen(agent_class):
    """In 10^5 samples; the environment asserts it in training too."""
    env = TeamMasked()
    agent = build(agent_class, env, batch_size=16)
    train(agent, env, rounds=3, horizon=16)
    state, mask = torch.ones(50_000, 2, 1), env.allowed.expand(50_000, -1, -1)
    for action in (
        agent.explore_action(state, mask),
        agent.random_action(Record(state, mask)),
        agent.greedy(state, mask),
    ):
        action = action[0] if isinstance(action, tuple) else action
        assert action.shape == (50_000, 2)
        assert bool(mask.gather(-1, action[..., None]).all())
    assert agent.select_action([[1.0], [1.0]], env.allowed).tolist() == agent.greedy(state, mask)[0].tolist()


def test_random_actions_of_a_team_are_uniform():
    env = TeamMasked()
    agent = build(agents.AgentQMix, env, explore_rate=1.0)
    action = agent.explore_action(torch.ones(30_000, 2, 1), env.allowed.expand(30_000, -1, -1))
    assert action[:, 0].bincount(minlength=3).tolist() == [30_000, 0, 0]
    assert action[:, 1].bincount(minlength=3).tolist() == pytest.approx([15_000, 15_000, 0], abs=500)


@pytest.mark.parametrize("agent_class", [agents.AgentQMix, MAPPO], ids=name)
def test_a_mask_that_allows_nothing_is_a_clear_error(agent_class):
    class Stuck(TeamMasked):
        def info(self):
            mask = super().info()["action_mask"]
            return {"action_mask": mask & ~((self.t == 1) & (torch.arange(4) == 2))[:, None, None]}

        def payoff(self, action):
            return action.sum(-1)

    env = Stuck()
    worker = Worker(env, build(agent_class, env), Settings(horizon_len=8))
    worker.restart(seed=0)
    with pytest.raises(
        EnvironmentFault, match="action_mask of agent 0 that allows no action at step 1 of environment 2"
    ):
        worker.explore()
    with pytest.raises(ValueError, match="allows no action"):
        worker.agent.select_action(torch.ones(2, 1), torch.zeros(2, 3))


ODD = {
    "reward": lambda env, state, reward, info: (state, reward[:, None], info),
    "state": lambda env, state, reward, info: (state.double(), reward, info),
    "action_mask": lambda env, state, reward, info: (state, reward, {"action_mask": torch.ones(4, 2, 1).bool()}),
    "alive": lambda env, state, reward, info: (state, reward, {"alive": torch.ones(4, 2)}),
    "win": lambda env, state, reward, info: (state, reward, {"win": torch.ones(4, 2).bool()}),
    "global_state": lambda env, state, reward, info: (state, reward, {"global_state": torch.ones(4, 7)}),
    "tell action_mask": lambda env, state, reward, info: (
        *(state, reward),
        {"action_mask": torch.ones(4, 2, 2).bool()} if env.calls % 2 else {},
    ),
}


@pytest.mark.parametrize("what", ODD)
def test_what_a_teams_environment_must_not_return_is_named(what):
    class Odd(TeamClock):
        def step(self, action):
            state, reward, terminal, truncate, info = super().step(action)
            state, reward, info = ODD[what](self, state, reward, info)
            return state, reward, terminal, truncate, info

    with pytest.raises(EnvironmentFault, match=f"Odd (returned|does not) {what}"):
        train(build(MAPPO, Odd(if_discrete=True)), Odd(if_discrete=True), rounds=1, horizon=4)


@pytest.mark.parametrize("agent_class", TEAMS, ids=name)
def test_rows_of_the_dead_have_no_weight(agent_class):
    """Whatever a dead agent sees and did: losses stay, bit for bit."""
    env = Battle(2)
    agent = build(agent_class, env, lambda_logit=0.1)
    env.reset(seed=0)
    trajectory = agent.explore(env, agent.new_trajectory(env, 8))
    trajectory.alive[:, :, 1] = False
    losses = []
    for junk in (0.0, 5.0):
        trajectory.states[:, :, 1] = junk
        trajectory.actions[:, :, 1] = int(junk) % 2
        if trajectory.logprobs is not None:
            trajectory.logprobs[:, :, 1] = -junk - 1
        torch.manual_seed(0)
        if agent.if_off_policy:
            buffer = ring(env, 32)
            buffer.update(trajectory)
            rows = buffer.sample(16)
            if agent_class in JOINT:  # a joint critic sees the dead too: only their own rows are left out
                rows.global_state = rows.next.global_state = torch.zeros_like(rows.global_state)
                rows.next.states = torch.zeros_like(rows.next.states)
                weight = rows.weight
                losses.append(weight[:, 1].sum() + (weight[:, 0] == 1).float().mean())
            else:
                losses.append(agent.critic_objective(rows)[0])
        else:
            losses.append(agent.objective(agent.rows(trajectory))[0])
    assert torch.equal(losses[0], losses[1])


@pytest.mark.parametrize("option", ["gamma", "if_norm_reward", "if_use_per"])
@pytest.mark.parametrize("agent_class", TEAMS, ids=name)
def test_the_rewards_of_the_dead_change_nothing(agent_class, option):
    """Agent 1 is dead from the second step on; whatever it is still paid, the parameters are the same."""

    class Haunted(TeamClock):
        paid = 0.0

        def info(self):
            return {"alive": torch.stack([self.t < 9, self.t < 2], -1)}

        def step(self, action):
            dead = self.t >= 2
            state, reward, *rest = super().step(action)
            return state, torch.stack([reward[:, 0], torch.where(dead, self.paid, reward[:, 1])], -1), *rest

    found, with_tree = [], option == "if_use_per" and agent_class is not MAPPO
    for paid in (0.0, 50.0):
        torch.manual_seed(0)
        env = Haunted(own=True, if_discrete=True, ends="terminate")
        env.paid = paid
        agent = build(agent_class, env, batch_size=16, **{option: 1})
        train(agent, env, rounds=3, horizon=16, if_use_per=with_tree)
        found.append(torch.cat([x.flatten() for x in agent.tensors()]))
    assert torch.equal(*found)


@pytest.mark.parametrize("if_share_params", [True, False])
def test_the_dead_are_no_statistics(if_share_params):
    """What the dead see does not move the normaliser of states."""
    env = Battle(2)
    for agent_class in (agents.AgentQMix, MAPPO):
        agent = build(agent_class, env, if_norm_state=True, if_share_params=if_share_params)
        env.reset(seed=0)
        trajectory = agent.explore(env, agent.new_trajectory(env, 8))
        trajectory.alive[:, :, 1] = False
        trajectory.states[:, :, 1] = 1e6
        agent.update_statistics(trajectory)
        assert agent.state_norm.mean.abs().max() < 10


@pytest.mark.parametrize("agent_class", [*JOINT, MAPPO], ids=name)
def test_values_of_a_team_go_on_after_a_death(agent_class):
    """Agent 1 is dead from the second step on, and the team is paid until the eighth: both have the same value."""

    class Deadly(TeamClock):
        def info(self):
            return {"alive": torch.stack([self.t < 9, self.t < 2], -1)}

    values, true = learned_values(agent_class, Deadly(if_discrete=True, ends="terminate", length=8), mean=False)
    torch.testing.assert_close(values[:2], true[:2, None].expand(-1, 2), rtol=0.05, atol=0.05)


@pytest.mark.parametrize("own", [False, True])
def test_death_ends_only_what_is_ones_own(own):
    """Agent 1 is dead after the second step: its own rewards end there; those of the team go on."""

    class Deadly(TeamClock):
        def info(self):
            return {"alive": torch.stack([self.t < 9, self.t < 2], -1)}

    env = Deadly(own=own, if_discrete=True, length=8)
    agent = build(MAPPO, env)
    trajectory = agent.explore(env, agent.new_trajectory(env, 5))
    assert trajectory.undones[:, 0, 0].tolist() == [True] * 5
    assert trajectory.undones[:, 0, 1].tolist() == ([True, False, False, False, False] if own else [True] * 5)
    weight = agent.rows(trajectory).weight.view(5, 4, 2)
    assert weight[:, 0].tolist() == [[1.0, 1.0], [1.0, 1.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]


@pytest.mark.parametrize("if_share_params", [True, False])
@pytest.mark.parametrize("agent_class", TEAMS, ids=name)
def test_train_save_load_resume(agent_class, if_share_params):
    """A short run through the one door, its files, the same agent from them, and the run that goes on."""
    env_args = {"num_envs": 4, "if_discrete": True, "num_agents": 3}
    memory = {"rnn_dim": 8, "seq_len": 4} if "rnn_dim" in agent_class.hyper_parameters() else {}
    how = {"if_share_params": if_share_params, "break_step": 200, **memory}
    run = train_agent(config(agent_class, Rendezvous, env_args, **how), True)
    agent = load_agent("run")
    act = torch.load("run/act.pth")
    states = torch.randn(5, 7, 3, 2)  # five moments of seven environments
    chosen = torch.stack([run.agent.greedy(state) for state in states])
    assert torch.equal(chosen, torch.stack([act(state) for state in states]))
    assert torch.equal(chosen, torch.stack([torch.as_tensor(agent.select_action(state)) for state in states]))
    again = train_agent(
        config(agent_class, Rendezvous, env_args, **how | {"break_step": 300, "continue_train": True}), True
    )
    assert again.total_step >= 300 > run.total_step


@pytest.mark.parametrize("agent_class", [agents.AgentQMix, agents.AgentMATD3, MAPPO], ids=name)
def test_a_resumed_run_is_the_run_that_went_on(agent_class):
    from unit_tests.train.test_resume import differences

    env_args = {"num_envs": 4, "if_discrete": True}
    memory = {"rnn_dim": 8, "seq_len": 4} if "rnn_dim" in agent_class.hyper_parameters() else {}
    rate = {"explore_rate": 0.3} if agent_class is agents.AgentQMix else {}
    how = {"checkpoint_per_step": 120, "eval_per_step": 50, "if_save_buffer": True, **memory, **rate}
    train_agent(config(agent_class, Rendezvous, env_args, cwd="whole", break_step=240, **how), True)
    train_agent(config(agent_class, Rendezvous, env_args, cwd="parts", break_step=120, **how), True)
    train_agent(
        config(agent_class, Rendezvous, env_args, cwd="parts", break_step=240, continue_train=True, **how), True
    )
    assert differences("whole", "parts") == []


def test_teams_and_single_agents_do_not_mix():
    with pytest.raises(ValueError, match=r"AgentPPO is for one agent, the environment has 3 agents.*AgentMAPPO"):
        train_agent(config(agents.AgentPPO, Rendezvous, {"num_envs": 4}), True)
    with pytest.raises(ValueError, match="AgentMAPPO is for teams, the environment has no agent axis"):
        train_agent(config(MAPPO, Clock, {"num_envs": 4}), True)
    with pytest.raises(ValueError, match="AgentQMix is for discrete actions"):
        train_agent(config(agents.AgentQMix, Rendezvous, {"num_envs": 4}), True)


class Broken(Battle):
    """Its global state is not a number from the third step on."""

    def tell(self, world):
        told = super().tell(world)
        return told | {"global_state": told["global_state"].where(self.steps[:, None] < 2, math.nan)}


def test_a_global_state_that_is_not_finite_is_the_environments_fault():
    with pytest.raises(EnvironmentFault, match="Broken returned a value that is not finite in global_state at step"):
        train_agent(config(MAPPO, Broken, {"num_envs": 4}), True)


def test_evaluation_tells_of_each_agent_and_of_wins():
    run = train_agent(config(MAPPO, Rendezvous, {"num_envs": 4, "if_own_reward": True}), True)
    row = run.evaluator.records.rows[-1]
    own = [row[f"agentR_{m}"] for m in range(3)]
    assert row["teamR"] == pytest.approx(sum(own)) and row["avgR"] == pytest.approx(sum(own) / 3)
    run = train_agent(config(MAPPO, Battle, {"num_envs": 4}), True)
    row = run.evaluator.records.rows[-1]
    assert 0 <= row["winrate"] <= 1 and "teamR" not in row


OFF = {"seq_len": 22, "learning_rate": 3e-3, "batch_size": 704, "utd": 0.02, "soft_update_tau": 0.02}
ON = {"seq_len": 11, "learning_rate": 3e-3, "batch_size": 352, "repeat_times": 10}
SOLVES = {
    "QMIX": (agents.AgentQMix, OFF),
    "VDN": (agents.AgentVDN, OFF),
    "MAPPO": (MAPPO, ON),
    "PPO": (agents.AgentPPO, ON),
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", SOLVES)
def test_recall_needs_a_memory(case, seed):
    """The first token after ten steps: right nearly always with a memory, half the time without."""
    agent_class, settings = SOLVES[case]
    env_args = {"num_envs": 64, "num_agents": 0 if case == "PPO" else 2}
    scores = {}
    for rnn_dim in (16, 0):
        common = {"net_dims": (16,), "horizon_len": 44, "gamma": 0.99, "eval_per_step": 5000, "eval_times": 256}
        ends = {
            "break_step": 200_000 if rnn_dim else 30_000,
            "break_score": 0.97,
            "random_seed": seed,
            "cwd": f"run{rnn_dim}",
        }
        args = Config(agent_class, Recall, env_args, rnn_dim=rnn_dim, **common, **settings, **ends)
        scores[rnn_dim] = train_agent(args, if_single_process=True).evaluator.records.best_return
    assert scores[16] > 0.95 and scores[0] < 0.65, scores
