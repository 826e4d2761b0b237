"""The contract of a return distribution, and every closed form on quantile functions, written once.

Each kind of distribution has a quantile function that is linear on finitely many segments of (0, 1): straight lines for
NDQFN, steps for Diracs, atoms and points. So a distribution only has to name its segments; mean, quantiles, Wasserstein
distance, CVaR and DLTV's variance are exact integrals over them, for any pair of kinds. A curve that decreases (IQN's
may) is taken as it is, but for measures of risk: the worst returns are the lowest, whatever their fractions.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor


class Segments(NamedTuple):
    """A quantile function that is linear between neighbouring edges, from 0 to 1; the batch may share them."""

    edges: Float[Tensor, "*shared S1"]
    left: Float[Tensor, "*batch S"]
    right: Float[Tensor, "*batch S"]

    @property
    def widths(self) -> Float[Tensor, "*shared S"]:
        """Probability mass of each segment."""
        return self.edges.diff(dim=-1)

    def at(self, inside: Float[Tensor, "*batch M"], taus: Float[Tensor, "*batch M"]) -> Float[Tensor, "*batch M"]:
        """Evaluate at `taus` the lines of those segments that hold the fractions `inside`.

        Each result depends on its own fraction alone, and along a rising line it never falls nor passes the line's end,
        rounding included.
        """
        edges = self.edges if self.edges.ndim == 1 else self.edges.expand(*inside.shape[:-1], -1).contiguous()
        index = torch.searchsorted(edges, inside.contiguous()).clamp(1, edges.shape[-1] - 1)
        if edges.ndim == 1:
            start, stop = edges[index - 1], edges[index]
        else:
            start, stop = edges.gather(-1, index - 1), edges.gather(-1, index)
        left, right = self.left.gather(-1, index - 1), self.right.gather(-1, index - 1)
        share = ((taus - start) / (stop - start).clamp_min(torch.finfo(taus.dtype).tiny)).clamp(0, 1)
        value = left + share * (right - left)
        passed = torch.where(right >= left, value > right, value < right)
        return torch.where(passed, right, value)

    def over(self, edges: Float[Tensor, "*finer F1"]) -> "Segments":
        """Return the same function on a finer set of edges, one for each batch entry."""
        edges = edges.expand(*self.left.shape[:-1], -1)
        middle = (edges[..., 1:] + edges[..., :-1]) / 2
        return Segments(edges, self.at(middle, edges[..., :-1]), self.at(middle, edges[..., 1:]))


def absolute_integral(
    start: Float[Tensor, "*batch S"], stop: Float[Tensor, "*batch S"], widths: Float[Tensor, "*shared S"]
) -> Float[Tensor, "*batch S"]:
    """Integral of |line from start to stop| over each width; branch-free, without overflow or division by zero.

    With halves a, b and s = |a| + |b| it is h (s - 2 max(-ab, 0) / s): the trapezoid less what a change of sign takes.
    """
    a, b = start / 2, stop / 2
    s = a.abs() + b.abs()
    share = b / s.clamp_min(torch.finfo(s.dtype).tiny)
    return widths * (s - 2 * (-a * share).clamp_min(0))


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal, entry by entry."""
    return one is other or (one.shape == other.shape and torch.equal(one, other))


