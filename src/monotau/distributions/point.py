"""All mass on one value: DQN's distribution."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from monotau.distributions.base import Distribution, Segments, averaged


@dataclass(frozen=True, eq=False, repr=False)
class Point(Distribution):
    """A point mass: the distribution of DQN, which learns only the mean.

    Args:
        value: The returns `[*batch]`.

    Examples:
        >>> import torch
        >>> from monotau import Point
        >>> one, other = Point(torch.tensor([1.0])), Point(torch.tensor([3.0]))
        >>> one.w1(other).tolist(), one.cvar(0.1).tolist()
        ([2.0], [1.0])
    """

    value: Float[Tensor, "*batch"]

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of the batch."""
        return self.value.shape

    def segments(self) -> Segments:
        """Return one constant piece."""
        values = self.curve()
        return Segments(torch.arange(2, dtype=values.dtype, device=values.device), values, values)

    def mean(self) -> Float[Tensor, "*batch"]:
        """Return the value."""
        return self.value

    def w1(self, other: Distribution) -> Float[Tensor, "*batch"]:
        """1-Wasserstein distance; to another point it is |difference|, without comparing segments."""
        return (self.value - other.value).abs() if isinstance(other, Point) else super().w1(other)

    def curve(self) -> Float[Tensor, "*batch 1"]:
        """Return the value as a curve of one estimate."""
        return self.value[..., None]

    def affine(self, scale: Float[Tensor, "*batch"], shift: Float[Tensor, "*batch"]) -> "Point":
        """Return the distribution of `shift + scale * Z`."""
        return Point(shift + scale * self.value)

    def average(self, weights: Float[Tensor, "B A"]) -> "Point":
        """Average the values."""
        return Point(averaged(self.value, weights))

    def map(self, function: Callable[[Tensor], Tensor]) -> "Point":
        """Apply `function` to the value."""
        return Point(function(self.value[..., None])[..., 0])
