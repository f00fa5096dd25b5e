"""FinRL's releases, unmodified, train on this library and use what it leaves (API.md section 3).

Makefile installs them, without their dependencies, side by side. FinRL's own `__init__` imports far more than is
needed here, and the older release an environment of the old `gym`: a stand-in for both comes before them in sys.path,
where processes that a run starts find it too.
"""

from __future__ import annotations

import importlib
import os
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import nbformat
import numpy as np
import pytest
import torch
from nbclient import NotebookClient
from numpy.typing import NDArray

from elegantrl import Arguments
from elegantrl.agents import AgentPPO
from elegantrl.envs import GymEnv
from elegantrl.train.run import init_agent

DAYS, STOCKS = 60, 3
STEPS = {"ppo": 200, "a2c": 200, "sac": 1200, "td3": 1200, "ddpg": 1200}  # with a buffer, learning begins after 1000
CASES = [("0.3.7", name) for name in ("ppo", "a2c", "sac", "td3", "ddpg")]
CASES += [("0.3.5", name) for name in ("ppo", "sac", "td3", "ddpg")]
FILES = ("act.pth", "actor.pth", "cri.pth", "checkpoint.pth", "recorder.npy", "LearningCurve.jpg")
OLD_SETTINGS = {
    **{"learning_rate": 1e-3, "batch_size": 32, "gamma": 0.985, "seed": 3, "net_dimension": 32},
    **{"target_step": 59, "eval_gap": 0, "eval_times": 2},
}

pytestmark = [  # 0.3.5 uses older names, and a slow way to make a tensor
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Creating a tensor from a list"),
]


def market() -> dict[str, NDArray]:
    rng = np.random.default_rng(0)
    prices = 50 * np.exp(rng.normal(0.001, 0.02, (DAYS, STOCKS)).cumsum(0))
    return {
        "price_array": prices,
        "tech_array": rng.normal(0, 10, (DAYS, 2 * STOCKS)),
        "turbulence_array": rng.uniform(0, 90, DAYS),
    }


def stand_ins(version: str, folder: Path) -> str:
    """Writes a package finrl that is nothing but a path to the release, and a gym; returns their folder."""
    release = Path(sys.prefix) / f"finrl-{version}"
    assert release.is_dir(), f"install it: pip install --no-deps --target {release} finrl=={version} (make does)"
    (folder / "finrl").mkdir(parents=True)
    (folder / "finrl" / "__init__.py").write_text(f"__path__ = [{str(release / 'finrl')!r}]\n")
    (folder / "gym.py").write_text("from gymnasium import *\n")
    return str(folder)


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function: version -> FinRL's agent and environment modules in that release."""

    def ours() -> list[str]:
        return [name for name in sys.modules if name.partition(".")[0] in ("finrl", "gym")]

    def load(version: str) -> Any:
        for name in ours():
            del sys.modules[name]
        monkeypatch.syspath_prepend(stand_ins(version, tmp_path / f"stand_ins_{version}"))
        return SimpleNamespace(
            agents=importlib.import_module("finrl.agents.elegantrl.models"),
            envs=importlib.import_module("finrl.meta.env_stock_trading.env_stocktrading_np"),
        )

    yield load
    for name in ours():
        del sys.modules[name]


def train(finrl: Any, version: str, name: str) -> Any:
    """By FinRL's own calls, into the folder `run`; returns the settings that it made."""
    client = finrl.agents.DRLAgent(finrl.envs.StockTradingEnv, **market())
    model = client.get_model(name, OLD_SETTINGS if version == "0.3.5" else {"eval_times": 2})
    client.train_model(model, "run", total_timesteps=STEPS[name])
    return model


def replay(env: Any) -> list[float]:
    """What the saved policy's portfolio is worth day by day, in an environment of any age."""
    act = torch.load("run/act.pth")
    env = GymEnv(env)
    state, _ = env.reset()
    assets, done = [env.initial_total_asset], False
    while not done:
        with torch.no_grad():
            action = act(torch.as_tensor(state)[None])[0].numpy()
        state, _, terminal, truncate, _ = env.step(action)
        assets.append(env.total_asset)
        done = terminal or truncate
    return assets


