"""Which device a `gpu_id` means. A leaf: everything may import it."""

from __future__ import annotations

from functools import cache

import torch


def device_of(gpu_id: int) -> torch.device:
    """-1 is the CPU. Without CUDA any id is the CPU, and one line says so. ValueError: an id the machine lacks."""
    if gpu_id < 0:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        _say_no_cuda(gpu_id)
        return torch.device("cpu")
    if gpu_id >= torch.cuda.device_count():
        raise ValueError(f"gpu_id={gpu_id}: this machine has {torch.cuda.device_count()} GPUs, counted from 0")
    return torch.device("cuda", gpu_id)


@cache
def _say_no_cuda(gpu_id: int) -> None:
    print(f"| gpu_id={gpu_id}: no CUDA on this machine, the CPU is used", flush=True)
