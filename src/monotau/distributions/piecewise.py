"""A quantile function made of straight lines between knots: NDQFN's distribution."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from monotau.distributions.base import Distribution, Segments


@dataclass(frozen=True, eq=False)
class PiecewiseLinear(Distribution):
    """Quantiles `values` at fractions `knots`, joined by lines and held constant outside the first and last knot.

    `knots` increase strictly inside (0, 1); they are shared (`[K]`) or given for each batch entry (`[*batch, K]`).
    """

    knots: Float[Tensor, "*shared K"]
    values: Float[Tensor, "*batch K"]

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of the batch."""
        return self.values.shape[:-1]

    def segments(self) -> Segments:
        """Lines between the knots, and a level piece on each side.

        Departure: read literally, the paper's sum gives the lowest quantile for tau >= p_N; here the ends hold.
        """
        end = self.knots[..., :1]
        edges = torch.cat([torch.zeros_like(end), self.knots, torch.ones_like(end)], dim=-1)
        left = torch.cat([self.values[..., :1], self.values], dim=-1)
        right = torch.cat([self.values, self.values[..., -1:]], dim=-1)
        return Segments(edges, left, right)

    def mean(self) -> Float[Tensor, "*batch"]:
        """Mean of the clamped quantile function: p0*theta0 + trapezoids + (1-pN)*thetaN.

        Departure: the paper integrates over [p0, pN] only (mass 0.998), which is not an expectation.
        """
        half = self.knots.diff(dim=-1) / 2
        first, last = self.knots[..., :1], self.knots[..., -1:]
        weights = torch.cat([half, 1 - last], dim=-1) + torch.cat([first, half], dim=-1)
        return (self.values * weights).sum(dim=-1)

    def curve(self) -> Float[Tensor, "*batch K"]:
        """Quantiles at the knots."""
        return self.values

    def affine(self, scale: Float[Tensor, "*batch"], shift: Float[Tensor, "*batch"]) -> "PiecewiseLinear":
        """Return the distribution of `shift + scale * Z`."""
        return PiecewiseLinear(self.knots, shift[..., None] + scale[..., None] * self.values)

    def map(self, function: Callable[[Tensor], Tensor]) -> "PiecewiseLinear":
        """Apply `function` to the batched tensors."""
        knots = self.knots if self.knots.ndim == 1 else function(self.knots)
        return PiecewiseLinear(knots, function(self.values))


def uniform_support(count: int) -> tuple[float, ...]:
    """Return the paper's support: p_0 = 0.001, p_i = i/N, p_N = 0.999 for `count` = N + 1 points."""
    last = count - 1
    return (0.001, *(i / last for i in range(1, last)), 0.999)
