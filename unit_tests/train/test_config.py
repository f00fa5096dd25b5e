"""Config: where values come from, what is refused, older settings, seeds, environments; cases 7, 8, 30."""

from __future__ import annotations

import copy
import math
import pickle
import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any, Optional

import gymnasium as gym
import numpy as np
import pytest
import torch

from elegantrl.agents import AgentDQN, AgentPPO, AgentQMix, AgentSAC
from elegantrl.agents.functional import LinearSchedule
from elegantrl.compat import OLD_SETTINGS
from elegantrl.envs import GymEnv
from elegantrl.train.config import (
    RUN_DEFAULTS,
    Arguments,
    Config,
    RunSettings,
    build_env,
    build_vec_env,
    check_env,
    get_gym_env_args,
    kwargs_filter,
)


class Agent:
    """A user's own agent with settings of its own."""

    if_off_policy = True

    @classmethod
    def hyper_parameters(cls) -> dict[str, Any]:
        return {"net_dims": (64, 64), "gamma": 0.9, "horizon_len": 8, "if_twice": False, "repeat_times": None}


class Task:
    """Attributes only; counts how often it is built and closed."""

    env_name, state_dim, action_dim, max_step, if_discrete = "Task", 3, 2, 5, True
    built = closed = 0

    def __init__(self, config: Any = None):
        Task.built += 1
        self.config = config

    def reset(self) -> list[float]:
        return [0.0, 0.0, 0.0]

    def step(self, action: int) -> tuple[list[float], float, bool, dict]:
        return [0.0, 0.0, float(action)], 1.0, False, {}

    def close(self) -> None:
        Task.closed += 1


class LongTask(Task):
    """Another environment of the same kind."""

    env_name, max_step = "LongTask", 500


@pytest.fixture(autouse=True)
def _count():
    Task.built = Task.closed = 0


# where values come from


def test_only_what_was_given_is_held():
    args = Config(Agent, Task, gamma=0.5)
    args.horizon_len = 4
    assert {k: v for k, v in vars(args).items() if not k.startswith("_")} == {
        "agent_class": Agent,
        "env_class": Task,
        "gamma": 0.5,
        "horizon_len": 4,
    }
    assert (args.net_dims, args.random_seed, args.gpu_id) == ((64, 64), 0, -1)
    assert Task.built == 0


def test_the_agents_defaults_follow_the_agent():
    args = Config()
    args.agent_class = AgentPPO
    for agent_class in (AgentPPO, AgentSAC, Agent):
        args.agent_class = agent_class
        for name, default in agent_class.hyper_parameters().items():
            if name != "if_discrete":
                assert getattr(args, name) == default


def test_every_default_passes_its_own_check_and_has_its_type():
    for agent_class in (AgentPPO, AgentSAC, AgentDQN):
        args = Config(agent_class)
        for name, value in {**RUN_DEFAULTS, **agent_class.hyper_parameters()}.items():
            if name not in ("agent_class", "env_class", "env_args", "cwd"):
                setattr(args, name, value)
                assert getattr(args, name) == value
    for field in fields(RunSettings):
        if field.type in ("int", "float", "bool"):
            assert type(field.default).__name__ == field.type, field.name


def test_the_environment_is_asked_once_and_closed():
    args = Config(Agent, Task)
    assert (args.state_dim, args.action_dim, args.if_discrete, args.max_step) == (3, 2, True, 5)
    assert (args.env_name, args.num_envs, args.state_dtype) == ("Task", 1, torch.float32)
    assert args.codec.action_dim == 2
    assert (Task.built, Task.closed) == (1, 1)
    args.init_before_training()
    assert Task.built == 1
    assert vars(args)["if_discrete"] is True


def test_what_env_args_say_needs_no_environment():
    args = Config(Agent, Task, {"env_name": "Mine", "num_envs": 4, "state_dim": 3, "action_dim": 2})
    assert (args.env_name, args.num_envs, args.state_dim, args.action_dim, args.cwd) == ("Mine", 4, 3, 2, "./Mine__0")
    assert Task.built == 0


def test_another_environment_voids_what_the_first_one_said():
    args = Config(Agent, Task)
    assert args.state_dim == 3
    args.env_class = "Pendulum-v1"
    args.env_class = "CartPole-v1"
    assert (args.state_dim, args.max_step) == (4, 500)
    args.state_dim = 4
    args.env_args = {"max_step": 50}
    assert (args.max_step, vars(args)["state_dim"]) == (50, 4)


