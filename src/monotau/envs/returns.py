"""Probe environments with continuous returns that are hard to fit: large, heavy-tailed, or over many steps."""

from itertools import product
from math import atan, log, pi, sqrt
from statistics import NormalDist
from typing import Any, final

from gymnasium import spaces

from monotau.envs.probes import Action, OneStep, Probe, Reset, State, Step, Truth, by_quantiles

FAR, SPREAD = 2_400.0, 100.0
"""Mean and standard deviation of the large returns: typical of a good policy in episodes of a few hundred steps."""


@final
class LargeReturns(OneStep):
    """One step, two actions with mean 2400 and standard deviation 100: action 0 is normal, action 1 exponential with an
    upper tail.
    """

    def step(self, action: Action) -> Step[State]:
        """Draw a return."""
        drawn = self.np_random.exponential() - 1 if action else self.np_random.normal()
        return 0, FAR + SPREAD * float(drawn), True, False, {}

    def truth(self, gamma: float) -> Truth:
        """Return the two quantile functions."""
        return {
            (0, 0): by_quantiles(NormalDist(FAR, SPREAD).inv_cdf),
            (0, 1): by_quantiles(lambda tau: FAR + SPREAD * (-log(1 - tau) - 1)),
        }


@final
class NegativeReturns(OneStep):
    """LargeReturns mirrored at 0: the mean is -2400, and the exponential has a lower tail."""

    def step(self, action: Action) -> Step[State]:
        """Draw a return."""
        drawn = self.np_random.exponential() - 1 if action else self.np_random.normal()
        return 0, -FAR - SPREAD * float(drawn), True, False, {}

    def truth(self, gamma: float) -> Truth:
        """Return the two quantile functions."""
        return {
            (0, 0): by_quantiles(NormalDist(-FAR, SPREAD).inv_cdf),
            (0, 1): by_quantiles(lambda tau: -FAR - SPREAD * (-log(tau) - 1)),
        }


@final
class HeavyTail(OneStep):
    """One step, two actions with mean 0 and heavy tails, neither of which has a skewness.

    Action 0 draws from Student's t with 3 degrees of freedom, action 1 from a Pareto distribution of shape 3 minus its
    mean, whose upper tail is heavy.
    """

    PARETO_MEAN = 1.5

    def step(self, action: Action) -> Step[State]:
        """Draw a return."""
        # numpy's pareto is the Lomax distribution, which starts at 0 instead of 1.
        drawn = 1 + self.np_random.pareto(3) - self.PARETO_MEAN if action else self.np_random.standard_t(3)
        return 0, float(drawn), True, False, {}

    def truth(self, gamma: float) -> Truth:
        """Return the two quantile functions."""
        return {
            (0, 0): by_quantiles(t3_quantile),
            (0, 1): by_quantiles(lambda tau: (1 - tau) ** (-1 / 3) - self.PARETO_MEAN),
        }


@final
class LongChain(Probe[State]):
    """A chain of 50 states: either action moves on and pays an independent normal reward with mean 1 and standard
    deviation 1; the step from the last state ends the episode.
    """

    STATES = 50

    def __init__(self) -> None:
        self.observation_space = spaces.Discrete(self.STATES)
        self.action_space = spaces.Discrete(2)
        self._state = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset[State]:
        """Go back to the first state."""
        super().reset(seed=seed)
        self._state = 0
        return 0, {}

    def step(self, action: Action) -> Step[State]:
        """Move to the next state."""
        end = self._state == self.STATES - 1
        self._state = min(self._state + 1, self.STATES - 1)
        return self._state, float(self.np_random.normal(1.0, 1.0)), end, False, {}

    def truth(self, gamma: float) -> Truth:
        """Return normals: the mean is the sum of the remaining discounts, the variance that of their squares."""
        returns: Truth = {}
        for state, action in product(range(self.STATES), range(2)):
            discounts = [gamma**step for step in range(self.STATES - state)]
            law = NormalDist(sum(discounts), sqrt(sum(discount**2 for discount in discounts)))
            returns[state, action] = returns[state, 0] if action else by_quantiles(law.inv_cdf)
        return returns


def t3_cdf(value: float) -> float:
    """Return the cumulative distribution function of Student's t with 3 degrees of freedom, in closed form."""
    x = value / sqrt(3)
    return 0.5 + (x / (1 + x * x) + atan(x)) / pi


def t3_quantile(tau: float) -> float:
    """Invert `t3_cdf` by bisection, for fractions from 1e-6 to 1 - 1e-6."""
    low, high = -200.0, 200.0  # the mass beyond is 3e-7 on each side
    for _ in range(60):  # to float precision
        middle = (low + high) / 2
        low, high = (middle, high) if t3_cdf(middle) < tau else (low, middle)
    return (low + high) / 2
