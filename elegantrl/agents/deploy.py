"""An agent outside of a run: it answers greedily in the environment's units, is saved and loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from .. import storage
from ..trajectory import Record
from .options import Option


class Deployed:
    """The part of an agent that no update needs. (`self: Any` where a method needs what AgentBase adds.)"""

    saved: ClassVar[tuple[str, ...]] = (  # attributes that a checkpoint holds beside networks and optimizers
        *("progress", "update_count", "actor_count", "carry"),
    )

    act: Any  # the policy
    cri: Any  # the critic
    act_target: Any  # the copies that follow slowly, or the networks themselves
    cri_target: Any
    act_optimizer: Any
    cri_optimizer: Any
    device: torch.device
    codec: Any  # the environment's ActionCodec, so that select_action answers in its units
    last: Record | None  # (N, ...), where the next rollout begins
    options: list[Option]

    @property
    def state_shape(self: Any) -> tuple[int, ...]:
        """Of what a policy sees at one moment: (S,), an image, or (M, S)."""
        shape = self.state_dim if isinstance(self.state_dim, tuple) else (self.state_dim,)
        return (self.num_agents, *shape) if self.num_agents else shape

    def forget(self) -> None:
        """Call it at an episode's start where `select_action` has a memory: it starts anew. Else nothing happens."""
        self.act.forget()

    @torch.no_grad()
    def select_action(self: Any, state: Any, action_mask: Any = None) -> Any:
        """The greedy action in the environment's own units, ready for env.step.

        state: (S,) or (N, S), any array; where states are flattened, the environment's own shape too. Of a team (M, S)
        or (N, M, S). With a memory, states of one episode in their order: see `forget`.
        ValueError: another shape, several parts, or a mask that allows nothing.
        """
        if isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict):
            raise ValueError("select_action expects a state and got (state, info): pass the state only")
        if isinstance(state, Mapping):
            raise ValueError("select_action expects numbers: gymnasium.spaces.flatten(env.observation_space, state)")
        x = torch.as_tensor(state if isinstance(state, Tensor) else np.array(state, ndmin=1), device=self.device)
        x = x if x.dtype == torch.uint8 else x.float()
        shape, size = self.state_shape, x.numel()
        is_flat = len(shape) == 1
        single = x.shape == shape or (is_flat and size == shape[0] and x.shape[1:] != shape)
        several = x.shape[1:] == shape or (is_flat and x.dim() > 1 and size == len(x) * shape[0])
        if not (single or several):
            many = str(("N", *shape)).replace("'", "")
            raise ValueError(f"select_action expects a state {shape} or {many} and got shape {tuple(x.shape)}")
        mask = action_mask
        if mask is not None:
            team = shape[:1] if self.num_agents else ()
            mask = torch.as_tensor(mask, device=self.device).bool().reshape(-1, *team, self.action_dim)
            if not bool(mask.any(-1).flatten(1).any(-1).all() if team else mask.any(-1).all()):
                raise ValueError(f"select_action: the mask allows no action: {action_mask}")
        array = self.greedy(x.reshape(-1, *shape), mask).cpu().numpy()
        array = array if self.codec is None else self.codec.decode(array)
        return array[0] if single else array

    @property
    def last_state(self) -> Tensor | None:
        """The states (N, S) at which the next rollout begins; a script may set them after its own env.reset."""
        return None if self.last is None else self.last.states

    @last_state.setter
    def last_state(self: Any, state: Any) -> None:
        state = torch.as_tensor(state, dtype=torch.float32, device=self.device)
        self.begin(state if state.dim() > len(self.state_shape) else state[None], {})

    def explore_env(self: Any, env: Any, horizon_len: int, if_random: bool = False) -> tuple[Tensor, ...]:
        """states, actions, [logprobs,] rewards, undones, unmasks of a new rollout, each (T, N, ...).

        env: what build_env returns (one environment or many).
        """
        env = getattr(env, "vector", env)
        return self.explore(env, self.new_trajectory(env, horizon_len), if_random).as_tuple()

    # saving

    def parts(self) -> dict[str, Any]:
        """Networks and optimizers by name; what goes by two names (an act that is the cri) is there once."""
        names = [f"{net}{part}" for part in ("", "_target", "_optimizer") for net in ("act", "cri")]
        found: dict[str, Any] = {}
        for name in names:
            if not any(getattr(self, name) is part for part in found.values()):
                found[name] = getattr(self, name)
        return found

    def tensors(self) -> list[Tensor]:
        """Parameters and buffers of all networks, themselves."""
        nets = [part for part in self.parts().values() if isinstance(part, nn.Module)]
        return [x for net in nets for x in (*net.parameters(), *net.buffers())]

    def acting_state(self: Any) -> dict[str, Tensor]:
        """What a copy of this agent needs to act as it does, as the tensors themselves.

        Of the policy; on-policy of the critic too, since its value completes rows that a time limit ended.
        """
        nets = {"act": self.act} if self.if_off_policy else {"act": self.act, "cri": self.cri}
        states = {f"{name}.{key}": x for name, net in nets.items() for key, x in net.state_dict().items()}
        return {name: x for name, x in states.items() if isinstance(x, Tensor)}

    def state_dict(self) -> dict[str, Any]:
        """All that a resume needs: networks, optimizers, normalisers, counters, where the rollout stands."""
        parts = {name: part.state_dict() for name, part in self.parts().items()}
        norms = {f"{name}_norm": getattr(self, f"{name}_norm").state_dict() for name in ("state", "value", "reward")}
        options = {option.name: option.state_dict() for option in self.options if option.name}
        return {**parts, **norms, **options, **{name: getattr(self, name) for name in self.saved}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, part in self.parts().items():
            part.load_state_dict(state[name])
        for name in ("state_norm", "value_norm", "reward_norm"):
            getattr(self, name).load_state_dict(state[name])
        for name in self.saved:
            value = state[name]
            setattr(self, name, value.to(self.device) if isinstance(value, Tensor) else value)
        for option in self.options:
            option.load_state_dict(state.get(option.name, {}))

    def save_or_load_agent(self, cwd: str, if_save: bool) -> None:
        """Writes or reads act.pth (a module), actor.pth, cri.pth, *_target.pth, *_optimizer.pth (state dicts) in cwd.

        Raises FileNotFoundError on loading where cwd holds no actor.pth.
        """
        files = {"actor": self.act, "cri": self.cri, "act_target": self.act_target, "cri_target": self.cri_target}
        optimizers = {"act_optimizer": self.act_optimizer, "cri_optimizer": self.cri_optimizer}
        if if_save:
            act = deepcopy(self.act).cpu()  # so that a bare torch.load works on a machine without a GPU
            storage.atomic_save(act, os.path.join(cwd, "act.pth"))
        for name, part in {**files, **optimizers}.items():
            path = os.path.join(cwd, f"{name}.pth")
            if if_save:
                storage.atomic_save(part.state_dict(), path)
            elif name == "actor" or os.path.exists(path):
                part.load_state_dict(storage.load(path, self.device))
