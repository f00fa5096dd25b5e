"""What the value of a setting may be: the type of its annotation, and the bounds stated here. And how it is saved."""

from __future__ import annotations

import inspect
import math
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..agents.h_term import FORMS, WEIGHTS
from ..agents.net import ACTIVATIONS
from ..agents.recurrent import check_windows
from ..envs import ActionCodec, is_instance
from ..warn import warn
from .priorities import NO_WINDOWS

__all__ = ["check_callbacks", "check_together", "checked", "plain"]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Bounds are for the library's own names: a user's own setting may be negative, or infinite.
POSITIVE = _names(
    "num_envs max_step action_dim num_threads horizon_len batch_size buffer_size eval_per_step update_freq "
    "target_delay num_ensembles alpha_init adam_eps clip_grad_norm n_step target_members seq_len mixing_dim gumbel_tau "
    "h_term_k_step h_term_sample_rate h_term_update_gap h_term_buffer_size"
)
NOT_NEGATIVE = _names(
    "gamma learning_rate state_value_tau buffer_init_size utd repeat_times soft_update_tau ratio_clip "
    "lambda_gae_adv lambda_entropy target_kl explore_rate explore_noise_std policy_noise_std policy_noise_clip "
    "loss_tau num_workers random_seed break_step break_patience save_gap checkpoint_per_step eval_times eval_gap "
    "eval_record_step per_alpha per_beta max_restarts worker_timeout worker_lag lambda_fit_cum_r "
    "lambda_h_term h_term_gamma h_term_drop_rate rnn_dim burn_in lambda_logit num_agents global_dim"
)
SHARES = _names(  # at most 1
    "gamma state_value_tau soft_update_tau lambda_gae_adv explore_rate loss_tau per_alpha per_beta h_term_gamma "
    "h_term_sample_rate h_term_drop_rate"
)
LIMITS = _names("break_step target_kl clip_grad_norm ratio_clip policy_noise_clip worker_timeout")  # infinite: none
# Of these only LIMITS may be infinite.
FINITE = POSITIVE | NOT_NEGATIVE | _names("reward_scale target_entropy log_std_init")


def _is_source(value: Any) -> bool:
    return value is None or isinstance(value, str) or callable(value) or is_instance(value)


def _is_folder_name(value: Any) -> bool:
    return isinstance(value, str | os.PathLike) and bool(os.fspath(value)) and "\0" not in str(value)


HOOKS = {"on_rollout", "on_update", "on_evaluate", "on_end"}  # of callbacks
SPECIAL: dict[str, tuple[Callable[[Any], bool], str]] = {  # what passes, and what is needed
    "agent_class": (lambda value: hasattr(value, "hyper_parameters"), "an agent's class itself, such as AgentSAC,"),
    "env_class": (_is_source, "an id, a class, a function or an environment"),
    "eval_env_class": (_is_source, "an id, a class, a function or an environment"),
    "env_args": (lambda value: isinstance(value, Mapping), "a dict"),
    "eval_env_args": (lambda value: isinstance(value, Mapping), "a dict"),
    "activation": (lambda value: isinstance(value, str) and value in ACTIVATIONS, " or ".join(ACTIVATIONS)),
    "h_term_form": (lambda value: value in list(FORMS), " or ".join(FORMS)),
    "h_term_weight": (lambda value: value in list(WEIGHTS), " or ".join(WEIGHTS)),
    "cwd": (_is_folder_name, "the name of a folder, a str or a Path,"),
    "callbacks": (lambda value: isinstance(value, list | tuple), "a list or tuple of objects"),
}


def checked(name: str, value: Any, annotation: Any) -> Any:
    """The value in the type that the annotation says. ValueError: it has another type, or is out of bounds."""
    kinds = _kinds(annotation)
    if value is None and kinds & {"None", "Any"}:
        return None
    if name in ("net_dims", "state_dim"):
        return _dims(name, value)
    if name in SPECIAL:
        passes, needed = SPECIAL[name]
        if not passes(value):
            raise ValueError(f"{name}={value!r}: {needed} is needed")
        return os.fspath(value) if name == "cwd" else value
    if kinds == {"bool"}:
        if value not in (True, False):
            raise ValueError(f"{name}={value!r}: True or False is needed")
        return bool(value)
    is_schedule = "LinearSchedule" in kinds and callable(value)
    if is_schedule or not kinds & {"int", "float"} or kinds - {"int", "float", "None", "LinearSchedule"}:
        return value
    return _number(name, value, whole="float" not in kinds)