def test_an_instance_is_neither_called_nor_closed():
    task = Task()
    args = Config(Agent, task, {"env_name": "Task"})
    assert (args.env_class, args.state_dim, Task.built, Task.closed) == (task, 3, 1, 0)


def test_all_can_be_set_afterwards():
    args = Config(agent_class=AgentSAC, env_class=gym.make)
    args.env_args = {"env_name": "Pendulum-v1"}
    args.net_dims = 32
    args.init_before_training()
    assert (args.state_dim, args.net_dims, args.cwd) == (3, (32,), "./Pendulum-v1_SAC_0")


def test_contradictions_are_one_error():
    args = Config(Agent, Task, {"state_dim": 4, "action_dim": 2, "if_discrete": False})
    with pytest.raises(ValueError, match=r"state_dim is 3, not 4; if_discrete is True, not False"):
        args.init_before_training()
    args = Config(Agent, Task, {"state_dim": 3, "max_step": 9})
    with pytest.raises(ValueError, match="max_step is 5, not 9"):
        build_vec_env(args)
    with pytest.raises(ValueError, match="agent_class"):
        Config(env_class=Task).init_before_training()
    with pytest.raises(ValueError, match="env_class"):
        Config(Agent).init_before_training()


def test_a_state_that_is_flattened_may_be_told_in_its_own_shape():
    class Square(Task):
        state_dim = (2, 3)

    args = Config(Agent, Square, {"state_dim": (2, 3), "action_dim": 2, "if_discrete": True})
    args.init_before_training()
    assert (args.state_dim, build_vec_env(args).state_dim) == (6, 6)


def test_a_schedule_needs_the_length_of_the_run():
    with pytest.raises(ValueError, match=r"a schedule \(learning_rate\) needs .*break_step"):
        Config(AgentSAC, "Pendulum-v1", learning_rate=LinearSchedule(1e-3)).init_before_training()


def test_prioritised_replay_needs_replay():
    args = Config(AgentPPO, "CartPole-v1", if_use_per=True)
    with pytest.raises(ValueError, match="if_use_per needs a replay buffer, and AgentPPO learns without one"):
        args.init_before_training()


@pytest.mark.parametrize(
    ("agent_class", "settings", "match"),
    [
        (AgentPPO, {"rnn_dim": 8, "horizon_len": 16, "seq_len": 7}, "horizon_len 16 is no multiple of seq_len 7"),
        (AgentQMix, {"rnn_dim": 8, "if_use_per": True}, "Windows .* leave if_use_per, n_step, lambda"),
        (AgentQMix, {"rnn_dim": 8, "n_step": 3}, "Windows .* leave if_use_per, n_step, lambda"),
        (AgentQMix, {"rnn_dim": 8, "lambda_fit_cum_r": 0.1}, "Windows .* leave if_use_per, n_step, lambda"),
    ],
)
def test_what_a_memory_does_not_go_with_is_refused_before_training(agent_class, settings, match):
    with pytest.raises(ValueError, match=match):
        Config(agent_class, "CartPole-v1", **settings).init_before_training()


def test_a_run_that_would_end_before_it_learns_is_warned_about():
    with pytest.warns(UserWarning, match=r"break_step=300 ends the run while .*buffer_init_size=1,000"):
        Config(AgentSAC, "Pendulum-v1", break_step=300).init_before_training()


def test_two_names_of_an_environment_are_refused():
    with pytest.raises(ValueError, match=r"'CartPole-v1' and .*'Pendulum-v1' are two"):
        Config(AgentPPO, "CartPole-v1", {"env_name": "Pendulum-v1"}).init_before_training()
    Config(AgentPPO, "CartPole-v1", {"env_name": "CartPole-v1"}).init_before_training()


def test_gym_make_without_an_id_is_told():
    with pytest.raises(ValueError, match=r"gym\.make needs its id: env_args={'env_name'"):
        Config(AgentPPO, gym.make).init_before_training()


def test_what_a_shallow_copy_asks_its_environment_is_its_own():
    first = Config(AgentPPO, "CartPole-v1")
    second = copy.copy(first)
    assert second.state_dim == 4
    first.env_class = "Pendulum-v1"
    assert (first.state_dim, second.state_dim) == (3, 4)


