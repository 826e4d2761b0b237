"""Increments between sampled fractions: monotone within one set of fractions, but not across sets.

The counterexample of the NDQFN paper (Zhou et al. 2021, arXiv 2105.06696, Fig. 1b).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from monotau.distributions import Diracs, cumulate
from monotau.networks.heads.base import Constants, Estimate, Head, Role, SampledConfig, draw_fractions, quantile_loss
from monotau.networks.heads.implicit import Curve, StepConfig, normal_steps
from monotau.networks.heads.iqn import equal_diracs
from monotau.networks.layers import Layers


@dataclass(frozen=True, kw_only=True)
class IncrementalIqn(StepConfig, SampledConfig):
    """IQN with non-negative steps between its sampled fractions; quantiles of two sets of fractions may still cross.

    Zhou et al. 2021, arXiv 2105.06696, Fig. 1b.
    """

    def __post_init__(self) -> None:
        StepConfig.__post_init__(self)
        SampledConfig.__post_init__(self)

    def build(self, features: int, actions: int, layers: Layers) -> "IncrementalIqnHead":
        """Make the head."""
        return IncrementalIqnHead(self, features, actions, layers)


class IncrementalIqnHead(Head):
    """An anchor plus the steps from fraction 0, over all sampled fractions, up to the requested one.

    The sum depends on the other fractions of the set, so quantiles of two sets may cross.
    """

    samples = True

    def __init__(self, config: IncrementalIqn, features: int, actions: int, layers: Layers) -> None:
        super().__init__()
        self.config = config
        self.curve = Curve(config, features, actions, layers)

    def fractions(self, role: Role, batch: int, generator: torch.Generator | None) -> Float[Tensor, "B n"]:
        """Draw N, N' or K fractions for each row, in increasing order."""
        return draw_fractions(self.config.count(role), batch, generator).sort(dim=-1).values

    def forward(
        self,
        features: Float[Tensor, "B D"],
        fractions: Float[Tensor, "B n"],
        constants: Constants,
        actions: Int[Tensor, " B"] | None = None,
    ) -> Diracs:
        """Return equally likely quantile estimates at the increasing fractions."""
        taus = F.pad(fractions, (1, 0))
        located, steps = self.curve(features, self.curve.increments.between(taus), normal_steps(taus), actions)
        anchors, rises = located[..., None], cumulate(steps)
        if self.config.anchor == "lowest":
            return equal_diracs(fractions, anchors + rises)
        shape = equal_diracs(fractions, rises)
        median = self.config.anchor == "median"
        centre = shape.quantile(rises.new_full((1,), 0.5)) if median else shape.mean()[..., None]
        return equal_diracs(fractions, anchors + (rises - centre))

    def rescale(self, factor: float) -> None:
        """Scale the curves."""
        self.curve.rescale(factor)

    def loss(self, prediction: Estimate, target: Estimate) -> Float[Tensor, " B"]:
        """Quantile Huber loss at the fractions at which the two distributions were sampled."""
        return quantile_loss(prediction, target, self.config.kappa)

    def quantiles(
        self,
        features: Float[Tensor, "B D"],
        taus: Float[Tensor, " M"],
        fractions: Float[Tensor, "B n"],
        constants: Constants,
    ) -> Float[Tensor, "B A M"]:
        """Evaluate the network at all fractions together; another set of fractions gives other quantiles."""
        ordered = taus.sort()
        asked: Diracs = self(features, ordered.values.expand(features.shape[0], -1), constants)
        return asked.values[..., ordered.indices.argsort()]
