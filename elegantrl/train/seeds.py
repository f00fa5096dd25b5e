"""The global generators of a process: seeded, saved, restored.

Every seed of a run is `Config.seed_for(purpose, ...)`: NumPy's SeedSequence of `random_seed`, spawned by that key.
"learner": the Learner's process; "learner", r: that of rank r > 0. "worker", i: the environments
of Worker i, each sub-environment's seed derives from it; "worker", i, n: after the n-th replacement of a Worker;
"checkpoint", c, i: after checkpoint c. "explore", s: the process of a Worker whose environments have the seed s.
"evaluate", n: environments and process of evaluation n.
"""

from __future__ import annotations

import random
from typing import Any, cast

import numpy as np
import torch


def seed_everything(seed: int) -> None:
    """Seeds torch (every device), NumPy and Python."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def random_states() -> dict[str, Any]:
    """The states of torch's, CUDA's, NumPy's and Python's generators as tensors and plain data."""
    kind, keys, position, has_gauss, gauss = cast(tuple[str, np.ndarray, int, int, float], np.random.get_state())
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": (kind, torch.from_numpy(keys.astype(np.int64)), position, has_gauss, gauss),
        "python": random.getstate(),
    }


def set_random_states(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["torch"].cpu())
    for i, state in enumerate(states["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(state.cpu(), i)
    kind, keys, *rest = states["numpy"]
    np.random.set_state((kind, keys.cpu().numpy().astype(np.uint32), *rest))
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))