def test_no_cwd_is_the_one_of_the_other_settings():
    assert Config(AgentSAC, Task, cwd=None).cwd == "./Task_SAC_0"
    args = Config(AgentSAC, Task, cwd="here")
    args.cwd = None
    assert args.cwd == "./Task_SAC_0"


def test_a_class_attribute_without_annotation_is_named():
    class Mine(AgentSAC):
        doubt = 0.1

    with pytest.raises(TypeError, match=r"no setting 'doubt': annotate it in Mine \(doubt: float = \.\.\.\)"):
        Config(Mine, "Pendulum-v1", doubt=0.2)


def test_cwd_is_one_folder():
    assert Config(AgentSAC, Task, {"env_name": "a/b"}, random_seed=7).cwd == "./a_b_SAC_7"
    assert Config(AgentSAC, Task, cwd="here").cwd == "here"


# what is refused, and what is only warned about


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("net_dims", 64, (64,)),
        ("net_dims", [64, np.int64(32)], (64, 32)),
        ("net_dims", (128, 64), (128, 64)),
        ("action_dim", np.int64(3), 3),
        ("state_dim", np.int32(3), 3),
        ("state_dim", [3, 84, 84], (3, 84, 84)),
        ("break_step", 1e5, 100_000),
        ("break_step", math.inf, math.inf),
        ("break_step", 300.7, 301),
        ("buffer_size", 1e6, 1_000_000),
        ("if_remove", np.bool_(False), False),
        ("gamma", np.float32(0.5), 0.5),
        ("gamma", 1, 1.0),
        ("learning_rate", LinearSchedule(1e-3), LinearSchedule(1e-3)),
        ("gpu_id", -1, -1),
        ("break_score", -200, -200.0),
        ("num_threads", None, None),
        ("repeat_times", None, None),
        ("log_std_init", -2, -2.0),
        ("reward_scale", -1, -1.0),
        ("lambda_entropy", 1, 1.0),
        ("clip_grad_norm", math.inf, math.inf),
        ("cwd", Path("here"), "here"),
        ("callbacks", [print], [print]),
    ],
)
def test_values_take_the_type_of_the_default(name: str, value: Any, expected: Any):
    args = Config(AgentPPO if name in ("log_std_init", "lambda_entropy") else AgentSAC, **{name: value})
    assert getattr(args, name) == expected
    assert type(getattr(args, name)) is type(expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("net_dims", "64"),
        ("net_dims", (64, 0.5)),
        ("net_dims", (64, -1)),
        ("batch_size", 0),
        ("horizon_len", -1),
        ("horizon_len", 1.5),
        ("gamma", -0.1),
        ("gamma", "high"),
        ("gamma", math.nan),
        ("learning_rate", [1e-3]),
        ("break_step", -1),
        ("if_remove", "yes"),
        ("num_envs", 0),
        ("random_seed", -1),
        ("random_seed", None),
        ("gamma", None),
        ("batch_size", None),
        ("break_step", None),
        ("clip_grad_norm", None),
        ("buffer_size", None),
        ("horizon_len", None),
        ("num_envs", None),
        ("gpu_id", None),
        ("eval_times", None),
        ("buffer_size", math.inf),
        ("horizon_len", math.inf),
        ("utd", math.inf),
        ("learning_rate", math.inf),
        ("reward_scale", math.inf),
        ("target_entropy", -math.inf),
        ("net_dims", ()),
        ("activation", "rellu"),
        ("activation", torch.nn.ReLU),
        ("gamma", lambda progress: 0.9),
        ("horizon_len", int),
        ("update_freq", 0),
        ("target_delay", 0),
        ("num_ensembles", 0),
        ("alpha_init", 0),
        ("adam_eps", 0),
        ("target_entropy", "auto"),
        ("num_threads", 0),
        ("callbacks", None),
        ("callbacks", Task()),
        ("callbacks", "abc"),
        ("cwd", 5),
        ("cwd", ""),
        ("cwd", "a\0b"),
        ("clip_grad_norm", 0),
        ("env_args", [1]),
        ("eval_env_args", []),
        ("env_class", 5),
        ("eval_env_class", []),
        ("action_dim", 0),
    ],
)
def test_nonsense_is_refused(name: str, value: Any):
    with pytest.raises(ValueError, match=rf"^{name}=.* is needed$"):
        Config(AgentSAC, **{name: value})
    args = Config(AgentSAC)
    with pytest.raises(ValueError, match=name):
        setattr(args, name, value)
    assert name not in vars(args)


