"""The unit in which returns are learned: measured from rewards, so that their size does not matter."""

import math

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from monotau.errors import ConfigError
from monotau.replay import Replay

NEWEST_STEPS = 10_000
"""Steps that a measurement looks at."""
RETRY_STEPS = 100
"""Steps between two looks while every reward was zero."""
TOLERANCE = 2.0
"""A new measurement counts if it is this many times larger or smaller than the unit in use."""
SHARE = 0.25
"""Of the returns' deviation that is the unit. With all of it control wavers: an update moves values too far."""
LEAST_SHARE = 0.1
"""Of the returns' size that counts as their deviation at least: what is many units away is slow to reach."""
ROUNDING = 1e-6
"""Returns that deviate by less than this share of their size are the same."""


class ReturnUnit:
    """Measured when learning starts and looked at again each time the number of steps has doubled.

    Networks, losses and bonuses are in this unit; whoever shows their numbers multiplies by `value`.
    """

    def __init__(self, given: float | None) -> None:
        self.given = given
        self.value = given or 1.0
        self.measured = given is not None
        self._next_step = 0

    def measure(self, replay: Replay, step: int) -> float:
        """Measure the unit on the newest steps if it is time to; return the old one, if there was one, over the new."""
        if self.given is not None or step < self._next_step:
            return 1.0
        found = measure(replay.recent_returns(NEWEST_STEPS))
        if found is None:
            self._next_step = step + RETRY_STEPS
            return 1.0
        self._next_step = 2 * step
        if not self.measured:
            self.value, self.measured = found, True
            return 1.0
        factor = self.value / found
        if 1 / TOLERANCE <= factor <= TOLERANCE:
            return 1.0
        self.value = found
        return factor

    def state(self) -> dict[str, Tensor]:
        """Return the unit, whether it was measured, and when it is looked at next."""
        return {"unit": torch.tensor([self.value, self.measured, self._next_step], dtype=torch.float64)}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Take over what `state` returned."""
        value, measured, next_step = tensors["unit"].tolist()
        if not (math.isfinite(value) and value > 0 and math.isfinite(next_step)):
            raise ConfigError(f"the unit of returns is {value}, looked at in step {next_step}: no run wrote that.")
        self.value, self.measured, self._next_step = value, bool(measured), int(next_step)


def measure(returns: Float64[np.ndarray, " N"]) -> float | None:
    """Return a quarter of the mean deviation of discounted returns from their median, or nothing if all are zero.

    Returns, not rewards: a network that must predict 100 times its unit takes thousands of updates to get there, and
    while it climbs, high quantiles run ahead of the targets and low ones stay behind, so that spread is invented.
    Returns of zero say that nothing was met, and are left out.
    """
    present = returns[returns != 0]
    if not present.size:
        return None
    size = float(np.abs(present).mean())
    deviation = float(np.abs(present - np.median(present)).mean())
    unit = SHARE * (max(deviation, LEAST_SHARE * size) if deviation > ROUNDING * size else size)
    return unit if math.isfinite(unit) and unit > 0 else None
