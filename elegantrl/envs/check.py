"""Whether an environment keeps its word, before a run finds out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .simulators import OwnRandom
from .single import GymEnv, make_env
from .spaces import ActionCodec
from .vector import as_vec_env
from .watch import told_of_team

SHORT = 16  # rows of the plays that are compared
WATCHED = 8  # environments whose states are kept


def check_env(env: Any) -> None:
    """Plays a few random steps of a single environment (or of what builds one). ValueError: it breaks its own word."""
    env = env if isinstance(env, GymEnv) else make_env(env)
    state, _ = env.reset(seed=0)
    rng = np.random.default_rng(0)
    for step in range(16):
        if not np.isfinite(state).all():
            raise ValueError(f"{env.env_name}: the state at step {step} is not finite: {state}")
        drawn = rng.integers(env.action_dim, size=1) if env.if_discrete else rng.uniform(-1, 1, (1, env.action_dim))
        action = env.codec.decode(drawn.astype(np.int64 if env.if_discrete else np.float32))[0]
        state, reward, terminal, truncate, _ = env.step(action)
        if not math.isfinite(reward):
            raise ValueError(f"{env.env_name}: the reward at step {step} is not finite: {reward}")
        if terminal or truncate:
            state, _ = env.reset()


def check_vec_env(env: Any, steps: int = 1000, ignore: Sequence[str] = ()) -> None:
    """Plays random actions on an environment under the vector contract and looks whether it keeps the contract.

    ValueError: what is wrong, all of it, each with how to mend it; returns quietly if nothing is.
    env: what `build_env` returns, of a team too; played for at most so many steps, or an episode; reset it afterwards.
    ignore: kinds of findings to leave out (the words in brackets), such as "truncation" where the task has a horizon.
    """
    env = env if hasattr(env, "autoreset") else as_vec_env(env)
    found = {kind: text for kind, text in _VecCheck(env, steps).run().items() if kind not in ignore}
    if found:
        name, lines = getattr(env, "env_name", type(env).__name__), "\n".join(f"- [{k}] {t}" for k, t in found.items())
        raise ValueError(f"{name} breaks the contract of vector environments:\n{lines}")


@dataclass
class Play:
    """What one play gave, of the first WATCHED environments, on the CPU. Row t is what step t returned."""

    states: Tensor  # (T, n, ...)
    rewards: Tensor  # (T, n), or (T, n, M) where each agent of a team has its own
    terminals: Tensor  # (T, n) bool
    truncates: Tensor  # (T, n) bool
    finals: Tensor  # (T, n, ...), info["final_obs"], or NaN

    @property
    def dones(self) -> Tensor:
        return self.terminals | self.truncates

    def same(self, other: Play, rows: slice) -> Tensor:
        """Which environments went the same way in these rows, (n,) bool; physics engines differ in the last bits."""
        same = (self.dones[rows] == other.dones[rows]).all(0)
        for mine, others in ((self.states, other.states), (self.rewards[..., None], other.rewards[..., None])):
            mine, others = mine.flatten(2).double(), others.flatten(2).double()
            tolerance = 1e-3 * mine.std((0, 1), correction=0) + 1e-5 * mine.abs().mean((0, 1))
            same = same & ((mine[rows] - others[rows]).abs() <= tolerance).all(-1).all(0)
        return same


class _VecCheck:
    """Collects findings {kind: text}, the first of each kind."""

    def __init__(self, env: Any, steps: int):
        self.env, self.found = env, dict[str, str]()
        self.steps = steps
        agents = getattr(env, "num_agents", 0)
        self.team: tuple[int, ...] = (agents,) if agents else ()  # (M,), or () of one agent
        self.has_mask: bool | None = None

    def run(self) -> dict[str, str]:
        self.check_attributes()
        if self.found:  # nothing can be played
            return self.found
        with suppress(_Unplayable):
            self.check_plays()
        return self.found

    def find(self, kind: str, text: str) -> None:
        self.found.setdefault(kind, text)

    # what it says of itself

    def check_attributes(self) -> None:
        env = self.env

        def is_count(x: Any) -> bool:
            return isinstance(x, int) and not isinstance(x, bool) and x > 0

        def is_shape(x: Any) -> bool:
            return is_count(x) or (isinstance(x, tuple) and len(x) > 0 and all(map(is_count, x)))

        rules: dict[str, tuple[Callable[[Any], bool], str]] = {
            "env_name": (lambda x: isinstance(x, str), "a str"),
            "num_envs": (is_count, "an int above 0, the number of environments"),
            "max_step": (is_count, "an int above 0, the steps of the longest episode"),
            "state_dim": (is_shape, "an int, or a tuple of them for an image"),
            "action_dim": (is_count, "an int, the size of an action or the number of actions"),
            "if_discrete": (lambda x: isinstance(x, bool), "a bool"),
            "device": (lambda x: isinstance(x, torch.device), "a torch.device, where its tensors are"),
            "autoreset": (lambda x: x in ("next_step", "same_step"), "'next_step' or 'same_step'"),
            "state_dtype": (lambda x: x in (torch.float32, torch.uint8), "torch.float32, or torch.uint8 for images"),
            "codec": (
                lambda x: isinstance(x, ActionCodec),
                "ActionCodec.plain(action_dim, if_discrete), or of a space",
            ),
            **dict.fromkeys(("reset", "step", "close"), (callable, "a method")),
        }
        missing = object()
        for name, (is_right, wanted) in rules.items():
            value = getattr(env, name, missing)
            if value is missing or not is_right(value):
                said = "is missing" if value is missing else f"is {value!r}"
                self.find(f"attribute {name}", f"{name} {said}: set it to {wanted}")
        if not self.found and (env.codec.action_dim, env.codec.if_discrete) != (env.action_dim, env.if_discrete):
            self.find(
                "attribute codec",
                f"codec has action_dim={env.codec.action_dim}, if_discrete={env.codec.if_discrete}, the environment "
                f"{env.action_dim}, {env.if_discrete}: make it by ActionCodec.plain(action_dim, if_discrete)",
            )

    # what it does

    def check_plays(self) -> None:
        env, rows = self.env, slice(0, SHORT)
        self.play(SHORT)  # some are another thing at their first reset, when they load
        main = self.play(max(SHORT, min(self.steps, 2 * env.max_step + 3)))
        again = self.play(SHORT, noise=1, poison=True)
        if not bool(main.same(again, rows).all()):
            self.name_what_differs(main)
        if "seed" not in self.found:  # plays can be compared
            self.check_seeds(main)
            self.check_reset_row(main)
            if not env.if_discrete:
                edge, beyond = (self.play(SHORT, scale=scale) for scale in (1.0, 3.0))
                if not bool(edge.same(beyond, rows).all()):
                    self.find(
                        "bounds",
                        "an action of 3 does something else than 1: clamp actions to [-1, 1] before you scale them",
                    )
        self.check_ends(main)

    def check_seeds(self, main: Play) -> None:
        rows = slice(0, SHORT)
        if not bool(main.same(self.play(SHORT, seed=1), rows).all()):
            if self.env.num_envs > 1 and bool((main.states[rows] == main.states[rows, :1]).all()):
                self.find(
                    "same seeds",
                    "all environments start and go the same way: give each a generator, or numbers, of its own",
                )
        elif not bool(self.play(SHORT, seed=None).same(self.play(SHORT, seed=None), rows).all()):  # so there is chance
            self.find("seed", "reset(seed=0) and reset(seed=1) go the same way: seed every generator by it")

    def name_what_differs(self, main: Play) -> None:
        """Why a second play by the same seed went another way: is it without a seed, or what was changed in between?"""
        rows = slice(0, SHORT)
        noisy = [self.play(SHORT, noise=1) for _ in range(2)]
        if not bool(main.same(self.play(SHORT), rows).all()) or not bool(noisy[0].same(noisy[1], rows).all()):
            self.find("seed", "reset(seed=0) twice goes two ways: seed every generator that the environment draws from")
        elif bool(main.same(noisy[0], rows).all()):
            self.find(
                "live tensors",
                "writing into returned tensors changes what the environment does: return clones of its state",
            )
        else:
            self.find(
                "global generator",
                "it draws from the global generator of torch, numpy or random, so that it changes what the agent draws "
                "and the reverse: use a torch.Generator of its own, seeded in reset",
            )

    def check_reset_row(self, main: Play) -> None:
        """Whether the row after an end ignores its action, as 'next_step' does and 'same_step' does not."""
        if not bool(main.dones[:-1].any()):
            return
        end = int(main.dones[:-1].any(1).nonzero()[0, 0])
        changed = self.play(1, flip_at=0)
        reacts = ~main.same(changed, slice(0, 1))  # to its action in the first step of an episode
        flipped = self.play(end + 2, flip_at=end + 1)
        ended = main.dones[end] & main.same(flipped, slice(end, end + 1))
        ignores = main.same(flipped, slice(end + 1, end + 2))
        if self.env.autoreset == "next_step" and bool((ended & ~ignores).any()):
            self.find(
                "autoreset",
                "autoreset is 'next_step', yet the row after an episode's end depends on its action: let that step "
                "only reset, or say 'same_step' if the step that ends an episode resets already",
            )
        if self.env.autoreset == "same_step" and bool((ended & reacts).any()) and bool((ignores | ~ended).all()):
            self.find(
                "autoreset",
                "autoreset is 'same_step', yet the row after an episode's end ignores its action: reset in the step "
                "that ends the episode, or say 'next_step'",
            )

    def check_ends(self, main: Play) -> None:
        env, dones = self.env, main.dones
        next_step = env.autoreset == "next_step"
        resetting = torch.zeros_like(dones)
        if next_step:
            resetting[1:] = dones[:-1]
            if bool((resetting & dones).any()):
                self.find(
                    "end in a reset row", "the row that only resets reports an end: both flags must be False there"
                )
        length, lengths, kinds = torch.zeros(dones.shape[1], dtype=torch.long), list[int](), list[tuple[bool, bool]]()
        longest = 0
        for t in range(len(dones)):
            length = length + (~resetting[t]).long()
            longest = max(longest, int(length.max()))
            for i in dones[t].nonzero()[:, 0].tolist():
                lengths.append(int(length[i]))
                kinds.append((bool(main.terminals[t, i]), bool(main.truncates[t, i])))
            length = length * ~dones[t]
        if longest > env.max_step and "autoreset" not in self.found:
            self.find(
                "max_step",
                f"an episode lasted {longest} steps or more, max_step is {env.max_step}: end episodes there by "
                "truncate, or correct max_step",
            )
        at_limit = [kind for n, kind in zip(lengths, kinds, strict=True) if n == env.max_step]
        if at_limit and env.max_step > 1 and all(terminal for terminal, _ in at_limit):
            self.find(
                "truncation",
                f"every episode of max_step={env.max_step} steps ended by terminal: a time limit is no end of the "
                "task, report it by truncate alone, so that values bootstrap through it",
            )
        varied = not bool((main.states == main.states[:1, :1]).all())
        at, who = dones[:-1].nonzero(as_tuple=True)
        if len(at) and varied:
            final, first = (main.states[at], main.states[at + 1]) if next_step else (main.finals[at], main.states[at])
            final, first = (x[torch.arange(len(who)), who].flatten(1) for x in (final, first))
            what = "the row of an end holds" if next_step else "info['final_obs'] holds"
            if bool((final == first).all()):
                self.find(
                    "successor",
                    f"{what} the new episode's first state: return the state that the last action led to",
                )
            cut = (main.truncates & ~main.terminals)[at, who] & (at > 0)
            stays = (final == main.states[at - 1, who].flatten(1)).all(-1)
            moves = (main.states[1:] != main.states[:-1]).flatten(2).any(-1) | dones[1:] | resetting[1:]
            if bool(cut.any()) and bool(stays[cut].all()) and bool(moves.all()):  # every other step changes the state
                self.find(
                    "successor",
                    f"{what} the state before the last action: return the one that it led to",
                )

    # playing

    def play(
        self,
        steps: int,
        seed: int | None = 0,
        noise: int = 0,
        poison: bool = False,
        flip_at: int = -1,
        scale: float | None = None,
    ) -> Play:
        """All environments take the same random actions, the same in every play, except where an argument says else.

        noise: seed of the global generators meanwhile. poison: write into every tensor that was returned.
        flip_at: the row whose action is another one. scale: actions of this size, with either sign.
        """
        with OwnRandom(self.env.device)(noise):
            state, info = self.call(self.env.reset, "reset(seed)", seed=seed)
            self.check_state(state, info, torch.zeros(self.env.num_envs, dtype=torch.bool, device=self.env.device))
            generator = torch.Generator().manual_seed(0)
            rows, before = [], [(state, state.clone())]
            for t in range(steps):
                action = self.action(generator, info, t == flip_at, scale)
                if poison:
                    overwrite(state)
                given = action.clone()
                result = self.call(self.env.step, "step(action)", action)
                if not torch.equal(given, action):
                    self.find("action written", "step changes the action that it is given: work on a copy")
                if not poison and any(not torch.equal(tensor, copy) for tensor, copy in before):
                    self.find("aliasing", "a returned tensor changes with the next step: return clones, not buffers")
                state, info = result[0], result[-1]
                self.check_step(*result)
                before = [(x, x.clone()) for x in result[:4]]
                final = info.get("final_obs", torch.full_like(state, torch.nan, dtype=torch.float32))
                rows.append([x[:WATCHED].cpu().clone() for x in (*result[:4], final)])
                if poison:
                    overwrite(*result[:4])
        return Play(*(torch.stack(column) for column in zip(*rows, strict=True)))

    def action(self, generator: torch.Generator, info: dict, flip: bool, scale: float | None) -> Tensor:
        env = self.env
        if not env.if_discrete:
            one = torch.rand(*self.team, env.action_dim, generator=generator) * 2 - 1
            if flip:
                one = -one.sign()
            elif scale is not None:
                one = one.sign() * scale
            return one.expand(env.num_envs, *one.shape).to(env.device, copy=True)
        one = torch.rand(*self.team, env.action_dim, generator=generator).to(env.device)
        chance = one.expand(env.num_envs, *one.shape)
        chance = chance * info["action_mask"] if "action_mask" in info else chance
        best = chance.argmax(-1)
        others = chance.scatter(-1, best[..., None], 0)
        return torch.where(flip & others.any(-1), others.argmax(-1), best)

    def call(self, method: Callable, name: str, *args: Any, **keywords: Any) -> tuple:
        try:
            result = method(*args, **keywords)
        except Exception as error:
            self.find("error", f"{name} raised {type(error).__name__}: {error}; the contract's calls must work")
            raise _Unplayable from error
        wanted = 2 if name.startswith("reset") else 5
        if not isinstance(result, tuple) or len(result) != wanted or not isinstance(result[-1], dict):
            parts = "state, info" if wanted == 2 else "state, reward, terminal, truncate, info"
            self.find("returned values", f"{name} returns something else: it must return ({parts}) with info a dict")
            raise _Unplayable
        return result

    def check_step(self, state: Any, reward: Any, terminal: Any, truncate: Any, info: dict) -> None:
        flags = (("terminal", terminal, torch.bool), ("truncate", truncate, torch.bool))
        own = self.team if isinstance(reward, Tensor) and reward.dim() == 2 else ()  # each agent's, or the team's
        self.check_tensor("reward", reward, (self.env.num_envs, *own), torch.float32)
        for name, tensor, dtype in flags:
            self.check_tensor(name, tensor, (self.env.num_envs,), dtype)
        done = terminal | truncate
        self.check_state(state, info, done)
        if "final_obs" in info:
            if self.env.autoreset == "next_step":
                self.find("final_obs", "info['final_obs'] belongs to 'same_step': leave it out, or correct autoreset")
            self.check_tensor("info['final_obs']", info["final_obs"], self.state_shape, self.env.state_dtype)
            if not bool(torch.isfinite(info["final_obs"][done]).all()):
                self.find(
                    "finite info['final_obs']",
                    "info['final_obs'] holds NaN or infinity where an episode ended: return the state that the last "
                    "action led to",
                )

    def check_state(self, state: Any, info: dict, done: Tensor) -> None:
        self.check_tensor("state", state, self.state_shape, self.env.state_dtype)
        lead = (self.env.num_envs, *self.team)
        for name, spec in told_of_team(self.env).items() if self.team else ():
            if name in info:
                self.check_tensor(f"info[{name!r}]", info[name], *spec)
        if self.has_mask is None:
            self.has_mask = "action_mask" in info
        elif self.has_mask != ("action_mask" in info):
            self.find("mask missing", "info['action_mask'] is there at times only: give it with every reset and step")
            raise _Unplayable
        if self.has_mask:
            mask = info["action_mask"]
            self.check_tensor("info['action_mask']", mask, (*lead, self.env.action_dim), torch.bool)
            used = ~done if self.env.autoreset == "next_step" else torch.ones_like(done)
            used = used.view(-1, *[1] * len(self.team)) & info.get("alive", True)
            if bool((used & ~mask.any(-1)).any()):
                self.find(
                    "mask empty", "info['action_mask'] allows no action where one will be used: allow at least one"
                )

    @property
    def state_shape(self) -> tuple[int, ...]:
        dim = self.env.state_dim
        return (self.env.num_envs, *self.team, *((dim,) if isinstance(dim, int) else dim))

    def check_tensor(self, name: str, x: Any, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        """_Unplayable: so wrong that nothing more can be told."""
        if not isinstance(x, Tensor) or tuple(x.shape) != shape:
            got = f"of shape {tuple(x.shape)}" if isinstance(x, Tensor) else f"a {type(x).__name__}"
            self.find(f"shape of {name}", f"{name} is {got}: it must be a tensor of shape {shape}")
            raise _Unplayable
        device = self.env.device
        if x.device.type != device.type or (device.index is not None and x.device != device):
            self.find(f"device of {name}", f"{name} is on {x.device}, not on env.device={device}: create it there")
            raise _Unplayable
        if x.dtype != dtype:
            self.find(f"dtype of {name}", f"{name} is {x.dtype}, not {dtype}: convert it, by .to({dtype})")
            raise _Unplayable
        if dtype.is_floating_point and name != "info['final_obs']" and not bool(torch.isfinite(x).all()):
            self.find(f"finite {name}", f"{name} holds NaN or infinity: find the division or the overflow that made it")
            raise _Unplayable


@torch.inference_mode()  # so that such tensors, and those with a gradient, can be written into as well
def overwrite(*tensors: Tensor) -> None:
    for tensor in tensors:
        tensor.fill_(1)


class _Unplayable(Exception):
    """After a finding that leaves nothing more to be told."""
