"""Adapters of foreign environments for teams: PettingZoo's parallel ones, VMAS, SMAX, and those with SMAC's interface.

Letters: N environments, M agents, S state, A action, G global state.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .smax import SmaxVecEnv
from .spaces import ActionCodec

NO_LIMIT = 12345  # max_step of an environment that states none
Step = tuple[NDArray, Any, bool, bool, dict[str, Any]]


class Team(Protocol):
    """One environment of M agents in NumPy: states (M, S), actions (M,) or (M, A) of the policy, info as the contract's
    (action_mask, global_state, alive, win) without the axis N."""

    env_name: str
    num_agents: int
    state_dim: int
    action_dim: int
    global_dim: int
    if_discrete: bool
    max_step: int

    def reset(self, seed: int | None) -> tuple[NDArray, dict[str, Any]]: ...
    def step(self, action: NDArray) -> Step: ...
    def close(self) -> None: ...


def as_teams(
    env: Any,
    build: Callable[[], Any],
    num_envs: int = 1,
    max_step: int | None = None,
    device: torch.device | str = "cpu",
) -> TeamVecEnv | VmasVecEnv | SmaxVecEnv | None:
    """An environment of several agents whose interface is known, with others of its kind, under the vector contract.

    build: makes one more. None: it has no such interface. TypeError: PettingZoo's interface of turns.
    """
    kind: type[ParallelTeam] | type[SmacTeam]
    if hasattr(env, "autoreset"):
        return None
    if all(hasattr(env, name) for name in ("n_agents", "batch_dim", "reset_at")):
        return VmasVecEnv(env, max_step)
    if SmaxVecEnv.fits(env):
        return SmaxVecEnv(env, num_envs, max_step, device)
    if hasattr(env, "agent_selection"):
        raise TypeError(f"{env} lets agents act in turn: give its parallel_env instead of its env")
    if hasattr(env, "possible_agents"):
        kind = ParallelTeam
    elif all(hasattr(env, name) for name in ("get_obs", "get_state", "get_avail_actions", "get_env_info")):
        kind = SmacTeam
    else:
        return None
    return TeamVecEnv([kind(env, max_step), *(kind(build(), max_step) for _ in range(num_envs - 1))], device)


class TeamVecEnv:
    """N environments of M agents each under the vector contract, stepped in turn, with next-step auto-reset.

    state (N, M, S), action (N, M) or (N, M, A), reward (N,) of the team or (N, M), and in info what there is of
    action_mask (N, M, A), global_state (N, G), alive (N, M), win (N,).
    """

    autoreset = "next_step"
    state_dtype = torch.float32

    def __init__(self, teams: Sequence[Team], device: torch.device | str = "cpu"):
        self.teams, self.num_envs, self.device = list(teams), len(teams), torch.device(device)
        one = teams[0]
        self.env_name, self.num_agents, self.max_step = one.env_name, one.num_agents, one.max_step
        self.state_dim, self.action_dim, self.if_discrete = one.state_dim, one.action_dim, one.if_discrete
        self.global_dim, self.codec = one.global_dim, ActionCodec.plain(one.action_dim, one.if_discrete)
        self.ended = [False] * self.num_envs  # these are reset by the next step
        self.steps = [0] * self.num_envs
        self.no_reward: NDArray = np.zeros(0)  # in the shape of rewards, (M,) or ()

    def reset(self, seed: int | None = None) -> tuple[Tensor, dict[str, Any]]:
        """seed: each environment gets one of its own that derives from it."""
        seeds: list[int | None] = [None] * self.num_envs
        if seed is not None:
            seeds = np.random.SeedSequence(seed).generate_state(self.num_envs).tolist()
        self.ended, self.steps = [False] * self.num_envs, [0] * self.num_envs
        states, infos = zip(*(team.reset(s) for team, s in zip(self.teams, seeds, strict=True)), strict=True)
        return self._stack(states), self._info(infos)

    def step(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        actions = action.cpu().numpy()
        rows: list[Step] = []
        for i, team in enumerate(self.teams):
            if self.ended[i]:
                state, info = team.reset(None)
                row: Step = (state, self.no_reward, False, False, info)
                self.ended[i], self.steps[i] = False, 0
            else:
                state, reward, ends, cut, info = team.step(actions[i])
                self.steps[i] += 1
                cut = not ends and (cut or self.steps[i] >= self.max_step)
                row = (state, np.asarray(reward, np.float32), ends, cut, info)
                self.no_reward = np.zeros_like(row[1])
                self.ended[i] = ends or cut
            rows.append(row)
        states, rewards, terminals, truncates, infos = zip(*rows, strict=True)
        terminal, truncate = (torch.tensor(flags, device=self.device) for flags in (terminals, truncates))
        return self._stack(states), self._stack(rewards), terminal, truncate, self._info(infos)

    def _stack(self, arrays: Sequence[NDArray]) -> Tensor:
        return torch.from_numpy(np.stack(arrays)).to(self.device)

    def _info(self, infos: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        names = {name for info in infos for name in info}
        return {name: self._stack([np.asarray(info.get(name, False)) for info in infos]) for name in names}

    def close(self) -> None:
        for team in self.teams:
            team.close()


class ParallelTeam:
    """A PettingZoo parallel environment. Each agent has a reward of its own.

    Observations and actions of different sizes are padded to the largest, and a mask forbids the actions that an agent
    does not have, beside those that the environment's own `action_mask` forbids (in infos, or in observations that are
    dicts with "observation"). An agent that has left is dead: it sees zeros, and its only action is 0.
    ValueError: a mixture of discrete and continuous actions, or spaces that are no Box, Discrete, MultiDiscrete.
    """

    def __init__(self, env: Any, max_step: int | None = None):
        self.env, self.names = env, list(env.possible_agents)
        base = getattr(env, "unwrapped", env)
        self.env_name = str(getattr(base, "metadata", {}).get("name", type(base).__name__))
        limits = (max_step, getattr(base, "max_cycles", None), getattr(base, "max_step", None))
        self.max_step = int(min((limit for limit in limits if limit), default=NO_LIMIT))
        self.num_agents = len(self.names)
        self.sizes = [int(np.prod(self._box(env.observation_space(name)).shape)) for name in self.names]
        self.codecs = [ActionCodec.from_space(env.action_space(name)) for name in self.names]
        self.if_discrete = self.codecs[0].if_discrete
        if any(codec.if_discrete != self.if_discrete for codec in self.codecs):
            raise ValueError(f"{self.env_name} mixes discrete and continuous actions: {env.action_space}")
        self.state_dim, self.action_dim = max(self.sizes), max(codec.action_dim for codec in self.codecs)
        self.has_action = np.arange(self.action_dim) < np.array([[codec.action_dim] for codec in self.codecs])
        space = getattr(env, "state_space", None)  # that of `state()`
        self.global_dim = 0 if space is None else int(np.prod(space.shape))
        self.alive = np.ones(self.num_agents, np.bool_)

    def _box(self, space: Any) -> Any:
        box = space["observation"] if type(space).__name__ == "Dict" and "observation" in space.spaces else space
        if type(box).__name__ != "Box":
            raise ValueError(f"{self.env_name} has the observation space {space}: a Box is needed")
        return box

    def reset(self, seed: int | None) -> tuple[NDArray, dict[str, Any]]:
        states, infos = self.env.reset(seed=seed)
        self.alive[:] = [name in states for name in self.names]
        return self._states(states), self._info(states, infos)

    def step(self, action: NDArray) -> Step:
        own = {}
        for name, codec, chosen in zip(self.names, self.codecs, action, strict=True):
            if name in self.env.agents:
                own[name] = codec.decode(chosen[None] if self.if_discrete else chosen[None, : codec.action_dim])[0]
        states, rewards, terminals, truncates, infos = self.env.step(own)
        left = np.array([bool(terminals.get(name, True)) for name in self.names])
        is_over = not self.env.agents or all(terminals.get(n, True) or truncates.get(n, True) for n in self.names)
        truncate = is_over and any(truncates.get(name, False) and not terminals[name] for name in truncates)
        self.alive = self.alive & ~left
        reward = np.array([rewards.get(name, 0.0) for name in self.names], np.float32)
        return self._states(states), reward, is_over and not truncate, truncate, self._info(states, infos)

    def _states(self, states: Mapping[str, Any]) -> NDArray:
        found = np.zeros((self.num_agents, self.state_dim), np.float32)
        for row, size, name, alive in zip(found, self.sizes, self.names, self.alive, strict=True):
            if alive and name in states:
                state = states[name]
                row[:size] = np.ravel(state["observation"] if isinstance(state, Mapping) else state)
        return found

    def _info(self, states: Mapping[str, Any], infos: Mapping[str, Any]) -> dict[str, Any]:
        info: dict[str, Any] = {"alive": self.alive.copy()}
        if self.if_discrete:
            info["action_mask"] = mask = self.has_action.copy()
            for row, codec, name in zip(mask, self.codecs, self.names, strict=True):
                state = states.get(name)
                own = state.get("action_mask") if isinstance(state, Mapping) else infos.get(name, {}).get("action_mask")
                if own is None:
                    continue
                if np.shape(own) != (size := (codec.action_dim,)):
                    raise ValueError(
                        f"{self.env_name}: the action_mask of {name} has shape {np.shape(own)}, not {size}"
                    )
                row[: codec.action_dim] = np.asarray(own, np.bool_)
            mask[~self.alive] = np.arange(self.action_dim) == 0
        if self.global_dim:
            info["global_state"] = np.ravel(self.env.state()).astype(np.float32)
        wins = [bool(own["win"]) for own in infos.values() if "win" in own]
        return info | ({"win": any(wins)} if wins else {})

    def close(self) -> None:
        self.env.close()


class SmacTeam:
    """An environment with the interface of SMAC and SMACv2: `get_env_info, get_obs, get_state, get_avail_actions`,
    `reset()`, `step(actions) -> reward, terminated, info`. The reward is the team's.

    Who may do nothing but action 0 is dead. info["battle_won"] tells of a win, info["episode_limit"] of a time limit;
    SMAC says so with `continuing_episode` only, so an end at the limit is one where nobody won and somebody lives.
    SMAC takes a seed when it is built only.
    """

    if_discrete = True

    def __init__(self, env: Any, max_step: int | None = None):
        about = env.get_env_info()
        self.env, self.env_name = env, str(getattr(env, "map_name", type(env).__name__))
        self.num_agents, self.action_dim = int(about["n_agents"]), int(about["n_actions"])
        self.state_dim, self.global_dim = int(np.prod(about["obs_shape"])), int(np.prod(about["state_shape"]))
        self.limit, self.steps = int(about["episode_limit"]), 0
        self.max_step = min(max_step or NO_LIMIT, self.limit)
        seed = getattr(env, "seed", None)
        self.takes_seed = callable(seed) and len(inspect.signature(seed).parameters) > 0

    def reset(self, seed: int | None) -> tuple[NDArray, dict[str, Any]]:
        if seed is not None and self.takes_seed:
            self.env.seed(seed)
        self.env.reset()
        self.steps = 0
        return self._states(), self._info(False)

    def step(self, action: NDArray) -> Step:
        reward, is_over, told = self.env.step(action.tolist())
        self.steps += 1
        info = self._info(told.get("battle_won"))
        timeout = self.steps >= self.limit and not info["win"] and bool(info["alive"].any())
        truncate = bool(is_over and (told.get("episode_limit", False) or timeout))
        return self._states(), float(reward), bool(is_over) and not truncate, truncate, info

    def _states(self) -> NDArray:
        return np.stack([np.ravel(state) for state in self.env.get_obs()]).astype(np.float32)

    def _info(self, won: Any) -> dict[str, Any]:
        mask = np.asarray(self.env.get_avail_actions(), np.bool_)
        state = np.ravel(self.env.get_state()).astype(np.float32)
        return {"action_mask": mask, "alive": mask[:, 1:].any(1), "global_state": state, "win": bool(won)}

    def close(self) -> None:
        self.env.close()


class VmasVecEnv:
    """An environment of VMAS: N copies as tensors, with same-step auto-reset. Each agent has a reward of its own.

    Observations and actions of different sizes are padded to the largest; a mask forbids what a discrete agent does not
    have. The policy's [-1, 1] is the agent's whole range. Build it with `terminated_truncated=True`, or its time limit
    (`max_steps`) counts as an end of the task.
    """

    autoreset = "same_step"
    state_dtype = torch.float32
    global_dim = 0

    def __init__(self, env: Any, max_step: int | None = None):
        self.env, self.num_envs, self.device = env, int(env.batch_dim), torch.device(env.device)
        self.env_name = f"vmas-{type(env.scenario).__module__.rpartition('.')[2]}"
        self.num_agents, self.max_step = int(env.n_agents), int(max_step or env.max_steps or NO_LIMIT)
        self.if_discrete = not env.continuous_actions
        spaces, states = list(env.action_space), list(env.observation_space)
        if self.if_discrete:
            sizes = [int(space.n) for space in spaces]
        else:
            sizes = [int(space.shape[0]) for space in spaces]
            self.bounds = [torch.tensor(np.array([x.low, x.high]), device=self.device) for x in spaces]  # (2, A)
        self.action_dim = max(sizes)
        self.state_dim = max(int(np.prod(space.shape)) for space in states)
        self.codec = ActionCodec.plain(self.action_dim, self.if_discrete)
        has_action = (
            torch.arange(self.action_dim, device=self.device) < torch.tensor(sizes, device=self.device)[:, None]
        )
        self.info = {"action_mask": has_action.expand(self.num_envs, -1, -1)} if self.if_discrete else {}
        self.steps = torch.zeros(self.num_envs, dtype=torch.long, device=self.device)

    def reset(self, seed: int | None = None) -> tuple[Tensor, dict[str, Any]]:
        self.steps.zero_()
        return self._states(self.env.reset(seed=seed)), dict(self.info)

    def step(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        each = action.unbind(1)
        if self.if_discrete:
            own = [x[:, None] for x in each]
        else:
            shares = [(x.clamp(-1, 1) + 1) / 2 for x in each]
            own = [
                torch.lerp(bounds[0], bounds[1], x[:, : bounds.shape[1]])
                for x, bounds in zip(shares, self.bounds, strict=True)
            ]
        states, rewards, terminal, *truncate, _ = self.env.step(own)
        self.steps += 1
        cut = (truncate[0] if truncate else torch.zeros_like(terminal)) | (self.steps >= self.max_step)
        final = self._states(states)
        done = terminal | cut
        if bool(done.all()):
            state = self._states(self.env.reset())
        else:
            for i in done.nonzero()[:, 0].tolist():
                self.env.reset_at(i)
            state = (
                self._states(self.env.get_from_scenario(True, False, False, False)[0]) if bool(done.any()) else final
            )
        self.steps *= ~done
        reward = torch.stack(list(rewards), 1).float()
        return state, reward, terminal.clone(), cut & ~terminal, {**self.info, "final_obs": final}

    def _states(self, states: Sequence[Tensor]) -> Tensor:
        padded = [torch.nn.functional.pad(x.float(), (0, self.state_dim - x.shape[1])) for x in states]
        return torch.stack(padded, 1)

    def close(self) -> None:
        """Nothing to release: part of the contract."""
