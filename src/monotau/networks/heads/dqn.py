"""One value for each action: DQN (Mnih et al. 2015, doi 10.1038/nature14236)."""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from monotau.distributions import Point
from monotau.errors import check_least, check_positive
from monotau.losses import huber
from monotau.networks.heads.base import Constants, Estimate, Head, HeadConfig, both
from monotau.networks.layers import ActionLayer, Layers, large_products


@dataclass(frozen=True, kw_only=True)
class Dqn(HeadConfig):
    """DQN: the mean return only, fitted by the Huber loss.

    Mnih et al. 2015, doi 10.1038/nature14236.
    """

    hidden: int = 512
    """Hidden units."""
    kappa: float = 1.0
    """Error, in the unit of returns, at which the Huber loss turns from quadratic to linear."""

    def __post_init__(self) -> None:
        check_least("head.", self, hidden=1)
        check_positive("head.", self, "kappa")

    @property
    def has_spread(self) -> bool:
        """Return False: the distribution is a point mass."""
        return False

    def build(self, features: int, actions: int, layers: Layers) -> "DqnHead":
        """Make the head."""
        return DqnHead(self, features, actions, layers)


class DqnHead(Head):
    """Linear(ReLU(Linear(psi)))."""

    def __init__(self, config: Dqn, features: int, actions: int, layers: Layers) -> None:
        super().__init__()
        self.config, self.precision = config, layers.precision
        self.hidden = layers.hidden(features, config.hidden)
        self.last = ActionLayer(layers, config.hidden, actions)

    def forward(
        self,
        features: Float[Tensor, "B D"],
        fractions: Float[Tensor, "B 0"],
        constants: Constants,
        actions: Int[Tensor, " B"] | None = None,
    ) -> Point:
        """Return the values as point masses."""
        with large_products(self.precision, features.device):
            hidden = F.relu(self.hidden(features))
        return Point(self.last.table(hidden.float(), actions).squeeze(-1))

    def rescale(self, factor: float) -> None:
        """Scale the values."""
        self.last.multiply(factor)

    def loss(self, prediction: Estimate, target: Estimate) -> Float[Tensor, " B"]:
        """Huber loss of the TD error."""
        value, wanted = both(Point, prediction, target)
        return huber(wanted.value.detach() - value.value, self.config.kappa)
