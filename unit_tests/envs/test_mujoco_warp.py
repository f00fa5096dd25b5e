"""MujocoWarpVecEnv against C MuJoCo. Compiling the kernels takes about a minute, once."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from elegantrl.envs import MujocoVecEnv
from elegantrl.envs.mujoco_warp import MujocoWarpVecEnv

N, STEPS = 4, 20
TOLERANCE = {"HalfCheetah-v5": 1e-3, "Hopper-v5": 1e-3, "Ant-v5": 1e-2}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("env_name", list(TOLERANCE))
def test_agrees_with_c_mujoco(env_name: str):
    pytest.importorskip("mujoco_warp", reason="needs mujoco-warp: pip install elegantrl[warp]")
    options = {"max_step": STEPS} | ({} if env_name == "HalfCheetah-v5" else {"terminate_when_unhealthy": False})
    env, exact = MujocoWarpVecEnv(env_name, N, **options), MujocoVecEnv(env_name, N, **options)
    first, _ = env.reset(seed=0)
    assert torch.equal(first, env.reset(seed=0)[0]) and not torch.equal(first, env.reset(seed=1)[0])
    exact.reset(seed=0)
    assert env._observe().std(0).median() == pytest.approx(exact._observe(slice(None)).std(0).mean(), rel=1)
    exact.task.qpos[:], exact.task.qvel[:] = env.task.qpos.numpy(), env.task.qvel.numpy()
    exact.batch.forward()
    exact.place[:] = exact.task.place()
    actions = torch.rand(STEPS, N, env.action_dim, generator=torch.Generator().manual_seed(0)) * 2 - 1
    for t, action in enumerate(actions):
        state, reward, terminal, truncate, info = env.step(action)
        _, expected_reward, _, _, expected = exact.step(action)
        tolerance = TOLERANCE[env_name] * max(1.0, expected["final_obs"].abs().max().item())
        np.testing.assert_allclose(info["final_obs"], expected["final_obs"], atol=tolerance, err_msg=f"step {t}")
        np.testing.assert_allclose(reward, expected_reward, atol=tolerance, err_msg=f"step {t}")
        assert truncate.tolist() == [t == STEPS - 1] * N and not terminal.any()
        assert torch.equal(state, info["final_obs"]) == (t < STEPS - 1)
    assert (env.steps == 0).all() and (state - first).abs().max() < 1  # new episodes have begun


def test_names_the_extra_if_it_is_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "mujoco_warp", None)
    with pytest.raises(ImportError, match=r"pip install elegantrl\[warp\]"):
        MujocoWarpVecEnv("Hopper-v5", 2)
