"""The unit in which returns are learned: measured from data, so that the scale of rewards does not matter."""

import math

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from monotau.errors import ConfigError
from monotau.replay import Replay

NEWEST_STEPS = 10_000
"""Number of newest steps that a measurement uses."""
RETRY_STEPS = 100
"""Steps between measurements as long as all rewards are zero."""
TOLERANCE = 2.0
"""The unit changes only if a measurement is larger or smaller by more than this factor."""
SHARE = 0.25
"""The unit as a share of the returns' deviation. With 1, updates move values too far and control is unstable."""
LEAST_SHARE = 0.1
"""Lower bound of the deviation, as a share of the returns' size: values many units from 0 take long to learn."""
ROUNDING = 1e-6
"""Returns that deviate by less than this share of their size count as equal."""


class ReturnUnit:
    """The unit of returns: measured when learning starts, and again each time the number of steps has doubled.

    Networks, losses and bonuses are in this unit; multiply by `value` to convert them to raw rewards.
    """

    def __init__(self, given: float | None) -> None:
        self.given = given
        self.value = given or 1.0
        self.measured = given is not None
        self._next_step = 0

    def measure(self, replay: Replay, step: int) -> float:
        """Measure the unit on the newest steps when due; return the old unit divided by the new one, or 1."""
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
        """Return the unit, whether it was measured, and the step of the next measurement."""
        return {"unit": torch.tensor([self.value, self.measured, self._next_step], dtype=torch.float64)}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `state` returned."""
        value, measured, next_step = tensors["unit"].tolist()
        if not (math.isfinite(value) and value > 0 and math.isfinite(next_step)):
            raise ConfigError(
                f"the unit of returns is {value}, due again at step {next_step}, but both must be finite and the unit "
                "above 0: the file was not written by a run."
            )
        self.value, self.measured, self._next_step = value, bool(measured), int(next_step)


def measure(returns: Float64[np.ndarray, " N"]) -> float | None:
    """Return a quarter of the mean deviation of discounted returns from their median; None if all returns are zero.

    It uses returns, not rewards: a network that must predict 100 times its unit takes thousands of updates to get
    there, and meanwhile high quantiles run ahead of the targets and low ones lag behind, which adds spurious spread.
    Returns of zero carry no information about the scale and are left out.
    """
    nonzero = returns[returns != 0]
    if not nonzero.size:
        return None
    size = float(np.abs(nonzero).mean())
    deviation = float(np.abs(nonzero - np.median(nonzero)).mean())
    unit = SHARE * (max(deviation, LEAST_SHARE * size) if deviation > ROUNDING * size else size)
    return unit if math.isfinite(unit) and unit > 0 else None
