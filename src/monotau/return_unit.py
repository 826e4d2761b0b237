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
SMALL_SHARE = 0.1
"""Returns that deviate by less than this share of a reward are much alike."""
ROUNDING = 1e-6
"""Returns that deviate by less than this share of a reward are the same."""


class ReturnUnit:
    """Measured when learning starts and looked at again each time the number of steps has doubled.

    Networks, losses and bonuses are in this unit; whoever shows their numbers multiplies by `value`. When the unit
    changes, predictions in raw rewards change with it: if returns have doubled, so have they.
    """

    def __init__(self, given: float | None) -> None:
        self.given = given
        self.value = given or 1.0
        self.measured = given is not None
        self._next_step = 0

    def look(self, replay: Replay, step: int) -> None:
        """Measure the unit on the newest steps if it is time to."""
        if self.given is not None or step < self._next_step:
            return
        rewards, returns = replay.recent(NEWEST_STEPS)
        found = measure(rewards, returns)
        if found is None:
            self._next_step = step + RETRY_STEPS
            return
        self._next_step = 2 * step
        if not self.measured or max(found / self.value, self.value / found) > TOLERANCE:
            self.value, self.measured = found, True

    def state(self) -> dict[str, Tensor]:
        """Return the unit, whether it was measured, and when it is looked at next."""
        return {"unit": torch.tensor([self.value, self.measured, self._next_step], dtype=torch.float64)}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Take over what `state` returned."""
        value, measured, next_step = tensors["unit"].tolist()
        if not (math.isfinite(value) and value > 0 and math.isfinite(next_step)):
            raise ConfigError(f"the unit of returns is {value}, looked at in step {next_step}: no run wrote that.")
        self.value, self.measured, self._next_step = value, bool(measured), int(next_step)


def measure(rewards: Float64[np.ndarray, " N"], returns: Float64[np.ndarray, " N"]) -> float | None:
    """Return the mean size of rewards that are not zero, or nothing where all are zero.

    Sums of up to 1 / (1 - gamma) of them are what networks can learn. Where returns are all much alike, so that their
    mean deviation from the median is a small share of a reward, that is the unit: it is the differences that count.
    """
    sizes = np.abs(rewards[rewards != 0])
    if not sizes.size:
        return None
    size = float(sizes.mean())
    present = returns[returns != 0]
    deviation = float(np.abs(present - np.median(present)).mean()) if present.size else 0.0
    alike = ROUNDING * size < deviation < SMALL_SHARE * size
    unit = deviation if alike else size
    return unit if math.isfinite(unit) and unit > 0 else None
