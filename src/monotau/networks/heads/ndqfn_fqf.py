"""NDQFN (arXiv 2105.06696) with FQF's proposals (arXiv 1911.02140): a network proposes the knots for each state."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from monotau.distributions import Distribution, Stepped, Support
from monotau.errors import check_least
from monotau.networks.heads.base import Constants, Estimate
from monotau.networks.heads.implicit import Curve, normal_steps
from monotau.networks.heads.ndqfn import CurveConfig, CurveHead
from monotau.networks.heads.proposals import ProposalConfig, Proposals, fraction_entropy
from monotau.networks.layers import Layers

ENDS = (0.001, 0.999)
"""First and last knot, as on NDQFN's fixed support."""


@dataclass(frozen=True, kw_only=True)
class NdqfnFqf(ProposalConfig, CurveConfig):
    """NDQFN with knots that a network proposes for each state, like FQF's fractions; it cannot cross.

    The NDQFN paper (arXiv 2105.06696) names this as future work; proposals are those of FQF (arXiv 1911.02140).
    """

    knots: int = 32
    """Number of knots; the first and the last stay at 0.001 and 0.999."""

    def __post_init__(self) -> None:
        ProposalConfig.__post_init__(self)
        CurveConfig.__post_init__(self)
        check_least("head.", self, knots=3)

    def build(self, features: int, actions: int, layers: Layers) -> "NdqfnFqfHead":
        """Make the head."""
        return NdqfnFqfHead(self, features, actions, layers)


@final
class NdqfnFqfHead(CurveHead):
    """A curve with steps between proposed knots."""

    def __init__(self, config: NdqfnFqf, features: int, actions: int, layers: Layers) -> None:
        super().__init__()
        self.config: NdqfnFqf = config
        self.proposals = Proposals(features, config.knots - 1)
        self.curve = Curve(config, features, actions, layers)

    def forward(
        self,
        features: Float[Tensor, "B D"],
        fractions: Float[Tensor, "B n"],
        constants: Constants,
        actions: Int[Tensor, " B"] | None = None,
    ) -> Stepped:
        """Return piecewise linear quantile functions; the knots get no gradient from them."""
        with torch.no_grad():
            edges = self.proposals.edges(features)
            knots = ENDS[0] + (ENDS[1] - ENDS[0]) * edges
        anchors, steps = self.curve(features, self.curve.increments.between(knots), normal_steps(knots), actions)
        if actions is None:
            knots = knots[:, None, :].expand(*anchors.shape, -1)
        return Stepped(Support.of(knots, self.config.anchor), anchors, steps)

    def side_loss(
        self,
        features: Float[Tensor, "B D"],
        prediction: Estimate,
        constants: Constants,
        actions: Int[Tensor, " B"],
    ) -> Float[Tensor, ""]:
        """FQF's loss of the fractions, read off the curve: a line's value at its midpoint is the mean of its ends.

        So 2 F(p_i) - F(midpoint after) - F(midpoint before) is F(p_i) - (F(p_(i+1)) + F(p_(i-1))) / 2, and no further
        pass is needed: knots move until neighbouring increments are equal.
        """
        values = prediction.distribution.curve().detach()
        slopes = values[:, 1:-1] - (values[:, 2:] + values[:, :-2]) / 2
        return self.config.fraction_loss(self.proposals.edges(features), slopes)

    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        """Make the optimiser of the knots."""
        return [self.config.fraction_optimiser(self.proposals)]

    def statistics(self, distribution: Distribution) -> dict[str, float]:
        """Return the share of dead increments, and the entropy of the widths between knots."""
        edges = distribution.segments().edges
        return super().statistics(distribution) | {"fraction_entropy": fraction_entropy(edges).mean().item()}
