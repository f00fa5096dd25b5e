"""Which device a `gpu_id` means, and how much memory it has. A leaf: everything may import it."""

from __future__ import annotations

import os
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


def available_memory(device: torch.device) -> int:
    """Bytes that a new tensor on this device may take."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        with open("/proc/meminfo") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
