"""A network: one torso and one head, with the head's state-independent work kept between changes of the weights."""

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from monotau.distributions import Distribution
from monotau.networks.heads.base import Constants, Head
from monotau.networks.torsos import Torso


class Network(nn.Module):
    """From observations to return distributions."""

    def __init__(self, torso: Torso, head: Head) -> None:
        super().__init__()
        self.torso, self.head = torso, head
        self._kept: Constants | None = None

    def forward(
        self,
        observations: Shaped[Tensor, "B S *frame"],
        fractions: Float[Tensor, "B n"],
        constants: Constants,
        actions: Int[Tensor, " B"] | None = None,
    ) -> Distribution:
        """Distributions of every action, or of the chosen ones; `constants` are what `head.constants()` returned."""
        distribution: Distribution = self.head(self.torso(observations), fractions, constants, actions)
        return distribution

    @torch.no_grad()
    def look(
        self,
        observations: Shaped[Tensor, "B S *frame"],
        fractions: Float[Tensor, "B n"],
        actions: Int[Tensor, " B"] | None = None,
    ) -> Distribution:
        """Like `forward`, without gradients and with constants kept since the weights last changed."""
        if self._kept is None:
            self._kept = self.head.constants()
        return self.forward(observations, fractions, self._kept, actions)

    def quantiles(
        self, observations: Shaped[Tensor, "B S *frame"], taus: Float[Tensor, " M"]
    ) -> Float[Tensor, "B A M"]:
        """Quantile functions at shared fractions: asked of the network itself where it samples, else of its curve."""
        fractions = taus.expand(len(observations), -1) if self.head.samples else taus.new_empty(len(observations), 0)
        view = self.look(observations, fractions)
        return view.curve() if self.head.samples else view.quantile(taus)

    def changed(self) -> None:
        """Drop what was kept: to be called after each change of the weights."""
        self._kept = None
