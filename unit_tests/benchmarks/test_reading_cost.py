"""What a reader must follow from run.py and config.py to the gradient step stays within 10 files and 1500 lines."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from elegantrl import agents

PATH = Path(__file__).parents[2] / "benchmarks" / "reading_cost.py"


def module() -> Any:
    spec = importlib.util.spec_from_file_location("reading_cost", PATH)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.mark.parametrize("agent_class, env", [(agents.AgentSAC, "Pendulum-v1"), (agents.AgentPPO, "CartPole-v1")])
def test_the_read_path_is_short(agent_class: type, env: str) -> None:
    cost = module().reading_cost(agent_class, env)
    assert {"train/run.py", "train/config.py", "agents/AgentBase.py", "agents/net.py"} <= cost.keys()
    assert len(cost) <= 10 and sum(cost.values()) <= 1500, cost


def test_the_path_knows_nothing_of_what_is_off() -> None:
    cost = module().reading_cost(agents.AgentPPO, "CartPole-v1")
    off = {"agents/h_term.py", "agents/options.py", "agents/recurrent.py", "ranks.py", "train/priorities.py"}
    assert not off & cost.keys()
