"""The sum tree: updates priorities and finds them by cumulative mass, about as fast for a million as for a few."""

from itertools import pairwise
from typing import final

import numpy as np
from jaxtyping import Float, Float64, Int64

# Numpy sums a row of this length about as fast as a row of two, and a million leaves need three levels, not twenty.
FAN_OUT = 128

# A million leaves of this size still have a finite sum.
LARGEST = 1e300


@final
class SumTree:
    """A wide tree whose nodes are the sums of their children, recomputed whenever a child changes.

    Adding differences would be as fast, but rounding errors would accumulate: a tree of zeros would keep some mass.
    """

    def __init__(self, leaves: int) -> None:
        self._leaves = leaves
        # From the leaves up; each row holds the children of one node in the level above.
        self._levels = [np.zeros((rows, FAN_OUT)) for rows in _rows_of_levels(leaves)]

    @staticmethod
    def memory(leaves: int) -> int:
        """Return the memory of such a tree in bytes."""
        return sum(_rows_of_levels(leaves)) * FAN_OUT * np.dtype(np.float64).itemsize

    @property
    def total(self) -> float:
        """Sum of all leaves."""
        return float(self._levels[-1].sum())

    def values(self, index: Int64[np.ndarray, "B"]) -> Float64[np.ndarray, "B"]:
        """Return the leaves at `index`."""
        values: np.ndarray = self._levels[0].reshape(-1)[index]
        return values

    def set(self, index: Int64[np.ndarray, "B"], values: Float[np.ndarray, "B"]) -> None:
        """Set leaves; for repeated indices the last value counts."""
        if not len(index):
            return
        if index.min() < 0 or index.max() >= self._leaves:
            raise IndexError(
                f"The indices range from {index.min()} to {index.max()}, but must be between 0 and {self._leaves - 1}; "
                "mass outside the leaves belongs to no transition."
            )
        if not (values.min() >= 0 and values.max() <= LARGEST):  # also False for NaN
            raise ValueError(
                f"The values range from {values.min()} to {values.max()}, but must be between 0 and {LARGEST}; "
                "otherwise their sums are not valid masses."
            )
        self._levels[0].reshape(-1)[index] = values
        for below, above in pairwise(self._levels):
            index = np.unique(index // FAN_OUT)
            above.reshape(-1)[index] = below[index].sum(axis=1)

    def find(self, masses: Float64[np.ndarray, "B"]) -> Int64[np.ndarray, "B"]:
        """Return for each mass the first leaf at which the cumulative sum of the leaves exceeds that mass.

        Masses are clipped to the range from 0 to `total`. A leaf of value zero is never returned.
        """
        if not self.total:
            raise ValueError("The sum of all leaves is 0, but must be positive; otherwise no leaf can be drawn.")
        masses = np.maximum(masses, 0.0)
        rows = np.arange(len(masses))
        nodes = np.zeros(len(masses), np.int64)
        for level in reversed(self._levels):
            sums = level[nodes].cumsum(axis=1)  # B F
            # A mass may reach the end of its row if it was the total or if the parent's sum was rounded up. It then
            # belongs to the last nonzero child, which is the first to reach the row's sum.
            passed = (sums <= masses[:, None]) & (sums < sums[:, -1:])
            children = np.count_nonzero(passed, axis=1)
            masses = masses - np.where(children > 0, sums[rows, children - 1], 0.0)
            nodes = nodes * FAN_OUT + children
        return nodes


def _rows_of_levels(leaves: int) -> list[int]:
    rows = [-(-leaves // FAN_OUT)]
    while rows[-1] > 1:
        rows.append(-(-rows[-1] // FAN_OUT))
    return rows
