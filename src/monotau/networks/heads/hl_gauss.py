"""A mean return learned by classification: HL-Gauss (Imani, White 2018, arXiv 1806.04613; arXiv 2403.03950)."""

from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from monotau.distributions import Binned
from monotau.errors import check_bounds, check_least, check_positive
from monotau.losses import cross_entropy, gaussian_histogram
from monotau.networks.heads.base import Constants, Estimate, Head, HeadConfig, both
from monotau.networks.layers import ActionLayer, Layers, large_products


@dataclass(frozen=True, kw_only=True)
class HlGauss(HeadConfig):
    """HL-Gauss: the mean return only, the mean of a histogram that is fitted by cross-entropy to a smoothed target.

    The histogram is not a distribution of returns, but a smoothed number. The distribution is a point mass.

    Farebrother et al. 2024, arXiv 2403.03950; Imani, White 2018, arXiv 1806.04613.
    """

    bins: int = 51
    """Number of bins of equal width."""
    low: float = -10.0
    """Left edge of the first bin, in the unit of returns; lower targets are clipped to it."""
    high: float = 10.0
    """Right edge of the last bin; higher targets are clipped to it."""
    deviation: float = 0.75
    """Standard deviation of the normal distribution that smooths a target, in widths of a bin."""
    hidden: int = 512
    """Hidden units."""

    def __post_init__(self) -> None:
        check_least("head.", self, bins=2, hidden=1)
        check_positive("head.", self, "deviation")
        check_bounds("head.", self.low, self.high, "head")

    @property
    def has_spread(self) -> bool:
        """Return False: the histogram is a smoothed number, and the distribution a point mass at its mean."""
        return False

    def build(self, features: int, actions: int, layers: Layers) -> "HlGaussHead":
        """Make the head."""
        return HlGaussHead(self, features, actions, layers)


@final
class HlGaussHead(Head):
    """softmax(Linear(ReLU(Linear(psi)))) over the bins of each action; its mean is the predicted return."""

    def __init__(self, config: HlGauss, features: int, actions: int, layers: Layers) -> None:
        super().__init__()
        self.precision = layers.precision
        edges = torch.linspace(config.low, config.high, config.bins + 1)
        self.deviation = config.deviation * (config.high - config.low) / config.bins
        self.register_buffer("edges", edges, persistent=False)
        self.register_buffer("centres", (edges[1:] + edges[:-1]) / 2, persistent=False)
        self.edges: Tensor
        self.centres: Tensor
        self.hidden = layers.hidden(features, config.hidden)
        self.last = ActionLayer(layers, config.hidden, actions, config.bins)

    @property
    def reach(self) -> tuple[float, float]:
        """The first and the last edge."""
        return self.edges[0].item(), self.edges[-1].item()

    def forward(
        self,
        features: Float[Tensor, "B D"],
        fractions: Float[Tensor, "B 0"],
        constants: Constants,
        actions: Int[Tensor, " B"] | None = None,
    ) -> Binned:
        """Return point masses at the means of the histograms."""
        with large_products(self.precision, features.device):
            hidden = F.relu(self.hidden(features))
        return Binned(self.centres, self.last.table(hidden.float(), actions).log_softmax(dim=-1))

    def loss(self, prediction: Estimate, target: Estimate) -> Float[Tensor, " B"]:
        """Cross-entropy between the prediction and the smoothed mean of the target."""
        predicted, wanted = both(Binned, prediction, target)
        return cross_entropy(predicted.logs, gaussian_histogram(wanted.mean(), self.edges, self.deviation))
