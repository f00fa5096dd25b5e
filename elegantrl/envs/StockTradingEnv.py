"""Buying and selling stocks in whole shares, with costs: one portfolio, or thousands on one device.

Letters: D days, K stocks, N portfolios, F indicators.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softshrink

from ..device import device_of
from ..warn import warn
from .stock_data import load_prices, numbers, price_table
from .tensor import TensorEnv

NO_ORDER = 0.1  # an action up to this size places no order; from there to 1 orders grow to the largest
FLOAT32_MAX = float(np.finfo(np.float32).max)
STARTS = 4096  # of which a vector environment's episodes begin at one


def trade(xp: Any, cash: Any, shares: Any, price: Any, order: Any, cost_pct: float) -> tuple[Any, Any, Any]:
    """Executes an order of whole shares: sales first, of what is held, then purchases, of what the cash pays for.

    Where it does not pay for all of them, fees included, each is cut by the same factor. xp: numpy or torch.
    cash (..., 1), shares, price and order (..., K), order < 0 sells -> cash, shares, and the money traded (..., 1).
    """
    order = xp.maximum(order, -shares)
    money = order * price
    sales = -total(xp.clip(money, None, 0))
    cash = cash + sales * (1 - cost_pct)
    bill = (total(money) + sales) * (1 + cost_pct)
    affordable = xp.clip(cash / xp.clip(bill, 1e-9, None), None, 1)
    order = xp.minimum(order, xp.floor(order * affordable))  # leaves a sale as it is
    purchases = total(order * price) + sales
    cash = xp.clip(cash - purchases * (1 + cost_pct), 0, None)  # never below 0, also in the last bit
    return cash, shares + order, sales + purchases


def total(money: Any) -> Any:
    """Of all stocks, (..., K) -> (..., 1), in NumPy or torch."""
    return money.sum(-1, keepdims=True)


@dataclass(eq=False, repr=False)
class StockTrading:
    """The market and the rules, which both environments share.

    The policy sees day t's close; its order is executed at the close of day t + 1. An action in [-1, 1] for each stock
    is no order up to a size of 0.1, and grows from there to `max_stock` shares at 1; below 0 it sells. The reward is
    100 times the logarithm of the portfolio's growth over the day, so an episode's return of 10 means about 10 % more.
    After `max_step` days the episode is truncated.

    state: cash as a share of the portfolio, each stock's share of it, each stock's return of the day (in units of
    2 %), the indicators, and with turbulence whether the market is turbulent.
    ValueError: arrays that do not fit, no positive prices, rules that make no sense.
    """

    initial_amount: float = 1e6  # money at the start
    max_stock: float = 1e2  # shares of one stock in the largest order
    cost_pct: float = 1e-3  # fee on every sale and purchase, as a share of the money
    gamma: float | None = None  # of older scripts: nothing needs it here
    beg_idx: int = 0  # the first day that is used, and the day after the last
    end_idx: int | None = None
    _: KW_ONLY
    price_array: Any = None  # (D, K), or a pandas frame (see price_table); None: load_prices()
    tech_array: Any = None  # (D, any), indicators of the days, of about unit scale; None: none
    turbulence_array: Any = None  # (D,), where above turbulence_thresh everything is sold and nothing bought
    turbulence_thresh: float = 99.0
    max_trade: float | None = None  # the largest order as a share of the portfolio's value, instead of max_stock
    max_step: int = 0  # days of an episode, which then begins on a random day in training; 0: all
    if_random_reset: bool = True  # random day and portfolio at the start; False: the first day, and cash alone

    env_name = "StockTradingEnv-v2"
    if_discrete = False

    def __post_init__(self) -> None:
        if self.gamma is not None:
            warn("gamma has no effect on the environment: its time limit truncates, so no reward stands for the rest")
        largest = self.max_stock if self.max_trade is None else self.max_trade
        if not (0 < self.initial_amount < math.inf and 0 < largest < math.inf and 0 <= self.cost_pct < 1):
            raise ValueError(
                "finite initial_amount, max_stock, max_trade above 0 and a cost_pct from 0 to below 1 are needed, not "
                f"{self.initial_amount}, {self.max_stock}, {self.max_trade}, {self.cost_pct}"
            )
        close = price_table(load_prices().close if self.price_array is None else self.price_array)
        change = np.diff(np.log(close), axis=0, prepend=np.log(close[:1])) / 0.02
        columns = [change, *(self._column(name, len(close)) for name in ("tech_array", "turbulence_array"))]
        columns[2] = columns[2] > self.turbulence_thresh
        days = slice(self.beg_idx, self.end_idx)
        self.prices, self.turbulent = close[days], columns[2][days].any(1)  # (D, K), (D,)
        self.features = np.concatenate([column[days] for column in columns], axis=1, dtype=np.float32)
        num_days, self.action_dim = self.prices.shape
        if num_days < 2:
            raise ValueError(f"beg_idx={self.beg_idx}, end_idx={self.end_idx} leave {num_days} of {len(close)} days")
        self.state_dim = 1 + self.action_dim + self.features.shape[1]
        self.max_step = self.max_step or num_days - 1
        if not 0 < self.max_step < num_days:
            raise ValueError(f"max_step={self.max_step} needs as many days and one more, {num_days} were given")

    def _column(self, name: str, days: int) -> NDArray:
        """(D, any), with nothing in it where nothing was given."""
        given = getattr(self, name)
        table = np.zeros((days, 0)) if given is None else numbers(name, given)
        if table.shape[:1] != (days,) or not (abs(table) < FLOAT32_MAX).all():
            raise ValueError(f"{name} of shape {table.shape} needs {days} rows, as many as prices, of finite numbers")
        return table.reshape(days, -1)

    def starts(self, num: int, random: np.random.Generator) -> NDArray:
        """Portfolios at the start of episodes, (num, 3 + 2 K): day, value, shares, cash, worth of each stock."""
        day, value = np.zeros((num, 1), int), np.full((num, 1), float(self.initial_amount))
        shares = np.zeros((num, self.action_dim))
        if self.if_random_reset:
            day = random.integers(len(self.prices) - self.max_step, size=(num, 1))
            value *= random.uniform(0.9, 1.1, (num, 1))
            parts = random.uniform(size=shares.shape)
            invested = value * random.uniform(size=(num, 1))
            shares = np.floor(invested * parts / total(parts) / self.prices[day[:, 0]])
        worth = shares * self.prices[day[:, 0]]
        return np.concatenate([day, value, shares, value - total(worth), worth], axis=1)

    def next_day(self, xp: Any, cash: Any, shares: Any, price: Any, turbulent: Any, wish: Any) -> tuple[Any, ...]:
        """The day's trade and its outcome: the portfolio's value, shares, cash, the shares' worth, the money traded.

        cash (..., 1), shares, price, wish (..., K): by how much an action goes beyond NO_ORDER; turbulent (..., 1),
        which is not looked at without turbulence.
        """
        largest = self.max_stock
        if self.max_trade is not None:
            largest = self.max_trade * (cash + total(shares * price)) / price
        order = xp.round(wish * (largest / (1 - NO_ORDER)))
        if self.turbulence_array is not None:
            order = xp.where(turbulent, -shares, order)
        cash, shares, traded = trade(xp, cash, shares, price, order, self.cost_pct)
        worth = shares * price
        return cash + total(worth), shares, cash, worth, traded


@dataclass(eq=False, repr=False)
class StockTradingEnv(StockTrading, gym.Env):
    """One portfolio, with Gymnasium's interface, in NumPy.

    Attributes: `day`, `amount` (cash), `total_asset` (the portfolio's value), `shares` (K,). info: the money that was
    `traded` in this step, and its `cost`.
    """

    num_envs = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (self.state_dim,), np.float32)
        self.action_space = gym.spaces.Box(-1, 1, (self.action_dim,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[NDArray, dict[str, Any]]:
        """seed: of the random day and portfolio at the start."""
        super().reset(seed=seed)
        (day, value), self.shares, own = np.split(self.starts(1, self.np_random)[0], [2, 2 + self.action_dim])
        self.day, self.total_asset, self.amount = int(day), float(value), float(own[0])
        self.last_day = self.day + self.max_step
        return self._state(own[1:]), {}

    def step(self, action: Any) -> tuple[NDArray, float, bool, bool, dict[str, Any]]:
        self.day += 1
        price, turbulent, before = self.prices[self.day], self.turbulent[self.day], self.total_asset
        action = np.clip(np.asarray(action, np.float64).reshape(self.action_dim), -1, 1)
        wish = action - np.clip(action, -NO_ORDER, NO_ORDER)
        value, self.shares, cash, worth, money = self.next_day(np, self.amount, self.shares, price, turbulent, wish)
        self.total_asset, self.amount, traded = float(value[0]), float(cash[0]), float(money[0])
        reward = 100 * math.log(self.total_asset / before)
        if math.isnan(reward):
            raise ValueError(f"an action holds a NaN on day {self.day}: {action.tolist()}")
        info = {"traded": traded, "cost": traded * self.cost_pct}
        return self._state(worth), reward, False, self.day >= self.last_day, info

    def _state(self, worth: NDArray) -> NDArray:
        own = np.concatenate([[self.amount], worth]) / self.total_asset
        return np.concatenate([own, self.features[self.day]], dtype=np.float32)


@dataclass(eq=False, repr=False)
class StockTradingVecEnv(StockTrading, TensorEnv):
    """N portfolios under the vector contract, tensors on one device.

    Episodes begin at one of STARTS days and portfolios, drawn once. A world is what `starts` says: day (N, 1) long,
    value (N, 1), shares (N, K), cash (N, 1), worth (N, K).
    """

    num_envs: int = 4
    gpu_id: int = -1  # -1: the CPU
    dtype: torch.dtype = torch.float32  # of money; float64 is for comparisons

    def __post_init__(self) -> None:
        super().__post_init__()
        starts = self.starts(STARTS if self.if_random_reset else 1, np.random.default_rng(0))
        name, device = self.env_name, device_of(self.gpu_id)
        day, *money = torch.as_tensor(starts, device=device).split([1, 1, self.action_dim, 1, self.action_dim], dim=1)
        self._starts = (day.long(), *(part.to(self.dtype) for part in money))
        self._prices = torch.as_tensor(self.prices, dtype=self.dtype, device=device)
        self._turbulent = torch.as_tensor(self.turbulent[:, None], device=device)
        self._features = torch.as_tensor(self.features, device=device)
        TensorEnv.__init__(self, self.num_envs, self.gpu_id, self.max_step, self.dtype)
        self.env_name = name

    def fresh(self) -> tuple[Tensor, ...]:
        draws = torch.randint(len(self._starts[0]), (self.num_envs,), generator=self.generator, device=self.device)
        return tuple(part.index_select(0, draws) for part in self._starts)  # three times as fast as [draws]

    def advance(self, world: tuple[Tensor, ...], action: Tensor) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
        day, before, shares, cash, _ = world
        day = day + 1
        today = day[:, 0]
        price = self._prices.index_select(0, today)
        turbulent = None if self.turbulence_array is None else self._turbulent.index_select(0, today)
        value, *rest, _ = self.next_day(torch, cash, shares, price, turbulent, softshrink(action, NO_ORDER))
        reward = 100 * torch.log(value / before)[:, 0]
        return (day, value, *rest), reward, torch.zeros_like(reward, dtype=torch.bool)

    def observe(self, world: tuple[Tensor, ...]) -> Tensor:
        day, value, _, cash, worth = world
        return torch.cat([cash / value, worth / value, self._features.index_select(0, day[:, 0])], dim=1)
