"""The import paths of the public contract; case 30."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import elegantrl

TODAY = {
    "elegantrl": "Config Arguments get_gym_env_args build_env train_agent train_and_evaluate valid_agent load_agent "
    "train_agent_single_process Evaluator",
    "elegantrl.agents": "AgentBase AgentDQN AgentDoubleDQN AgentDuelingDQN AgentD3QN AgentDDPG AgentTD3 AgentSAC "
    "AgentEnsembleDQN AgentEmbedDQN AgentModSAC AgentREDQ AgentPPO AgentA2C AgentDiscretePPO AgentDiscreteA2C",
    "elegantrl.agents.AgentTD3": "AgentTD3 AgentDDPG OrnsteinUhlenbeckNoise",
    "elegantrl.agents.AgentPPO": "AgentPPO AgentDiscretePPO",
    "elegantrl.agents.AgentREDQ": "AgentREDQ",
    "elegantrl.agents.net": "QNet QNetDuel QNetTwin QNetTwinDuel CriticTwin CriticEnsemble CriticREDQ",
    "elegantrl.train": "train_agent build_env get_gym_env_args Config Evaluator ReplayBuffer",
    "elegantrl.train.config": "Config Arguments build_env check_env kwargs_filter get_gym_env_args",
    "elegantrl.train.run": "train_agent train_and_evaluate init_agent valid_agent render_agent "
    "train_agent_multiprocessing safely_terminate_process check_subprocess",
    "elegantrl.train.worker": "Worker PipeWorker",
    "elegantrl.train.learner": "Learner PipeLearner",
    "elegantrl.train.replay_buffer": "ReplayBuffer ReplayBufferMP init_replay_buffer",
    "elegantrl.train.evaluator": "Evaluator EvaluatorProc get_rewards_and_steps draw_learning_curve "
    "save_learning_curve",
    "elegantrl.envs": "ActionCodec GymEnv GymVecEnv as_vec_env vectorise",
    "elegantrl.envs.CustomGymEnv": "PendulumEnv",
    "elegantrl.envs.PointChasingEnv": "PointChasingEnv PointChasingVecEnv PointChasingDiscreteEnv",
    "elegantrl.envs.StockTradingEnv": "StockTradingEnv StockTradingVecEnv",
    "elegantrl.envs.IsaacGym": "IsaacVecEnv IsaacOneEnv",
}
OLD = {
    "elegantrl.run": "Arguments train_agent train_and_evaluate init_agent",
    "elegantrl.config": "Config Arguments build_env",
    "elegantrl.agent": "AgentPPO AgentSAC",
    "elegantrl.env": "build_env",
    "elegantrl.envs.Gym": "build_env get_gym_env_args",
    "elegantrl.envs.PlanIsaacGymEnv": "IsaacVecEnv",
    "elegantrl.train.demo": "train_agent",
    "elegantrl.agents.AgentModSAC": "AgentModSAC",
    "elegantrl.agents.AgentEmbedDQN": "AgentEmbedDQN",
    "elegantrl.agents.AgentD3QN": "AgentD3QN",
    "elegantrl.agents.AgentDiscretePPO": "AgentDiscretePPO",
}


def run(code: str) -> str:
    """Standard output of `code` in a fresh interpreter where a DeprecationWarning is an error."""
    command = [sys.executable, "-W", "error::DeprecationWarning:__main__", "-c", code]
    env = {"PYTHONPATH": elegantrl.__path__[0] + "/..", "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("module", TODAY)
def test_todays_imports(module: str):
    for name in TODAY[module].split():
        value = getattr(importlib.import_module(module), name)
        assert callable(value)
        assert value.__name__ == name


def test_todays_imports_do_not_warn():
    lines = [f"from {module} import {', '.join(names.split())}" for module, names in TODAY.items()]
    run("\n".join(lines))


@pytest.mark.parametrize("module", OLD)
def test_older_imports_warn_and_work(module: str):
    sys.modules.pop(module, None)
    with pytest.warns(DeprecationWarning, match=rf"^{module} is now called elegantrl\."):
        found = importlib.import_module(module)
    for name in OLD[module].split():
        assert getattr(found, name).__name__ == name
    assert found is sys.modules[found.__name__]  # today's module itself: no second copy of anything


def test_a_module_does_not_hide_the_class_of_its_name():
    code = """
import warnings
warnings.simplefilter("ignore")
import elegantrl.agents.AgentModSAC, elegantrl.agents.AgentPPO, elegantrl.agents.AgentDuelingDQN
from elegantrl.agents import AgentModSAC, AgentPPO, AgentDuelingDQN
from elegantrl.agents.AgentModSAC import AgentModSAC as same
print(AgentModSAC.__name__, AgentPPO.__name__, AgentDuelingDQN.__name__, same is AgentModSAC)
"""
    assert run(code).split() == ["AgentModSAC", "AgentPPO", "AgentDuelingDQN", "True"]


def test_the_warning_is_shown_to_a_script():
    code = "try:\n    import elegantrl.run\nexcept DeprecationWarning as warning:\n    print(warning)"
    assert run(code).strip() == "elegantrl.run is now called elegantrl.train.run"


@pytest.mark.parametrize("name", ["elegantrl.nothing", "elegantrl.agents.AgentNothing", "elegantrl.agents.nothing"])
def test_unknown_modules_stay_unknown(name: str):
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(name)


def test_star_imports():
    assert run("from elegantrl.agents import *; print(AgentPPO.__name__)").strip() == "AgentPPO"
    assert run("from elegantrl import *; print(Config.__name__)").strip() == "Config"
    assert "Config" in dir(elegantrl)
    with pytest.raises(AttributeError, match="nothing"):
        _ = elegantrl.nothing


def test_importing_the_package_is_light():
    assert run("import sys, elegantrl; print('gymnasium' in sys.modules, elegantrl.__version__)").split()[0] == "False"