@pytest.mark.parametrize(("version", "name"), CASES)
def test_a_release_trains_and_its_files_hold_one_policy(release: Any, version: str, name: str) -> None:
    finrl = release(version)
    model = train(finrl, version, name)

    assert [file for file in FILES if not Path("run", file).is_file()] == []
    act = torch.load("run/act.pth")  # bare, as FinRL does
    fresh = model.agent_class(model.net_dims, model.state_dim, model.action_dim, gpu_id=-1, args=model)
    states = torch.randn(16, model.state_dim)
    with torch.no_grad():
        assert not torch.equal(fresh.act(states), act(states))
        fresh.act.load_state_dict(torch.load("run/actor.pth"))
        assert torch.equal(fresh.act(states), act(states))
        assert act(states).abs().max() <= 1
    assert torch.load("run/checkpoint.pth")["agent"]["update_count"] > 0
    assert np.load("run/recorder.npy")[-1, 0] >= STEPS[name]


@pytest.mark.parametrize(("version", "expected"), [("0.3.7", 3), ("0.3.5", 0)])
def test_training_runs_in_the_processes_that_the_calls_imply(
    release: Any, monkeypatch: pytest.MonkeyPatch, version: str, expected: int
) -> None:
    """`train_agent(args)`: two Workers and an Evaluator beside the Learner; `train_and_evaluate(args)`: one process."""
    begun: list[str] = []
    start = BaseProcess.start
    monkeypatch.setattr(BaseProcess, "start", lambda process: (begun.append(process.name), start(process))[1])
    train(release(version), version, "ppo")
    assert len(begun) == expected, begun


