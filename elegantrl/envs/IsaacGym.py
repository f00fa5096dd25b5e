"""NVIDIA Isaac Gym (Preview 4), a download of the vendor's for Python 3.7 and 3.8, which has reached its end.

Whoever has a `VecTask` passes what builds it as `env_class`; the classes here build the tasks of IsaacGymEnvs by name.
`import isaacgym` must come before the first `import torch` of a script, so before `import elegantrl` too.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from .simulators import IsaacGymTask

NEEDED = (
    "Isaac Gym is not installed: download Preview 4 from NVIDIA, `pip install -e isaacgym/python`, then IsaacGymEnvs. "
    "Both need Python 3.8 or older; where that is too old, Isaac Lab and mjlab have the same tasks (`env_class` is "
    "what builds theirs)"
)


class IsaacVecEnv(IsaacGymTask):
    """A task of IsaacGymEnvs, such as "Ant", under the vector contract.

    env_num: how many; -1 is the task's own number. sim_device_id, rl_device_id: GPU of the physics, and of the tensors
    given and taken; -1 is the CPU. ImportError: a package is missing, and where to get it.
    """

    def __init__(
        self,
        env_name: str,
        env_num: int = -1,
        sim_device_id: int = 0,
        rl_device_id: int = 0,
        headless: bool = False,
    ):
        sim_device, rl_device = (f"cuda:{i}" if i >= 0 else "cpu" for i in (sim_device_id, rl_device_id))
        super().__init__(_make_task(env_name, env_num, sim_device, rl_device, headless), rl_device)
        self.env_name = env_name


class IsaacOneEnv:
    """A single environment of an Isaac Gym task, with NumPy arrays and Gymnasium's interface.

    The step after an episode's end is no transition; `reset` takes it.
    """

    num_envs = 1

    def __init__(self, env_name: str, device_id: int = 0, headless: bool = False):
        self.vector = IsaacVecEnv(env_name, 1, device_id, device_id, headless)
        names = ("env_name", "max_step", "state_dim", "action_dim", "if_discrete")
        self.env_name, self.max_step, self.state_dim, self.action_dim, self.if_discrete = (
            getattr(self.vector, name) for name in names
        )

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        return self.vector.reset(seed)[0][0].cpu().numpy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        actions = torch.as_tensor(action, dtype=torch.float32, device=self.vector.device).reshape(1, -1)
        state, reward, terminal, truncate, _ = self.vector.step(actions)
        return state[0].cpu().numpy(), float(reward[0]), bool(terminal[0]), bool(truncate[0]), {}

    def close(self) -> None:
        self.vector.close()


def _make_task(env_name: str, env_num: int, sim_device: str, rl_device: str, headless: bool) -> Any:
    try:
        import isaacgymenvs
    except ModuleNotFoundError as error:
        raise ImportError(NEEDED) from error
    keywords: dict[str, Any] = {"num_envs": env_num}
    if env_num < 0:
        from hydra import compose, initialize_config_dir  # a dependency of IsaacGymEnvs

        folder = os.path.join(os.path.dirname(os.path.abspath(isaacgymenvs.__file__)), "cfg")
        with initialize_config_dir(config_dir=folder):
            config = compose(config_name="config", overrides=["task=" + env_name])
        keywords = {"num_envs": int(config.task.env.numEnvs), "cfg": config}
    return isaacgymenvs.make(
        seed=0,
        task=env_name,
        sim_device=sim_device,
        rl_device=rl_device,
        graphics_device_id=0,
        headless=headless,
        **keywords,
    )
