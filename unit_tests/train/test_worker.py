"""The worker counts what happened and says where an environment went wrong."""

from __future__ import annotations

import math
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from elegantrl.agents import AgentD3QN, AgentPPO, AgentSAC
from elegantrl.envs import as_vec_env
from elegantrl.envs.classic import CartPoleVecEnv, PendulumVecEnv
from elegantrl.train.config import build_agent
from elegantrl.train.worker import EnvironmentFault, PipeWorker, Worker
from unit_tests.tasks import Clock, Counter, Match, Settings, build, config


class Bad(Clock):
    """Does `harm(self, state, reward)` in call number `at`."""

    def __init__(self, harm, at=137, **how):
        super().__init__(**how)
        self.harm, self.at = harm, at

    def step(self, action):
        state, reward, *rest = super().step(action)
        if self.calls == self.at:
            self.harm(state, reward)
        return state, reward, *rest


def worker_of(env, horizon, agent_class=AgentSAC, **how):
    worker = Worker(env, build(agent_class, env, **how), Settings(horizon_len=horizon))
    worker.restart(seed=0)
    return worker


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
@pytest.mark.parametrize("agent_class, if_discrete", [(AgentSAC, False), (AgentD3QN, True), (AgentPPO, False)])
def test_steps_are_calls_times_environments_without_reset_rows(agent_class, if_discrete, autoreset):
    env = Clock(num_envs=3, if_discrete=if_discrete, autoreset=autoreset)
    worker = worker_of(env, 8, agent_class)
    for _ in range(3):
        worker.explore()
    assert env.calls == 24
    # of every 6 rows one is a reset row
    assert (worker.total_step, worker.reset_rows) == ((60, 12) if autoreset == "next_step" else (72, 0))


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
@pytest.mark.parametrize("horizon", [1, 4, 12, 50])
def test_summary_is_of_whole_episodes_whatever_the_horizon(horizon, autoreset):
    """Rewards 1 2 3 4 5: episodes return 15, a step pays 3; the poisoned reset rows count nowhere."""
    env = Counter(num_envs=2, autoreset=autoreset)
    worker = worker_of(env, horizon)
    assert all(math.isnan(x) for x in worker.summary())
    while env.calls < 60:
        worker.explore()
    reward, episode_return = worker.summary()
    assert episode_return == 15.0 and reward == pytest.approx(3.0, abs=0.3)
    worker.clear_summary()
    assert all(math.isnan(x) for x in worker.summary())


def test_a_constant_reward_is_logged_as_it_is():
    worker = worker_of(Clock(ends="terminate", length=3), 10)
    worker.explore()
    assert worker.summary() == (1.0, 3.0)


def test_states_of_a_rollout_are_successive():
    env = Counter(num_envs=2, length=100)
    worker = worker_of(env, 5)
    first = worker.explore().states[:, 0, 0].tolist()
    second = worker.explore().states[:, 0, 0].tolist()
    assert first == [0, 1, 2, 3, 4, 5] and second == [5, 6, 7, 8, 9, 10]


def test_restart_begins_anew():
    env = Counter(num_envs=2)
    worker = worker_of(env, 3)
    worker.explore()
    worker.restart(seed=1)
    assert worker.explore().states[0, 0, 0] == 0 and worker.running.tolist() == [6.0, 6.0]
    assert env.seeds[0] != env.seeds[1]


def test_same_step_rows():
    """The row of a time-out is masked, that of an end is not; on-policy a known final state completes it."""
    for agent_class, ends, final, masked in (
        (AgentSAC, "truncate", "never", True),
        (AgentSAC, "truncate", "always", True),
        (AgentPPO, "truncate", "never", True),
        (AgentPPO, "truncate", "always", False),
        (AgentPPO, "truncate", "at_end", False),
        (AgentSAC, "terminate", "always", False),
        (AgentPPO, "terminate", "always", False),
    ):
        env = Clock(num_envs=1, ends=ends, autoreset="same_step", final=final)
        trajectory = worker_of(env, 5, agent_class).explore()
        assert trajectory.unmasks[:, 0].tolist() == [True] * 4 + [not masked]
        assert bool(trajectory.undones[-1, 0]) == masked
        assert trajectory.dones[:, 0].tolist() == [False] * 4 + [True]


def test_a_final_value_is_that_of_the_final_state():
    env = Clock(num_envs=2, length=3, autoreset="same_step", final="at_end")
    worker = worker_of(env, 4, AgentPPO, gamma=0.5)
    trajectory = worker.explore()
    with torch.no_grad():
        value = worker.agent.cri(torch.tensor([[0.0, 1.0]])).item()  # time 3 is odd
    assert trajectory.bootstraps[:, 0].tolist() == pytest.approx([0, 0, value / 2, 0])