def _number(name: str, value: Any, whole: bool) -> int | float:
    is_bounded = name in POSITIVE | NOT_NEGATIVE
    if_finite = whole or name in FINITE - LIMITS
    needed = "a whole number" if whole else "a finite number" if if_finite else "a number"
    needed += " above 0" if name in POSITIVE else " of at least 0" if is_bounded else ""
    passes = isinstance(value, int | float | np.number) and not math.isnan(value)
    passes = passes and (math.isfinite(value) or not if_finite) and (not whole or value == int(value))
    needed += " and at most 1" if name in SHARES else ""
    too_large = passes and name in SHARES and value > 1
    if not passes or too_large or (is_bounded and value < 0) or (name in POSITIVE and value == 0):
        raise ValueError(f"{name}={value!r}: {needed} is needed")
    if name == "break_step" and math.isfinite(value):
        return math.ceil(value)
    return int(value) if whole else float(value)


def _dims(name: str, value: Any) -> int | tuple[int, ...]:
    dims = (value,) if isinstance(value, int | np.integer) else value
    is_list = isinstance(dims, Sequence) and len(dims) > 0
    if not is_list or not all(isinstance(dim, int | np.integer) and dim > 0 for dim in dims):
        raise ValueError(f"{name}={value!r}: a positive integer, or a list or tuple of them, is needed")
    return int(value) if name == "state_dim" and dims is not value else tuple(map(int, dims))


def _kinds(annotation: Any) -> set[str]:
    """The alternatives of an annotation, a type or a string: `float | None`, `Optional[float]` -> {float, None}."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"^(?:\w+\.)*Optional\[(.*)\]$", r"\1 | None", text)
    return {part.strip("\"' ").rpartition(".")[2] for part in text.split("|")}


def check_callbacks(callbacks: Sequence[Any]) -> None:
    """ValueError: one is a class. A warning: one has a hook that nothing calls."""
    if classes := [callback.__name__ for callback in callbacks if isinstance(callback, type)]:
        raise ValueError(f"callbacks: objects are needed, {classes[0]} is a class: give {classes[0]}() instead")
    for name in {name for callback in callbacks for name in dir(callback) if name.startswith("on_")} - HOOKS:
        warn(f"a callback has {name}, which nothing calls; there are {sorted(HOOKS)}")


def check_together(config: Any, names: Collection[str]) -> None:
    """ValueError: two settings do not go together. A warning: the run ends before it learns.

    names: of the agent's own settings, and of others that may be schedules.
    """
    named = (config.env_args or {}).get("env_name")
    if isinstance(config.env_class, str) and named not in (None, config.env_class):
        raise ValueError(f"env_class={config.env_class!r} and env_args['env_name']={named!r} are two: leave one out")
    if config.if_use_per and config.if_off_policy is False:
        raise ValueError(f"if_use_per needs a replay buffer, and {config.agent_class.__name__} learns without one")
    if "rnn_dim" in names and config.rnn_dim:
        if not config.if_off_policy:
            check_windows(config.horizon_len, config.seq_len)
        elif config.if_use_per or config.n_step > 1 or config.lambda_fit_cum_r:
            raise ValueError(NO_WINDOWS)
    warm_up = config.buffer_init_size if "buffer_init_size" in names else 0
    if 0 < config.break_step <= warm_up and not config.continue_train:
        warn(f"break_step={config.break_step:,} ends the run while actions are random (buffer_init_size={warm_up:,})")
    scheduled = [name for name in names if callable(vars(config).get(name))]
    if scheduled and config.break_step == math.inf:
        raise ValueError(f"a schedule ({', '.join(scheduled)}) needs the length of the run: set break_step")


def plain(value: Any) -> Any:
    """A setting as plain data for a checkpoint."""
    if value is None or isinstance(value, bool | int | float | str | Tensor):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value] if isinstance(value, list) else tuple(map(plain, value))
    if isinstance(value, torch.dtype):
        return str(value)
    if isinstance(value, ActionCodec):
        return value.to_dict()
    if type(value) in torch.serialization.get_safe_globals():  # such as a schedule
        return value
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}:{named.__qualname__}"
