"""A quantile function given by an anchor and the steps between its knots: the output of NDQFN's heads."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from monotau.distributions.base import Distribution, Segments, averaged, same
from monotau.distributions.piecewise import PiecewiseLinear

Anchor = Literal["mean", "median", "lowest"]


class Support(NamedTuple):
    """The knots of a quantile function made of steps, and which point of the curve the anchor is.

    At a fraction tau, the curve has risen by a share ramp_i(tau) of step i: 0 at the step's first knot, 1 at its last.
    All tensors are shared by the batch (`[K]`, `[N]`) or given for each entry.

    Examples:
        >>> import torch
        >>> from monotau.distributions import Support
        >>> support = Support.of(torch.tensor([0.25, 0.75]), "median")
        >>> support.rates.tolist(), support.offsets.tolist()
        ([2.0], [0.5])
    """

    knots: Float[Tensor, "*shared K"]
    rates: Float[Tensor, "*shared N"]
    """Slope of each ramp."""
    offsets: Float[Tensor, "*shared N"]
    """Share of each step that lies below the anchor."""
    anchor: Anchor

    @classmethod
    def of(cls, knots: Float[Tensor, "*shared K"], anchor: Anchor) -> "Support":
        """Precompute what depends on the knots alone.

        Args:
            knots: Fractions that increase strictly inside (0, 1).
            anchor: Point of the curve that the anchor is: its `mean`, `median` or `lowest` quantile.

        Returns:
            The support.
        """
        rates = 1 / knots.diff(dim=-1)
        if anchor == "mean":  # the mean of a ramp is 1 minus the midpoint of its rise
            offsets = 1 - (knots[..., 1:] + knots[..., :-1]) / 2
        elif anchor == "median":
            offsets = ((0.5 - knots[..., :-1]) * rates).clamp(0, 1)
        else:
            offsets = torch.zeros_like(rates)
        return cls(knots, rates, offsets, anchor)

    def ramps(self, taus: Float[Tensor, "*batch M"]) -> Float[Tensor, "*batch M N"]:
        """Return the share of each step at the fractions, relative to the anchor: ramp_i(tau) - offset_i."""
        passed = taus[..., None] - self.knots[..., None, :-1]
        return passed.mul_(self.rates[..., None, :]).clamp_(0, 1).sub_(self.offsets[..., None, :])

    def map(self, function: Callable[[Tensor], Tensor]) -> "Support":
        """Apply `function` to the tensors unless they are shared by the batch."""
        if self.knots.ndim == 1:
            return self
        return Support(function(self.knots), function(self.rates), function(self.offsets), self.anchor)


@dataclass(frozen=True, eq=False, repr=False)
class Stepped(Distribution):
    """A piecewise linear quantile function in the form that NDQFN's heads predict: an anchor and non-negative steps.

    F(tau) = anchor + sum_i step_i (ramp_i(tau) - offset_i), where ramp_i rises from 0 to 1 between two knots and the
    offsets decide which point of the curve the anchor is. Losses and Bellman targets use this linear form; the
    quantiles at the knots are computed only when something asks for them.

    Args:
        support: The knots.
        anchors: Mean, median or lowest quantile `[*batch]`.
        steps: Non-negative differences `[*batch, N]` of the quantiles at neighbouring knots.

    Examples:
        >>> import torch
        >>> from monotau.distributions import Stepped, Support
        >>> support = Support.of(torch.tensor([0.25, 0.75]), "mean")
        >>> returns = Stepped(support, torch.tensor([2.0]), torch.tensor([[2.0]]))
        >>> returns.mean().tolist(), returns.values.tolist(), returns.crossing().tolist()
        ([2.0], [[1.0, 3.0]], [0.0])
    """

    support: Support
    anchors: Float[Tensor, "*batch"]
    steps: Float[Tensor, "*batch N"]

    @property
    def knots(self) -> Float[Tensor, "*shared K"]:
        """Fractions at which the steps begin and end."""
        return self.support.knots

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of the batch."""
        return self.anchors.shape

    @property
    def values(self) -> Float[Tensor, "*batch K"]:
        """Quantiles at the knots.

        Cumulative sums of the steps never decrease, and adding one number to all of them keeps their order, rounding
        included.
        """
        rises = cumulate(F.pad(self.steps, (1, 0)))
        return (self.anchors[..., None] - (self.steps * self.support.offsets).sum(dim=-1, keepdim=True)) + rises

    def curve(self) -> Float[Tensor, "*batch K"]:
        """Quantiles at the knots."""
        return self.values

    def lines(self) -> PiecewiseLinear:
        """Return the same curve as quantiles at its knots."""
        return PiecewiseLinear(self.knots, self.values)

    def segments(self) -> Segments:
        """Return the lines between the knots, and a constant piece on each side."""
        return self.lines().segments()

    def mean(self) -> Float[Tensor, "*batch"]:
        """Mean of the clamped quantile function; it is the anchor itself if `support.anchor` is `mean`."""
        return self.anchors if self.support.anchor == "mean" else self.lines().mean()

    def w1(self, other: Distribution) -> Float[Tensor, "*batch"]:
        """1-Wasserstein distance; on the same knots it is the mean absolute difference of the curves."""
        if isinstance(other, Stepped) and same(self.knots, other.knots):
            return PiecewiseLinear(self.knots, self.values - other.values).magnitude()
        return super().w1(other)

    def ramp_quantile(self, taus: Float[Tensor, "*batch M"]) -> Float[Tensor, "*batch M"]:
        """Quantiles by the linear form, whose forward and backward passes are fast, for the loss.

        Unlike `quantile`, rounding can make the result decrease by one ulp.
        """
        ramps = self.support.ramps(taus)  # *batch M N
        quantiles: Tensor = self.anchors[..., None] + torch.linalg.vecdot(ramps, self.steps[..., None, :])
        return quantiles

    def affine(self, scale: Float[Tensor, "*batch"], shift: Float[Tensor, "*batch"]) -> "Stepped":
        """Return the distribution of `shift + scale * Z`."""
        return Stepped(self.support, shift + scale * self.anchors, scale[..., None] * self.steps)

    def average(self, weights: Float[Tensor, "B A"]) -> "Stepped":
        """Average anchors and steps between knots that all actions of a row share."""
        support = self.support.map(lambda tensor: tensor[:, 0])
        return Stepped(support, averaged(self.anchors, weights), averaged(self.steps, weights))

    def map(self, function: Callable[[Tensor], Tensor]) -> "Stepped":
        """Apply `function` to the batched tensors."""
        return Stepped(self.support.map(function), function(self.anchors[..., None])[..., 0], function(self.steps))


def cumulate(values: Float[Tensor, "*batch K"]) -> Float[Tensor, "*batch K"]:
    """Cumulative sums that never decrease if `values[1:]` are non-negative, rounding included.

    On a CPU the sum is sequential and cannot decrease; on other devices a parallel scan may round each sum differently,
    so the running maximum is taken.
    """
    sums = values.cumsum(dim=-1)
    return sums if sums.device.type == "cpu" else sums.cummax(dim=-1).values
