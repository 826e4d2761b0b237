"""Increments over sampled fractions: monotone within one set of fractions, not across sets (the paper's Fig. 1b)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from monotau.distributions import Diracs
from monotau.errors import check_least
from monotau.networks.heads.base import Constants, Estimate, Head, Role, SampledConfig, draw_fractions, quantile_loss
from monotau.networks.heads.implicit import Baseline, Increments, cumulate
from monotau.networks.heads.iqn import equal_diracs
from monotau.networks.layers import Layers


@dataclass(frozen=True, kw_only=True)
class IncrementalIqn(SampledConfig):
    """IQN with increments between its sampled fractions: what falls short of NDQFN for want of a fixed support."""

    cosines: int = 64
    """Cosines in the embedding of a fraction."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least("head.", self, cosines=1)

    def build(self, features: int, actions: int, layers: Layers) -> "IncrementalIqnHead":
        """Make the head."""
        return IncrementalIqnHead(self, features, actions, layers)


class IncrementalIqnHead(Head):
    """f(psi) plus the steps from fraction 0 over all sampled fractions up to the one asked for.

    The sum depends on the company in which a fraction is asked, hence quantiles of two sets may cross.
    """

    samples = True

    def __init__(self, config: IncrementalIqn, features: int, actions: int, layers: Layers) -> None:
        super().__init__()
        self.config = config
        self.baseline = Baseline(features, config.hidden, actions, layers)
        self.increments = Increments(
            features, config.hidden, config.cosines, actions, layers, steps=config.online_fractions
        )

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
        """Equally likely quantile estimates at the fractions, which increase."""
        steps = self.increments(features, self.increments.constants(F.pad(fractions, (1, 0))), actions)
        sums = cumulate(torch.cat([self.baseline(features, actions), steps], dim=-1))
        return equal_diracs(fractions, sums[..., 1:])

    def loss(self, prediction: Estimate, target: Estimate) -> Float[Tensor, " B"]:
        """Quantile Huber loss at the fractions the two distributions were sampled at."""
        return quantile_loss(prediction, target, self.config.kappa)

    def quantiles(
        self, features: Float[Tensor, "B D"], taus: Float[Tensor, " M"], constants: Constants
    ) -> Float[Tensor, "B A M"]:
        """Ask the network itself, at all fractions together; other company gives other quantiles."""
        ordered = taus.sort()
        asked: Diracs = self(features, ordered.values.expand(len(features), -1), constants)
        return asked.values[..., ordered.indices.argsort()]
