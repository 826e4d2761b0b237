"""A smooth quantile function: a monotone rational-quadratic spline, SPL-DQN's distribution.

Gregory, Delbourgo 1982, doi 10.1093/imanum/2.2.123; Durkan et al. 2019, arXiv 1906.04032.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from monotau.distributions.base import Distribution, Segments, averaged

CHORDS = 8
"""Chords that replace the curve of each bin where an integral has no closed form here."""

SERIES = tuple((-1) ** n * math.factorial(n + 1) ** 2 / math.factorial(2 * n + 3) for n in range(9))
"""Coefficients of `bump`: the integral of u^(n+1) over a bin is a beta function."""


@dataclass(frozen=True, eq=False, repr=False)
class Spline(Distribution):
    """A monotone rational-quadratic spline as the quantile function, as in SPL-DQN (Luo et al., ICLR 2022).

    F(tau) = lowest + spread * spline(tau). Quantiles and the mean are exact. All other numbers come from eight chords
    in each bin.

    Args:
        knots: Fractions `[*batch, K]` at which the bins meet, increasing from 0 to 1.
        heights: Values `[*batch, K]` of the spline at the knots, increasing from 0 to 1.
        slopes: Its derivatives `[*batch, K]` there, above 0.
        lowest: Lowest return `[*batch]`.
        spread: Difference `[*batch]` between the highest and the lowest return, not negative.

    Examples:
        >>> import torch
        >>> from monotau.distributions import Spline
        >>> knots = torch.tensor([[0.0, 0.5, 1.0]])
        >>> uniform = Spline(knots, knots, torch.ones(1, 3), torch.tensor([1.0]), torch.tensor([2.0]))
        >>> uniform.mean().tolist(), round(uniform.quantile(0.25).item(), 4)
        ([2.0], 1.5)
    """

    knots: Float[Tensor, "*batch K"]
    heights: Float[Tensor, "*batch K"]
    slopes: Float[Tensor, "*batch K"]
    lowest: Float[Tensor, "*batch"]
    spread: Float[Tensor, "*batch"]

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of the batch."""
        return self.lowest.shape

    def segments(self) -> Segments:
        """Return chords of the curve between evenly spaced points of each bin."""
        shares = torch.arange(CHORDS, dtype=self.knots.dtype, device=self.knots.device) / CHORDS
        widths, rises, steepness = self._bins()
        places = shares.expand(*widths.shape, CHORDS)  # *batch bins chords
        climbed = climb(places, *(part[..., None] for part in (steepness, self.slopes[..., :-1], self.slopes[..., 1:])))
        edges = self.knots[..., :-1, None] + widths[..., None] * shares
        values = self.heights[..., :-1, None] + rises[..., None] * climbed
        edges, values = (
            torch.cat([inner.flatten(-2), last[..., -1:]], dim=-1)
            for inner, last in ((edges, self.knots), (values, self.heights))
        )
        values = self._returns(values)
        return Segments(edges, values[..., :-1], values[..., 1:])

    def mean(self) -> Float[Tensor, "*batch"]:
        """Compute the expected return by the closed form of each bin's integral."""
        widths, rises, steepness = self._bins()
        before, after = self.slopes[..., :-1], self.slopes[..., 1:]
        average = self.heights[..., :-1] + rises * mean_climb(steepness, before, after)
        return self.lowest + self.spread * (widths * average).sum(dim=-1)

    def curve(self) -> Float[Tensor, "*batch K"]:
        """Quantiles at the knots."""
        return self._returns(self.heights)

    def _at(self, taus: Float[Tensor, "*batch M"]) -> Float[Tensor, "*batch M"]:
        """Evaluate the spline; each result depends on its own fraction alone and never decreases, rounding included."""
        return self._returns(self._heights_at(taus))

    def _heights_at(self, taus: Float[Tensor, "*batch M"]) -> Float[Tensor, "*batch M"]:
        """Return the values of the spline between 0 and 1."""
        index, place, steepness, before, after = self._locate(taus)
        start, stop = self.heights.gather(-1, index - 1), self.heights.gather(-1, index)
        inside = start + (stop - start) * climb(place, steepness, before, after)
        return torch.minimum(inside, stop)

    def _locate(self, taus: Float[Tensor, "*batch M"]) -> tuple[Tensor, ...]:
        """Return the bin of each fraction, its place there from 0 to 1, and the bin's steepness and slopes."""
        index = torch.searchsorted(self.knots.contiguous(), taus.contiguous()).clamp(1, self.knots.shape[-1] - 1)
        start, stop = self.knots.gather(-1, index - 1), self.knots.gather(-1, index)
        place = ((taus - start) / (stop - start).clamp_min(torch.finfo(taus.dtype).tiny)).clamp(0, 1)
        before, after = self.slopes.gather(-1, index - 1), self.slopes.gather(-1, index)
        return index, place, self._bins()[2].gather(-1, index - 1), before, after

    def _bins(self) -> tuple[Float[Tensor, "*batch N"], Float[Tensor, "*batch N"], Float[Tensor, "*batch N"]]:
        """Return width, rise and steepness of each bin; the steepness is the slope of its chord."""
        widths, rises = self.knots.diff(dim=-1), self.heights.diff(dim=-1)
        rounding = torch.finfo(widths.dtype).eps  # bins that have vanished in rounding must not divide by zero
        return widths, rises, rises.clamp_min(rounding) / widths.clamp_min(rounding)

    def _returns(self, heights: Float[Tensor, "*batch M"]) -> Float[Tensor, "*batch M"]:
        """Return the quantiles at values of the spline."""
        return self.lowest[..., None] + self.spread[..., None] * heights

    def affine(self, scale: Float[Tensor, "*batch"], shift: Float[Tensor, "*batch"]) -> "Spline":
        """Return the distribution of `shift + scale * Z`."""
        return Spline(self.knots, self.heights, self.slopes, shift + scale * self.lowest, scale * self.spread)

    def average(self, weights: Float[Tensor, "B A"]) -> "Spline":
        """Average the quantile functions; exact, slopes included, at the average knots, and interpolated between them.

        The sum of two splines with different knots is not a spline with as many bins.
        """
        knots = averaged(self.knots, weights)  # B K
        there = knots[:, None, :].expand(self.knots.shape)
        _, place, steepness, before, after = self._locate(there)
        lowest, spread = averaged(self.lowest, weights), averaged(self.spread, weights)
        size = spread.clamp_min(torch.finfo(spread.dtype).tiny)[:, None]
        values = averaged(self.spread[..., None] * self._heights_at(there), weights) / size
        slopes = averaged(self.spread[..., None] * climb_rate(place, steepness, before, after), weights) / size
        return Spline(knots, values, slopes, lowest, spread)

    def map(self, function: Callable[[Tensor], Tensor]) -> "Spline":
        """Apply `function` to all tensors."""
        lowest, spread = (function(number[..., None])[..., 0] for number in (self.lowest, self.spread))
        return Spline(function(self.knots), function(self.heights), function(self.slopes), lowest, spread)


