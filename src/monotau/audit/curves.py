"""Quantile functions as numpy arrays, and their exact comparison with samples of returns."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

TOLERANCE = 1e-6
"""Returns this close to a learned value, relative to their size, equal it: networks compute with 24 bits."""


@dataclass(frozen=True)
class Curve:
    """A quantile function that rises along straight pieces and may jump between them.

    Examples:
        >>> import numpy as np
        >>> from monotau.audit.curves import Curve
        >>> coin = Curve(np.array([0.0, 0.5, 1.0]), np.array([-1.0, 1.0]), np.array([-1.0, 1.0]))
        >>> float(coin.mean()), float(coin.spread()), float(coin.cvar(0.25))
        (0.0, 1.0, -1.0)
        >>> float(coin.w1(np.array([-1.0, 3.0])))
        1.0
    """

    edges: Float[np.ndarray, " S1"]
    """Fractions from 0 to 1 between which the pieces lie."""
    left: Float[np.ndarray, " S"]
    """Value of each piece at its left edge."""
    right: Float[np.ndarray, " S"]
    """Value of each piece at its right edge."""

    @staticmethod
    def of_values(values: Float[np.ndarray, " K"]) -> "Curve":
        """Return the distribution of equally likely values."""
        ordered = np.sort(values)
        return Curve(np.linspace(0, 1, len(values) + 1), ordered, ordered)

    @property
    def widths(self) -> Float[np.ndarray, " S"]:
        """Probability mass of each piece."""
        return np.diff(self.edges)

    def at(self, taus: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """Evaluate the quantile function; at a jump it takes the lower value."""
        index = np.clip(np.searchsorted(self.edges, taus) - 1, 0, len(self.left) - 1)
        width = np.maximum(self.widths[index], np.finfo(np.float64).tiny)
        share = np.clip((taus - self.edges[index]) / width, 0, 1)
        return np.asarray(self.left[index] + share * (self.right[index] - self.left[index]))

    def mean(self) -> float:
        """Return the expectation."""
        return float(self.widths @ (self.left + self.right) / 2)

    def spread(self) -> float:
        """Return the standard deviation."""
        a, b = self.left - self.mean(), self.right - self.mean()
        return float(np.sqrt(self.widths @ (a * a + a * b + b * b) / 3))

    def cvar(self, alpha: float) -> float:
        """Return the mean of the lowest share `alpha`."""
        kept = np.clip(alpha - self.edges[:-1], 0, self.widths)
        share = kept / np.maximum(self.widths, np.finfo(np.float64).tiny)
        return float(kept @ (self.left + share * (self.right - self.left) / 2) / alpha)

    def w1(self, returns: Float[np.ndarray, "*batch R"]) -> Float[np.ndarray, "*batch"]:
        """Compute the 1-Wasserstein distance to each sample of returns, exactly."""
        count = returns.shape[-1]
        edges = np.union1d(self.edges, np.arange(count + 1) / count)
        middle, widths = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
        piece = np.clip(np.searchsorted(self.edges, middle) - 1, 0, len(self.left) - 1)
        slope = (self.right - self.left)[piece] / np.maximum(self.widths[piece], np.finfo(np.float64).tiny)
        start = self.left[piece] + slope * (edges[:-1] - self.edges[piece])
        stop = self.left[piece] + slope * (edges[1:] - self.edges[piece])
        sampled = np.sort(returns, axis=-1)[..., np.minimum((middle * count).astype(np.int64), count - 1)]
        a, b = start - sampled, stop - sampled
        size = np.abs(a) + np.abs(b)
        # The trapezoid, less what a change of sign takes from it.
        crossed = np.maximum(-a * b, 0) / np.maximum(size, np.finfo(np.float64).tiny)
        return np.asarray(((size / 2 - crossed) * widths).sum(axis=-1))

    def below(self, values: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """Return the mass below each value; that of a flat piece counts if the piece lies strictly below."""
        rise = self.right - self.left
        share = (values[..., None] - self.left) / np.where(rise > 0, rise, 1.0)
        inside = np.where(rise > 0, np.clip(share, 0, 1), values[..., None] > self.left)
        return np.asarray(inside @ self.widths)

    def pit(self, returns: Float[np.ndarray, " R"], rng: np.random.Generator) -> Float[np.ndarray, " R"]:
        """Return the probability integral transforms: the learned fraction at which each return lies.

        Inside a jump of the distribution function the fraction is drawn uniformly, so the fractions of returns drawn
        from this distribution are uniform on (0, 1), whether it is continuous or not.
        """
        margin = TOLERANCE * (1 + np.abs(returns))
        low, high = self.below(returns - margin), self.below(returns + margin)
        return np.asarray(low + rng.random(returns.shape) * (high - low))

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> Float[np.ndarray, "..."]:
        """Draw returns from the distribution."""
        return self.at(1 - rng.random(shape))
