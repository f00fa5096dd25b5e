"""Adapters for teams: PettingZoo with different sizes, masks and deaths; SMAC's interface on a stand-in."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

from elegantrl import build_env, train_agent
from elegantrl.agents import AgentMAPPO, AgentMATD3, AgentQMix
from unit_tests.tasks import config


class Parallel:
    """PettingZoo's parallel interface: a has 2 numbers and 3 actions, b has (1, 3) and Discrete(2, start=5).

    b leaves at step 2, the episode is truncated at step 4. The reward of a is its action, of b 10.
    """

    def __init__(self, if_dict=False, ends="truncate"):
        self.metadata, self.possible_agents = {"name": "stand_in"}, ["a", "b"]
        self.if_dict, self.ends, self.max_cycles = if_dict, ends, 4
        self.spaces = {"a": gym.spaces.Box(-1, 1, (2,)), "b": gym.spaces.Box(-1, 1, (1, 3))}
        self.seeds = []

    def observation_space(self, name):
        box = self.spaces[name]
        return gym.spaces.Dict({"observation": box, "action_mask": gym.spaces.Box(0, 1, (3,))}) if self.if_dict else box

    def action_space(self, name):
        return {"a": gym.spaces.Discrete(3), "b": gym.spaces.Discrete(2, start=5)}[name]

    def observe(self):
        states = {name: np.full(self.spaces[name].shape, self.t + 1.0) for name in self.agents}
        if self.if_dict:
            masks = {"a": [1, 0, 1], "b": [0, 1]}
            return {name: {"observation": x, "action_mask": masks[name]} for name, x in states.items()}
        return states

    def reset(self, seed=None, options=None):
        self.seeds.append(seed)
        self.t, self.agents = 0, ["a", "b"]
        return self.observe(), {name: {} for name in self.agents}

    def step(self, actions):
        assert actions.keys() == set(self.agents), actions
        assert all(self.action_space(name).contains(action) for name, action in actions.items())
        assert not self.if_dict or (actions["a"] != 1 and actions.get("b", 6) == 6)
        self.t += 1
        acted, over = list(self.agents), self.t == 4
        rewards = {name: float(actions["a"]) if name == "a" else 10.0 for name in acted}
        terminal = {"a": over and self.ends == "terminate", "b": self.t == 2}
        truncate = {"a": over and self.ends == "truncate", "b": False}
        states = self.observe()
        self.agents = [] if over else [name for name in acted if not terminal[name]]
        pick = lambda table: {name: table[name] for name in acted}  # noqa: E731
        return states, rewards, pick(terminal), pick(truncate), {name: {} for name in acted}

    def close(self):
        pass


@pytest.mark.parametrize("ends", ["truncate", "terminate"])
def test_different_sizes_are_padded_and_who_left_is_dead(ends):
    env = build_env(Parallel, {"num_envs": 2, "ends": ends})
    about = (env.env_name, env.num_agents, env.state_dim, env.action_dim, env.if_discrete, env.max_step, env.autoreset)
    assert about == ("stand_in", 2, 3, 3, True, 4, "next_step")
    state, info = env.reset(7)
    assert state[0].tolist() == [[1, 1, 0], [1, 1, 1]] and info["alive"].all()
    assert info["action_mask"][0].tolist() == [[True, True, True], [True, True, False]]
    seeds = [team.env.seeds for team in env.teams]
    assert seeds[0] != seeds[1]
    action = torch.tensor([[2, 1], [0, 0]])
    found = [env.step(action) for _ in range(6)]
    alive = [step[4]["alive"][0].tolist() for step in found]
    last = [ends == "truncate", False]
    assert alive == [[True, True], [True, False], [True, False], last, [True, True], [True, True]]
    assert [step[1][0].tolist() for step in found] == [[2, 10], [2, 10], [2, 0], [2, 0], [0, 0], [2, 10]]
    ended = [False, False, False, True, False, False]
    assert [step[3][0].item() for step in found] == ([False] * 6 if ends == "terminate" else ended)
    assert [step[2][0].item() for step in found] == ([False] * 6 if ends == "truncate" else ended)
    dead = found[2]
    assert dead[0][0, 1].tolist() == [0, 0, 0] and dead[4]["action_mask"][0, 1].tolist() == [True, False, False]
    if ends == "truncate":  # the true last state, then the new episode's first
        assert found[3][0][0].tolist() == [[5, 5, 0], [0, 0, 0]]
    assert found[4][0][0].tolist() == [[1, 1, 0], [1, 1, 1]]


@pytest.mark.parametrize("agent_class", [AgentQMix, AgentMATD3, AgentMAPPO])
def test_agents_train_on_it_with_its_masks(agent_class):
    run = train_agent(config(agent_class, Parallel, {"num_envs": 2, "if_dict": True}), True)
    row = run.evaluator.records.rows[-1]
    assert row["agentR_1"] == 20.0 and row["avgR"] == pytest.approx(row["teamR"] / 2) and row["avgS"] == 4


def test_what_it_does_not_take():
    class Mixed(Parallel):
        def action_space(self, name):
            return gym.spaces.Box(-1, 1, (2,)) if name == "b" else gym.spaces.Discrete(2)

    with pytest.raises(ValueError, match="mixes discrete and continuous"):
        build_env(Mixed)

    class Turns(Parallel):
        agent_selection = "a"

    with pytest.raises(TypeError, match="give its parallel_env"):
        build_env(Turns)


def test_who_is_not_there_at_the_start_is_dead_and_masks_have_the_agents_size():
    class Alone(Parallel):
        def reset(self, seed=None, options=None):
            super().reset(seed)
            self.agents = ["a"]
            return self.observe(), {"a": {"action_mask": [True]} if seed == 1 else {}}

    team = build_env(Alone, {"num_envs": 2}).teams[0]
    _, info = team.reset(0)
    assert info["alive"].tolist() == [True, False] and info["action_mask"][1].tolist() == [True, False, False]
    with pytest.raises(ValueError, match=r"the action_mask of a has shape \(1,\), not \(3,\)"):
        team.reset(1)


def test_continuous_actions_reach_their_own_bounds():
    class Boxes(Parallel):
        def action_space(self, name):
            return gym.spaces.Box(0, 1, (2,)) if name == "a" else gym.spaces.Box(-3, 5, (1,))

        def step(self, actions):
            self.got = actions
            return self.observe(), {}, {}, {}, {}

    env = build_env(Boxes)
    env.reset(0)
    env.step(torch.tensor([[[-1.0, 0.0], [1.0, 0.3]]]))
    got = env.teams[0].env.got
    assert got["a"].tolist() == [0.0, 0.5] and got["b"].tolist() == [5.0] and env.action_dim == 2


@pytest.mark.parametrize("task", ["simple_spread_v3", "simple_speaker_listener_v4", "simple_tag_v3"])
def test_mpe2_itself(task):
    maker = pytest.importorskip(f"mpe2.{task}").parallel_env
    run = train_agent(config(AgentMAPPO, maker, {"num_envs": 2}, break_step=100, eval_times=1), True)
    assert run.evaluator.records.rows[-1]["avgS"] == 25 and run.agent.global_dim > 0


class Skirmish:
    """SMAC's interface: two agents, three actions, of which 0 is for the dead; agent 1 dies in the second step.

    ends: "won" at step 3, or the time limit at step 4, as SMAC says it with its `continuing_episode` and without; or
    "lost" at step 4, when agent 0 dies too.
    """

    map_name = "stand_in"

    def __init__(self, ends="won"):
        self.ends = ends

    def get_env_info(self):
        return {"n_agents": 2, "n_actions": 3, "obs_shape": 4, "state_shape": 5, "episode_limit": 4}

    def reset(self):
        self.t = 0
        return self.get_obs(), self.get_state()

    def get_obs(self):
        return [np.full(4, self.t), np.full(4, -self.t)]

    def get_state(self):
        return np.full(5, 10.0 * self.t)

    def get_avail_actions(self):
        dead = [1, 0, 0]
        first = dead if self.ends == "lost" and self.t == 4 else [0, 1, 1]
        return [first, dead if self.t >= 2 else [0, 1, 0]]

    def seed(self):
        """As SMAC's: it tells the seed and takes none."""
        return 0

    def step(self, actions):
        assert all(avail[action] for avail, action in zip(self.get_avail_actions(), actions, strict=True))
        self.t += 1
        if self.ends == "won":
            return 1.0, self.t == 3, {"battle_won": True} if self.t == 3 else {}
        return 1.0, self.t == 4, {"episode_limit": True} if self.t == 4 and self.ends == "limit" else {}

    def close(self):
        pass


