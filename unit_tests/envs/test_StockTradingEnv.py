"""Accounting against a slow reference, for random prices and actions; the two environments against each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from elegantrl import Config, build_env, train_agent
from elegantrl.agents import AgentPPO, AgentSAC
from elegantrl.envs import vectorise
from elegantrl.envs.StockTradingEnv import StockTradingEnv, StockTradingVecEnv, trade

COST = 0.01


def market(seed: int, days: int = 12, stocks: int = 3) -> NDArray:
    return np.exp(
        np.random.default_rng(seed).normal(3, 1, stocks) + np.random.default_rng(seed).normal(0, 0.1, (days, 1))
    )


def slow_trade(cash: float, shares: list[float], price: list[float], order: list[float]) -> tuple[float, list, float]:
    """One order after the other, as a clerk would."""
    shares, traded = list(shares), 0.0
    for k, wanted in enumerate(order):
        if wanted < 0:
            sold = min(shares[k], -wanted)
            shares[k] -= sold
            cash += sold * price[k] * (1 - COST)
            traded += sold * price[k]
    bill = sum(wanted * price[k] * (1 + COST) for k, wanted in enumerate(order) if wanted > 0)
    part = 1.0 if bill <= cash else cash / bill
    for k, wanted in enumerate(order):
        if wanted > 0:
            bought = wanted * part // 1
            shares[k] += bought
            cash -= bought * price[k] * (1 + COST)
            traded += bought * price[k]
    return cash, shares, traded


numbers = st.lists(st.integers(0, 2000), min_size=3, max_size=3)
orders = st.lists(st.integers(-3000, 3000), min_size=3, max_size=3)
quotes = st.lists(st.floats(0.01, 1e4), min_size=3, max_size=3)


@settings(max_examples=300, deadline=None)
@given(cash=st.floats(0, 1e7), shares=numbers, price=quotes, order=orders)
def test_trade_is_the_slow_reference_and_conserves_money(
    cash: float, shares: list[int], price: list[float], order: list[int]
) -> None:
    arrays = [np.array(x, np.float64) for x in (shares, price, order)]
    new_cash, new_shares, traded = trade(np, np.array([cash]), *arrays, COST)
    expected = slow_trade(cash, shares, price, order)
    scale = cash + np.dot(shares, price) + 1
    assert new_cash[0] >= 0 and (new_shares >= 0).all()
    assert (new_shares == np.rint(new_shares)).all()
    before, after = cash + np.dot(shares, price), new_cash[0] + new_shares @ arrays[1]
    assert after == pytest.approx(before - COST * traded[0], abs=1e-9 * scale)
    assert new_shares.tolist() == expected[1]
    assert (new_cash[0], traded[0]) == pytest.approx((expected[0], expected[2]), abs=1e-9 * scale)

    tensors = [torch.tensor([x], dtype=torch.float64) for x in ([cash], shares, price, order)]
    for array, tensor in zip((new_cash, new_shares, traded), trade(torch, *tensors, COST), strict=True):
        assert np.allclose(array, tensor[0].numpy(), rtol=1e-12, atol=1e-9 * scale)


def test_a_day_by_hand() -> None:
    """1000 in cash; stocks at 10 and 20, then at 11 and 18; at most 50 shares, 1 % costs."""
    env = StockTradingEnv(1000, 50, COST, price_array=[[10, 20], [11, 18], [12, 18]], if_random_reset=False)
    state, _ = env.reset()
    assert state.tolist() == [1, 0, 0, 0, 0]
    # 0.55 is half of the way from 0.1 to 1: 25 shares of the first, at 11: 275 * 1.01 = 277.75
    state, reward, terminal, truncate, info = env.step([0.55, 0.1])
    assert (env.amount, env.shares.tolist()) == (722.25, [25, 0])
    assert env.total_asset == pytest.approx(997.25) and reward == pytest.approx(100 * np.log(0.99725))
    assert info == pytest.approx({"traded": 275, "cost": 2.75}) and not terminal and not truncate
    assert state[:3] == pytest.approx([722.25 / 997.25, 275 / 997.25, 0])
    assert state[3:] == pytest.approx(np.log([1.1, 0.9]) / 0.02)
    # sells 10 of the 25 (asked: 10), at 12: + 118.8; buys 50 at 18 for 909, but 841.05 is there: 46
    state, _, terminal, truncate, info = env.step([-0.28, 1])
    assert env.shares.tolist() == [15, 46]
    assert env.amount == pytest.approx(722.25 + 118.8 - 46 * 18 * 1.01)
    assert truncate and not terminal


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), rules=st.sampled_from([{"max_stock": 1000}, {"max_trade": 0.3}]))
def test_both_environments_agree_step_by_step(seed: int, rules: dict) -> None:
    random = np.random.default_rng(seed)
    prices = market(seed)
    given_ = {"price_array": prices, "tech_array": random.normal(size=(12, 2)), "initial_amount": 1e4}
    given_ |= {"turbulence_array": random.uniform(0, 110, 12), "if_random_reset": False, **rules}
    single, vector = StockTradingEnv(**given_), StockTradingVecEnv(num_envs=5, dtype=torch.float64, **given_)
    states, _ = vector.reset()
    assert np.array_equal(states, np.tile(single.reset()[0], (5, 1)))
    for day in range(1, 12):
        action = random.uniform(-1.2, 1.2, 3).astype(np.float32)
        state, reward, _, truncate, _ = single.step(action)
        states, rewards, terminals, truncates, info = vector.step(torch.as_tensor(action).expand(5, 3))
        assert info["final_obs"].numpy() == pytest.approx(np.tile(state, (5, 1)), abs=1e-5)
        assert rewards.numpy() == pytest.approx(reward, abs=1e-4)
        assert not terminals.any() and bool(truncates.all()) == truncate == (day == 11)
        if day < 11:
            assert torch.equal(vector.world[2][0], torch.as_tensor(single.shares))
    assert np.array_equal(states, np.tile(single.reset()[0], (5, 1)))  # the next episode's first


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999))
def test_portfolios_conserve_money_and_never_go_below_zero(seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    env = StockTradingVecEnv(1e5, 500, COST, num_envs=16, price_array=market(seed), max_step=8)
    env.reset(seed)
    assert env.dtype == torch.float32
    for _ in range(7):
        day, _, old, cash = (part.double().squeeze(1) for part in env.world[:4])
        price = torch.as_tensor(env.prices)[day.long() + 1]
        env.step(torch.rand(16, 3, generator=random) * 2 - 1)
        _, new_value, new, new_cash = (part.double().squeeze(1) for part in env.world[:4])
        assert bool((new_cash >= 0).all()) and bool((new >= 0).all()) and torch.equal(new, new.round())
        cost = COST * ((new - old).abs() * price).sum(1)
        held = cash + (old * price).sum(1)
        assert torch.allclose(new_cash + (new * price).sum(1), held - cost, rtol=1e-6)
        assert torch.allclose(new_value, held - cost, rtol=1e-6)


def test_where_the_market_is_turbulent_everything_is_sold() -> None:
    given_ = {"price_array": market(0, 4), "turbulence_array": [0, 0, 100, 0], "if_random_reset": False}
    env = StockTradingEnv(**given_)
    env.reset()
    assert env.step([1, 1, 1])[0][-1] == 0 and env.shares.sum() == 300
    assert env.step([1, 1, 1])[0][-1] == 1 and env.shares.sum() == 0
    assert env.step([1, 1, 1])[0][-1] == 0 and env.shares.sum() == 300


def test_starts_are_random_in_training_and_fixed_in_evaluation() -> None:
    for env_class in (StockTradingEnv, StockTradingVecEnv):
        env = vectorise(env_class, {"price_array": market(0, 40), "max_step": 10}, 8)
        state, _ = env.reset(seed=1)
        assert len(torch.unique(state, dim=0)) == 8 and (state[:, 0] < 1).any()
        assert torch.equal(env.reset(seed=1)[0], state) and not torch.equal(env.reset(seed=2)[0], state)
        fixed = vectorise(env_class, {"price_array": market(0, 40), "max_step": 10, "if_random_reset": False}, 8)
        assert len(torch.unique(fixed.reset(seed=1)[0], dim=0)) == 1


def test_what_was_returned_stays_as_it_was() -> None:
    env = StockTradingVecEnv(price_array=market(0, 40), max_step=3, num_envs=4)
    kept = [env.reset(seed=0)[0], *(x for _ in range(7) for x in env.step(torch.rand(4, 3))[:4])]
    copies = [x.clone() for x in kept]
    saved = env.get_state()
    for _ in range(4):
        env.step(torch.rand(4, 3))
    again = env.set_state(saved)
    env.reset(seed=1)
    assert all(torch.equal(x, y) for x, y in zip(kept, copies, strict=True)) and torch.equal(again, kept[-4])


def test_days_are_chosen_and_an_episode_ends_by_truncation_on_the_last() -> None:
    env = StockTradingEnv(beg_idx=2, end_idx=7, price_array=market(0), if_random_reset=False)
    env.reset()
    assert env.max_step == 4 and env.prices[0] == pytest.approx(market(0)[2])
    ends = [env.step(np.zeros(3))[2:4] for _ in range(4)]
    assert ends == [(False, False)] * 3 + [(False, True)]


def test_bad_input_is_refused_by_name() -> None:
    prices = market(0)
    with pytest.raises(ValueError, match="max_step=12 needs as many days and one more, 12 were given"):
        StockTradingEnv(price_array=prices, max_step=12)
    with pytest.raises(ValueError, match=r"tech_array of shape \(5, 2\) needs 12 rows"):
        StockTradingEnv(price_array=prices, tech_array=np.zeros((5, 2)))
    with pytest.raises(ValueError, match=r"turbulence_array .* finite"):
        StockTradingEnv(price_array=prices, turbulence_array=np.full(12, np.nan))
    with pytest.raises(ValueError, match=r"cost_pct from 0 to below 1 are needed, not 1000000.0, 100.0, None, 1"):
        StockTradingEnv(price_array=prices, cost_pct=1)
    for rules, word in (
        ({"max_stock": np.inf}, "finite initial_amount, max_stock, max_trade"),
        ({"max_trade": np.inf}, "finite initial_amount"),
        ({"initial_amount": np.inf}, "finite initial_amount"),
        ({"beg_idx": 11}, "beg_idx=11, end_idx=None leave 1 of 12 days"),
        ({"tech_array": 3.0}, r"tech_array of shape \(\) needs 12 rows"),
        ({"tech_array": np.full((12, 1), 1e300)}, "tech_array .* finite"),  # beyond float32
        ({"tech_array": np.full((12, 1), "up")}, "tech_array must be numbers"),
    ):
        with pytest.raises(ValueError, match=word):
            StockTradingEnv(price_array=prices, **rules)
    env = StockTradingEnv(price_array=prices)
    env.reset()
    with pytest.raises(ValueError, match=r"an action holds a NaN on day 1: \[0.5, nan, 0.0\]"):
        env.step([0.5, np.nan, 0.0])
    prices[4, 1] = np.nan
    for env_class in (StockTradingEnv, StockTradingVecEnv):
        with pytest.raises(ValueError, match=r"1 of 36 prices .* first nan at day 4, stock 1"):
            env_class(price_array=prices)
    with pytest.warns(UserWarning, match="gamma has no effect"):
        StockTradingEnv(price_array=market(0), gamma=0.99)


@pytest.mark.parametrize("agent_class", [AgentPPO, AgentSAC])
def test_an_agent_earns_what_a_rising_stock_gives(agent_class: type) -> None:
    """One stock rises 1 % a day, the other falls: the policy holds the one and not the other."""
    days = np.arange(40)
    data = {"price_array": np.stack([10 * 1.01**days, 10 * 0.99**days], axis=1), "max_trade": 0.5, "max_step": 20}
    args = Config(agent_class, StockTradingVecEnv, data, num_envs=32, net_dims=32, gamma=0.9, learning_rate=2e-3)
    args.eval_env_args = {"max_step": 39, "if_random_reset": False, "num_envs": 1}
    args.break_step, args.eval_per_step, args.eval_times, args.cwd = 10_000, 10_000, 1, "run"
    if agent_class is AgentPPO:
        args.horizon_len = 20
    else:
        args.buffer_init_size, args.utd, args.alpha_init = 500, 0.03, 0.05
    agent = train_agent(args, if_single_process=True).agent
    env = build_env(StockTradingEnv, {**data, **args.eval_env_args})
    state, done = env.reset()[0], False
    while not done:
        state, _, _, done, _ = env.step(agent.select_action(state))
    assert env.total_asset > 1.25e6  # 1.01 ** 38 is 1.46
