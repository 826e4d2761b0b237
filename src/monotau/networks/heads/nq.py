"""Quantiles at fixed fractions as a mean and gaps: NQ-Net (Shen et al. 2025, arXiv 2504.08215)."""

from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from monotau.distributions import Diracs, cumulate
from monotau.networks.heads.base import Constants, Estimate, Head, draw_fractions, quantile_loss
from monotau.networks.heads.implicit import elu1
from monotau.networks.heads.qr import Qr
from monotau.networks.layers import ActionLayer, Layers, large_products


@dataclass(frozen=True, kw_only=True)
class Nq(Qr):
    """NQ-Net: quantiles at fixed fractions that cannot cross: a mean, and positive gaps between neighbours.

    Shen, Dai, Wu, Luo, Shi, Zhu 2025, arXiv 2504.08215.
    """

    def build(self, features: int, actions: int, layers: Layers) -> Head:
        """Make the head."""
        return NqHead(self, features, actions, layers)


@final
class NqHead(Head):
    """Linear(ReLU(Linear(psi))), which gives the mean and the gaps, made positive by ELU + 1.

    The i-th quantile is the mean plus the sum of the gaps below it, minus the average of these sums.

    Departure: there are N - 1 gaps; the N-th of the authors' code, below the lowest quantile, cancels in the average.
    Departure: gaps are divided by N; else the quantiles would start N units of return apart, and an update would move
    the outer ones N times as far as the mean.
    """

    def __init__(self, config: Nq, features: int, actions: int, layers: Layers) -> None:
        super().__init__()
        self.config, self.precision = config, layers.precision
        self.register_buffer("taus", draw_fractions(config.quantiles, 1, None)[0].clone(), persistent=False)
        self.taus: Tensor
        self.hidden = layers.hidden(features, config.hidden)
        self.last = ActionLayer(layers, config.hidden, actions, config.quantiles)

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
        outputs = self.last.table(hidden.float(), actions)
        # The activation comes after dueling's sum, which could otherwise make gaps negative.
        rises = centred_rises(elu1(outputs[..., 1:]) / self.config.quantiles)
        return Diracs(self.taus, outputs[..., :1] + rises, torch.full_like(self.taus, 1 / len(self.taus)))

    def rescale(self, factor: float) -> None:
        """Scale the mean exactly, and gaps as if they were linear, which ELU + 1 is where it exceeds 1."""
        self.last.multiply(factor)
        self.last.shift(factor - 1, output=slice(1, None))

    def loss(self, prediction: Estimate, target: Estimate) -> Float[Tensor, " B"]:
        """Quantile Huber loss at the fixed fractions."""
        return quantile_loss(prediction, target, self.config.kappa)


def centred_rises(gaps: Float[Tensor, "*batch N1"]) -> Float[Tensor, "*batch N"]:
    """Return sums of 0, 1, ... of the gaps minus the average of these sums: they increase, and their mean is 0."""
    sums = cumulate(F.pad(gaps, (1, 0)))
    return sums - sums.mean(dim=-1, keepdim=True)
