"""The implicit quantile network: each quantile estimated by itself, at sampled fractions."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from monotau.distributions import Diracs, Distribution
from monotau.errors import check_least, check_positive
from monotau.losses import quantile_huber
from monotau.networks.heads.base import Constants, Head, HeadConfig, Role, draw_fractions
from monotau.networks.layers import CosineEmbedding, Precision, action_columns, large_products


@dataclass(frozen=True, kw_only=True)
class Iqn(HeadConfig):
    """IQN: one pass for each sampled fraction; its quantiles may cross."""

    online_fractions: int = 64
    """Fractions drawn for the prediction in the loss, N."""
    target_fractions: int = 64
    """Fractions drawn for the target in the loss, N'."""
    action_fractions: int = 32
    """Fractions drawn to choose actions, K."""
    hidden: int = 512
    """Hidden units after the product of state and fraction."""
    cosines: int = 64
    """Cosines in the embedding of a fraction."""
    kappa: float = 1.0
    """Where the Huber loss turns from quadratic to linear."""

    def __post_init__(self) -> None:
        check_least("head.", self, online_fractions=1, target_fractions=1, action_fractions=1, hidden=1, cosines=1)
        check_positive("head.", self, "kappa")

    def build(self, features: int, actions: int, precision: Precision) -> "IqnHead":
        """Make the head."""
        return IqnHead(self, features, actions, precision)


class IqnHead(Head):
    """Linear(ReLU(Linear(psi(x) * phi(tau)))) for each sampled tau."""

    samples = True

    def __init__(self, config: Iqn, features: int, actions: int, precision: Precision) -> None:
        super().__init__()
        self.config, self.precision = config, precision
        self.embedding = CosineEmbedding(config.cosines, features)
        self.hidden = nn.Linear(features, config.hidden)
        self.last = nn.Linear(config.hidden, actions)

    def fractions(self, role: Role, batch: int, generator: torch.Generator | None) -> Float[Tensor, "B n"]:
        """Draw N, N' or K fractions for each row."""
        counts = {
            Role.LEARN: self.config.online_fractions,
            Role.TARGET: self.config.target_fractions,
            Role.ACT: self.config.action_fractions,
        }
        return draw_fractions(counts[role], batch, generator).to(self.last.weight.device)

    def forward(
        self,
        features: Float[Tensor, "B D"],
        fractions: Float[Tensor, "B n"],
        constants: Constants,
        actions: Int[Tensor, " B"] | None = None,
    ) -> Diracs:
        """Equally likely quantile estimates at the fractions."""
        with large_products(self.precision, features.device):
            phi = self.embedding(fractions)  # B n D
            hidden = F.relu(self.hidden(features[:, None, :] * phi.to(features.dtype)))
        values = action_columns(self.last, hidden.float(), actions)  # B n A or B n
        weights = torch.full_like(fractions[0], 1 / fractions.shape[1])
        if actions is not None:
            return Diracs(fractions, values, weights)
        values = values.movedim(1, -1)
        return Diracs(fractions[:, None, :].expand(values.shape), values, weights)

    def loss(self, prediction: Distribution, target: Distribution, generator: torch.Generator) -> Float[Tensor, " B"]:
        """Quantile Huber loss at the fractions the two distributions were sampled at."""
        if not (isinstance(prediction, Diracs) and isinstance(target, Diracs)):
            raise TypeError(
                f"IQN's loss needs Diracs, but got {type(prediction).__name__} and {type(target).__name__}."
            )
        return quantile_huber(prediction.values, prediction.taus, target.values, self.config.kappa)