@pytest.mark.parametrize("name", ["ppo", "td3"])
def test_the_agent_file_of_finrl_meta_works(release: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """finrl-meta 0.3.6 cannot be installed: its setup.py opens a requirements.txt that is not in the package.

    Its agents/elegantrl_models.py is FinRL 0.3.5's file, but for comments and `agent_class=` where that has `agent=`.
    Its other agent file imports a copy of ElegantRL that is not in the package.
    """
    finrl = release("0.3.5")
    source = Path(finrl.agents.__file__).read_text()
    assert source.count("Arguments(agent=agent, env=") == 2
    meta = ModuleType("elegantrl_models")
    exec(source.replace("Arguments(agent=agent, env=", "Arguments(agent_class=agent, env="), vars(meta))
    train(SimpleNamespace(agents=meta, envs=finrl.envs), "0.3.5", name)
    env = finrl.envs.StockTradingEnv(config={**market(), "if_train": False})
    assets = meta.DRLAgent.DRL_prediction(name, "run", OLD_SETTINGS["net_dimension"], env)
    assert assets == pytest.approx(replay(env), rel=1e-6) and len(assets) == DAYS


def test_a_policy_is_loaded_in_the_style_of_paper_trading(release: Any) -> None:
    """With the environment as the third argument, by position, and from `actor.pth` alone."""
    finrl = release("0.3.7")
    model = train(finrl, "0.3.7", "ppo")
    env = finrl.envs.StockTradingEnv(config={**market(), "if_train": False})
    args = Arguments(agent_class=AgentPPO, env=env)
    args.cwd, args.net_dim = "run", model.net_dims
    agent = init_agent(args, 0, env)
    states = torch.randn(4, env.state_dim, device=agent.device)
    with torch.no_grad():
        assert torch.equal(agent.act(states), torch.load("run/act.pth")(states))
        for path in Path("run").iterdir():  # what users copy to the machine that trades
            if path.is_file() and path.name != "actor.pth":
                path.unlink()
        assert torch.equal(init_agent(args, 0, env).act(states), agent.act(states))


@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_the_older_prediction_helper_loads_what_training_left(release: Any, name: str) -> None:
    finrl = release("0.3.5")
    train(finrl, "0.3.5", name)
    env = finrl.envs.StockTradingEnv(config={**market(), "if_train": False})
    assets = finrl.agents.DRLAgent.DRL_prediction(name, "run", OLD_SETTINGS["net_dimension"], env)
    assert len(assets) == DAYS and np.isfinite(assets).all()
    assert assets == pytest.approx(replay(env), rel=1e-6)


@pytest.mark.parametrize("name", ["a2c", "td3"])
def test_the_newer_prediction_helper_works_with_environments_of_the_old_interface(release: Any, name: str) -> None:
    """With its own environment it fails for a reason of its own: it takes (state, info) for the state."""
    train(finrl := release("0.3.7"), "0.3.7", name)
    predict = finrl.agents.DRLAgent.DRL_prediction
    config = {**market(), "if_train": False}
    env = release("0.3.5").envs.StockTradingEnv(config=config)
    env.reset()
    assets = predict(name, "run", None, env, config)
    assert assets[1:] == pytest.approx(replay(env)[1:], rel=1e-6)


def test_the_lines_of_the_docs_do_what_the_newer_prediction_helper_should(release: Any) -> None:
    train(finrl := release("0.3.7"), "0.3.7", "sac")
    env = finrl.envs.StockTradingEnv(config={**market(), "if_train": False})
    page = (Path(__file__).parents[1] / "docs" / "finance.md").read_text()
    names = {"cwd": "run", "env": env}
    exec(page.split("```python\n")[-1].split("```")[0], names)
    assert len(names["assets"]) == DAYS and names["assets"] == pytest.approx(replay(env))


@pytest.mark.parametrize(("version", "net_dim"), [("0.3.7", (128, 64)), ("0.3.5", 32)])
def test_paper_trading_sends_the_orders_of_the_trained_policy(
    release: Any, monkeypatch: pytest.MonkeyPatch, version: str, net_dim: Any
) -> None:
    train(release(version), version, "ppo")
    orders: list[tuple] = []
    account = SimpleNamespace(cash="100000.0")
    broker = SimpleNamespace(
        list_positions=list, get_account=lambda: account, submit_order=lambda *order: orders.append(order)
    )
    prices, tech = market()["price_array"][0], market()["tech_array"][0]
    data = SimpleNamespace(fetch_latest_data=lambda **_: (prices, tech, np.float64(5.0)))
    for module, name, value in (
        ("alpaca_trade_api", "REST", lambda *_: broker),
        ("finrl.meta.data_processors.processor_alpaca", "AlpacaProcessor", lambda api: data),
    ):
        monkeypatch.setitem(sys.modules, module, ModuleType(module))
        setattr(sys.modules[module], name, value)
    trading = importlib.import_module("finrl.meta.env_stock_trading.env_stock_papertrading")

    act = torch.load("run/act.pth")
    state_dim = 3 + 3 * STOCKS + tech.size
    names = ["A", "B", "C"]
    trader = trading.AlpacaPaperTrading(
        *(names, "1D", "elegantrl", "ppo", "run", net_dim, state_dim, STOCKS, "key", "secret", "url", ["macd"]),
        max_stock=1000,
    )
    with torch.no_grad():
        for name, weight in act.named_parameters():
            loaded = trader.act.get_parameter(name)
            assert torch.equal(loaded, weight)
            if name.endswith("bias") and weight.shape == (STOCKS,):  # the last layer's: so that it buys
                loaded.add_(2.0), weight.add_(2.0)
    trader.trade()
    with torch.no_grad():
        action = (act(torch.as_tensor(trader.get_state())[None])[0].numpy() * trader.max_stock).astype(int)
    expected = [(n, a, "buy", "market", "day") for n, a in zip(names, action.tolist(), strict=True) if a > 10]
    assert expected and orders == expected


def test_a_release_trains_in_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a kernel of Jupyter, whose main module has no file, in several processes."""
    lines = (
        "import numpy as np",
        "from finrl.agents.elegantrl.models import DRLAgent",
        "from finrl.meta.env_stock_trading.env_stocktrading_np import StockTradingEnv",
        f"data = [np.full(({DAYS}, {STOCKS}), 50.0), np.zeros(({DAYS}, {STOCKS})), np.zeros({DAYS})]",
        "client = DRLAgent(StockTradingEnv, *data)",
        "client.train_model(client.get_model('ppo', {'eval_times': 2}), 'run', total_timesteps=100)",
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([stand_ins("0.3.7", tmp_path / "stand_ins"), *sys.path]))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("\n".join(lines))])
    NotebookClient(notebook, timeout=None, resources={"metadata": {"path": str(Path.cwd())}}).execute()
    told = "".join(output.get("text", "") for output in notebook.cells[0].outputs)
    assert "2 Worker(s) of each, an Evaluator" in told and "Ended at step" in told
    assert torch.load("run/act.pth")(torch.zeros(1, 3 + 4 * STOCKS)).shape == (1, STOCKS)
