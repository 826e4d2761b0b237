"""Probe environments, so small that the distribution of every return is known in closed form."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import product
from math import log
from statistics import NormalDist
from typing import Any, TypeVar, final

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from monotau.errors import ConfigError

Action = int | np.integer
State = int | np.integer
Outcomes = list[tuple[float, float]]
"""(probability, return) of each outcome."""
Truth = dict[tuple[int, int], Outcomes]
"""Outcomes for each reachable state and allowed action."""

POINTS = 1_000
MIDPOINTS = [(point + 0.5) / POINTS for point in range(POINTS)]
"""Midpoints of equal parts of (0, 1), the fractions that discretise continuous returns."""

Observation = TypeVar("Observation")
Reset = tuple[Observation, dict[str, Any]]
Step = tuple[Observation, float, bool, bool, dict[str, Any]]

HEADS_OR_TAILS: Outcomes = [(0.5, 1.0), (0.5, -1.0)]


class Probe(gym.Env[Observation, Action], ABC):
    """An environment with known return distributions."""

    @abstractmethod
    def truth(self, gamma: float) -> Truth:
        """Return the distribution of the discounted return of each allowed action under the optimal policy."""


class OneStep(Probe[State], ABC):
    """An environment with one state, two actions and one step."""

    def __init__(self) -> None:
        self.observation_space = spaces.Discrete(1)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset[State]:
        """Start a new episode."""
        super().reset(seed=seed)
        return 0, {}


@final
class Coin(OneStep):
    """One toss of a coin, +1 or -1; both actions have the same effect."""

    def step(self, action: Action) -> Step[State]:
        """Toss the coin."""
        return 0, _toss(self.np_random), True, False, {}

    def truth(self, gamma: float) -> Truth:
        """Return +1 or -1 for both actions."""
        return {(0, action): HEADS_OR_TAILS for action in range(2)}


@final
class TwoStepCoin(Probe[State]):
    """Two tosses in a row, +1 or -1 each; both actions have the same effect."""

    def __init__(self) -> None:
        self.observation_space = spaces.Discrete(2)
        self.action_space = spaces.Discrete(2)
        self._state = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset[State]:
        """Go back to the first coin."""
        super().reset(seed=seed)
        self._state = 0
        return 0, {}

    def step(self, action: Action) -> Step[State]:
        """Toss the coin of this state."""
        second = self._state == 1
        self._state = 1
        return 1, _toss(self.np_random), second, False, {}

    def truth(self, gamma: float) -> Truth:
        """Return the four possible returns from the first toss and the two from the second."""
        both = [(p * q, first + gamma * second) for (p, first), (q, second) in product(HEADS_OR_TAILS, repeat=2)]
        return {(state, action): [both, HEADS_OR_TAILS][state] for state, action in product(range(2), repeat=2)}


@final
class TwoSpreads(OneStep):
    """One step, two actions of mean 0: action 0 gives +-0.1, action 1 gives +-2."""

    SPREADS = (0.1, 2.0)

    def step(self, action: Action) -> Step[State]:
        """Toss the chosen coin."""
        return 0, self.SPREADS[action] * _toss(self.np_random), True, False, {}

    def truth(self, gamma: float) -> Truth:
        """Return the distributions of the two coins."""
        return {
            (0, action): [(p, spread * sign) for p, sign in HEADS_OR_TAILS]
            for action, spread in enumerate(self.SPREADS)
        }


@final
class TwoShapes(OneStep):
    """One step, two actions with mean 0 and standard deviation 1: action 0 draws from a normal distribution, action 1
    from an exponential distribution minus its mean.
    """

    def step(self, action: Action) -> Step[State]:
        """Draw a return."""
        drawn = self.np_random.exponential() - 1 if action else self.np_random.normal()
        return 0, float(drawn), True, False, {}

    def truth(self, gamma: float) -> Truth:
        """Return the two quantile functions."""
        return {(0, 0): by_quantiles(NormalDist().inv_cdf), (0, 1): by_quantiles(lambda tau: -log(1 - tau) - 1)}


@final
class TimeLimit(Probe[State]):
    """Reward 1 in every step of an infinite task, whose episodes are truncated after 10 steps."""

    STEPS = 10

    def __init__(self) -> None:
        self.observation_space = spaces.Discrete(1)
        self.action_space = spaces.Discrete(2)
        self._elapsed = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset[State]:
        """Reset the step count."""
        super().reset(seed=seed)
        self._elapsed = 0
        return 0, {}

    def step(self, action: Action) -> Step[State]:
        """Pay a reward of 1."""
        self._elapsed += 1
        return 0, 1.0, False, self._elapsed >= self.STEPS, {}

    def truth(self, gamma: float) -> Truth:
        """Return 1 / (1 - gamma), for gamma < 1; an agent that treats truncation as termination learns less."""
        return {(0, action): [(1.0, 1 / (1 - gamma))] for action in range(2)}


@final
class Chain(Probe[State]):
    """A chain of states: action 1 goes right, action 0 left; entering the last state pays 1 and ends the episode."""

    def __init__(self, length: int = 5) -> None:
        if length < 2:
            raise ConfigError(f"Chain's length is {length}, but must be at least 2: a start and an end.")
        self.observation_space = spaces.Discrete(length)
        self.action_space = spaces.Discrete(2)
        self.length = length
        # The limit stops a policy that always goes left; a random policy needs about length^2 steps.
        self.horizon = 4 * length**2
        self._state = self._elapsed = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset[State]:
        """Go back to the left end."""
        super().reset(seed=seed)
        self._state = self._elapsed = 0
        return 0, {}

    def step(self, action: Action) -> Step[State]:
        """Go one state right or left."""
        self._elapsed += 1
        self._state = self._state + 1 if action == 1 else max(self._state - 1, 0)
        end = self._state == self.length - 1
        return self._state, float(end), end, not end and self._elapsed >= self.horizon, {}

    def truth(self, gamma: float) -> Truth:
        """Return gamma to the power of the number of steps before the reward."""
        returns: Truth = {}
        for state in range(self.length - 1):
            after_left = self.length - 1 - max(state - 1, 0)  # steps from there to the end
            returns[state, 0] = [(1.0, gamma**after_left)]
            returns[state, 1] = [(1.0, gamma ** (self.length - 2 - state))]
        return returns


@final
class Gate(Probe[State]):
    """Two rooms, the second with an action mask.

    In the first room action 0 leads to the second, and action 1 pays 1 and ends the episode. In the second room only
    action 0 is allowed; it costs 1 and ends the episode, and so would action 1. Half of the episodes are truncated on
    arrival there. An agent that keeps to the masks never learns the value of that other action, so a target that
    ignores them is wrong.
    """

    MASKS = ((1, 1), (1, 0))
    """Allowed actions of each room."""

    def __init__(self) -> None:
        self.observation_space = spaces.Discrete(2)
        self.action_space = spaces.Discrete(2)
        self._room = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset[State]:
        """Go back to the first room."""
        super().reset(seed=seed)
        self._room = 0
        return 0, self._info()

    def step(self, action: Action) -> Step[State]:
        """Go through the gate, or end the episode."""
        if self._room == 1 or action == 1:
            return self._room, -1.0 if self._room else 1.0, True, False, self._info()
        self._room = 1
        return 1, 0.0, False, bool(self.np_random.random() < 0.5), self._info()

    def truth(self, gamma: float) -> Truth:
        """Return the returns of the three allowed actions; going through the gate costs 1 a step later."""
        return {(0, 0): [(1.0, -gamma)], (0, 1): [(1.0, 1.0)], (1, 0): [(1.0, -1.0)]}

    def _info(self) -> dict[str, Any]:
        return {"action_mask": np.array(self.MASKS[self._room], np.int8)}


@final
class Grid(Probe[np.ndarray]):
    """A square grid without rewards, to count visits: `info["state"]` is row * size + column."""

    MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
    """Up, right, down, left; walls block moves."""
    LARGEST_SIZE = 1_000
    """A million cells; the limit keeps a size given in a file from exhausting the memory."""

    def __init__(self, size: int = 15, horizon: int = 200) -> None:
        if min(size, horizon) < 1 or size > self.LARGEST_SIZE:
            raise ConfigError(
                f"Grid's size is {size} and its horizon {horizon}, but both must be at least 1, and the size at most "
                f"{self.LARGEST_SIZE}."
            )
        self.observation_space = spaces.Box(0.0, 1.0, (size * size,), np.float32)
        self.action_space = spaces.Discrete(len(self.MOVES))
        self.size = size
        self.horizon = horizon
        self._row = self._column = self._elapsed = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset[np.ndarray]:
        """Go back to the corner (0, 0)."""
        super().reset(seed=seed)
        self._row = self._column = self._elapsed = 0
        return self._observe()

    def step(self, action: Action) -> Step[np.ndarray]:
        """Move one cell."""
        down, right = self.MOVES[action]
        self._row = min(max(self._row + down, 0), self.size - 1)
        self._column = min(max(self._column + right, 0), self.size - 1)
        self._elapsed += 1
        observation, info = self._observe()
        return observation, 0.0, False, self._elapsed >= self.horizon, info

    def truth(self, gamma: float) -> Truth:
        """Return 0 everywhere."""
        return {(state, action): [(1.0, 0.0)] for state, action in product(range(self.size**2), range(len(self.MOVES)))}

    def _observe(self) -> Reset[np.ndarray]:
        """Return the cell as a one-hot vector, and its number."""
        state = self._row * self.size + self._column
        observation = np.zeros(self.size**2, np.float32)
        observation[state] = 1.0
        return observation, {"state": state}


def by_quantiles(quantile: Callable[[float], float]) -> Outcomes:
    """Return the values of a quantile function at the midpoints, with equal probabilities."""
    return [(1 / POINTS, quantile(tau)) for tau in MIDPOINTS]


def _toss(generator: np.random.Generator) -> float:
    """Return +1 or -1, each with probability 1/2."""
    return 1.0 if generator.random() < 0.5 else -1.0
