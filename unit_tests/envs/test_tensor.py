"""TensorEnv: the vector contract with same-step auto-reset, for the template and every built-in task; SingleEnv."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from elegantrl import Config, build_env, train_agent
from elegantrl.agents import AgentDQN, AgentPPO
from elegantrl.envs import GymEnv, SingleEnv, TensorEnv, check_vec_env, vectorise
from elegantrl.envs.classic import (
    AcrobotVecEnv,
    CartPoleVecEnv,
    LQRVecEnv,
    MountainCarContinuousVecEnv,
    PendulumVecEnv,
)
from elegantrl.envs.pixels import CatchVecEnv
from elegantrl.envs.PointChasingEnv import PointChasingDiscreteVecEnv, PointChasingVecEnv

BUILT_IN = [
    *(CartPoleVecEnv, PendulumVecEnv, MountainCarContinuousVecEnv, AcrobotVecEnv, LQRVecEnv),
    *(PointChasingVecEnv, PointChasingDiscreteVecEnv, CatchVecEnv),
]


class Walk(TensorEnv):
    """Steps of 0.5 to the right by action 1, to the left by action 0, from 0 to 0.25; beyond 1 is the end, and pays."""

    state_dim, action_dim, if_discrete, max_step = 1, 2, True, 4

    def fresh(self):
        return self.uniform(0.0, 0.25, 1)

    def advance(self, world, action):
        world = world + (action[:, None] - 0.5)
        return world, (world > 1).any(-1), (world.abs() > 1).any(-1)

    def observe(self, world):
        return world


def random_action(env):
    if env.if_discrete:
        return torch.randint(env.action_dim, (env.num_envs,))
    return torch.rand(env.num_envs, env.action_dim) * 2.4 - 1.2


def test_a_template_of_a_few_lines_keeps_the_contract():
    env = Walk(3)
    assert (env.env_name, env.num_envs, env.max_step, env.autoreset) == ("Walk", 3, 4, "same_step")
    state, info = env.reset(seed=0)
    assert state.shape == (3, 1) and info == {} and ((state >= 0) & (state < 0.25)).all()
    actions = torch.tensor([1, 0, 1])
    for _ in range(2):
        start, (state, reward, terminal, truncate, info) = state, env.step(actions)
        assert torch.allclose(info["final_obs"], start + torch.tensor([[0.5], [-0.5], [0.5]]))
    # rows 0 and 2 started above 0 and so are above 1; row 1 is above -1
    assert terminal.tolist() == [True, False, True] and reward.tolist() == [1.0, 0.0, 1.0] and not truncate.any()
    assert ((state[[0, 2]] >= 0) & (state[[0, 2]] < 0.25)).all() and torch.equal(state[1], info["final_obs"][1])
    assert not torch.equal(state[0], state[2])
    assert env.steps.tolist() == [0, 2, 0]
    for t in (3, 4):  # row 1 to and fro until its time is over
        _, reward, terminal, truncate, _ = env.step(torch.tensor([0, t % 2, 0]))
    assert truncate.tolist() == [False, True, False] and not terminal.any()
    assert env.steps.tolist() == [2, 0, 2]
    assert reward.dtype == torch.float32 and terminal.dtype == truncate.dtype == torch.bool


class CountedWalk(Walk):
    """The same with a world of two tensors: the place, and a count of steps, long."""

    def fresh(self):
        return super().fresh(), torch.zeros(self.num_envs, 1, dtype=torch.long)

    def advance(self, world, action):
        place, reward, terminal = super().advance(world[0], action)
        return (place, world[1] + 1), reward, terminal

    def observe(self, world):
        return world[0].clone()


@pytest.mark.parametrize("never_waits", [False, True])
def test_a_world_may_be_several_tensors(never_waits):
    plain, several = Walk(3), CountedWalk(3)
    several.never_waits = never_waits
    if never_waits:  # then starts are drawn in another order: all begin at 0
        plain.uniform = several.uniform = lambda low, high, *size: torch.full((3, *size), low)
    assert torch.equal(plain.reset(seed=0)[0], several.reset(seed=0)[0])
    generator = torch.Generator().manual_seed(0)
    for step in range(20):
        action = torch.randint(2, (3,), generator=generator)
        for x, y in zip(plain.step(action)[:4], several.step(action)[:4], strict=True):
            assert torch.equal(x, y)
        assert torch.equal(several.world[1][:, 0].int(), several.steps)
        if step == 10:
            saved, after = several.get_state(), several.step(action)
            assert torch.equal(several.set_state(saved), saved["world"][0])
            for x, y in zip(after[:4], several.step(action)[:4], strict=True):
                assert torch.equal(x, y)
            plain.step(action)


class GridWalk(Walk):
    """The same place on a grid and as numbers (N,)."""

    def fresh(self):
        place = super().fresh()
        return place[:, :, None].repeat(1, 2, 3), place[:, 0].clone()

    def advance(self, world, action):
        place, reward, terminal = super().advance(world[0][:, 0, :1], action)
        return (world[0] + (action[:, None, None] - 0.5), place[:, 0]), reward, terminal

    def observe(self, world):
        return world[0][:, 0, :1].clone()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("never_waits", [False, True])
def test_a_world_has_any_number_of_axes(never_waits, request):
    torch.set_warn_always(True)
    request.addfinalizer(lambda: torch.set_warn_always(False))
    env = GridWalk(5)
    env.never_waits = never_waits
    env.reset(seed=0)
    for _ in range(12):
        state = env.step(random_action(env))[0]
        assert torch.equal(env.world[0], state[:, :, None].expand(5, 2, 3)) and torch.equal(env.world[1], state[:, 0])


def test_new_starts_come_from_a_stock_which_is_drawn_anew_when_it_is_used_up():
    env, draws = Walk(4, max_step=2), []
    fresh = env.fresh
    env.fresh = lambda: draws.append(fresh()) or draws[-1]
    env.reset(seed=0)
    begun = [env.step(torch.tensor([0, 1, 0, 1]))[0] for _ in range(8)][1::2]  # all end at each second step
    assert len(draws) == 5  # of the reset, and four times all
    assert all(map(torch.equal, begun, draws[1:]))
    few = Walk(4)
    few.fresh, draws = env.fresh, draws.clear() or draws
    few.reset(seed=0)
    few.world[0] = 0.99
    state = few.step(torch.tensor([1, 0, 0, 0]))[0]
    assert torch.equal(state[0], draws[1][0]) and few.used == 1
    few.world.zero_()[1:3] = 0.99
    state = few.step(torch.tensor([1, 1, 1, 1]))[0]
    assert torch.equal(state[1:3], draws[1][1:3]) and few.used == 3 and len(draws) == 2


@pytest.mark.parametrize("env_class", BUILT_IN)
def test_shapes_and_dtypes(env_class):
    env = env_class(num_envs=5)
    shape = (5, *(env.state_dim if isinstance(env.state_dim, tuple) else (env.state_dim,)))
    state, _ = env.reset(seed=1)
    for _ in range(3):
        assert state.shape == shape and state.dtype == env.state_dtype
        state, reward, terminal, truncate, info = env.step(random_action(env))
        assert reward.shape == terminal.shape == truncate.shape == (5,)
        assert reward.dtype == torch.float32 and terminal.dtype == truncate.dtype == torch.bool
        assert info["final_obs"].shape == shape


@pytest.mark.parametrize("env_class", BUILT_IN)
def test_what_is_returned_stays_as_it_was(env_class):
    env = env_class(num_envs=4, max_step=3)
    kept, copies = [], []
    state, _ = env.reset(seed=1)
    for _ in range(8):
        action = random_action(env)
        state, *flags, info = env.step(action)
        kept += [action, state, *flags, info["final_obs"]]
        copies += [x.clone() for x in kept[-6:]]
    assert all(map(torch.equal, kept, copies))
    before = env.get_state()
    for x in kept[-5:]:  # and what the caller does to it is nothing to the environment
        x.zero_()
    assert all(torch.equal(x, y) for x, y in zip(before.values(), env.get_state().values(), strict=True))


@pytest.mark.parametrize("env_class", BUILT_IN)
def test_a_time_limit_truncates_and_starts_anew(env_class):
    env = env_class(num_envs=4, max_step=3)
    assert env.max_step == 3 and env_class.max_step != 3
    env.reset(seed=0)
    ended = [env.step(random_action(env)) for _ in range(7)]
    assert [bool(truncate.all()) for _, _, _, truncate, _ in ended] == [False, False, True] * 2 + [False]
    assert not any(bool(terminal.any()) for _, _, terminal, _, _ in ended)
    state, _, _, _, info = ended[2]
    assert (state != info["final_obs"]).flatten(1).any(-1).all()


def play(env, seed, steps=20):
    """All that an environment returns by actions of a fixed seed."""
    torch.manual_seed(0)
    found = [env.reset(seed)[0]]
    for _ in range(steps):
        state, *flags, info = env.step(random_action(env))
        found += [state, *flags, info["final_obs"]]
    return torch.cat([x.flatten().float() for x in found])


@pytest.mark.parametrize("env_class", BUILT_IN)
def test_a_seed_decides_everything(env_class):
    env = env_class(num_envs=4, max_step=5)
    first = play(env, 7)
    global_state = torch.get_rng_state()
    assert torch.equal(play(env, 7), first) and torch.equal(play(env_class(num_envs=4, max_step=5), 7), first)
    assert not torch.equal(play(env, 8), first)
    env.reset()
    assert torch.equal(torch.get_rng_state(), global_state), "its generator is its own"
    unseeded = env_class(num_envs=4).reset()[0], env_class(num_envs=4).reset()[0]
    assert not torch.equal(*unseeded)
    assert len(unseeded[0].unique(dim=0)) == 4, "environments differ"


@pytest.mark.parametrize("env_class", BUILT_IN)
def test_a_saved_state_continues_bit_for_bit(env_class):
    env, other = env_class(num_envs=4, max_step=5), env_class(num_envs=4, max_step=5)
    env.reset(seed=0)
    for _ in range(3):
        state = env.step(random_action(env))[0]
    assert torch.equal(other.set_state(env.get_state()), state)
    for _ in range(8):
        action = random_action(env)
        for x, y in zip(env.step(action)[:4], other.step(action)[:4], strict=True):
            assert torch.equal(x, y)


@pytest.mark.parametrize("env_class", BUILT_IN)
def test_the_conformance_kit_finds_nothing(env_class):
    check_vec_env(env_class(num_envs=4), steps=300)


class Watch(TorchDispatchMode):
    """Refuses what makes the host wait for a device, or what depends on values."""

    waits = ("_local_scalar_dense", "lift_fresh", "nonzero", "masked_select", "is_nonzero", "equal")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name().removeprefix("aten::")
        assert not name.startswith(self.waits), f"{name} makes the host wait"
        if name.startswith("index"):
            assert not any(isinstance(x, torch.Tensor) and x.dtype == torch.bool for x in args[1]), "boolean index"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("env_class", [Walk, *BUILT_IN])
def test_a_step_never_makes_the_host_wait_and_keeps_its_addresses(env_class):
    env = env_class(num_envs=4)
    env.never_waits = True  # as on a GPU
    env.reset(seed=0)
    addresses = [env.world.data_ptr(), env.steps.data_ptr()]
    action = random_action(env)
    with Watch():
        env.step(action)
    assert [env.world.data_ptr(), env.steps.data_ptr()] == addresses
    for wrong in (lambda: bool(action.any()), lambda: action[action > 0], lambda: torch.tensor([1.0])):
        with pytest.raises(AssertionError), Watch():
            wrong()


@pytest.mark.parametrize("given", [{"num_envs": 0}, {"max_step": -1}])
def test_sizes_are_positive(given):
    with pytest.raises(ValueError, match="PendulumVecEnv needs at least 1 of each"):
        PendulumVecEnv(**given)


def test_actions_are_bounded_and_their_shape_is_checked():
    env = PendulumVecEnv(2)
    env.reset(seed=0)
    saved = env.get_state()
    far, _, _, _, _ = env.step(torch.tensor([[9.0], [-9.0]]))
    env.set_state(saved)
    near, _, _, _, _ = env.step(torch.tensor([[1.0], [-1.0]]))
    assert torch.equal(far, near)
    with pytest.raises(ValueError, match=r"PendulumVecEnv expects actions \(2, 1\) and got shape \(2,\)"):
        env.step(torch.zeros(2))
    with pytest.raises(ValueError, match=r"CartPoleVecEnv expects actions \(2,\) and got shape \(2, 1\)"):
        CartPoleVecEnv(2).step(torch.zeros(2, 1, dtype=torch.long))


def test_build_env_and_config_know_the_number_and_the_device():
    env = build_env(CartPoleVecEnv, {"num_envs": 32, "max_step": 100})
    assert isinstance(env, CartPoleVecEnv) and (env.num_envs, env.max_step) == (32, 100)
    assert vectorise(PointChasingVecEnv, {"dim": 3}, 5, "cpu").world.shape == (5, 12)
    args = Config(AgentPPO, CartPoleVecEnv, {"num_envs": 4096})
    assert (args.num_envs, args.state_dim, args.action_dim, args.if_discrete, args.max_step) == (4096, 4, 2, True, 500)
    assert args.env_name == "CartPoleVecEnv"


@pytest.mark.parametrize("agent_class, env_class", [(AgentPPO, PointChasingVecEnv), (AgentDQN, CartPoleVecEnv)])
def test_agents_train_on_it(agent_class, env_class):
    args = Config(agent_class, env_class, {"num_envs": 8, "max_step": 16}, break_step=600, horizon_len=20, cwd="run")
    args.net_dims, args.eval_per_step, args.eval_times = (8,), 300, 4
    run = train_agent(args, if_single_process=True)
    assert run.total_step >= 600 and run.evaluator.env.num_envs == 4


class OneWalk(SingleEnv):
    def __init__(self):
        super().__init__(Walk(1))


def test_a_single_environment_is_the_vector_environment_with_one():
    one, many = OneWalk(), Walk(1)
    state, info = one.reset(seed=3)
    there, _ = many.reset(seed=3)
    assert state.shape == (1,) and info == {} and one.observation_space.contains(state)
    episodes = 0
    for _ in range(40):
        assert state == there[0].numpy()
        action = one.action_space.sample()
        state, reward, terminal, truncate, _ = one.step(action)
        there, rewards, terminals, truncates, info = many.step(torch.tensor([action]))
        assert state == info["final_obs"][0].numpy()
        assert (reward, terminal, truncate) == (float(rewards), bool(terminals), bool(truncates))
        if terminal or truncate:
            state, _ = one.reset()
            episodes += 1
    assert episodes > 5
    assert one.reset()[0] != one.reset()[0], "a reset amid an episode begins another"
    env = GymEnv(one)
    assert (env.env_name, env.max_step, env.state_dim, env.action_dim, env.if_discrete) == ("OneWalk", 4, 1, 2, True)
