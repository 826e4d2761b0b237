"""Quantiles at fixed fractions: QR-DQN (arXiv 1710.10044), and NC-QR-DQN, whose quantiles cannot cross."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from monotau.distributions import Diracs, cumulate
from monotau.errors import check_least, check_positive
from monotau.networks.heads.base import Constants, Estimate, Head, HeadConfig, draw_fractions, quantile_loss
from monotau.networks.layers import ActionLayer, Layers, large_products

FIRST_SCALE = 1.0


@dataclass(frozen=True, kw_only=True)
class Qr(HeadConfig):
    """QR-DQN: quantiles at fixed fractions, each an independent output; they may cross.

    Dabney, Rowland, Bellemare, Munos 2017, arXiv 1710.10044.
    """

    quantiles: int = 200
    """Number of quantiles, at the midpoints of as many equal intervals of (0, 1)."""
    hidden: int = 512
    """Hidden units."""
    kappa: float = 1.0
    """Error, in the unit of returns, at which the Huber loss turns from quadratic to linear."""

    def __post_init__(self) -> None:
        check_least("head.", self, quantiles=1, hidden=1)
        check_positive("head.", self, "kappa")

    @property
    def has_spread(self) -> bool:
        """Whether there are at least two quantiles; a single one is a point mass."""
        return self.quantiles > 1

    def build(self, features: int, actions: int, layers: Layers) -> Head:
        """Make the head."""
        return QrHead(self, features, actions, layers, crossing=True)


@dataclass(frozen=True, kw_only=True)
class NcQr(Qr):
    """NC-QR-DQN: quantiles at fixed fractions that cannot cross: a cumulative softmax, scaled and shifted.

    Zhou, Wang, Feng 2020, NeurIPS 33,
    https://proceedings.neurips.cc/paper/2020/hash/b6f8dc086b2d60c5856e4ff517060392-Abstract.html.
    """

    def build(self, features: int, actions: int, layers: Layers) -> Head:
        """Make the head."""
        return QrHead(self, features, actions, layers, crossing=False)


class QrHead(Head):
    """Linear(ReLU(Linear(psi))), which gives the quantiles or, in NC-QR-DQN, the numbers they are computed from.

    In NC-QR-DQN (Zhou, Wang, Feng 2020) the quantiles are shift + ReLU(scale) * (cumulative softmax), where shift
    and scale are two more outputs of each action.

    Departure: the scale starts near 1. With torch's default initialisation it starts negative for about half of the
    actions; the ReLU then passes no gradient, and the action never learns a spread.
    """

    def __init__(self, config: Qr, features: int, actions: int, layers: Layers, *, crossing: bool) -> None:
        super().__init__()
        self.config, self.precision, self.crossing = config, layers.precision, crossing
        self.register_buffer("taus", draw_fractions(config.quantiles, 1, None)[0].clone(), persistent=False)
        self.taus: Tensor
        self.hidden = layers.hidden(features, config.hidden)
        self.last = ActionLayer(layers, config.hidden, actions, config.quantiles + (0 if crossing else 2))
        if not crossing:
            self.last.shift(FIRST_SCALE, output=-1)

    def forward(
        self,
        features: Float[Tensor, "B D"],
        fractions: Float[Tensor, "B 0"],
        constants: Constants,
        actions: Int[Tensor, " B"] | None = None,
    ) -> Diracs:
        """Return equally likely quantile estimates."""
        with large_products(self.precision, features.device):
            hidden = F.relu(self.hidden(features))
        values = self.last.table(hidden.float(), actions)
        if not self.crossing:
            shift, scale = values[..., -2:-1], F.relu(values[..., -1:])
            values = shift + scale * cumulate(values[..., :-2].softmax(dim=-1))
        return Diracs(self.taus, values, torch.full_like(self.taus, 1 / len(self.taus)))

    def rescale(self, factor: float) -> None:
        """Scale the quantiles; in NC-QR-DQN that means shift and scale."""
        self.last.multiply(factor, slice(None) if self.crossing else slice(-2, None))

    def loss(self, prediction: Estimate, target: Estimate) -> Float[Tensor, " B"]:
        """Quantile Huber loss at the fixed fractions."""
        return quantile_loss(prediction, target, self.config.kappa)
