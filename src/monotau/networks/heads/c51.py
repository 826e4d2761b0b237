"""Probabilities of fixed returns: C51 (Bellemare et al. 2017, arXiv 1707.06887)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from monotau.distributions import Categorical
from monotau.errors import check_bounds, check_least
from monotau.losses import cross_entropy, project
from monotau.networks.heads.base import Constants, Estimate, Head, HeadConfig, both
from monotau.networks.layers import ActionLayer, Layers, large_products


@dataclass(frozen=True, kw_only=True)
class C51(HeadConfig):
    """C51: probabilities of evenly spaced returns (atoms), fitted to the projected target by cross-entropy.

    Bellemare, Dabney, Munos 2017, arXiv 1707.06887.
    """

    atoms: int = 51
    """Number of atoms."""
    low: float = -10.0
    """Lowest atom, in the unit of returns; lower returns are clipped to it."""
    high: float = 10.0
    """Highest atom; higher returns are clipped to it."""
    hidden: int = 512
    """Hidden units."""

    def __post_init__(self) -> None:
        check_least("head.", self, atoms=2, hidden=1)
        check_bounds("head.", self.low, self.high, "head")

    def build(self, features: int, actions: int, layers: Layers) -> "C51Head":
        """Make the head."""
        return C51Head(self, features, actions, layers)


class C51Head(Head):
    """softmax(Linear(ReLU(Linear(psi)))) over the atoms of each action."""

    def __init__(self, config: C51, features: int, actions: int, layers: Layers) -> None:
        super().__init__()
        self.precision = layers.precision
        self.register_buffer("atoms", torch.linspace(config.low, config.high, config.atoms), persistent=False)
        self.atoms: Tensor
        self.hidden = layers.hidden(features, config.hidden)
        self.last = ActionLayer(layers, config.hidden, actions, config.atoms)

    @property
    def reach(self) -> tuple[float, float]:
        """The first and the last atom."""
        return self.atoms[0].item(), self.atoms[-1].item()

    def forward(
        self,
        features: Float[Tensor, "B D"],
        fractions: Float[Tensor, "B 0"],
        constants: Constants,
        actions: Int[Tensor, " B"] | None = None,
    ) -> Categorical:
        """Return probabilities of the atoms."""
        with large_products(self.precision, features.device):
            hidden = F.relu(self.hidden(features))
        logs = self.last.table(hidden.float(), actions).log_softmax(dim=-1)
        return Categorical(self.atoms, logs.exp(), logs)

    def loss(self, prediction: Estimate, target: Estimate) -> Float[Tensor, " B"]:
        """Cross-entropy between the prediction and the target projected onto the atoms."""
        predicted, wanted = both(Categorical, prediction, target)
        return cross_entropy(predicted.log_probs(), project(wanted.curve(), wanted.probs, self.atoms))
