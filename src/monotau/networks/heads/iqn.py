"""The implicit quantile network (IQN, Dabney et al. 2018, arXiv 1806.06923): independent quantile estimates."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from monotau.distributions import Diracs
from monotau.errors import check_least
from monotau.networks.heads.base import Constants, Estimate, Head, Role, SampledConfig, draw_fractions, quantile_loss
from monotau.networks.heads.implicit import ImplicitQuantiles
from monotau.networks.layers import Layers


@dataclass(frozen=True, kw_only=True)
class Iqn(SampledConfig):
    """IQN: one pass for each sampled fraction; its quantiles may cross.

    Dabney, Ostrovski, Silver, Munos 2018, arXiv 1806.06923.
    """

    cosines: int = 64
    """Cosines in the embedding of a fraction."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least("head.", self, cosines=1)

    def build(self, features: int, actions: int, layers: Layers) -> "IqnHead":
        """Make the head."""
        return IqnHead(self, features, actions, layers)


class IqnHead(Head):
    """Quantile estimates at sampled fractions, equally likely."""

    samples = True

    def __init__(self, config: Iqn, features: int, actions: int, layers: Layers) -> None:
        super().__init__()
        self.config = config
        self.network = ImplicitQuantiles(features, config.hidden, config.cosines, actions, layers)

    def fractions(self, role: Role, batch: int, generator: torch.Generator | None) -> Float[Tensor, "B n"]:
        """Draw N, N' or K fractions for each row."""
        return draw_fractions(self.config.count(role), batch, generator)

    def forward(
        self,
        features: Float[Tensor, "B D"],
        fractions: Float[Tensor, "B n"],
        constants: Constants,
        actions: Int[Tensor, " B"] | None = None,
    ) -> Diracs:
        """Return equally likely quantile estimates at the fractions."""
        return equal_diracs(fractions, self.network(features, fractions, actions))

    def rescale(self, factor: float) -> None:
        """Scale the quantiles."""
        self.network.last.multiply(factor)

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
        """Evaluate the network at the fractions."""
        values: Tensor = self.network(features, taus.expand(features.shape[0], -1), None)
        return values


def equal_diracs(taus: Float[Tensor, "B n"], values: Float[Tensor, "B *A n"]) -> Diracs:
    """Return equally likely values at the fractions of each row, which all its actions share."""
    weights = torch.full_like(taus[0], 1 / taus.shape[1])
    return Diracs(taus if values.ndim == 2 else taus[:, None, :].expand(values.shape), values, weights)
