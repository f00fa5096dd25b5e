"""check_vec_env names each fault of deliberately broken environments, and finds none in sound ones."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from elegantrl import check_vec_env
from elegantrl.envs import ActionCodec, vectorise
from elegantrl.envs.CustomGymEnv import PendulumEnv
from elegantrl.envs.mpe import SimpleSpread
from elegantrl.envs.PointChasingEnv import PointChasingEnv
from elegantrl.envs.StockTradingEnv import StockTradingEnv, StockTradingVecEnv
from elegantrl.envs.teams import Battle, Rendezvous
from unit_tests.tasks import Clock


class Walk:
    """A point that an action pushes; an episode ends after LENGTH steps, or (terminal) beyond 2. Sound in every way."""

    LENGTH = 12

    def __init__(self, autoreset: str = "next_step", if_discrete: bool = False, num_envs: int = 3):
        self.env_name, self.num_envs, self.max_step, self.autoreset = "Walk", num_envs, self.LENGTH, autoreset
        self.state_dim, self.action_dim, self.if_discrete = 2, 2 if if_discrete else 1, if_discrete
        self.state_dtype, self.device = torch.float32, torch.device("cpu")
        self.codec = ActionCodec.plain(self.action_dim, if_discrete)
        self.random = torch.Generator()

    def drawn(self) -> Tensor:
        return torch.rand(self.num_envs, 1, generator=self.random)

    def start(self, chosen: Tensor) -> None:
        self.x = torch.where(chosen[:, None], self.drawn(), self.x)
        self.t = torch.where(chosen, 0, self.t)

    def observe(self) -> Tensor:
        return torch.cat([self.x, self.x**2], dim=1)

    def info(self) -> dict[str, Any]:
        return {"action_mask": torch.ones(self.num_envs, 2, dtype=torch.bool)} if self.if_discrete else {}

    def seed(self, seed: int | None) -> None:
        if seed is not None:
            self.random.manual_seed(seed)

    def reset(self, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        self.seed(seed)
        self.x, self.t = torch.zeros(self.num_envs, 1), torch.zeros(self.num_envs, dtype=torch.long)
        self.ended = torch.zeros(self.num_envs, dtype=torch.bool)
        self.start(~self.ended)
        return self.observe(), self.info()

    def push(self, action: Tensor) -> Tensor:
        return action[:, None] * 2.0 - 1 if self.if_discrete else action.clamp(-1, 1)

    def ends(self) -> tuple[Tensor, Tensor]:
        terminal = self.x[:, 0].abs() > 2
        return terminal, (self.t >= self.LENGTH) & ~terminal

    def step(self, action: Tensor) -> tuple[Any, ...]:
        moves = ~self.ended if self.autoreset == "next_step" else torch.ones_like(self.ended)
        self.x = self.x + 0.3 * self.push(action) * moves[:, None]
        self.t = self.t + moves
        reward = self.x[:, 0] * moves
        if self.autoreset == "next_step":
            self.start(self.ended)
            terminal, truncate = (flag & moves for flag in self.ends())
            self.ended = terminal | truncate
            return self.observe(), reward, terminal, truncate, self.info()
        terminal, truncate = self.ends()
        final = self.observe()
        self.start(terminal | truncate)
        return self.observe(), reward, terminal, truncate, {**self.info(), "final_obs": final}

    def close(self) -> None: ...


SOUND = [(autoreset, if_discrete) for autoreset in ("next_step", "same_step") for if_discrete in (False, True)]


@pytest.mark.parametrize(("autoreset", "if_discrete"), SOUND)
def test_a_sound_environment_passes_quietly(autoreset: str, if_discrete: bool, capsys: pytest.CaptureFixture):
    assert check_vec_env(Walk(autoreset, if_discrete)) is None
    assert capsys.readouterr().out == ""


def test_any_kind_of_tensor_passes():
    class Inferring(Walk):
        def observe(self) -> Tensor:
            with torch.inference_mode():
                return super().observe()

        def step(self, action: Tensor) -> tuple[Any, ...]:
            state, reward, *flags, info = super().step(action)
            return state, reward.requires_grad_(), *flags, info

    check_vec_env(Inferring())


def changed(how: str, change: Callable, autoreset: str = "next_step", if_discrete: bool = False) -> Walk:
    """Walk with one method that is `change(env, what the method gave, *its arguments)`."""
    env = Walk(autoreset, if_discrete)
    method = getattr(env, how)
    setattr(env, how, lambda *args, **keywords: change(env, method(*args, **keywords), *args))
    return env


def put(index: int, change: Callable[[Any], Any]) -> Callable:
    """A change of one of the values that reset or step returned."""
    return lambda env, given, *_: (*given[:index], change(given[index]), *given[index + 1 :])


def attribute(name: str, value: Any) -> Walk:
    env = Walk()
    setattr(env, name, value)
    return env


def without(name: str) -> Walk:
    env = Walk()
    delattr(env, name)
    return env


class Buffers(Walk):
    """Hands out the tensor that it writes into."""

    seen = None

    def observe(self) -> Tensor:
        self.seen = torch.zeros(self.num_envs, 2) if self.seen is None else self.seen
        return self.seen.copy_(super().observe())


class Live(Walk):
    """Hands out the tensor that it steps from."""

    def observe(self) -> Tensor:
        self.x = super().observe() if self.x.shape[1] == 1 else torch.cat([self.x[:, :1], self.x[:, :1] ** 2], 1)
        return self.x

    def start(self, chosen: Tensor) -> None:
        self.x = self.x[:, :1]
        super().start(chosen)

    def push(self, action: Tensor) -> Tensor:
        self.x = self.x[:, :1]
        return super().push(action)


class Global(Walk):
    def drawn(self) -> Tensor:
        return torch.rand(self.num_envs, 1)

    def seed(self, seed: int | None) -> None: ...


class HalfGlobal(Walk):
    def drawn(self) -> Tensor:
        return super().drawn() + torch.from_numpy(np.random.rand(self.num_envs, 1)).float()


class NoTimeLimit(Walk):
    def ends(self) -> tuple[Tensor, Tensor]:
        terminal, truncate = super().ends()
        return terminal, torch.zeros_like(truncate)

    LENGTH = 3


class Swapped(Walk):
    """Resets in the step that ends an episode, and again in the next."""

    def step(self, action: Tensor) -> tuple[Any, ...]:
        _, *rest = super().step(action)
        ended = self.ended.clone()
        if self.autoreset == "next_step":
            self.start(ended)
            return self.observe(), *rest
        rest[-1]["final_obs"] = self.observe()
        return self.observe(), *rest

    def start(self, chosen: Tensor) -> None:
        fixed = torch.linspace(0, 1, self.num_envs)[:, None]
        self.x = torch.where(chosen[:, None], fixed, self.x)
        self.t = torch.where(chosen, 0, self.t)


def before_the_end(env: Walk, result: tuple, action: Tensor) -> tuple:
    state, reward, terminal, truncate, info = result
    before, env.before = getattr(env, "before", state), state
    if env.autoreset == "same_step":
        return state, reward, terminal, truncate, {"final_obs": before}
    return torch.where((terminal | truncate)[:, None], before, state), reward, terminal, truncate, info


def constant_seed(env: Walk, _: Any, seed: int | None) -> None:
    if seed is not None:
        env.random.manual_seed(42)


def one_for_all(env: Walk, drawn: Tensor) -> Tensor:
    return drawn[:1].expand_as(drawn)


def write_action(env: Walk, result: tuple, action: Tensor) -> tuple:
    action.mul_(0.5)
    return result


def fails(env: Walk, result: tuple, action: Tensor) -> tuple:
    raise RuntimeError("out of joint")


def lies(truth: str, word: str) -> Walk:
    """Steps by one kind of auto-reset and says the other."""
    env = Walk(truth)

    class Liar(Walk):
        autoreset = word

        def __init__(self) -> None:
            super().__init__()
            vars(self).pop("autoreset")

        def reset(self, seed: int | None = None) -> Any:
            return env.reset(seed)

        def step(self, action: Tensor) -> Any:
            state, *rest, info = env.step(action)
            info.pop("final_obs", None)
            return state, *rest, info

    return Liar()


def keep_walking(env: Walk, ends: tuple) -> tuple:
    terminal, truncate = ends
    return terminal, truncate & (env.t >= 2 * env.LENGTH)


def empty_mask(env: Walk, info: dict) -> dict:
    return {"action_mask": torch.zeros(env.num_envs, 2, dtype=torch.bool)}


def missing_mask(env: Walk, info: dict) -> dict:
    return info if int(env.t.max()) == 0 else {}


def narrow_mask(env: Walk, info: dict) -> dict:
    return {"action_mask": info["action_mask"][:, :1]}


def always_terminal(env: Walk, ends: tuple) -> tuple:
    return ends[0] | ends[1], ends[1]


BROKEN: dict[str, tuple[str, Callable[[], Any]]] = {
    # what is wrong: (how it is named, what builds it)
    "no state_dim": ("attribute state_dim", lambda: without("state_dim")),
    "no codec": ("attribute codec", lambda: without("codec")),
    "no close": ("attribute close", lambda: attribute("close", None)),
    "an unknown autoreset": ("attribute autoreset", lambda: attribute("autoreset", "sometimes")),
    "device as a string": ("attribute device", lambda: attribute("device", "cpu")),
    "max_step of 0": ("attribute max_step", lambda: attribute("max_step", 0)),
    "a codec of another size": ("attribute codec", lambda: attribute("codec", ActionCodec.plain(2, False))),
    "an error in step": ("error", lambda: changed("step", fails)),
    "four values": ("returned values", lambda: changed("step", lambda env, r, a: r[:4])),
    "a bare state": ("returned values", lambda: changed("reset", lambda env, r, *_: r[0])),
    "an array as state": ("shape of state", lambda: changed("step", put(0, lambda x: x.numpy()))),
    "a state of another shape": ("shape of state", lambda: changed("step", put(0, lambda x: x[:, :1]))),
    "float64 states": ("dtype of state", lambda: changed("step", put(0, Tensor.double))),
    "float64 rewards": ("dtype of reward", lambda: changed("step", put(1, Tensor.double))),
    "rewards (N, 1)": ("shape of reward", lambda: changed("step", put(1, lambda x: x[:, None]))),
    "whole numbers as flags": ("dtype of terminal", lambda: changed("step", put(2, Tensor.long))),
    "a state elsewhere": ("device of state", lambda: changed("step", put(0, lambda x: x.to("meta")))),
    "NaN in a state": ("finite state", lambda: changed("observe", lambda env, x: x / (env.t < 5)[:, None])),
    "a buffer": ("aliasing", Buffers),
    "its own state": ("live tensors", Live),
    "the action written": ("action written", lambda: changed("step", write_action)),
    "no seed": ("seed", lambda: changed("seed", lambda env, _, seed: env.random.seed())),
    "one seed for ever": ("seed", lambda: changed("seed", constant_seed)),
    "one start for all": ("same seeds", lambda: changed("drawn", one_for_all)),
    "the global generator": ("global generator", Global),
    "NumPy's global generator": ("global generator", HalfGlobal),
    "actions not clamped": ("bounds", lambda: changed("push", lambda env, _, action: action)),
    "a reset in the same step": ("autoreset", lambda: lies("same_step", "next_step")),
    "a reset in the next step": ("autoreset", lambda: lies("next_step", "same_step")),
    "a first state at the end": ("successor", Swapped),
    "a first state as final_obs": ("successor", lambda: Swapped("same_step")),
    "the state before an end": ("successor", lambda: changed("step", before_the_end)),
    "the state before as final_obs": ("successor", lambda: changed("step", before_the_end, "same_step")),
    "NaN as final_obs": (
        "finite info['final_obs']",
        lambda: changed("step", put(4, lambda info: {"final_obs": info["final_obs"] / 0 * 0}), "same_step"),
    ),
    "final_obs of another shape": (
        "shape of info['final_obs']",
        lambda: changed("step", put(4, lambda info: {"final_obs": info["final_obs"][:1]}), "same_step"),
    ),
    "final_obs with a reset in the next step": (
        "final_obs",
        lambda: changed("step", put(4, lambda info: {"final_obs": torch.zeros(3, 2)})),
    ),
    "longer than max_step": ("max_step", lambda: changed("ends", keep_walking)),
    "a time limit as an end": ("truncation", lambda: changed("ends", always_terminal)),
    "an end in a reset row": (
        "end in a reset row",
        lambda: changed("step", lambda env, r, a: (*r[:3], r[3] | (env.t == 0), r[4])),
    ),
    "an empty mask": ("mask empty", lambda: changed("info", empty_mask, if_discrete=True)),
    "a mask at times": ("mask missing", lambda: changed("info", missing_mask, if_discrete=True)),
    "a mask of another shape": ("shape of info['action_mask']", lambda: changed("info", narrow_mask, if_discrete=True)),
}


@pytest.mark.parametrize(("name", "build"), BROKEN.values(), ids=BROKEN)
def test_a_broken_environment_is_named(name: str, build: Callable[[], Any]):
    with pytest.raises(ValueError, match="breaks the contract") as caught:
        check_vec_env(build())
    assert re.findall(r"^- \[(.*?)\] ", str(caught.value).replace("['", "<").replace("']", ">"), re.M) == [
        name.replace("['", "<").replace("']", ">")
    ]
    assert ": " in str(caught.value).split("] ", 1)[1]  # what is wrong: how to mend it


def test_all_findings_come_at_once():
    env = attribute("device", "cpu")
    del env.codec
    with pytest.raises(ValueError, match=r"(?s)\[attribute device\].*\[attribute codec\]"):
        check_vec_env(env)


def test_a_finding_can_be_ignored():
    env = changed("ends", always_terminal)
    check_vec_env(env, ignore=["truncation"])


def test_global_generators_are_left_as_they_are():
    torch.manual_seed(3)
    first = torch.rand(1)
    torch.manual_seed(3)
    with pytest.raises(ValueError):
        check_vec_env(Global())
    assert torch.rand(1) == first


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("num_envs", [1, 8])
def test_gymnasiums_tasks_pass(env_id: str, num_envs: int):
    check_vec_env(vectorise(env_id, None, num_envs), steps=250)


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_a_task_without_chance_passes(autoreset: str):
    check_vec_env(Clock(autoreset=autoreset))


BUILT_IN = [PointChasingEnv, StockTradingVecEnv, StockTradingEnv, PendulumEnv, "Hopper-v5"]  # others: test_tensor.py


@pytest.mark.parametrize("env_class", BUILT_IN)
def test_built_in_environments_pass(env_class: Any):
    num_envs = 1 if env_class in (PointChasingEnv, StockTradingEnv) else 3
    check_vec_env(vectorise(env_class, None, num_envs), steps=30)


class Told(Battle):
    """Battle with something wrong in what it tells."""

    wrong: ClassVar[dict[str, Callable[[Tensor], Tensor]]] = {}

    def tell(self, world: Tensor) -> dict[str, Tensor]:
        return {name: self.wrong.get(name, torch.clone)(x) for name, x in super().tell(world).items()}


TEAMS = {
    "Rendezvous": lambda: Rendezvous(num_envs=4),
    "Rendezvous, discrete, own rewards": lambda: Rendezvous(num_envs=4, if_discrete=True, if_own_reward=True),
    "Battle": lambda: Battle(num_envs=4),
    "Told": lambda: Told(num_envs=4),
    "SimpleSpread": lambda: SimpleSpread(num_envs=4),
    "PettingZoo's": lambda: vectorise(pytest.importorskip("mpe2.simple_spread_v3").parallel_env, {"max_cycles": 8}, 2),
}


@pytest.mark.parametrize("build", TEAMS.values(), ids=TEAMS)
def test_teams_pass(build: Callable[[], Any]):
    check_vec_env(build(), steps=30)


WRONG = {
    "shape of info['alive']": {"alive": lambda x: x[:, 0]},
    "shape of info['global_state']": {"global_state": lambda x: x[:, 1:]},
    "dtype of info['win']": {"win": torch.Tensor.float},
    "shape of info['action_mask']": {"action_mask": lambda x: x[:, 0]},
    "mask empty": {"action_mask": torch.zeros_like},
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_broken_team_is_named(kind: str):
    env = type("Broken", (Told,), {"wrong": WRONG[kind]})(num_envs=4)
    with pytest.raises(ValueError) as caught:
        check_vec_env(env, steps=30)
    assert f"- [{kind}] " in str(caught.value) and str(caught.value).count("\n- [") == 1
