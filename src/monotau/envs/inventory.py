"""Inventory: a shop orders stock under a demand that varies with the weekday; rewards are on the scale of money."""

import math
from typing import Any, final

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from monotau.errors import ConfigError


@final
class Inventory(gym.Env[np.ndarray, int | np.integer]):
    """A shop with room for 50 units, for 100 days.

    The observation is the stock in the morning and the day of the week, one-hot. Action k orders 5 k units, which
    arrive the next morning; units beyond the capacity are returned. Demand is Poisson with a mean for each weekday, and
    demand beyond the stock is lost. The reward of a day is MARGIN for each unit sold, minus DELIVERY for an order,
    HANDLING for each unit ordered and HOLDING for each unit left in the evening: from -68 to about 200. With a discount
    of 0.99 the optimal policy earns about 3,080 in 100 days, ordering up to 35 units about 2,540, and random orders
    about 1,350.

    Episodes are truncated after 100 days, because the shop stays open. `reward_scale` multiplies all rewards, like a
    change of currency.
    """

    CAPACITY, DAYS, LOT = 50, 100, 5
    DEMAND = (8.0, 8.0, 10.0, 12.0, 18.0, 22.0, 14.0)
    """Mean demand of each weekday, Monday first."""
    MARGIN, DELIVERY, HANDLING, HOLDING = 5.0, 8.0, 0.2, 1.0

    def __init__(self, reward_scale: float = 1.0) -> None:
        if not (math.isfinite(reward_scale) and reward_scale > 0):
            raise ConfigError(f"Inventory's reward_scale is {reward_scale}, but must be a finite number above 0.")
        high = np.array([self.CAPACITY] + [1] * len(self.DEMAND), np.float32)
        self.observation_space = spaces.Box(np.zeros_like(high), high, dtype=np.float32)
        self.action_space = spaces.Discrete(self.CAPACITY // self.LOT + 1)
        self.reward_scale = reward_scale
        self._stock = self._weekday = self._elapsed = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start with half the capacity in stock, on a random weekday."""
        super().reset(seed=seed)
        self._stock, self._elapsed = self.CAPACITY // 2, 0
        self._weekday = int(self.np_random.integers(len(self.DEMAND)))
        return self._observe(), {}

    def step(self, action: int | np.integer) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Order, and sell for a day; `info` has the demand and the units sold."""
        ordered = self.LOT * int(action)
        demand = int(self.np_random.poisson(self.DEMAND[self._weekday]))
        sold = min(demand, self._stock)
        left = self._stock - sold
        costs = self.DELIVERY * (ordered > 0) + self.HANDLING * ordered + self.HOLDING * left
        self._stock = min(left + ordered, self.CAPACITY)
        self._weekday = (self._weekday + 1) % len(self.DEMAND)
        self._elapsed += 1
        reward = self.reward_scale * (self.MARGIN * sold - costs)
        return self._observe(), reward, False, self._elapsed >= self.DAYS, {"demand": demand, "sold": sold}

    def _observe(self) -> np.ndarray:
        observation = np.zeros(1 + len(self.DEMAND), np.float32)
        observation[0] = self._stock
        observation[1 + self._weekday] = 1.0
        return observation
