"""SMAX: its interface on a stand-in, with NumPy in JAX's place; the real one where jaxmarl is installed."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from elegantrl import build_env, check_vec_env, train_agent
from elegantrl.agents import AgentMAPPO, AgentQMix
from unit_tests.tasks import config

NOTHING, HIT, RAM = range(3)


def tree_map(function: Any, *trees: Any) -> Any:
    if isinstance(trees[0], dict):
        return {name: tree_map(function, *(tree[name] for tree in trees)) for name in trees[0]}
    if isinstance(trees[0], tuple):
        parts = [tree_map(function, *each) for each in zip(*trees, strict=True)]
        return type(trees[0])(*parts) if hasattr(trees[0], "_fields") else tuple(parts)
    return np.asarray(function(*trees))


def vmap(function: Any) -> Any:
    def of_all(*trees: Any) -> Any:
        rows = [function(*(tree_map(lambda x, i=i: x[i], tree) for tree in trees)) for i in range(len(trees[0]))]
        return tree_map(lambda *row: np.stack(row), *rows)

    return of_all


@pytest.fixture
def jax(monkeypatch: pytest.MonkeyPatch) -> None:
    random = SimpleNamespace(
        PRNGKey=lambda seed: np.array([seed]),
        split=lambda key, n=2: np.random.SeedSequence(key.tolist()).generate_state(n)[:, None],
    )
    modules = {"tree": SimpleNamespace(map=tree_map), "dlpack": SimpleNamespace(from_dlpack=np.from_dlpack)}
    devices = {"devices": lambda: [None], "device_put": lambda x, device: x}
    parts = {"numpy": np, "random": random, "jit": lambda f: f, "vmap": vmap, **modules, **devices}
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(**parts))


class Units(NamedTuple):
    unit_alive: np.ndarray  # two agents, then the enemy
    health: np.ndarray  # of the enemy
    place: np.ndarray  # drawn at the start of an episode
    step: np.ndarray


class World(NamedTuple):
    state: Units


class Duel:
    """`EnemySMAX` in small: the enemy falls when it was hit `health` times; who rams it hits it and dies."""

    agents, enemy_agents, num_allies, num_enemies = ["ally_0", "ally_1"], ["enemy_0"], 2, 1
    obs_size, state_size, num_ally_actions, max_steps = 3, 2, 3, 4

    def __init__(self, health: int = 5, action_type: str = "discrete"):
        self.health, self.action_type = health, action_type

    def reset(self, key: Any) -> tuple[Any, World]:
        place = np.float32(np.random.default_rng(key).random())
        world = World(Units(np.ones(3, bool), np.int32(self.health), place, np.int32(0)))
        return self.seen(world), world

    def seen(self, world: World) -> dict[str, Any]:
        alive, health, place, step = world.state
        seen = {f"ally_{m}": alive[m] * np.array([place, step, health], np.float32) for m in range(2)}
        return {**seen, "world_state": np.array([place, step], np.float32)}

    def get_avail_actions(self, world: World) -> dict[str, Any]:
        return {f"ally_{m}": np.array([1, *[world.state.unit_alive[m]] * 2], np.uint8) for m in range(2)}

    def step_env(self, key: Any, world: World, actions: dict[str, Any]) -> tuple[Any, ...]:
        alive, health, place, step = world.state
        chosen = np.array([actions[name] for name in self.agents])
        hits = int(((chosen != NOTHING) & alive[:2]).sum())
        left = np.int32(max(health - hits, 0))
        after = World(Units(np.append(alive[:2] & (chosen != RAM), left > 0), left, place, np.int32(step + 1)))
        reward = np.float32(hits)
        return self.seen(after), after, dict.fromkeys(self.agents, reward), {"__all__": None}, {}


def played(env: Any, *actions: tuple[int, int]) -> Any:
    env.reset(seed=0)
    return [env.step(torch.tensor([action] * env.num_envs)) for action in actions]


def test_it_keeps_the_contract(jax: None):
    env = build_env(Duel, {"num_envs": 3})
    about = (env.env_name, env.num_envs, env.num_agents, env.state_dim, env.action_dim, env.global_dim, env.max_step)
    assert about == ("smax-2-1", 3, 2, 3, 3, 2, 4) and env.autoreset == "same_step"
    check_vec_env(env)
    with pytest.raises(ValueError, match="action_type='continuous'"):
        build_env(Duel, {"action_type": "continuous"})


@pytest.mark.parametrize(
    "health, actions, ends",
    [
        (3, [(HIT, HIT), (HIT, NOTHING)], "won"),
        (8, [(HIT, HIT)] * 4, "won"),  # in the last step before the limit
        (9, [(HIT, HIT)] * 4, "limit"),
        (9, [(RAM, HIT), (NOTHING, RAM)], "lost"),
        (2, [(RAM, RAM)], "lost"),  # a draw
        (3, [(RAM, HIT), (NOTHING, HIT)], "won"),
    ],
)
def test_how_battles_end(jax: None, health: int, actions: list, ends: str):
    env = build_env(Duel, {"num_envs": 2, "health": health})
    *before, (state, reward, terminal, truncate, info) = played(env, *actions)
    assert not any(bool((row[2] | row[3]).any()) for row in before)
    expected = {"won": (True, False, True), "limit": (False, True, False), "lost": (True, False, False)}[ends]
    assert [(bool(t), bool(c), bool(w)) for t, c, w in zip(terminal, truncate, info["win"], strict=True)] == [
        expected
    ] * 2
    assert reward.tolist() == [2.0 - actions[-1].count(NOTHING)] * 2
    assert (state[..., 1] == 0).all() and info["alive"].all() and info["action_mask"].all()  # a new battle
    assert (info["final_global_state"][:, 1] == len(actions)).all()
    assert (info["final_obs"][..., 1] == len(actions) * info["final_alive"]).all()  # the dead see nothing
    assert not torch.equal(info["global_state"][:, 0], info["final_global_state"][:, 0])


def test_who_is_dead_may_do_nothing(jax: None):
    (_, _, terminal, truncate, info), *_ = played(build_env(Duel, {"num_envs": 2}), (RAM, HIT))
    assert not (terminal | truncate).any() and info["alive"].tolist() == [[False, True]] * 2
    assert info["action_mask"].tolist() == [[[True, False, False], [True] * 3]] * 2


def test_a_shorter_limit(jax: None):
    env = build_env(Duel, {"num_envs": 1, "max_step": 2})
    assert [bool(row[3]) for row in played(env, *[(NOTHING, HIT)] * 2)] == [False, True]


@pytest.mark.parametrize("agent_class", [AgentQMix, AgentMAPPO])
def test_agents_train_on_it_and_wins_are_counted(jax: None, agent_class: type):
    row = train_agent(config(agent_class, Duel, {"num_envs": 2, "health": 1}), True).evaluator.records.rows[-1]
    assert 0 <= row["winrate"] <= 1 and "teamR" not in row


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_real_one():
    """In a virtual environment by benchmarks/simulators/setup.sh smax. Its step takes half a minute to compile."""
    smax = pytest.importorskip("jaxmarl.environments.smax")
    env = build_env(smax.HeuristicEnemySMAX, {"num_envs": 4, "scenario": smax.map_name_to_scenario("3m")})
    assert (env.env_name, env.state_dim, env.action_dim, env.global_dim, env.max_step) == ("smax-3-3", 75, 8, 72, 100)
    check_vec_env(env)
