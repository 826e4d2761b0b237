"""A quantile function given by an anchor and the steps between its knots: what NDQFN's heads make."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from monotau.distributions.base import Distribution, Segments, same
from monotau.distributions.piecewise import PiecewiseLinear

Anchor = Literal["mean", "median", "lowest"]


class Support(NamedTuple):
    """Where steps lie, shared by the batch (`[K]`, `[N]`) or given for each entry, and which point is the anchor.

    At a fraction tau, the share ramp_i(tau) of step i is passed, from 0 at its first knot to 1 at its last.
    """

    knots: Float[Tensor, "*shared K"]
    rates: Float[Tensor, "*shared N"]
    """How fast each ramp rises."""
    offsets: Float[Tensor, "*shared N"]
    """What the anchor has passed of each step."""
    anchor: Anchor

    @classmethod
    def of(cls, knots: Float[Tensor, "*shared K"], anchor: Anchor) -> "Support":
        """Work out what depends on the knots alone."""
        rates = 1 / knots.diff(dim=-1)
        if anchor == "mean":  # the mean of a ramp is one less the middle of its rise
            offsets = 1 - (knots[..., 1:] + knots[..., :-1]) / 2
        elif anchor == "median":
            offsets = ((0.5 - knots[..., :-1]) * rates).clamp(0, 1)
        else:
            offsets = torch.zeros_like(rates)
        return cls(knots, rates, offsets, anchor)

    def ramps(self, taus: Float[Tensor, "*batch M"]) -> Float[Tensor, "*batch M N"]:
        """How much more of each step is passed at the fractions than at the anchor."""
        passed = taus[..., None] - self.knots[..., None, :-1]
        return passed.mul_(self.rates[..., None, :]).clamp_(0, 1).sub_(self.offsets[..., None, :])

    def map(self, function: Callable[[Tensor], Tensor]) -> "Support":
        """Apply `function` to what is given for each entry."""
        if self.knots.ndim == 1:
            return self
        return Support(function(self.knots), function(self.rates), function(self.offsets), self.anchor)


@dataclass(frozen=True, eq=False)
class Stepped(Distribution):
    """The curve F(tau) = anchor + sum_i step_i (ramp_i(tau) - offset_i), ramp_i rising from 0 to 1 between two knots.

    Which point of the curve is the anchor is up to the offsets. Losses and Bellman targets need no more than this
    linear form; the quantiles at the knots are only summed up for those who ask.
    """

    support: Support
    anchors: Float[Tensor, "*batch"]
    steps: Float[Tensor, "*batch N"]

    @property
    def knots(self) -> Float[Tensor, "*shared K"]:
        """Fractions of the steps' ends."""
        return self.support.knots

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of the batch."""
        return self.anchors.shape

    @property
    def values(self) -> Float[Tensor, "*batch K"]:
        """Quantiles at the knots.

        The rises never fall; adding one number to all of them keeps their order, rounding included.
        """
        rises = cumulate(F.pad(self.steps, (1, 0)))
        return (self.anchors[..., None] - (self.steps * self.support.offsets).sum(dim=-1, keepdim=True)) + rises

    def curve(self) -> Float[Tensor, "*batch K"]:
        """Quantiles at the knots."""
        return self.values

    def lines(self) -> PiecewiseLinear:
        """Return the same curve with its quantiles summed up."""
        return PiecewiseLinear(self.knots, self.values)

    def segments(self) -> Segments:
        """Lines between the knots, and a level piece on each side."""
        return self.lines().segments()

    def mean(self) -> Float[Tensor, "*batch"]:
        """Mean of the clamped quantile function: the anchor itself, where that is its place."""
        return self.anchors if self.support.anchor == "mean" else self.lines().mean()

    def w1(self, other: Distribution) -> Float[Tensor, "*batch"]:
        """1-Wasserstein distance; on the same knots it is the mean size of the difference of the curves."""
        if isinstance(other, Stepped) and same(self.knots, other.knots):
            return PiecewiseLinear(self.knots, self.values - other.values).magnitude()
        return super().w1(other)

    def ramp_quantile(self, taus: Float[Tensor, "*batch M"]) -> Float[Tensor, "*batch M"]:
        """Quantiles by the linear form: fast both ways, for the loss; rounding could make a curve fall by an ulp."""
        ramps = self.support.ramps(taus)  # *batch M N
        quantiles: Tensor = self.anchors[..., None] + torch.linalg.vecdot(ramps, self.steps[..., None, :])
        return quantiles

    def affine(self, scale: Float[Tensor, "*batch"], shift: Float[Tensor, "*batch"]) -> "Stepped":
        """Return the distribution of `shift + scale * Z`."""
        return Stepped(self.support, shift + scale * self.anchors, scale[..., None] * self.steps)

    def map(self, function: Callable[[Tensor], Tensor]) -> "Stepped":
        """Apply `function` to the batched tensors."""
        return Stepped(self.support.map(function), function(self.anchors[..., None])[..., 0], function(self.steps))


def cumulate(values: Float[Tensor, "*batch K"]) -> Float[Tensor, "*batch K"]:
    """Cumulative sums that never fall where `values[1:]` are non-negative, rounding included.

    On a CPU the sum runs in order and cannot fall; on other devices a parallel scan may round differently from one
    sum to the next, so its running maximum is taken.
    """
    sums = values.cumsum(dim=-1)
    return sums if sums.device.type == "cpu" else sums.cummax(dim=-1).values
