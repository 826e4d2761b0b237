"""The fully parameterised quantile function (FQF, Yang et al. 2019, arXiv 1911.02140): it also learns the fractions."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from monotau.distributions import Diracs, Distribution
from monotau.errors import check_least, check_positive
from monotau.networks.heads.base import Constants, Estimate, Head, HeadConfig, quantile_loss
from monotau.networks.heads.implicit import ImplicitQuantiles
from monotau.networks.heads.proposals import ProposalConfig, Proposals, fraction_entropy
from monotau.networks.layers import Layers


@dataclass(frozen=True, kw_only=True)
class Fqf(ProposalConfig, HeadConfig):
    """FQF: quantiles at fractions that a second network proposes for each state; they may cross.

    Yang et al. 2019, arXiv 1911.02140.
    """

    quantiles: int = 32
    """Number of quantiles, N."""
    hidden: int = 512
    """Hidden units after the product of state and fraction."""
    cosines: int = 64
    """Cosines in the embedding of a fraction."""
    kappa: float = 1.0
    """Error, in the unit of returns, at which the Huber loss turns from quadratic to linear."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least("head.", self, quantiles=2, hidden=1, cosines=1)
        check_positive("head.", self, "kappa")

    def build(self, features: int, actions: int, layers: Layers) -> "FqfHead":
        """Make the head."""
        return FqfHead(self, features, actions, layers)


class FqfHead(Head):
    """IQN's network at the midpoint of each proposed interval, weighted by the interval's width."""

    def __init__(self, config: Fqf, features: int, actions: int, layers: Layers) -> None:
        super().__init__()
        self.config = config
        self.proposals = Proposals(features, config.quantiles)
        self.network = ImplicitQuantiles(features, config.hidden, config.cosines, actions, layers)

    def forward(
        self,
        features: Float[Tensor, "B D"],
        fractions: Float[Tensor, "B 0"],
        constants: Constants,
        actions: Int[Tensor, " B"] | None = None,
    ) -> Diracs:
        """Return quantile estimates at the midpoints; the fractions get no gradient from them."""
        with torch.no_grad():
            edges = self.proposals.edges(features)
        middles, widths = (edges[:, 1:] + edges[:, :-1]) / 2, edges.diff(dim=-1)
        values = self.network(features, middles, actions)
        if actions is None:
            middles, widths = (rows[:, None, :].expand(values.shape) for rows in (middles, widths))
        return Diracs(middles, values, widths)

    def rescale(self, factor: float) -> None:
        """Scale the quantiles."""
        self.network.last.multiply(factor)

    def loss(self, prediction: Estimate, target: Estimate) -> Float[Tensor, " B"]:
        """Quantile Huber loss at the midpoints; all target samples have equal weight, as in FQF's Eq. 9."""
        return quantile_loss(prediction, target, self.config.kappa)

    def side_loss(
        self,
        features: Float[Tensor, "B D"],
        prediction: Estimate,
        constants: Constants,
        actions: Int[Tensor, " B"],
    ) -> Float[Tensor, ""]:
        """Loss of the fractions, whose gradient is that of the step function's 1-Wasserstein error (FQF's Eq. 7)."""
        edges = self.proposals.edges(features)
        with torch.no_grad():
            at_edges = self.network(features, edges[:, 1:-1], actions)  # B N-1
            at_middles = prediction.distribution.curve()  # B N
            slopes = 2 * at_edges - at_middles[:, 1:] - at_middles[:, :-1]
        return self.config.fraction_loss(edges, slopes)

    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        """Make the optimiser of the fractions."""
        return [self.config.fraction_optimiser(self.proposals)]

    def quantiles(
        self,
        features: Float[Tensor, "B D"],
        taus: Float[Tensor, " M"],
        fractions: Float[Tensor, "B n"],
        constants: Constants,
    ) -> Float[Tensor, "B A M"]:
        """Evaluate the network at the fractions."""
        values: Tensor = self.network(features, taus.expand(features.shape[0], -1), None)
        return values

    def statistics(self, distribution: Distribution) -> dict[str, float]:
        """Return the entropy of the interval widths, which is low when the proposals have collapsed."""
        edges = distribution.segments().edges
        return {"fraction_entropy": fraction_entropy(edges).mean().item()}
