"""Probabilities of fixed atoms: C51's distribution."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from monotau.distributions.base import Distribution, Segments, averaged, same


@dataclass(frozen=True, eq=False, repr=False)
class Categorical(Distribution):
    """Probabilities of a set of atoms: the distribution of C51 (Bellemare et al. 2017, arXiv 1707.06887).

    Args:
        atoms: Returns in non-decreasing order, shared by the batch (`[K]`) or not (`[*batch, K]`).
        probs: Probabilities `[*batch, K]` of the atoms.
        logs: Logarithms of the probabilities, if known. A probability that underflows has a gradient only through them.

    Examples:
        >>> import torch
        >>> from monotau import Categorical
        >>> coin = Categorical(torch.tensor([-1.0, 1.0]), torch.tensor([[0.5, 0.5], [0.25, 0.75]]))
        >>> coin.mean().tolist(), coin.cvar(0.25).tolist()
        ([0.0, 0.5], [-1.0, -1.0])
    """

    atoms: Float[Tensor, "*shared K"]
    probs: Float[Tensor, "*batch K"]
    logs: Float[Tensor, "*batch K"] | None = None

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of the batch."""
        return self.probs.shape[:-1]

    def segments(self) -> Segments:
        """Return one constant piece for each atom, as wide as its probability."""
        inner = self.probs.cumsum(dim=-1)[..., :-1].clamp_max(1)
        edges = torch.cat([torch.zeros_like(self.probs[..., :1]), inner, torch.ones_like(self.probs[..., :1])], dim=-1)
        values = self.curve()
        return Segments(edges, values, values)

    def mean(self) -> Float[Tensor, "*batch"]:
        """Probability-weighted mean of the atoms."""
        return (self.probs * self.atoms).sum(dim=-1)

    def w1(self, other: Distribution) -> Float[Tensor, "*batch"]:
        """1-Wasserstein distance; on the same atoms it is the sum of |difference of the CDFs| times their gaps."""
        if isinstance(other, Categorical) and same(self.atoms, other.atoms):
            gaps = (self.probs - other.probs).cumsum(dim=-1)[..., :-1].abs()
            return (gaps * self.atoms.diff(dim=-1)).sum(dim=-1)
        return super().w1(other)

    def log_probs(self) -> Float[Tensor, "*batch K"]:
        """Logarithms of the probabilities."""
        return self.probs.log() if self.logs is None else self.logs

    def curve(self) -> Float[Tensor, "*batch K"]:
        """Return the atoms, which never decrease."""
        return self.atoms.expand(self.probs.shape)

    def affine(self, scale: Float[Tensor, "*batch"], shift: Float[Tensor, "*batch"]) -> "Categorical":
        """Return the distribution of `shift + scale * Z`."""
        return Categorical(shift[..., None] + scale[..., None] * self.atoms, self.probs, self.logs)

    def average(self, weights: Float[Tensor, "B A"]) -> "Categorical":
        """Mix the probabilities of atoms that all actions of a row share."""
        atoms = self.atoms if self.atoms.ndim == 1 else self.atoms[:, 0]
        return Categorical(atoms, averaged(self.probs, weights))

    def map(self, function: Callable[[Tensor], Tensor]) -> "Categorical":
        """Apply `function` to the batched tensors."""
        atoms = self.atoms if self.atoms.ndim == 1 else function(self.atoms)
        return Categorical(atoms, function(self.probs), None if self.logs is None else function(self.logs))
