"""MujocoWarpVecEnv against C MuJoCo. Compiling its kernels takes a minute for each model, once."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from elegantrl.envs import MujocoVecEnv, make_env
from elegantrl.envs.mujoco_warp import MujocoWarpVecEnv

N = 4
PYRAMID, ELLIPSE = 0, 1  # mjtCone: what bounds the friction of a contact
CASES = [  # steps, and the largest difference in positions that they may make, in metres and radians
    ("HalfCheetah-v5", PYRAMID, 20, 1e-3),
    ("Hopper-v5", PYRAMID, 20, 1e-4),
    ("Ant-v5", ELLIPSE, 20, 1e-3),
    ("Ant-v5", PYRAMID, 2, 1e-2),  # Warp's pyramid lies in other directions than C MuJoCo's
]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("env_name", "cone", "steps", "tolerance"), CASES)
def test_agrees_with_c_mujoco(env_name: str, cone: int, steps: int, tolerance: float):
    pytest.importorskip("mujoco_warp", reason="needs mujoco-warp: pip install elegantrl[warp]")
    options = {"max_step": steps} | ({} if env_name == "HalfCheetah-v5" else {"terminate_when_unhealthy": False})
    ones = [make_env(env_name, options) for _ in range(2)]
    for one in ones:
        one.unwrapped.model.opt.cone = cone
    env, exact = MujocoWarpVecEnv(ones[0], N), MujocoVecEnv(ones[1], N)

    other, _ = env.reset(seed=1)
    first, _ = env.reset(seed=0)
    assert torch.equal(first, env.reset(seed=0)[0]) and not torch.equal(first, other)
    exact.reset(seed=0)
    exact.task.qpos[:], exact.task.qvel[:] = env.task.qpos.numpy(), env.task.qvel.numpy()
    exact.batch.forward()
    exact.place[:] = exact.task.place()

    for t, action in enumerate(
        torch.rand(steps, N, env.action_dim, generator=torch.Generator().manual_seed(0)) * 2 - 1
    ):
        ours, theirs = env.task, exact.task
        if t == steps - 1:  # the positions of the last step are gone after it
            np.testing.assert_allclose(ours.qpos, theirs.qpos, atol=tolerance, rtol=0, err_msg=f"step {t}")
        state, reward, terminal, truncate, info = env.step(action)
        _, expected_reward, _, _, expected = exact.step(action)
        if (
            cone == ELLIPSE or env_name != "Ant-v5"
        ):  # velocities, forces and a reward made of a velocity, in their units
            np.testing.assert_allclose(
                info["final_obs"], expected["final_obs"], atol=20 * tolerance, err_msg=f"step {t}"
            )
            np.testing.assert_allclose(reward, expected_reward, atol=20 * tolerance, err_msg=f"step {t}")
        assert truncate.tolist() == [t == steps - 1] * N and not terminal.any()
        assert torch.equal(state, info["final_obs"]) == (t < steps - 1)
    assert (env.steps == 0).all() and (state[:, 1:3] - first[:, 1:3]).abs().max() < 0.5  # new episodes have begun


def test_names_the_extra_if_it_is_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "mujoco_warp", None)
    with pytest.raises(ImportError, match=r"pip install elegantrl\[warp\]"):
        MujocoWarpVecEnv("Hopper-v5", 2)
