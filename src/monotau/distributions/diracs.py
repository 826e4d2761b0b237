"""A mixture of Diracs at given fractions: the distribution of QR-DQN, IQN and FQF."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from monotau.distributions.base import Distribution, Segments, averaged, same


@dataclass(frozen=True, eq=False, repr=False)
class Diracs(Distribution):
    """A mixture of Diracs at quantile estimates: the distribution of QR-DQN, IQN and FQF.

    The quantile function is a step function: sorted by fraction, each estimate holds over an interval as wide as its
    weight.

    Args:
        taus: Fractions of the estimates, in any order, shared by the batch (`[N]`) or not (`[*batch, N]`).
        values: Quantile estimates `[*batch, N]`.
        weights: Probabilities that sum to 1, shared or not.

    Examples:
        >>> import torch
        >>> from monotau import Diracs
        >>> crossed = Diracs(torch.tensor([0.25, 0.75]), torch.tensor([[2.0, 1.0]]), torch.tensor([0.5, 0.5]))
        >>> crossed.mean().tolist(), crossed.crossing().tolist(), crossed.ordered().crossing().tolist()
        ([1.5], [1.0], [0.0])
    """

    taus: Float[Tensor, "*shared N"]
    values: Float[Tensor, "*batch N"]
    weights: Float[Tensor, "*weighted N"]

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of the batch."""
        return self.values.shape[:-1]

    def segments(self) -> Segments:
        """Return one constant piece for each Dirac, in the order of the fractions."""
        order = self.taus.argsort(dim=-1)
        if self.weights.ndim == 1 and order.ndim > 1:
            weights = self.weights.expand(order.shape).gather(-1, order)
        else:
            weights = self.weights.gather(-1, order.expand(self.weights.shape))
        inner = weights.cumsum(dim=-1)[..., :-1].clamp_max(1)
        edges = torch.cat([torch.zeros_like(weights[..., :1]), inner, torch.ones_like(weights[..., :1])], dim=-1)
        values = self.values.gather(-1, order.expand(self.values.shape))
        return Segments(edges, values, values)

    def mean(self) -> Float[Tensor, "*batch"]:
        """Weighted mean of the values."""
        return (self.values * self.weights).sum(dim=-1)

    def w1(self, other: Distribution) -> Float[Tensor, "*batch"]:
        """1-Wasserstein distance; on the same fractions it is the weighted mean of |difference|, without sorting."""
        if isinstance(other, Diracs) and same(self.taus, other.taus) and same(self.weights, other.weights):
            return ((self.values - other.values).abs() * self.weights).sum(dim=-1)
        return super().w1(other)

    def ordered(self) -> "Diracs":
        """Return the Diracs in the order of their values."""
        order = self.values.argsort(dim=-1)
        weights = self.weights.expand(self.values.shape).gather(-1, order)
        return Diracs(weights.cumsum(dim=-1) - weights / 2, self.values.gather(-1, order), weights)

    def curve(self) -> Float[Tensor, "*batch N"]:
        """Values in the order of the fractions."""
        return self.values.gather(-1, self.taus.argsort(dim=-1).expand(self.values.shape))

    def affine(self, scale: Float[Tensor, "*batch"], shift: Float[Tensor, "*batch"]) -> "Diracs":
        """Return the distribution of `shift + scale * Z`."""
        return Diracs(self.taus, shift[..., None] + scale[..., None] * self.values, self.weights)

    def average(self, weights: Float[Tensor, "B A"]) -> "Diracs":
        """Average the values at fractions that all actions of a row share."""
        taus, masses = (shared if shared.ndim == 1 else shared[:, 0] for shared in (self.taus, self.weights))
        return Diracs(taus, averaged(self.values, weights), masses)

    def map(self, function: Callable[[Tensor], Tensor]) -> "Diracs":
        """Apply `function` to the batched tensors."""
        taus = self.taus if self.taus.ndim == 1 else function(self.taus)
        weights = self.weights if self.weights.ndim == 1 else function(self.weights)
        return Diracs(taus, function(self.values), weights)