class Distribution(ABC):
    """Batched return distributions, one for each entry of `[B, A]` (or of `[B]` once actions are taken)."""

    @property
    @abstractmethod
    def batch_shape(self) -> torch.Size:
        """Shape of the batch, `[B, A]` as a head returns it."""

    @abstractmethod
    def segments(self) -> Segments:
        """Return the quantile function as linear pieces."""

    @abstractmethod
    def curve(self) -> Float[Tensor, "*batch K"]:
        """Return the quantile estimates that the distribution holds, in the order of their fractions."""

    @abstractmethod
    def affine(self, scale: Float[Tensor, "*batch"], shift: Float[Tensor, "*batch"]) -> "Distribution":
        """Return the distribution of `shift + scale * Z` for scale >= 0: a Bellman target."""

    @abstractmethod
    def map(self, function: Callable[[Tensor], Tensor]) -> "Distribution":
        """Apply a function that keeps the last axis to every tensor that is batched."""

    def ordered(self) -> "Distribution":
        """Return the same distribution with its outcomes in order; only quantile estimates that cross are out of it."""
        return self

    def take(self, actions: Int[Tensor, " B"]) -> "Distribution":
        """Keep the distribution of one action for each batch row: `[B, A] -> [B]`."""
        rows = torch.arange(len(actions), device=actions.device)
        return self.map(lambda tensor: tensor[rows, actions])

    def rows(self, start: int, stop: int) -> "Distribution":
        """Keep the batch rows from start up to stop."""
        return self.map(lambda tensor: tensor[start:stop])

    def mean(self) -> Float[Tensor, "*batch"]:
        """Expected return: the integral of the quantile function over (0, 1)."""
        segments = self.segments()
        return (segments.widths * (segments.left + segments.right) / 2).sum(dim=-1)

    def magnitude(self) -> Float[Tensor, "*batch"]:
        """Expected absolute return, E|Z|: the distance from always getting nothing."""
        segments = self.segments()
        return absolute_integral(segments.left, segments.right, segments.widths).sum(dim=-1)

    def outside(self, low: float, high: float) -> Float[Tensor, "*batch"]:
        """Mass of the segments that do not lie within [low, high]; of distributions made of steps it is exact."""
        segments = self.segments()
        out = (torch.minimum(segments.left, segments.right) < low) | (
            torch.maximum(segments.left, segments.right) > high
        )
        return (segments.widths * out).sum(dim=-1)

    def quantile(self, taus: Float[Tensor, "..."]) -> Float[Tensor, "*batch M"]:
        """Quantiles at fractions `[M]`, shared by the batch, or `[*batch, M]`; outside the support the ends hold."""
        taus = taus.expand(*self.batch_shape, taus.shape[-1])
        return self.segments().at(taus, taus)

    def w1(self, other: "Distribution") -> Float[Tensor, "*batch"]:
        """1-Wasserstein distance, the integral of the absolute difference of the quantile functions. Exact."""
        mine, theirs = self.segments(), other.segments()
        if not same(mine.edges, theirs.edges):
            batch = self.batch_shape
            both = torch.cat([mine.edges.expand(*batch, -1), theirs.edges.expand(*batch, -1)], dim=-1)
            edges = both.sort(dim=-1).values
            mine, theirs = mine.over(edges), theirs.over(edges)
        return absolute_integral(mine.left - theirs.left, mine.right - theirs.right, mine.widths).sum(dim=-1)

    def upper_variance(self) -> Float[Tensor, "*batch"]:
        """DLTV's sigma_+^2: the integral over (1/2, 1) of the squared distance from the median."""
        median = self.quantile(torch.full((1,), 0.5, device=self.curve().device, dtype=self.curve().dtype))
        segments = self.segments()
        cut = segments.over(segments.edges.clamp_min(0.5))
        a, b = cut.left - median, cut.right - median
        return (cut.widths * (a * a + a * b + b * b) / 3).sum(dim=-1)

    def cvar(self, alpha: float) -> Float[Tensor, "*batch"]:
        """Conditional value at risk: the mean of the worst share `alpha` of the returns; `alpha = 1` is the mean."""
        if not 0 < alpha <= 1:
            raise ValueError(f"alpha is {alpha}, but must be in (0, 1]: it is the share of worst returns to average.")
        segments = self.ordered().segments()
        cut = segments.over(segments.edges.clamp_max(alpha))
        return (cut.widths * (cut.left + cut.right) / 2).sum(dim=-1) / alpha

    def crossing(self) -> Float[Tensor, "*batch"]:
        """Share of neighbouring quantile estimates that decrease, from 0 (a valid quantile function) to 1."""
        curve = self.curve()
        if curve.shape[-1] < 2:
            return curve.new_zeros(curve.shape[:-1])
        return (~(curve.diff(dim=-1) >= 0)).to(curve.dtype).mean(dim=-1)  # what is not a number does not rise either
