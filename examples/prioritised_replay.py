"""Prioritised replay (PER): surprising transitions are learned from more often. LunarLander-v3, 20 minutes each.

`--quick`: seconds. Needs `pip install ".[box2d]"`.
"""

from __future__ import annotations

from elegantrl import Config, LinearSchedule, train_agent
from elegantrl.agents import AgentD3QN
from quick import quick


def main() -> None:
    for if_use_per in (False, True):
        args = Config(AgentD3QN, "LunarLander-v3", if_use_per=if_use_per, break_step=200_000, break_score=230)
        args.per_alpha = 0.6  # 0: every transition alike, 1: in proportion to its temporal difference
        args.per_beta = 0.4  # how much of the bias that this makes is undone by smaller weights
        args.num_envs, args.net_dims = 8, (128, 128)
        args.learning_rate, args.adam_eps = LinearSchedule(1e-3), 1.5e-4
        args.batch_size, args.buffer_size = 128, 400_000
        args.soft_update_tau, args.target_delay = 1.0, 250  # the target is copied every 250 updates
        args.eval_per_step = 10_000
        args.cwd = f"LunarLander-v3_D3QN_{'per' if if_use_per else 'uniform'}"
        run = train_agent(quick(args), if_single_process=True)
        print(f"prioritised: {if_use_per}, best greedy return {run.evaluator.records.best_return:.0f}, 200 is solved")


if __name__ == "__main__":
    main()