@pytest.mark.parametrize("agent_class", ["AgentSAC", 42, dict, lambda: 1])
def test_the_agent_is_a_class_that_has_hyper_parameters(agent_class: Any):
    with pytest.raises(ValueError, match=r"^agent_class=.*an agent's class itself"):
        Config(agent_class)


class OwnAgent(AgentSAC):
    """A user's, in a file with `from __future__ import annotations`: the annotations are strings."""

    penalty: float = -0.5
    bonus: float = 1
    cap: float = 1.0
    rounds: Optional[int] = 3  # noqa: UP045
    table: dict[str, int] = {}  # noqa: RUF012


class OwnAgentOfTypes(AgentSAC):
    """The same without it: the annotations are types."""


OwnAgentOfTypes.__annotations__ = {
    "penalty": float,
    "bonus": float,
    "cap": float,
    "rounds": Optional[int],  # noqa: UP045
    "table": dict[str, int],
}
for _name in OwnAgentOfTypes.__annotations__:
    setattr(OwnAgentOfTypes, _name, getattr(OwnAgent, _name))


@pytest.mark.parametrize("agent_class", [OwnAgent, OwnAgentOfTypes])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("penalty", -0.7),
        ("bonus", 0.5),
        ("cap", math.inf),
        ("rounds", None),
        ("rounds", -1),
        ("table", {"a": 1}),
        ("batch_size", 8),
    ],
)
def test_a_users_own_setting_has_the_type_of_its_annotation_and_no_bounds(agent_class: Any, name: str, value: Any):
    assert getattr(Config(agent_class, **{name: value}), name) == value
    assert type(Config(agent_class, bonus=2).bonus) is float
    for wrong in ("x", 1.5):
        with pytest.raises(ValueError, match="rounds"):
            Config(agent_class, rounds=wrong)


def test_unknown_keyword_is_an_error_with_the_nearest_name():
    with pytest.raises(TypeError, match=r"'learning_rat'.*'learning_rate'"):
        Config(AgentSAC, learning_rat=1)
    for name in ("quantiles", "max_mem"):  # far from all, and near an older name
        with pytest.raises(TypeError, match=rf"no setting '{name}'$"):
            Config(AgentPPO, **{name: 1})


@pytest.mark.parametrize(
    ("agent_class", "name", "owner"), [(AgentPPO, "buffer_size", "AgentDQN"), (AgentSAC, "ratio_clip", "AgentPPO")]
)
def test_another_agents_setting_is_told_by_the_constructor_and_kept_later(agent_class: Any, name: str, owner: str):
    with pytest.raises(TypeError, match=rf"'{name}' for {agent_class.__name__} \(.*{owner}.* have\)"):
        Config(agent_class, **{name: 1})
    args = Config(agent_class)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        setattr(args, name, 1)
    with pytest.warns(UserWarning, match="quantiles"):
        args.quantiles = 1  # of ElegantRL, which no agent has here: kept, but not in silence
    assert getattr(args, name) == args.quantiles == 1


def test_unknown_attribute_is_kept_and_warned_about():
    args = Config(AgentSAC)
    with pytest.warns(UserWarning, match=r"'batchsize'.*'batch_size'"):
        args.batchsize = 3
    assert args.batchsize == 3
    with pytest.raises(AttributeError, match="batch_size"):
        _ = Config(AgentSAC).batchsize


def test_what_was_set_before_the_agent_is_checked_with_it():
    args = Config()
    args.lambda_gae_adv = 0.9
    args.learningrate = 1
    with pytest.warns(UserWarning, match="learningrate") as caught:
        args.agent_class = AgentPPO
    assert len(caught) == 1
    args = Config()
    args.lambda_gae_adv = -1
    with pytest.raises(ValueError, match="lambda_gae_adv"):
        args.agent_class = AgentPPO


