"""A monotone spline as the quantile function: SPL-DQN (Luo, Liu, Duan, Schulte, Poupart 2022)."""

import math
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from monotau.distributions import Spline
from monotau.errors import ConfigError, check_least, check_positive
from monotau.losses import quantile_huber
from monotau.networks.heads.base import Constants, Estimate, Head, HeadConfig, Role, both, draw_fractions
from monotau.networks.heads.implicit import FIRST_SPREAD, shares
from monotau.networks.layers import ActionLayer, Layers, large_products

LEAST = 1e-3
"""Smallest width and height of a bin and smallest slope, as in Durkan et al. 2019."""
MOST_BINS = 500


@dataclass(frozen=True, kw_only=True)
class Spl(HeadConfig):
    """SPL-DQN: a monotone rational-quadratic spline, a smooth quantile function that cannot cross.

    Luo, Liu, Duan, Schulte, Poupart 2022, ICLR, https://openreview.net/forum?id=C8Ltz08PtBp; the spline follows Durkan,
    Bekasov, Murray, Papamakarios 2019, arXiv 1906.04032.
    """

    bins: int = 32
    """Number of bins, each with a learned width, height and slopes at its ends."""
    online_fractions: int = 32
    """Fractions drawn for the prediction in the loss."""
    target_fractions: int = 32
    """Fractions drawn for the target in the loss."""
    hidden: int = 512
    """Hidden units."""
    kappa: float = 1.0
    """Error, in the unit of returns, at which the Huber loss turns from quadratic to linear."""

    def __post_init__(self) -> None:
        check_least("head.", self, bins=1, online_fractions=1, target_fractions=1, hidden=1)
        check_positive("head.", self, "kappa")
        if self.bins > MOST_BINS:
            raise ConfigError(
                f"head.bins is {self.bins}, but must be at most {MOST_BINS}: each bin is at least {LEAST} wide."
            )

    def build(self, features: int, actions: int, layers: Layers) -> "SplineHead":
        """Make the head."""
        return SplineHead(self, features, actions, layers)


@final
class SplineHead(Head):
    """Linear(ReLU(Linear(psi))): widths, heights and slopes of the spline, its lowest value and its spread.

    All slopes are learned; the flows of Durkan et al. fix those at the ends, to which lines are joined.
    """

    def __init__(self, config: Spl, features: int, actions: int, layers: Layers) -> None:
        super().__init__()
        self.config, self.precision = config, layers.precision
        self.hidden = layers.hidden(features, config.hidden)
        self.sizes = (config.bins, config.bins, config.bins + 1, 1, 1)
        self.last = ActionLayer(layers, config.hidden, actions, sum(self.sizes))
        # The spline starts near a straight line: bins of one size, and slopes of 1.
        self.last.shift(math.log(math.expm1(1 - LEAST)), output=slice(2 * config.bins, 3 * config.bins + 1))
        self.last.shift(math.log(math.expm1(FIRST_SPREAD)), output=-1)

    def fractions(self, role: Role, batch: int, generator: torch.Generator | None) -> Float[Tensor, "B n"]:
        """Draw the fractions of the loss, one from each of as many equal intervals; the spline itself needs none."""
        counts = {Role.LEARN: self.config.online_fractions, Role.TARGET: self.config.target_fractions, Role.ACT: 0}
        return draw_fractions(counts[role], batch, generator, stratified=True)

    def forward(
        self,
        features: Float[Tensor, "B D"],
        fractions: Float[Tensor, "B n"],
        constants: Constants,
        actions: Int[Tensor, " B"] | None = None,
    ) -> Spline:
        """Return splines as quantile functions."""
        with large_products(self.precision, features.device):
            hidden = F.relu(self.hidden(features))
        outputs = self.last.table(hidden.float(), actions)
        # Activations come after dueling's sum, which could otherwise make sizes negative.
        widths, heights, slopes, lowest, spread = outputs.split(self.sizes, dim=-1)
        return Spline(
            ladder(widths), ladder(heights), LEAST + F.softplus(slopes), lowest[..., 0], F.softplus(spread[..., 0])
        )

    def rescale(self, factor: float) -> None:
        """Scale the lowest value exactly, and the spread approximately, as its softplus is linear far above zero."""
        self.last.multiply(factor, slice(-2, None))

    def loss(self, prediction: Estimate, target: Estimate) -> Float[Tensor, " B"]:
        """Quantile Huber loss between two splines, at the fractions drawn for each."""
        spline, target_spline = both(Spline, prediction, target)
        values, targets = spline.quantile(prediction.fractions), target_spline.quantile(target.fractions)
        return quantile_huber(values, prediction.fractions, targets, self.config.kappa)


def ladder(numbers: Float[Tensor, "*batch N"]) -> Float[Tensor, "*batch N1"]:
    """Return N + 1 points that increase from 0 to 1, whose gaps are the shares of N numbers of any sign, with a floor.

    Departure: the gaps are NDQFN's `shares` instead of a softmax, whose gaps could vanish for good while values climb
    to a distant return: on the probe LargeReturns the distance to the truth was four times as large.
    """
    gaps = LEAST + (1 - LEAST * numbers.shape[-1]) * shares(numbers, numbers.new_ones(numbers.shape[-1]))
    inner = gaps.cumsum(dim=-1)[..., :-1]
    end = torch.ones_like(numbers[..., :1])
    return torch.cat([torch.zeros_like(end), inner, end], dim=-1)
