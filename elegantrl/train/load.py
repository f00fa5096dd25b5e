"""What a run left: loads, scores and shows its agent."""

from __future__ import annotations

import importlib
import operator
import os
import sys
from types import SimpleNamespace
from typing import Any

import torch

from .. import storage
from ..envs import ActionCodec
from .config import Config, build_agent, build_env
from .evaluator import get_rewards_and_steps

MUST_STAY = (  # of the settings, when a run goes on
    *("agent_class", "env_name", "num_envs", "state_dim", "action_dim", "if_discrete", "net_dims", "activation"),
    *("num_agents", "global_dim", "if_share_params", "if_agent_id", "rnn_dim"),
    *("num_ensembles", "if_norm_state", "if_norm_value", "if_norm_reward", "state_value_tau"),
)


def init_agent(args: Config, gpu_id: int = -1, env: Any = None) -> Any:
    """The agent of a Config with what args.cwd holds loaded into it; a new one, said in a line, where it holds nothing.

    Where args do not say how the networks are built, the checkpoint there does.
    env: an environment to read dimensions from, where the Config does not know them.
    """
    args.gpu_id = gpu_id
    if env is not None and args.env_class is None:
        args.env_class = env
    saved = None
    if os.path.exists(os.path.join(args.cwd, "checkpoint.pth")):
        saved = storage.load_checkpoint(args.cwd)
        for name, value in saved_hyper_parameters(args.agent_class, saved["config"]).items():
            if name in MUST_STAY and name not in vars(args):
                setattr(args, name, value)
    agent = build_agent(args)
    with storage.refusing_misfits(args.cwd, agent):
        if saved is not None:
            agent.load_state_dict(saved["agent"])
            return agent
        if os.path.exists(os.path.join(args.cwd, "actor.pth")):
            agent.save_or_load_agent(args.cwd, if_save=False)
            return agent
    print(f"init_agent: {args.cwd} holds no actor.pth, the agent is new.", flush=True)
    return agent


def load_agent(cwd: str, gpu_id: int = -1, agent_class: type | None = None, best: bool = False) -> Any:
    """The agent that a run left in cwd: `load_agent(cwd).select_action(state)` answers in the environment's units.

    agent_class: needed only where the class was defined in a script or notebook and cannot be imported by its name.
    best: the policy of the best evaluation (of the actor__{step}_{return}.pt files) instead of the run's last one.
    """
    checkpoint = storage.load_checkpoint(cwd)
    saved = checkpoint["config"]
    cls: Any = agent_class or import_by_name(saved["agent_class"])
    args = SimpleNamespace(**saved_hyper_parameters(cls, saved))
    agent = cls(saved["net_dims"], saved["state_dim"], saved["action_dim"], gpu_id=gpu_id, args=args)
    agent.codec = ActionCodec.from_dict(saved["codec"])
    with storage.refusing_misfits(cwd, agent):
        agent.load_state_dict(checkpoint["agent"])
        if best:
            agent.act.load_state_dict(storage.load(storage.best_actor(cwd), agent.device).state_dict())
    return agent


def saved_hyper_parameters(agent_class: Any, saved: dict[str, Any]) -> dict[str, Any]:
    """What a checkpoint's config says of an agent's hyper-parameters; of a function it has the name alone: left out."""
    defaults = agent_class.hyper_parameters()
    numbers = {name for name, value in defaults.items() if isinstance(value, int | float) or callable(value)}
    return {n: saved[n] for n in defaults if n in saved and not (n in numbers and isinstance(saved[n], str))}


def import_by_name(name: str) -> Any:
    """The class that "module:qualname" names: the library's, or one whose module is imported already.

    A file decides no further what is imported. ImportError, with what to do, where the class is not there.
    """
    module, _, qualname = name.partition(":")
    try:
        found = importlib.import_module(module) if module.startswith("elegantrl.") else sys.modules[module]
        return operator.attrgetter(qualname)(found)
    except (ImportError, AttributeError, KeyError) as error:
        raise ImportError(f"{name} is not imported here: give load_agent the class itself, agent_class=...") from error


def valid_agent(
    env_class: Any,
    env_args: dict[str, Any],
    net_dims: Any,
    agent_class: type,
    actor_path: str,
    render_times: int = 8,
    if_render: bool = False,
) -> list[float]:
    """Plays greedy episodes with a saved actor (a module or a state dict), prints and returns their returns.

    A state dict does not say how the network is built: the checkpoint.pth in the same folder does, if there is one.
    """
    if if_render:
        env_args = {"render_mode": "human", **env_args}
    env = build_env(env_class, env_args)
    actor = storage.load(actor_path, "cpu")
    if not isinstance(actor, torch.nn.Module):
        folder = os.path.dirname(actor_path)
        settings: dict[str, Any] = {f"if_norm_{kind}": f"{kind}_norm.mean" in actor for kind in ("state", "value")}
        if os.path.exists(os.path.join(folder, "checkpoint.pth")):
            settings = saved_hyper_parameters(agent_class, storage.load_checkpoint(folder)["config"])
        agent = build_agent(Config(agent_class, env, **{**settings, "net_dims": net_dims}))
        with storage.refusing_misfits(actor_path, agent):
            agent.act.load_state_dict(actor)
        actor = agent.act
    returns = []
    for i in range(render_times):
        episode_return, steps = get_rewards_and_steps(env, actor, if_render)
        print(f"episode {i:4}   return {episode_return:10.3f}   steps {steps:6}", flush=True)
        returns.append(episode_return)
    env.close()
    return returns


def render_agent(
    env_class: Any, env_args: dict[str, Any], net_dims: Any, agent_class: type, actor_path: str, render_times: int = 8
) -> list[float]:
    """`valid_agent` in a window."""
    return valid_agent(env_class, env_args, net_dims, agent_class, actor_path, render_times, if_render=True)
