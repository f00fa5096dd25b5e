"""What the examples share: with `--quick` on the command line a run ends in seconds, small and untrained."""

from __future__ import annotations

import sys

from elegantrl import Config

IS_QUICK = "--quick" in sys.argv


def quick(args: Config) -> Config:
    """The run as it is, or a trial of it, which shows that everything works and not that anything is learned."""
    if IS_QUICK:
        rollout = 16 * args.num_envs  # environment steps
        args.net_dims, args.horizon_len, args.batch_size = (16,), 16, max(16, rollout // 4)
        args.break_step, args.eval_per_step, args.eval_times, args.save_gap = 6 * rollout, 2 * rollout, 2, 1
        if args.if_off_policy:
            args.buffer_init_size, args.utd = rollout, min(args.utd, 1 / args.num_envs)
        else:
            args.repeat_times = 2
    return args
