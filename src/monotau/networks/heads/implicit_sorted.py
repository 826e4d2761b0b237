"""Samples of a noise-driven generator, sorted into quantiles, which are therefore monotone.

After the distributional critic of IDAC (Yue, Wang, Zhou 2020, arXiv 2007.06159).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from monotau.distributions import Diracs
from monotau.errors import check_least
from monotau.networks.heads.base import Constants, Estimate, Head, Role, SampledConfig, draw_fractions, quantile_loss
from monotau.networks.layers import ActionLayer, Layers, large_products


@dataclass(frozen=True, kw_only=True)
class ImplicitSorted(SampledConfig):
    """Sorted samples of a generator of returns: the k-th of n is the quantile at (k - 1/2) / n.

    After Yue, Wang, Zhou 2020, arXiv 2007.06159.
    """

    noise: int = 8
    """Normal random numbers per sample, the generator's input."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least("head.", self, noise=1)

    def build(self, features: int, actions: int, layers: Layers) -> "ImplicitSortedHead":
        """Make the head."""
        return ImplicitSortedHead(self, features, actions, layers)


class ImplicitSortedHead(Head):
    """Linear(ReLU(W [psi ; noise] + b)) for each sample, W split so that psi is multiplied once for all of them."""

    samples = True

    def __init__(self, config: ImplicitSorted, features: int, actions: int, layers: Layers) -> None:
        super().__init__()
        self.config, self.precision = config, layers.precision
        units = 2 * config.hidden if layers.dueling else config.hidden
        # Initialise each term as if it had half of the inputs: few random numbers weigh as much as many features.
        self.seen = layers.linear(features, units, fan_in=2 * features)
        self.driven = layers.linear(config.noise, units, bias=False, fan_in=2 * config.noise)
        self.last = ActionLayer(layers, config.hidden, actions)

    def fractions(self, role: Role, batch: int, generator: torch.Generator | None) -> Float[Tensor, "B n"]:
        """Draw the noise of all samples, concatenated; without a generator, the same noise in every row."""
        size = self.config.count(role) * self.config.noise
        if generator is None:
            return torch.randn(1, size, generator=torch.Generator().manual_seed(0)).expand(batch, size)
        return torch.randn(batch, size, generator=generator)

    def forward(
        self,
        features: Float[Tensor, "B D"],
        fractions: Float[Tensor, "B n"],
        constants: Constants,
        actions: Int[Tensor, " B"] | None = None,
    ) -> Diracs:
        """Return the sorted samples as quantiles."""
        with large_products(self.precision, features.device):
            noise = fractions.unflatten(1, (-1, self.config.noise))  # B n d
            hidden = F.relu(self.seen(features)[:, None, :] + self.driven(noise))
        values = self.last.along(hidden.float(), actions).sort(dim=-1).values
        taus = draw_fractions(noise.shape[1], 1, None)[0].to(values.device)
        return Diracs(taus, values, torch.full_like(taus, 1 / len(taus)))

    def rescale(self, factor: float) -> None:
        """Scale the samples."""
        self.last.multiply(factor)

    def loss(self, prediction: Estimate, target: Estimate) -> Float[Tensor, " B"]:
        """Quantile Huber loss at the fractions of the sorted samples."""
        return quantile_loss(prediction, target, self.config.kappa)