def test_todays_names_give_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        args = Config(AgentPPO, Task, {"state_dim": 3})
        for name in ("if_off_policy", "break_step", "horizon_len", "repeat_times", "state_value_tau", "eval_times"):
            setattr(args, name, 1)
        args.init_before_training()
        assert args.if_off_policy is False  # the agent says so, whatever a script sets


# older settings


@pytest.mark.parametrize(
    ("name", "value", "new", "expected"),
    [
        ("target_step", 7, "horizon_len", 7),
        ("max_memo", 2**10, "buffer_size", 2**10),
        ("replay_buffer_size", 2**10, "buffer_size", 2**10),
        ("worker_num", 3, "num_workers", 3),
        ("thread_num", 3, "num_threads", 3),
        ("seed", 3, "random_seed", 3),
        ("env_num", 3, "num_envs", 3),
        ("env", Task, "env_class", Task),
        ("env_func", Task, "env_class", Task),
        ("eval_env", Task, "eval_env_class", Task),
        ("eval_env_func", Task, "eval_env_class", Task),
        ("agent", AgentSAC, "agent_class", AgentSAC),
        ("target_return", 9, "break_score", 9.0),
        ("explore_noise", 0.3, "explore_noise_std", 0.3),
        ("eval_times1", 3, "eval_times", 3),
        ("eval_times2", 3, "eval_times", 3),
        ("net_dim", 32, "net_dims", (32, 32)),
        ("net_dim", [64, 32], "net_dims", (64, 32)),
        ("learner_gpus", (), "gpu_id", -1),
        ("num_layer", 3, "net_dims", (256, 256, 256)),
        ("layer_num", 1, "net_dims", (256,)),
        ("learner_gpus", 2, "gpu_id", 2),
        ("learner_gpus", (1, 2), "learner_gpu_ids", (1, 2)),
        ("learner_gpus", (0,), "learner_gpu_ids", ()),
        ("if_per_or_gae", True, "if_use_per", True),
        ("h_term_lambda", 0.125, "lambda_h_term", 0.125),
    ],
)
@pytest.mark.filterwarnings("ignore:.*it is kept")
def test_older_names_take_effect_and_say_todays(name: str, value: Any, new: str, expected: Any):
    args = Config(AgentSAC)
    with pytest.warns(DeprecationWarning, match=f"{name} is now called {OLD_SETTINGS[name]}") as caught:
        setattr(args, name, value)
    assert caught[0].filename == __file__
    assert getattr(args, new) == expected
    assert name not in vars(args)
    with pytest.warns(DeprecationWarning, match=name):
        assert getattr(Arguments(AgentSAC, **{name: value}), new) == expected
    if name not in ("learner_gpus", "env") and not isinstance(value, list):
        with pytest.warns(DeprecationWarning, match=name):
            assert getattr(args, name) == (value if name != "target_return" else 9.0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_older_settings_that_work_together():
    args = Arguments(AgentSAC)
    args.num_layer = 3
    args.net_dim = 64
    assert args.net_dims == (64, 64, 64)

    args = Arguments(AgentPPO, if_per_or_gae=True, if_use_gae=True)
    assert "if_use_per" not in vars(args)
    assert "if_use_per" not in vars(Arguments(if_per_or_gae=True, agent=AgentPPO))

    args = Arguments(AgentSAC, target_return=9)
    assert (args.break_score, args.if_allow_break) == (9, True)
    args.if_allow_break = False
    args.target_return = 10
    assert (args.break_score, args.if_allow_break) == (math.inf, False)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_older_call_styles():
    env, task = build_env("Pendulum-v1"), Task()
    for args in (
        Arguments(env, AgentSAC()),
        Arguments(env=env, agent=AgentSAC()),
        Arguments(agent=AgentSAC, env=env),
        Arguments(agent=AgentSAC(), env_func=gym.make, env_args={"env_name": "Pendulum-v1"}),
        Arguments(AgentSAC, env_func=gym.make, env_args={"id": "Pendulum-v1"}),
        Arguments(AgentSAC, "Pendulum-v1"),
    ):
        assert (args.agent_class, args.state_dim, args.env_name) == (AgentSAC, 3, "Pendulum-v1")
    args = Arguments(Task, AgentSAC)
    assert (args.agent_class, args.env_class) == (AgentSAC, Task)

    args = Arguments(agent=AgentSAC, env=task)
    assert (args.env, args.break_score) == (task, math.inf)
    args.env.target_return = 12
    assert args.break_score == 12
    args.if_allow_break = False
    assert args.break_score == math.inf


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_an_agents_instance_was_told_becomes_a_setting():
    agent = AgentPPO()
    agent.lambda_entropy = 0.05
    assert Arguments(build_env("Pendulum-v1"), agent).lambda_entropy == 0.05
    assert Arguments(Task, agent, lambda_entropy=0.5).lambda_entropy == 0.5
    args = Arguments(env=Task)
    args.agent = agent
    assert (args.agent_class, args.lambda_entropy, AgentPPO.lambda_entropy) == (AgentPPO, 0.05, 0.0)


def test_older_env_args_are_translated():
    env_args = {"env_num": 3, "env_name": "CartPole-v1", "id": "CartPole-v1", "target_return": 475, "if_discrete": True}
    with pytest.warns(DeprecationWarning) as caught:
        args = Arguments(AgentPPO, gym.make, env_args)
    assert [str(w.message).split()[0] for w in caught] == ["env_num", "target_return"]
    assert {w.filename for w in caught} == {__file__}
    assert (args.num_envs, args.break_score, args.state_dim) == (3, 475.0, 4)
    with pytest.warns(DeprecationWarning):
        assert build_env(gym.make, env_args).num_envs == 3
        assert Arguments(AgentPPO, Task, env_args, break_score=9).break_score == 9

    class Keywords(Task):
        def __init__(self, **keywords: Any):
            self.keywords = keywords

    class Names(Task):
        def __init__(self, target_return: float):
            self.keywords = {"target_return": target_return}

    assert build_env(Keywords, {"id": "x", "target_return": 1, "mine": 2}).keywords == {"mine": 2}
    assert build_env(Names, {"id": "x", "target_return": 1}).keywords == {"target_return": 1}


# seeds, copies, saving, printing


def test_seeds_differ_by_purpose_and_repeat():
    args, again, other = Config(random_seed=1), Config(random_seed=1), Config(random_seed=2)
    keys = [("worker", 0), ("worker", 1), ("evaluate", 0), ("evaluate", 1), ("learner",), ("checkpoint", 0)]
    seeds = [args.seed_for(*key) for key in keys]
    assert seeds == [again.seed_for(*key) for key in keys]
    assert len({*seeds, *(other.seed_for(*key) for key in keys)}) == 2 * len(keys)
    assert all(type(seed) is int and 0 <= seed < 2**32 for seed in seeds)
    assert args.seed_for("worker", 0) == 720552273  # a resumed run, and next year's version, draw the same


def test_copies_and_pickles_are_equal_and_apart():
    args = Config(AgentSAC, Task, gamma=0.5)
    args.init_before_training()
    for twin in (copy.deepcopy(args), pickle.loads(pickle.dumps(args))):
        assert (twin.gamma, twin.state_dim, twin.agent_class) == (0.5, 3, AgentSAC)
        twin.gamma = 0.6
    assert args.gamma == 0.5


def test_to_dict_is_plain_data(tmp_path):
    args = Config(
        AgentSAC, Task, {"config": {"price": np.zeros(3)}}, learning_rate=LinearSchedule(1e-3), callbacks=[print]
    )
    torch.save(args.to_dict(), tmp_path / "args.pth")
    saved = torch.load(tmp_path / "args.pth", weights_only=True)
    assert saved["agent_class"] == "elegantrl.agents.AgentSAC:AgentSAC"
    assert saved["env_class"] == f"{__name__}:Task"
    assert saved["env_args"] == {"config": {"price": "numpy:ndarray"}}
    assert (saved["learning_rate"], saved["callbacks"]) == (LinearSchedule(1e-3), ["builtins:print"])
    assert (saved["state_dim"], saved["codec"]["nvec"], saved["if_discrete"]) == (3, [2], True)
    assert saved.keys() >= AgentSAC.hyper_parameters().keys() | RUN_DEFAULTS.keys()


def test_print_says_where_every_value_comes_from():
    args = Config(AgentSAC, Task, {"action_dim": 2}, gamma=0.5)
    lines = {line.split()[0]: line.split()[1:] for line in str(args).splitlines()}
    assert lines["gamma"] == ["user", "0.5"]
    assert lines["action_dim"] == ["user", "2"]
    assert lines["state_dim"] == ["environment", "3"]
    assert lines["batch_size"] == ["agent", "256"]
    assert lines["num_workers"] == ["default", "2"]
    assert len({line.index(line.split()[1]) for line in str(args).splitlines()}) == 1
    assert "net_dims" in str(Config())


def test_device(capsys):
    assert Config(gpu_id=-1).device == torch.device("cpu")
    if not torch.cuda.is_available():
        assert Config(gpu_id=5).device == Config(gpu_id=5).device == torch.device("cpu")
        assert capsys.readouterr().out.count("gpu_id=5") == 1


# environments


def test_build_env_of_one_and_of_many():
    env_args = {"env_name": "Pendulum-v1", "num_envs": 1, "max_step": 200, "render_mode": "rgb_array"}
    before = copy.deepcopy(env_args)
    env = build_env(gym.make, env_args)
    assert isinstance(env, GymEnv)
    assert env.render_mode == "rgb_array"
    assert env_args == before
    env.reset(seed=0)
    assert len(env.step(np.float32([0]))) == 5
    env = build_env(env_args={**env_args, "num_envs": 3})
    assert env.reset(seed=0)[0].shape == (3, 3)
    assert env.step(torch.zeros(3, 1))[1].shape == (3,)


def test_build_vec_env():
    args = Config(Agent, Task, {"num_envs": 16, "config": 1}, eval_times=4)
    env, eval_env = build_vec_env(args), build_vec_env(args, if_eval=True)
    assert (env.num_envs, eval_env.num_envs, build_vec_env(args, 2).num_envs) == (16, 4, 2)
    assert env.vec_env.envs[0].config == eval_env.vec_env.envs[0].config == 1
    args.eval_env_args = {"num_envs": 5, "config": 2}
    eval_env = build_vec_env(args, if_eval=True)
    assert (eval_env.num_envs, eval_env.vec_env.envs[0].config, eval_env.max_step) == (5, 2, 5)
    args.max_step = 3
    assert build_vec_env(args).max_step == build_vec_env(args, if_eval=True).max_step == 3
    args.eval_env_class = LongTask
    args.eval_env_args = {}
    assert build_vec_env(args, if_eval=True).env_name == "LongTask"
    args.eval_env_class = "CartPole-v1"
    with pytest.raises(ValueError, match=r"CartPole-v1, the environment for evaluation.*state_dim is 4, not 3"):
        build_vec_env(args, if_eval=True)


def test_evaluation_does_not_touch_the_environment_that_learns():
    task = Task()
    args = Config(Agent, task)
    assert build_vec_env(args).vec_env.envs[0].env is task
    assert build_vec_env(args, if_eval=True).vec_env.envs[0].env is not task
    task.lock = (i for i in ())  # cannot be copied
    with pytest.raises(ValueError, match="eval_env_class"):
        build_vec_env(args, if_eval=True)


def test_what_one_environment_said_is_not_told_to_another():
    args = Config(Agent, Task, eval_env_class=LongTask)
    args.init_before_training()
    assert (build_vec_env(args).max_step, build_vec_env(args, if_eval=True).max_step) == (5, 500)


def test_get_gym_env_args(capsys):
    expected = {"env_name": "Task", "num_envs": 1, "max_step": 5, "state_dim": 3, "action_dim": 2, "if_discrete": True}
    assert get_gym_env_args(Task(), if_print=True) == expected
    assert "'state_dim': 3," in capsys.readouterr().out
    assert get_gym_env_args(build_env("CartPole-v1"))["max_step"] == 500


def test_check_env():
    for env in (Task(), Task, "Pendulum-v1", "CartPole-v1", build_env("Pendulum-v1")):
        check_env(env)

    class NotFinite(Task):
        def step(self, action: int) -> tuple[list[float], float, bool, dict]:
            return [0.0, 0.0, math.nan], 1.0, False, {}

    with pytest.raises(ValueError, match=r"Task: the state at step 1"):
        check_env(NotFinite())


def test_kwargs_filter():
    def function(a: int, b: int = 0) -> None: ...

    assert kwargs_filter(function, {"a": 1, "c": 2}) == {"a": 1}
    assert kwargs_filter(lambda **kwargs: None, {"a": 1, "c": 2}) == {"a": 1, "c": 2}
