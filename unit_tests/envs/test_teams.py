"""Tasks for teams as tensors: the contract, the battle's rules, parity with mpe2."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from elegantrl.envs.mpe import SimpleSpeakerListener, SimpleSpread
from elegantrl.envs.teams import Battle, Rendezvous, TwoStepGame

TASKS = [
    (Rendezvous, {}),
    (Rendezvous, {"if_discrete": True, "if_own_reward": True}),
    (TwoStepGame, {}),
    (Battle, {}),
    (Battle, {"num_agents": 5}),
    (Battle, {"num_agents": 1}),
    (SimpleSpread, {}),
    (SimpleSpread, {"num_agents": 1}),
    (SimpleSpread, {"if_discrete": False, "num_agents": 4}),
    (SimpleSpeakerListener, {}),
    (SimpleSpeakerListener, {"if_discrete": False}),
]


def drawn(env, info, generator):
    """Random allowed actions, (N, M) or (N, M, A)."""
    shape = (env.num_envs, env.num_agents, env.action_dim)
    chance = torch.rand(shape, generator=generator)
    return (chance * info.get("action_mask", torch.tensor(1))).argmax(-1) if env.if_discrete else 3 * chance - 1.5


@pytest.mark.parametrize("task", [Battle, SimpleSpread])
def test_a_team_has_an_agent(task):
    with pytest.raises(ValueError, match=f"num_agents=0: {task.__name__} needs at least 1"):
        task(2, num_agents=0)


@pytest.mark.parametrize("task, how", TASKS)
def test_the_contract(task, how):
    """Shapes, dtypes, episodes of max_step at most, new tensors; the same from the same seed, other from another."""
    env, n, generator = task(6, **how), 6, torch.Generator()
    m, seen = env.num_agents, []
    for seed in (3, 3, 4):
        generator.manual_seed(0)
        state, info = env.reset(seed)
        rows = [state]
        for t in range(1, 2 * env.max_step + 1):
            copies = [x.clone() for x in rows]
            state, reward, terminal, truncate, info = env.step(drawn(env, info, generator))
            assert all(torch.equal(x, copy) for x, copy in zip(rows, copies, strict=True))
            rows.append(state)
            assert state.shape == info["final_obs"].shape == (n, m, env.state_dim) and state.dtype == torch.float32
            assert reward.shape in ((n,), (n, m)) and reward.dtype == torch.float32
            assert terminal.shape == truncate.shape == (n,) and terminal.dtype == truncate.dtype == torch.bool
            assert torch.isfinite(state).all() and torch.isfinite(reward).all()
            goes_on = ~(terminal | truncate)
            assert torch.equal(state[goes_on], info["final_obs"][goes_on])
            assert not truncate.any() or t >= env.max_step
            if "action_mask" in info:
                assert info["action_mask"].shape == (n, m, env.action_dim) and bool(info["action_mask"].any(-1).all())
            if env.global_dim:
                assert info["global_state"].shape == info["final_global_state"].shape == (n, env.global_dim)
        seen.append(torch.stack(rows))
    assert torch.equal(seen[0], seen[1])
    assert task is TwoStepGame or not torch.equal(seen[0], seen[2])
    with pytest.raises(ValueError, match=f"{task.__name__} expects actions"):
        env.step(torch.zeros(n, m + 1))


def test_the_game_pays_as_the_paper_says():
    env = TwoStepGame(8)
    for first, table in ((0, [7, 7, 7, 7]), (1, [0, 1, 1, 8])):
        env.reset(0)
        actions = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]] * 2)
        begin = torch.full((8, 2), first)
        begin[:, 1] = torch.arange(8) % 2  # the second agent's first action does not count
        state, reward, terminal, _, _ = env.step(begin)
        assert reward.eq(0).all() and not terminal.any() and state[:, :, 1 + first].eq(1).all()
        _, reward, terminal, _, _ = env.step(actions)
        assert reward.tolist() == table * 2 and terminal.all()


def battle(places, health):
    """A Battle with these places (6, 2) and healths (6,), three agents then three enemies."""
    env = Battle(1)
    env.reset(0)
    env.world.copy_(torch.cat([torch.tensor(places).flatten(), torch.tensor(health)])[None])
    return env, env.tell(env.world)


FAR = [[-0.9, 0.0], [-0.9, 0.9], [-0.9, -0.9], [0.9, 0.0], [0.9, 0.9], [0.9, -0.9]]


def test_the_battles_masks_and_the_dead():
    places = [row[:] for row in FAR]
    places[3] = [-0.4, 0.0]  # 0.5 from agent 0
    env, told = battle(places, [1.0, 0.25, 0.0, 1.0, 1.0, 0.0])
    assert told["alive"][0].tolist() == [True, True, False]
    assert told["action_mask"][0, 0].tolist() == [True] * 5 + [True, False, False]
    assert told["action_mask"][0, 2].tolist() == [True] + [False] * 7
    state = env.observe(env.world)
    assert state[0, 2].abs().sum() == 0 and state[0, 0, :3].tolist() == pytest.approx([-0.9, 0.0, 1.0])
    assert state[0, 0, 4:9].tolist() == pytest.approx([0.5, 0.0, 0.5, 1.0, 1.0]) and state[0, 0, 9:19].abs().sum() == 0


def test_the_battles_shots_pay_and_the_win_is_told():
    """Agents 0 and 1 shoot the last enemy, of health 0.5: damage 0.5 and a fall, 5 * 1.5 / 6, and 5 for the win."""
    places = [row[:] for row in FAR]
    places[1], places[3] = [-0.9, 0.25], [-0.45, 0.1]
    env, _ = battle(places, [1.0, 1.0, 1.0, 0.5, 0.0, 0.0])
    _, reward, terminal, truncate, info = env.step(torch.tensor([[5, 5, 0]]))
    assert reward.item() == pytest.approx(5 * 1.5 / 6 + 5) and terminal.item() and not truncate.item()
    assert info["win"].item() and info["alive"].all() and not info["final_alive"][0].logical_not().any()
    assert info["final_global_state"][0, 12:].tolist() == pytest.approx([0.75, 1.0, 1.0, 0.0, 0.0, 0.0])


def test_a_whole_won_battle_pays_ten():
    total = 0.0
    for enemy in range(3):
        health = [1.0, 1.0, 1.0, *[0.0] * 3]
        health[3 + enemy] = 1.0
        places = [row[:] for row in FAR]
        places[3 + enemy] = [-0.5, 0.0]
        env, _ = battle(places, health)
        for _ in range(4):
            _, reward, terminal, _, _ = env.step(torch.tensor([[5 + enemy, 0, 0]]))
            total += reward.item()
    assert terminal.item() and total == pytest.approx(5 + 3 * 5)  # three wins here, one in a battle


def test_enemies_go_for_the_nearest_living_agent():
    env, _ = battle([[0.3, 0.0], [-0.9, 0.9], [-0.9, -0.9], [0.9, 0.0], *FAR[4:]], [0.0, 1.0, 1.0, 1.0, 0.0, 0.0])
    env.step(torch.zeros(1, 3, dtype=torch.long))
    way = torch.tensor([-1.8, 0.9]) / torch.tensor([-1.8, 0.9]).norm()
    place = env.parts(env.world)[2][0, 0]
    torch.testing.assert_close(place, torch.tensor([0.9, 0.0]) + 0.1 * way)


# parity


def mpe2_world(env):
    return env.unwrapped.world


def copy_spread(ours, theirs):
    """Their places, velocities and landmarks into row 0 of our world."""
    world = mpe2_world(theirs)
    parts = [[a.state.p_pos for a in world.agents], [a.state.p_vel for a in world.agents]]
    parts.append([mark.state.p_pos for mark in world.landmarks])
    ours.world.copy_(torch.tensor(np.array(parts).reshape(1, -1)))


def copy_speaker(ours, theirs):
    world = mpe2_world(theirs)
    goal = [float(mark is world.agents[0].goal_b) for mark in world.landmarks]
    listener = world.agents[1].state
    marks = [mark.state.p_pos for mark in world.landmarks]
    row = np.concatenate([listener.p_pos, listener.p_vel, *marks, world.agents[0].state.c, goal])
    ours.world.copy_(torch.tensor(row)[None])


@pytest.mark.parametrize("if_discrete", [True, False])
@pytest.mark.parametrize("task", ["spread", "crowd", "speaker"])
def test_parity_with_mpe2(task, if_discrete):
    """From the same start by the same actions: the same observations and rewards, up to the last bits of a double."""
    kind = "simple_speaker_listener_v4" if task == "speaker" else "simple_spread_v3"
    maker = pytest.importorskip(f"mpe2.{kind}").parallel_env
    how = {"if_discrete": if_discrete, "dtype": torch.float64}
    if task == "speaker":
        theirs = maker(continuous_actions=not if_discrete)
        ours, copy = SimpleSpeakerListener(1, **how), copy_speaker
    else:  # five agents collide often
        number, ratio = (3, 0.5) if task == "spread" else (5, 0.3)
        theirs = maker(N=number, local_ratio=ratio, continuous_actions=not if_discrete)
        ours, copy = SimpleSpread(1, num_agents=number, local_ratio=ratio, **how), copy_spread
    ours.state_dtype = torch.float64
    rng, names = np.random.default_rng(0), theirs.possible_agents
    for seed in range(4):
        theirs.reset(seed=seed)
        ours.reset(seed)
        copy(ours, theirs)
        for t in range(25):
            if if_discrete:
                chosen = np.array([rng.integers(theirs.action_space(name).n) for name in names])
                given = dict(zip(names, chosen, strict=True))
            else:
                chosen = np.zeros((len(names), 5))
                for m, name in enumerate(names):
                    size = theirs.action_space(name).shape[0]
                    chosen[m, :size] = rng.uniform(-1, 1, size)
                given = {n: (chosen[m, : theirs.action_space(n).shape[0]] + 1) / 2 for m, n in enumerate(names)}
            _, rewards, _, truncates, _ = theirs.step(given)
            _, reward, terminal, truncate, info = ours.step(torch.tensor(chosen)[None])
            state = info["final_obs"][0].numpy()
            for m, name in enumerate(names):
                exact = mpe2_world(theirs)
                full = theirs.unwrapped.scenario.observation(exact.agents[m], exact)
                np.testing.assert_allclose(state[m, : len(full)], full, rtol=0, atol=1e-12)
                assert (
                    reward[0, m].item() == np.float32(rewards[name]) or abs(reward[0, m].item() - rewards[name]) < 1e-5
                )
            assert not terminal.item() and truncate.item() == all(truncates.values()) == (t == 24)


def test_starts_are_distributed_as_mpe2s():
    spread, speaker = SimpleSpread(20_000), SimpleSpeakerListener(20_000)
    places, velocities, landmarks = spread.parts(spread.world)
    for x in (places, landmarks, speaker.world[:, :2], speaker.world[:, 4:10]):
        assert x.min() < -0.99 and x.max() > 0.99 and abs(float(x.std()) - 1 / 3**0.5) < 0.01
    assert velocities.abs().sum() == 0
    assert speaker.world[:, 13:].mean(0).tolist() == pytest.approx([1 / 3] * 3, abs=0.015)
