"""Deep Sea: a grid where only one of 2^N action sequences is rewarded, and every step towards the reward has a cost."""

from typing import Any, final

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from monotau.errors import ConfigError

LARGEST_SIZE = 1_000
"""A million cells; the limit keeps a size given in a file from exhausting the memory."""


@final
class DeepSea(gym.Env[np.ndarray, int | np.integer]):
    """Deep Sea of bsuite (Osband et al. 2020), a test of deep exploration.

    A diver starts at the top left of a `size` x `size` grid and sinks one row per step, one column to the right or to
    the left (and stays at the edge). Going right costs `unscaled_move_cost / size`; going right from the bottom right
    cell pays 1. So the optimal return is 0.99, and staying on the left returns 0.

    With `stochastic`, going right succeeds with probability 1 - 1/size only (the cost is always paid, and so is the
    reward in the bottom right cell), and standard normal noise is added to the reward in the two bottom corners.

    Departure: numpy's `default_rng(mapping_seed)` draws which of the two actions goes right in a cell, not bsuite's
    legacy generator, and `mapping_seed` defaults to 0 instead of None, so that all copies of an environment are equal.
    """

    def __init__(
        self,
        size: int = 10,
        stochastic: bool = False,
        randomize_actions: bool = True,
        mapping_seed: int = 0,
        unscaled_move_cost: float = 0.01,
    ) -> None:
        if not 1 <= size <= LARGEST_SIZE:
            raise ConfigError(f"DeepSea's size is {size}, but must be at least 1 and at most {LARGEST_SIZE}.")
        self.observation_space = spaces.Box(0.0, 1.0, (size, size), np.float32)
        self.action_space = spaces.Discrete(2)
        self.size = size
        self.stochastic = stochastic
        self.move_cost = unscaled_move_cost / size
        if randomize_actions:
            self.right_actions = np.random.default_rng(mapping_seed).integers(2, size=(size, size))
        else:
            self.right_actions = np.ones((size, size), dtype=np.int64)
        self._row = self._column = 0

    @property
    def optimal_return(self) -> float:
        """Expected return of the optimal policy: go right until a move fails, then left, which is free.

        Departure: bsuite reports (1 - 1/N)^(N-1) - cost for the stochastic variant, as if the policy kept going right.
        """
        success = 1 - 1 / self.size if self.stochastic else 1.0
        right_moves = sum(success**step for step in range(self.size))
        return float(success ** (self.size - 1) - self.move_cost * right_moves)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Move the diver back to the top left."""
        super().reset(seed=seed)
        self._row = self._column = 0
        return self._observe(), {}

    def step(self, action: int | np.integer) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Sink one row."""
        bottom, last = self._row == self.size - 1, self.size - 1
        right = bool(action == self.right_actions[self._row, self._column])
        reward = 0.0
        if right:
            reward -= self.move_cost
            if self._column == last:
                reward += 1.0
        if self.stochastic and bottom and self._column in (0, last):
            reward += float(self.np_random.standard_normal())
        if not right:
            self._column = max(self._column - 1, 0)
        elif not self.stochastic or self.np_random.random() >= 1 / self.size:
            self._column = min(self._column + 1, last)
        self._row += 1
        return self._observe(), reward, bottom, False, {}

    def _observe(self) -> np.ndarray:
        """Return the diver's cell as a one-hot grid, all zeros after the last row."""
        grid = np.zeros((self.size, self.size), np.float32)
        if self._row < self.size:
            grid[self._row, self._column] = 1.0
        return grid
