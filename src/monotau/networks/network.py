"""A network: one torso and one head, with the head's state-independent work kept between changes of the weights."""

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from monotau.distributions import Distribution
from monotau.networks.devices import sent
from monotau.networks.heads.base import Constants, Estimate, Head, Role
from monotau.networks.layers import Linear
from monotau.networks.torsos import Torso


class Network(nn.Module):
    """From observations to return distributions."""

    def __init__(self, torso: Torso, head: Head) -> None:
        super().__init__()
        self.torso, self.head = torso, head
        self._noisy = [layer for layer in head.modules() if isinstance(layer, Linear) and layer.noisy]
        self._kept: Constants | None = None
        self.device = torch.device("cpu")
        """Where the network is; set by whoever moves it, since to ask its weights takes as long as a small layer."""

    def fractions(self, role: Role, batch: int, generator: torch.Generator | None) -> Float[Tensor, "B n"]:
        """Draw what a pass and its loss need of chance, where the network is."""
        return sent((self.head.fractions(role, batch, generator),), self.device)[0]

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

    def values(
        self,
        observations: Shaped[Tensor, "B S *frame"],
        fractions: Float[Tensor, "B n"],
        constants: Constants,
    ) -> Float[Tensor, "B A"]:
        """Mean return of every action, with no more work than it takes."""
        return self.head.values(self.torso(observations), fractions, constants)

    def losses(
        self,
        observations: Shaped[Tensor, "B S *frame"],
        actions: Int[Tensor, " B"],
        fractions: Float[Tensor, "B n"],
        constants: Constants,
        target: Estimate,
    ) -> tuple[Float[Tensor, " B"], Float[Tensor, ""] | None]:
        """Loss of each chosen action's distribution against its target, and what the head learns beside it."""
        losses, side, _ = self.losses_and_errors(observations, actions, fractions, constants, target, with_errors=False)
        return losses, side

    def losses_and_errors(
        self,
        observations: Shaped[Tensor, "B S *frame"],
        actions: Int[Tensor, " B"],
        fractions: Float[Tensor, "B n"],
        constants: Constants,
        target: Estimate,
        *,
        with_errors: bool,
    ) -> tuple[Float[Tensor, " B"], Float[Tensor, ""] | None, Float[Tensor, " B"] | None]:
        """Like `losses`; where asked, also how far prediction's and target's means are apart, by the same pass."""
        features = self.torso(observations)
        prediction = Estimate(self.head(features, fractions, constants, actions), fractions)
        side = self.head.side_loss(features, prediction, constants, actions)
        errors = None
        if with_errors:
            with torch.no_grad():
                errors = (target.distribution.mean() - prediction.distribution.mean()).abs()
        return self.head.loss(prediction, target), side, errors

    @torch.no_grad()
    def predict(
        self,
        observations: Shaped[Tensor, "B S *frame"],
        fractions: Float[Tensor, "B n"],
        actions: Int[Tensor, " B"] | None = None,
    ) -> Distribution:
        """Like `forward`, without gradients and with constants kept since the weights last changed."""
        return self.forward(observations, fractions, self.cached_constants(), actions)

    @torch.no_grad()
    def predict_values(
        self, observations: Shaped[Tensor, "B S *frame"], fractions: Float[Tensor, "B n"]
    ) -> Float[Tensor, "B A"]:
        """Like `values`, without gradients and with the constants kept."""
        return self.values(observations, fractions, self.cached_constants())

    @torch.no_grad()
    def cached_constants(self) -> Constants:
        """Return the head's constants of now, without gradients; computed once for each change of the weights."""
        if self._kept is None:
            self._kept = self.head.constants()
        return self._kept

    @torch.no_grad()
    def quantiles(
        self, observations: Shaped[Tensor, "B S *frame"], taus: Float[Tensor, " M"]
    ) -> Float[Tensor, "B A M"]:
        """Quantile functions at shared fractions: asked of the network itself where it can be, else of its curve."""
        return self.head.quantiles(self.torso(observations), taus, self.cached_constants())

    def rescale(self, factor: float) -> None:
        """Multiply what is predicted, as its unit has become 1 / factor times as large."""
        self.head.rescale(factor)
        self.invalidate_cache()

    def resample_noise(self, generator: torch.Generator | None) -> None:
        """Draw new noise for noisy layers, or without a generator remove it; a network without them is left alone."""
        for layer in self._noisy:
            layer.resample_noise(generator)
        if self._noisy:
            self.invalidate_cache()

    def invalidate_cache(self) -> None:
        """Drop what was kept: to be called after each change of the weights."""
        self._kept = None
