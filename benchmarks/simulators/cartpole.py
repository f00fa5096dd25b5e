"""PPO balances a pole in a robot simulator: cartpole.py mjlab|isaaclab [--seed 0] [--steps 200000] [--num-envs 64]

To be run in the virtual environment that setup.sh makes. Exits with 1 where the greedy policy's episodes last less than
90 % of the limit, or, in mjlab, whose episodes end by time only, where it earns less than 90 % of the possible reward.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from elegantrl import Config, build_env, check_vec_env
from elegantrl.agents import AgentPPO
from elegantrl.train.evaluator import play_greedily
from elegantrl.train.worker import Worker


def mjlab(num_envs: int, device: str) -> Any:
    """Mjlab-Cartpole-Balance: episodes of 1000 steps, rewards of 0 to 0.05 each."""
    from mjlab.envs import ManagerBasedRlEnv
    from mjlab.tasks.registry import load_env_cfg

    cfg = load_env_cfg("Mjlab-Cartpole-Balance")
    cfg.scene.num_envs = num_envs
    cfg.auto_reset = False  # the adapter resets, so that the last observation is known
    return build_env(ManagerBasedRlEnv, {"cfg": cfg, "device": device, "env_name": "Mjlab-Cartpole-Balance"})


def isaaclab(num_envs: int, device: str) -> Any:
    """Isaac-Cartpole-Direct on Newton's physics: episodes of 300 steps, or until the cart is 3 m away."""
    import isaaclab_tasks  # noqa: F401 - registers the tasks
    import newton.examples
    from isaaclab_newton.physics import MJWarpSolverCfg, NewtonCfg
    from isaaclab_tasks.core.cartpole.cartpole_direct_env_cfg import CartpoleEnvCfg

    source = Path(newton.examples.get_asset("cartpole_single_pendulum.usda"))  # Isaac Lab's own comes by network
    asset = Path(tempfile.mkdtemp()) / source.name
    asset.write_text(source.read_text().replace('defaultPrim = "cartPole"', 'defaultPrim = "cartpole"'))

    cfg = CartpoleEnvCfg()
    cfg.scene.num_envs, cfg.sim.device, cfg.compute_final_obs = num_envs, device, True
    cfg.scene.cartpole.spawn.usd_path = str(asset)
    cfg.scene.ground = None  # comes by network too; the cart is on a rail
    solver = MJWarpSolverCfg(njmax=5, nconmax=3, cone="pyramidal", impratio=1, integrator="implicitfast")
    cfg.sim.physics = NewtonCfg(solver_cfg=solver, num_substeps=1, use_cuda_graph=device != "cpu")
    return build_env("Isaac-Cartpole-Direct", {"cfg": cfg})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("simulator", choices=["mjlab", "isaaclab"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=200_000, help="environment steps in all")
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--device", default="cpu")
    told = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(told.seed)
    began = time.monotonic()
    env = {"mjlab": mjlab, "isaaclab": isaaclab}[told.simulator](told.num_envs, told.device)
    env.reset(seed=told.seed)
    env.step(torch.zeros(told.num_envs, env.action_dim))
    print(f"{env.env_name}: {env.num_envs} environments, built in {time.monotonic() - began:.0f} s", flush=True)
    check_vec_env(env, steps=20)
    print("check_vec_env finds nothing wrong", flush=True)

    args = Config(
        AgentPPO, env, random_seed=told.seed, horizon_len=64, batch_size=512, repeat_times=8, net_dims=(64, 64)
    )
    args.learning_rate, args.lambda_entropy, args.if_norm_state = 1e-3, 0.0, True
    agent = AgentPPO(args.net_dims, env.state_dim, env.action_dim, args.gpu_id, args)
    worker = Worker(env, agent, args)
    worker.restart(told.seed)
    began = time.monotonic()
    while worker.total_step < told.steps:
        agent.update_net(worker.explore())
        if worker.return_count:
            mean_return = worker.summary()[1]
            print(
                f"{worker.total_step:>8,} steps  {time.monotonic() - began:>5.0f} s  return {mean_return:8.2f}",
                flush=True,
            )
            worker.clear_summary()
    returns, lengths = play_greedily(env, agent, episodes=1, seed=told.seed + 1)
    possible = env.max_step * {"mjlab": 0.05, "isaaclab": 1.0}[told.simulator]
    rate = worker.total_step / (time.monotonic() - began)
    print(
        f"seed {told.seed}: {worker.total_step:,} steps at {rate:.0f} a second, evaluation included; "
        f"greedy episodes of {env.num_envs} environments: length {lengths.mean():.1f} of {env.max_step}, "
        f"return {returns.mean():.2f} ± {returns.std():.2f} of {possible:g} at most"
    )
    reached = lengths.mean() >= 0.9 * env.max_step
    if told.simulator == "mjlab":
        reached = reached and returns.mean() >= 0.9 * possible
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
