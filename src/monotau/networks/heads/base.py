"""The contract of a head: features in, return distributions out, and the loss that fits them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from monotau.distributions import Diracs, Distribution
from monotau.errors import check_least, check_positive
from monotau.losses import quantile_huber
from monotau.networks.layers import Layers

Constants = tuple[Tensor, ...]
"""What a head computes from its weights alone, once for all states of a batch."""

Kind = TypeVar("Kind", bound=Distribution)


class Role(Enum):
    """What a distribution is used for; sampling heads draw a different number of fractions for each role."""

    LEARN = "learn"
    TARGET = "target"
    ACT = "act"


class Estimate(NamedTuple):
    """Distributions and the fractions drawn for them: the two sides of a loss."""

    distribution: Distribution
    fractions: Float[Tensor, "B n"]

    def rows(self, start: int, stop: int) -> "Estimate":
        """Select the rows of the batch from `start` up to, and without, `stop`."""
        return Estimate(self.distribution.rows(start, stop), self.fractions[start:stop])


class Head(nn.Module, ABC):
    """Maps features to a return distribution for each action."""

    samples: bool = False
    """Whether the distribution depends on the fractions drawn."""

    @property
    def reach(self) -> tuple[float, float] | None:
        """Lowest and highest return that the head can represent; None, the default, if it has no bounds."""
        return None

    def fractions(self, role: Role, batch: int, generator: torch.Generator | None) -> Float[Tensor, "B n"]:
        """Draw the fractions of a pass and its loss, evenly spaced without a generator; none by default."""
        return torch.empty(batch, 0)

    def constants(self) -> Constants:
        """Compute what does not depend on the state; nothing by default."""
        return ()

    @abstractmethod
    def forward(
        self,
        features: Float[Tensor, "B D"],
        fractions: Float[Tensor, "B n"],
        constants: Constants,
        actions: Int[Tensor, " B"] | None = None,
    ) -> Distribution:
        """Return distributions `[B, A]`, or `[B]` for the chosen actions, computing no more than these need."""

    def values(
        self, features: Float[Tensor, "B D"], fractions: Float[Tensor, "B n"], constants: Constants
    ) -> Float[Tensor, "B A"]:
        """Mean return of every action, as greedy acting needs; some heads compute it without the distribution."""
        distribution: Distribution = self(features, fractions, constants)
        return distribution.mean()

    @abstractmethod
    def loss(self, prediction: Estimate, target: Estimate) -> Float[Tensor, " B"]:
        """Loss of each predicted distribution `[B]` against its target, which gets no gradient."""

    def side_loss(
        self,
        features: Float[Tensor, "B D"],
        prediction: Estimate,
        constants: Constants,
        actions: Int[Tensor, " B"],
    ) -> Float[Tensor, ""] | None:
        """Return an additional loss for weights with optimisers of their own; none by default."""
        return None

    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        """Make optimisers for weights that the run's optimiser should not train; none by default."""
        return ()

    def quantiles(
        self,
        features: Float[Tensor, "B D"],
        taus: Float[Tensor, " M"],
        fractions: Float[Tensor, "B n"],
        constants: Constants,
    ) -> Float[Tensor, "B A M"]:
        """Quantiles at any `taus`, read off the predicted curve; implicit heads evaluate their network there."""
        distribution: Distribution = self(features, fractions, constants)
        return distribution.quantile(taus)

    def rescale(self, factor: float) -> None:
        """Multiply the predictions by `factor`, because the unit of returns was divided by it.

        Predictions in raw rewards stay the same. The default does nothing: a fixed support, for example, is defined in
        the unit of returns and changes with it.
        """
        return

    def statistics(self, distribution: Distribution) -> dict[str, float]:
        """Return numbers worth logging about the distributions `[B, A]` of a batch; none by default."""
        return {}


class HeadConfig(ABC):
    """Settings of a head, and how to build it."""

    @property
    def has_spread(self) -> bool:
        """Whether its distributions are more than a point mass."""
        return True

    @abstractmethod
    def build(self, features: int, actions: int, layers: Layers) -> Head:
        """Make the head."""


@dataclass(frozen=True, kw_only=True)
class SampledConfig(HeadConfig):
    """Settings shared by heads that sample their distributions."""

    online_fractions: int = 64
    """Samples drawn for the prediction in the loss, N."""
    target_fractions: int = 64
    """Samples drawn for the target in the loss, N'."""
    action_fractions: int = 32
    """Samples drawn to choose actions, K."""
    hidden: int = 512
    """Hidden units."""
    kappa: float = 1.0
    """Error, in the unit of returns, at which the Huber loss turns from quadratic to linear."""

    def __post_init__(self) -> None:
        check_least("head.", self, online_fractions=1, target_fractions=1, action_fractions=1, hidden=1)
        check_positive("head.", self, "kappa")

    def count(self, role: Role) -> int:
        """Return the number of samples for a role."""
        counts = {
            Role.LEARN: self.online_fractions,
            Role.TARGET: self.target_fractions,
            Role.ACT: self.action_fractions,
        }
        return counts[role]


def draw_fractions(
    count: int, batch: int, generator: torch.Generator | None, *, stratified: bool = False
) -> Float[Tensor, "B n"]:
    """Draw `count` uniform fractions per row; without a generator, return the midpoints of `count` equal intervals.

    If stratified, the i-th fraction is drawn from the i-th interval.
    """
    if generator is None:
        return ((torch.arange(count) + 0.5) / count).expand(batch, count)
    drawn = torch.rand(batch, count, generator=generator)
    return drawn.add_(torch.arange(count)).div_(count) if stratified and count else drawn


def both(kind: type[Kind], prediction: Estimate, target: Estimate) -> tuple[Kind, Kind]:
    """Return prediction and target of a loss, after checking that both are of this kind."""
    one, other = prediction.distribution, target.distribution
    if not (isinstance(one, kind) and isinstance(other, kind)):
        given = f"{type(one).__name__} and {type(other).__name__}"
        raise TypeError(f"this head's loss needs two distributions of kind {kind.__name__}, but got {given}.")
    return one, other


def quantile_loss(prediction: Estimate, target: Estimate, kappa: float) -> Float[Tensor, " B"]:
    """Quantile Huber loss between two sets of quantile estimates, each at its own fractions."""
    predicted, wanted = both(Diracs, prediction, target)
    taus = predicted.taus.expand(predicted.values.shape)
    return quantile_huber(predicted.values, taus, wanted.values, kappa)