def climb(
    place: Float[Tensor, "*batch"],
    steepness: Float[Tensor, "*broadcast"],
    before: Float[Tensor, "*broadcast"],
    after: Float[Tensor, "*broadcast"],
) -> Float[Tensor, "*batch"]:
    """Return the share of a bin's rise at a place x in the bin (Durkan et al., arXiv 1906.04032, Eq. 4).

    With the chord's slope s and the slopes a and b at the ends, Eq. 4 is r = x (s x + a (1 - x)) / (s + (a + b - 2 s)
    x (1 - x)), in which rounding can make the result fall. Its odds are r / (1 - r) = o (s o + a) / (b o + s), where
    o = x / (1 - x) are the odds of the place. Divided out, for s^2 >= a b and for s^2 < a b, this is a chain of
    operations on positive numbers that each preserve order, rounding included.
    """
    rounding = torch.finfo(place.dtype).eps
    place = place.clamp(rounding, 1 - rounding)  # keeps the odds, and their gradient, finite
    odds = place / (1 - place)
    surplus = steepness * steepness - before * after
    rising = odds * (before / steepness + surplus.clamp_min(0) / steepness / (after + steepness / odds))
    falling = (-surplus).clamp_min(0) / before / (steepness * odds + before)
    return 1 / (1 + 1 / rising + falling)


def climb_rate(
    place: Float[Tensor, "*batch"],
    steepness: Float[Tensor, "*broadcast"],
    before: Float[Tensor, "*broadcast"],
    after: Float[Tensor, "*broadcast"],
) -> Float[Tensor, "*batch"]:
    """Return the slope of the spline at a place in a bin (Durkan et al., arXiv 1906.04032, Eq. 5)."""
    other = 1 - place
    rates = after * place * place + 2 * steepness * place * other + before * other * other
    return steepness * steepness * rates / (steepness + (before + after - 2 * steepness) * place * other).square()


def mean_climb(
    steepness: Float[Tensor, "*batch"], before: Float[Tensor, "*batch"], after: Float[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """Return the average of `climb` over a bin: 1/2 + (a - b) / (2 s) * bump((a + b) / s - 2).

    By the symmetry of u = x (1 - x), the average of Eq. 4 is that of (s / 2 + (a - s) u) / (s + (a + b - 2 s) u), which
    is 1/2 + (a - b) / 2 * u / (s + (a + b - 2 s) u).
    """
    before, after = before / steepness, after / steepness
    return 0.5 + (before - after) / 2 * bump((before + after - 2).clamp_min(-2))


def bump(k: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """Integral of u / (1 + k u) over x from 0 to 1, for u = x (1 - x) and k >= -2.

    It is (1 - h) / k with h = 4 asinh(sqrt(k) / 2) / sqrt(k (4 + k)), and for k < 0 with asin and |k| in the roots.
    Near 0, where this cancels, it is a power series.
    """
    near = k.abs() < 0.25
    series = torch.full_like(k, SERIES[-1])
    for coefficient in reversed(SERIES[:-1]):
        series = series * torch.where(near, k, 0) + coefficient
    k = torch.where(near, 1, k)  # an unused branch must have a finite gradient too
    root = k.abs().sqrt() / 2
    angle = torch.where(k > 0, root.asinh(), root.clamp_max(0.75).asin())
    return torch.where(near, series, (1 - 4 * angle / (k.abs() * (4 + k)).sqrt()) / k)