@pytest.mark.parametrize("ends", ["won", "limit", "silent limit", "lost"])
def test_smacs_interface(ends):
    env = build_env(Skirmish, {"num_envs": 2, "ends": ends})
    assert (env.env_name, env.num_agents, env.state_dim, env.global_dim, env.action_dim) == ("stand_in", 2, 4, 5, 3)
    _, info = env.reset(0)
    assert info["alive"].all() and info["global_state"].shape == (2, 5)
    rows = []
    for t in range(4):
        chosen = [2, 1] if t < 2 else [1, 0]
        rows.append(env.step(torch.tensor([chosen, chosen])))
        if rows[-1][2].any() or rows[-1][3].any():
            break
    assert [row[4]["alive"][0].tolist() for row in rows[:2]] == [[True, True], [True, False]]
    _, reward, terminal, truncate, info = rows[-1]
    is_limit = "limit" in ends
    found = len(rows), terminal[0].item(), truncate[0].item()
    assert found == (3 if ends == "won" else 4, not is_limit, is_limit)
    assert reward.shape == (2,) and info["win"].tolist() == [ends == "won"] * 2


@pytest.mark.parametrize("agent_class", [AgentQMix, AgentMATD3, AgentMAPPO])
def test_agents_train_on_smacs_interface_and_wins_are_counted(agent_class):
    run = train_agent(config(agent_class, Skirmish, {"num_envs": 2}), True)
    row = run.evaluator.records.rows[-1]
    assert row["winrate"] == 1.0 and row["avgR"] == 3.0 and "teamR" not in row


