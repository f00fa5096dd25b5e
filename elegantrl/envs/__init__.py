"""What is learned from: adapters to the vector contract, and built-in tasks. Imports nothing of agents or train."""

from .check import check_env, check_vec_env
from .mujoco_batch import MujocoVecEnv
from .multi import TeamVecEnv
from .single import ENV_ATTRIBUTES, GymEnv, is_instance, is_vec_env, kwargs_filter, make_env
from .spaces import ActionCodec
from .tensor import SingleEnv, TensorEnv
from .vector import GymVecEnv, as_vec_env, vectorise

__all__ = [
    "ENV_ATTRIBUTES",
    "ActionCodec",
    "GymEnv",
    "GymVecEnv",
    "MujocoVecEnv",
    "SingleEnv",
    "TeamVecEnv",
    "TensorEnv",
    "as_vec_env",
    "check_env",
    "check_vec_env",
    "is_instance",
    "is_vec_env",
    "kwargs_filter",
    "make_env",
    "vectorise",
]
