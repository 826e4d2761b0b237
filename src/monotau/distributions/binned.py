"""A point mass at the mean of a histogram: HL-Gauss's distribution."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from monotau.distributions.base import Distribution, Segments, averaged


@dataclass(frozen=True, eq=False, repr=False)
class Binned(Distribution):
    """A point mass at the mean of a histogram, as HL-Gauss predicts it (Farebrother et al. 2024, arXiv 2403.03950).

    The histogram is a number in a form that cross-entropy can learn: its width is that of the smoothing, not of the
    returns. All of the mass therefore lies on its mean.

    Args:
        centres: Centres of the bins, shared by the batch (`[K]`) or not (`[*batch, K]`).
        logs: Logarithms `[*batch, K]` of the masses of the bins.

    Examples:
        >>> import torch
        >>> from monotau.distributions import Binned
        >>> value = Binned(torch.tensor([-1.0, 1.0]), torch.tensor([[0.25, 0.75]]).log())
        >>> value.mean().tolist(), value.cvar(0.1).tolist()
        ([0.5], [0.5])
    """

    centres: Float[Tensor, "*shared K"]
    logs: Float[Tensor, "*batch K"]

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of the batch."""
        return self.logs.shape[:-1]

    def segments(self) -> Segments:
        """Return one constant piece."""
        values = self.curve()
        return Segments(torch.arange(2, dtype=values.dtype, device=values.device), values, values)

    def mean(self) -> Float[Tensor, "*batch"]:
        """Mean of the histogram."""
        return (self.logs.exp() * self.centres).sum(dim=-1)

    def curve(self) -> Float[Tensor, "*batch 1"]:
        """Return the mean as a curve of one estimate."""
        return self.mean()[..., None]

    def affine(self, scale: Float[Tensor, "*batch"], shift: Float[Tensor, "*batch"]) -> "Binned":
        """Return the point mass at `shift + scale * Z`."""
        return Binned(shift[..., None] + scale[..., None] * self.centres, self.logs)

    def average(self, weights: Float[Tensor, "B A"]) -> "Binned":
        """Mix the histograms over bins that all actions of a row share."""
        centres = self.centres if self.centres.ndim == 1 else self.centres[:, 0]
        return Binned(centres, averaged(self.logs.exp(), weights).log())

    def map(self, function: Callable[[Tensor], Tensor]) -> "Binned":
        """Apply `function` to the batched tensors."""
        return Binned(self.centres if self.centres.ndim == 1 else function(self.centres), function(self.logs))
