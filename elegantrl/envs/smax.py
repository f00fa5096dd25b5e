"""SMAX, the battles of JaxMARL (arXiv:2311.10090), against enemies with a policy of their own.

Letters: N environments, M agents, S state, A action, G global state.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .spaces import ActionCodec

FINALS = {"state": "final_obs", **{name: f"final_{name}" for name in ("action_mask", "global_state", "alive")}}


class SmaxVecEnv:
    """N copies of an `EnemySMAX` under the vector contract, in JAX, with same-step auto-reset; tensors pass by DLPack.

    state (N, M, S), action (N, M), reward (N,) of the team; info has action_mask (N, M, A), global_state (N, G), alive
    (N, M), those of the last state as `final_obs`, `final_action_mask`, ..., and win (N,): the enemies have fallen and
    an agent lives. SMAX counts its time limit as an end; here it is a truncation.
    ValueError: continuous actions.
    """

    autoreset, if_discrete = "same_step", True
    state_dtype = torch.float32

    def __init__(self, env: Any, num_envs: int = 1, max_step: int | None = None, device: torch.device | str = "cpu"):
        import jax  # whoever built the environment has it

        if env.action_type != "discrete":
            raise ValueError(f"action_type={env.action_type!r} of SMAX is not known here: leave it at 'discrete'")
        self.env, self.jax, self.num_envs, self.device = env, jax, num_envs, torch.device(device)
        self.names = list(env.agents)
        self.num_agents, self.env_name = len(self.names), f"smax-{env.num_allies}-{env.num_enemies}"
        self.state_dim, self.global_dim = int(env.obs_size), int(env.state_size)
        self.action_dim, self.max_step = int(env.num_ally_actions), int(min(max_step or env.max_steps, env.max_steps))
        self.codec = ActionCodec.plain(self.action_dim, True)
        self.key = self._key(int(np.random.SeedSequence().generate_state(1)[0]))
        self.reset_all, self.step_all = jax.jit(jax.vmap(self._begin)), jax.jit(jax.vmap(self._advance))

    @staticmethod
    def fits(env: Any) -> bool:
        return all(hasattr(env, name) for name in ("step_env", "get_avail_actions", "enemy_agents"))

    def _begin(self, key: Any) -> tuple[Any, dict[str, Any]]:
        """One environment's world and what is seen of it, as JAX arrays without the axis N."""
        observation, world = self.env.reset(key)
        world = self.jax.tree.map(lambda x: x.astype(x.dtype), world)  # weak types would make `step_all` compile twice
        return world, self._seen(observation, world)

    def _advance(self, key: Any, world: Any, action: Any) -> tuple[Any, dict[str, Any]]:
        jnp, (now, then) = self.jax.numpy, self.jax.random.split(key)
        chosen = {name: action[m] for m, name in enumerate(self.names)}
        observation, after, rewards, _, _ = self.env.step_env(now, world, chosen)
        alive = after.state.unit_alive
        agents, enemies = alive[: self.num_agents].any(), alive[self.num_agents :].any()  # does one of them live
        terminal = ~(agents & enemies)
        truncate = ~terminal & (after.state.step >= self.max_step)
        final, done = self._seen(observation, after), terminal | truncate
        starts = self._begin(then)
        world, seen = self.jax.tree.map(lambda new, old: jnp.where(done, new, old), starts, (after, final))
        told = {"reward": rewards[self.names[0]], "terminal": terminal, "truncate": truncate, "win": agents & ~enemies}
        return world, {**seen, **told, **{FINALS[name]: x for name, x in final.items()}}

    def _seen(self, observation: Any, world: Any) -> dict[str, Any]:
        stack, masks = self.jax.numpy.stack, self.env.get_avail_actions(world)
        return {
            "state": stack([observation[name] for name in self.names]),
            "global_state": observation["world_state"],
            "action_mask": stack([masks[name] for name in self.names]) != 0,
            "alive": world.state.unit_alive[: self.num_agents],
        }

    def _key(self, seed: int) -> Any:
        """Tied to a device, as the actions in `step` are, or everything would compile twice."""
        return self.jax.device_put(self.jax.random.PRNGKey(seed % 2**32), self.jax.devices()[0])

    def _keys(self) -> Any:
        self.key, key = self.jax.random.split(self.key)
        return self.jax.random.split(key, self.num_envs)

    def _tensors(self, arrays: dict[str, Any]) -> dict[str, Tensor]:
        return {name: torch.from_dlpack(x).to(self.device, copy=True) for name, x in arrays.items()}

    def reset(self, seed: int | None = None) -> tuple[Tensor, dict[str, Any]]:
        """seed: of everything that is random from here on."""
        self.key = self.key if seed is None else self._key(seed)
        self.world, seen = self.reset_all(self._keys())
        self.simulated_on = torch.from_dlpack(seen["state"]).device
        info = self._tensors(seen)
        return info.pop("state"), info

    def step(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        chosen = self.jax.dlpack.from_dlpack(action.to(self.simulated_on, torch.int32, copy=True).contiguous())
        self.world, seen = self.step_all(self._keys(), self.world, chosen)
        info = self._tensors(seen)
        state, reward, terminal, truncate = (info.pop(name) for name in ("state", "reward", "terminal", "truncate"))
        return state, reward.float(), terminal, truncate, info

    def close(self) -> None:
        """Nothing to release: part of the contract."""
