"""A quantile function made of straight lines between knots: NDQFN's distribution."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from monotau.distributions.base import Distribution, Segments, averaged


@dataclass(frozen=True, eq=False, repr=False)
class PiecewiseLinear(Distribution):
    """Quantiles at knots, joined by straight lines and constant outside the first and the last knot.

    The quantile functions of NDQFN have this form (Zhou et al. 2021, arXiv 2105.06696).

    Args:
        knots: Fractions that increase strictly inside (0, 1), shared by the batch (`[K]`) or not (`[*batch, K]`).
        values: Quantiles `[*batch, K]` at the knots.

    Examples:
        >>> import torch
        >>> from monotau import PiecewiseLinear
        >>> returns = PiecewiseLinear(torch.tensor([0.25, 0.75]), torch.tensor([[1.0, 3.0]]))
        >>> returns.mean().tolist(), returns.quantile(torch.tensor([0.5])).tolist()
        ([2.0], [[2.0]])
        >>> returns.affine(torch.tensor([0.5]), torch.tensor([1.0])).mean().tolist()  # reward 1, discount 0.5
        [2.0]
    """

    knots: Float[Tensor, "*shared K"]
    values: Float[Tensor, "*batch K"]

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of the batch."""
        return self.values.shape[:-1]

    def segments(self) -> Segments:
        """Return the lines between the knots, and a constant piece on each side.

        Departure: read literally, the paper's sum gives the lowest quantile for tau >= p_N; here it stays at the last.
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

    def average(self, weights: Float[Tensor, "B A"]) -> "PiecewiseLinear":
        """Average the values at knots that all actions of a row share."""
        knots = self.knots if self.knots.ndim == 1 else self.knots[:, 0]
        return PiecewiseLinear(knots, averaged(self.values, weights))

    def map(self, function: Callable[[Tensor], Tensor]) -> "PiecewiseLinear":
        """Apply `function` to the batched tensors."""
        knots = self.knots if self.knots.ndim == 1 else function(self.knots)
        return PiecewiseLinear(knots, function(self.values))


def uniform_support(count: int) -> tuple[float, ...]:
    """Return the support of the NDQFN paper: p_0 = 0.001, p_i = i/N, p_N = 0.999.

    Args:
        count: Number of points, N + 1.

    Returns:
        The points in increasing order.

    Examples:
        >>> from monotau.distributions import uniform_support
        >>> uniform_support(5)
        (0.001, 0.25, 0.5, 0.75, 0.999)
    """
    last = count - 1
    return (0.001, *(i / last for i in range(1, last)), 0.999)