class Operations(TorchDispatchMode):
    """Counts tensor operations."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "agent_class, env_class, most", [(AgentPPO, CartPoleVecEnv, 16), (AgentSAC, PendulumVecEnv, 14)]
)
def test_a_row_takes_few_operations_beside_those_of_policy_and_environment(agent_class, env_class, most):
    """On small networks their number is what collecting costs."""
    numbers = []
    for horizon in (4, 8):
        env = env_class(num_envs=4)
        env.never_waits = True  # then all steps take the same operations
        worker = worker_of(env, horizon, agent_class)
        worker.explore()  # allocates
        with Operations() as operations:
            worker.explore()
        numbers.append(operations.count)
    state, _ = env.reset(seed=0)
    with torch.no_grad(), Operations() as operations:
        action = worker.agent.explore_action(state)
        env.step(action if worker.agent.if_off_policy else action[0])
    assert (numbers[1] - numbers[0]) / 4 - operations.count <= most


class OneBuffer(CartPoleVecEnv):
    """Returns its flags in the same tensors at each step, as simulators do."""

    def step(self, action):
        state, reward, *flags, info = super().step(action)
        self.flags = getattr(self, "flags", None) or [flag.clone() for flag in flags]
        for own, flag in zip(self.flags, flags, strict=True):
            own.copy_(flag)
        return state, reward, *self.flags, info


def test_flags_that_an_environment_writes_anew_at_each_step_are_not_lost():
    plain, reused = (worker_of(env(num_envs=8, max_step=15), 60, AgentD3QN) for env in (CartPoleVecEnv, OneBuffer))
    torch.manual_seed(0)
    expected = plain.explore(if_random=True)
    torch.manual_seed(0)
    found = reused.explore(if_random=True)
    for name in ("dones", "undones", "unmasks"):
        assert torch.equal(getattr(found, name), getattr(expected, name))
    ends = found.dones.sum()
    assert 0 < (~found.unmasks).sum() < ends  # some by the time limit, some by a fall


# --- faults ---
def nan_state(state, reward):
    state[2, 1] = math.nan


def infinite_reward(state, reward):
    reward[2] = math.inf


@pytest.mark.parametrize("agent_class", [AgentSAC, AgentPPO])
@pytest.mark.parametrize("harm, name", [(nan_state, "states"), (infinite_reward, "rewards")])
def test_a_number_that_is_none_is_located(harm, name, agent_class):
    worker = worker_of(Bad(harm, length=1000), 50, agent_class)
    worker.explore()
    worker.explore()
    with pytest.raises(EnvironmentFault, match=rf"Bad.*{name} at step 137 of environment 2"):
        worker.explore()


def test_a_nan_at_the_end_of_a_rollout_is_found_there():
    with pytest.raises(EnvironmentFault, match="states at step 10 of environment 2"):
        worker_of(Bad(nan_state, at=10, length=1000), 10).explore()


def test_an_exception_is_raised_with_its_place():
    def fail(state, reward):
        raise KeyError("no such stock")

    worker = worker_of(Bad(fail, at=25, length=1000), 20)
    worker.explore()
    with pytest.raises(EnvironmentFault, match=r"Bad raised KeyError in its step 25 .*no such stock") as caught:
        worker.explore()
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("agent_class", [AgentSAC, AgentPPO])
def test_the_step_is_the_environments_own(agent_class):
    """The count of a single environment under next-step auto-reset: reset rows are no steps of it."""

    class One(gym.Env):
        observation_space, action_space = gym.spaces.Box(-2, 2, (2,)), gym.spaces.Box(-1, 1, (1,))

        def __init__(self, at, fails):
            self.count, self.at, self.fails = 0, at, fails

        def reset(self, *, seed=None, options=None):
            return np.zeros(2, np.float32), {}

        def step(self, action):
            self.count += 1
            if self.count == self.at and self.fails:
                raise OSError("closed")
            state = np.full(2, np.nan if self.count == self.at else 0.0, np.float32)
            return state, 0.0, self.count % 5 == 0, False, {}

    for at, fails, text in ((57, True, "in its step 57 of"), (137, False, "states at step 137 of environment 0")):
        worker = worker_of(as_vec_env(One(at, fails)), 16, agent_class)
        with pytest.raises(EnvironmentFault, match=text):
            for _ in range(20):
                worker.explore()
        assert worker.reset_rows > 5


def test_an_exception_in_a_reset_is_a_fault():
    class Fails(Clock):
        def reset(self, seed=None):
            raise OSError("no data")

    with pytest.raises(EnvironmentFault, match="Fails raised OSError in a reset of this process: no data"):
        worker_of(Fails(), 4)


def test_the_policy_is_named_where_it_fails():
    worker = worker_of(Clock(), 4)
    worker.agent.act.net[-1].bias.data.fill_(math.nan)
    with pytest.raises(EnvironmentFault, match=r"the policy chose .* actions at step"):
        worker.explore()


def test_a_worker_that_is_lost_twice_in_one_update_leaves_two_seams():
    """The second loss made the first one forgotten."""
    args, cuts = config(AgentSAC, max_restarts=2), []
    args.init_before_training()
    pipes = PipeWorker(Match(4), build_agent(args), args, 1, print, lambda columns: cuts.append(columns.tolist()))
    pipes.children = [SimpleNamespace(name="Worker", seed=0, todo=[], restart=lambda *opening: None) for _ in range(2)]
    first = pipes.children[0]
    for child in pipes.children:
        child.ask = lambda *message, child=child: child.todo.append(message)
    pipes.look = lambda: [child.todo.pop(0) for child in pipes.children if child.todo]
    pipes.explore()
    pipes.replace(first, "was killed")
    first.todo.pop(0)  # the new one delivers its first rollout
    pipes.replace(first, "was killed")
    for seams in (1, 2, 2):
        pipes.explore()
        assert cuts == [[0, 1, 2, 3]] * seams
