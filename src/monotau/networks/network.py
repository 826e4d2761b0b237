"""A network: one torso and one head, with a cache for what the head computes from its weights alone."""

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from monotau.distributions import Distribution
from monotau.networks.devices import sent
from monotau.networks.heads.base import Constants, Estimate, Head, Role
from monotau.networks.layers import Linear
from monotau.networks.torsos import Torso


class Network(nn.Module):
    """Maps observations to return distributions."""

    def __init__(self, torso: Torso, head: Head) -> None:
        super().__init__()
        self.torso, self.head = torso, head
        self._noisy = [layer for layer in head.modules() if isinstance(layer, Linear) and layer.noisy]
        self._cached_constants: Constants | None = None
        self.device = torch.device("cpu")
        """Device of the network; whoever moves it sets this, because looking it up takes as long as a small layer."""

    def fractions(self, role: Role, batch: int, generator: torch.Generator | None) -> Float[Tensor, "B n"]:
        """Draw the random fractions of a forward pass and its loss, on the network's device."""
        return sent((self.head.fractions(role, batch, generator),), self.device)[0]

    def forward(
        self,
        observations: Shaped[Tensor, "B S *frame"],
        fractions: Float[Tensor, "B n"],
        constants: Constants,
        actions: Int[Tensor, " B"] | None = None,
    ) -> Distribution:
        """Distributions of every action, or of the chosen ones; `constants` come from `head.constants()`."""
        distribution: Distribution = self.head(self.torso(observations), fractions, constants, actions)
        return distribution

    def values(
        self,
        observations: Shaped[Tensor, "B S *frame"],
        fractions: Float[Tensor, "B n"],
        constants: Constants,
    ) -> Float[Tensor, "B A"]:
        """Mean return of every action, without the rest of the distribution where the head allows it."""
        return self.head.values(self.torso(observations), fractions, constants)

    def losses(
        self,
        observations: Shaped[Tensor, "B S *frame"],
        actions: Int[Tensor, " B"],
        fractions: Float[Tensor, "B n"],
        constants: Constants,
        target: Estimate,
        *,
        with_errors: bool = False,
    ) -> tuple[Float[Tensor, " B"], Float[Tensor, ""] | None, Float[Tensor, " B"] | None]:
        """Loss of each chosen action against its target, the head's side loss and, if asked for, absolute TD errors.

        A TD error is the difference between the means of target and prediction.
        """
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
        """Like `forward`, without gradients and with cached constants."""
        return self.forward(observations, fractions, self.cached_constants(), actions)

    @torch.no_grad()
    def predict_values(
        self, observations: Shaped[Tensor, "B S *frame"], fractions: Float[Tensor, "B n"]
    ) -> Float[Tensor, "B A"]:
        """Like `values`, without gradients and with cached constants."""
        return self.values(observations, fractions, self.cached_constants())

    @torch.no_grad()
    def cached_constants(self) -> Constants:
        """Return the head's constants without gradients; they are recomputed only after the weights change."""
        if self._cached_constants is None:
            self._cached_constants = self.head.constants()
        return self._cached_constants

    @torch.no_grad()
    def quantiles(
        self, observations: Shaped[Tensor, "B S *frame"], taus: Float[Tensor, " M"]
    ) -> Float[Tensor, "B A M"]:
        """Quantiles at shared fractions: computed by the network where the head allows it, else read off its curve."""
        fractions = self.fractions(Role.ACT, len(observations), None)
        return self.head.quantiles(self.torso(observations), taus, fractions, self.cached_constants())

    def rescale(self, factor: float) -> None:
        """Multiply the predictions by `factor`, because the unit of returns was divided by it."""
        self.head.rescale(factor)
        self.invalidate_cache()

    def resample_noise(self, generator: torch.Generator | None) -> None:
        """Draw new noise for all noisy layers, if there are any; without a generator, remove it."""
        for layer in self._noisy:
            layer.resample_noise(generator)
        if self._noisy:
            self.invalidate_cache()

    def invalidate_cache(self) -> None:
        """Drop the cached constants; call this after each change of the weights."""
        self._cached_constants = None