@pytest.mark.parametrize("continuous", [True, False])
def test_vmas(continuous):
    """Own virtual environment: VMAS needs the old gym. Sizes are padded, time limits are no ends, episodes restart."""
    vmas = pytest.importorskip("vmas")
    how = {"scenario": "simple_speaker_listener", "device": "cpu", "max_steps": 6, "terminated_truncated": True}
    env = build_env(vmas.make_env, {"num_envs": 3, "continuous_actions": continuous, **how})
    assert (env.num_agents, env.if_discrete, env.max_step, env.autoreset) == (2, not continuous, 6, "same_step")
    state, info = env.reset(1)
    again, _ = env.reset(1)
    assert torch.equal(state, again) and not torch.equal(state, env.reset(2)[0])
    assert continuous or not info["action_mask"].all()
    for t in range(1, 15):
        shape = (3, 2, env.action_dim)
        action = torch.rand(shape) * 2 - 1 if continuous else (torch.rand(shape) * info["action_mask"]).argmax(-1)
        state, reward, terminal, truncate, info = env.step(action)
        assert state.shape == info["final_obs"].shape == (3, 2, env.state_dim) and reward.shape == (3, 2)
        assert not terminal.any() and truncate.all().item() == (t % 6 == 0)
        assert torch.equal(state, info["final_obs"]) == (t % 6 != 0)
    agent_class = AgentMATD3 if continuous else AgentQMix
    args = {"num_envs": 3, "continuous_actions": continuous, **how}
    run = train_agent(config(agent_class, vmas.make_env, args, break_step=100), True)
    assert run.evaluator.records.rows[-1]["avgS"] == 6
