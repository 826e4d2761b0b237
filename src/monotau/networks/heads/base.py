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
"""What a head computes from its weights alone, once for many states."""

Kind = TypeVar("Kind", bound=Distribution)


class Role(Enum):
    """What a distribution is asked for; sampling heads use another number of fractions for each."""

    LEARN = "learn"
    TARGET = "target"
    ACT = "act"


class Estimate(NamedTuple):
    """Distributions and the fractions that were drawn for them: all that a loss compares."""

    distribution: Distribution
    fractions: Float[Tensor, "B n"]

    def rows(self, start: int, stop: int) -> "Estimate":
        """Keep the batch rows from start up to stop."""
        return Estimate(self.distribution.rows(start, stop), self.fractions[start:stop])


class Head(nn.Module, ABC):
    """Turns features into a return distribution for each action."""

    samples: bool = False
    """Whether the distribution depends on what `fractions` drew."""

    @property
    def reach(self) -> tuple[float, float] | None:
        """Lowest and highest value that a distribution can hold; None, the default, if there are no such bounds."""
        return None

    def fractions(self, role: Role, batch: int, generator: torch.Generator | None) -> Float[Tensor, "B n"]:
        """Draw what a pass and its loss need of chance; without a generator it is evenly spread; nothing by default."""
        return torch.empty(batch, 0)

    def constants(self) -> Constants:
        """Do the work that does not depend on the state."""
        return ()

    @abstractmethod
    def forward(
        self,
        features: Float[Tensor, "B D"],
        fractions: Float[Tensor, "B n"],
        constants: Constants,
        actions: Int[Tensor, " B"] | None = None,
    ) -> Distribution:
        """Return distributions `[B, A]`, or `[B]` for the chosen actions, whose columns alone are then computed."""

    def values(
        self, features: Float[Tensor, "B D"], fractions: Float[Tensor, "B n"], constants: Constants
    ) -> Float[Tensor, "B A"]:
        """Mean return of every action: all that greedy acting needs, which some heads have for less."""
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
        """Return what is learned beside the loss, by weights of `optimisers`; nothing by default."""
        return None

    def optimisers(self) -> Sequence[torch.optim.Optimizer]:
        """Make optimisers for those weights that do not follow the run's; none by default."""
        return ()

    def quantiles(
        self, features: Float[Tensor, "B D"], taus: Float[Tensor, " M"], constants: Constants
    ) -> Float[Tensor, "B A M"]:
        """Quantile functions at any fractions; heads that can be asked anywhere are, the others' curves are read."""
        fractions = self.fractions(Role.ACT, len(features), None).to(features.device)
        distribution: Distribution = self(features, fractions, constants)
        return distribution.quantile(taus)

    def rescale(self, factor: float) -> None:
        """Multiply what is predicted, because the unit of returns has become 1 / factor times as large.

        Predictions in raw rewards then stay as they were. By default they change with the unit, as does the support of
        a head that has one.
        """
        return

    def statistics(self, distribution: Distribution) -> dict[str, float]:
        """Return numbers worth logging about the distributions `[B, A]` of a batch; none by default."""
        return {}


class HeadConfig(ABC):
    """Settings of a head, which they build."""

    @property
    def has_spread(self) -> bool:
        """Whether its distributions are more than a point."""
        return True

    @abstractmethod
    def build(self, features: int, actions: int, layers: Layers) -> Head:
        """Make the head."""


@dataclass(frozen=True, kw_only=True)
class SampledConfig(HeadConfig):
    """Settings that heads which sample their distributions have in common."""

    online_fractions: int = 64
    """Samples drawn for the prediction in the loss, N."""
    target_fractions: int = 64
    """Samples drawn for the target in the loss, N'."""
    action_fractions: int = 32
    """Samples drawn to choose actions, K."""
    hidden: int = 512
    """Hidden units."""
    kappa: float = 1.0
    """Where the Huber loss turns from quadratic to linear."""

    def __post_init__(self) -> None:
        check_least("head.", self, online_fractions=1, target_fractions=1, action_fractions=1, hidden=1)
        check_positive("head.", self, "kappa")

    def count(self, role: Role) -> int:
        """Return how many samples a role takes."""
        counts = {
            Role.LEARN: self.online_fractions,
            Role.TARGET: self.target_fractions,
            Role.ACT: self.action_fractions,
        }
        return counts[role]


def draw_fractions(
    count: int, batch: int, generator: torch.Generator | None, *, stratified: bool = False
) -> Float[Tensor, "B n"]:
    """Uniform fractions in (0, 1), `count` for each row; without a generator the midpoints of `count` equal parts.

    Stratified, the i-th is drawn from the i-th of these parts.
    """
    if generator is None:
        return ((torch.arange(count) + 0.5) / count).expand(batch, count)
    drawn = torch.rand(batch, count, generator=generator)
    return drawn.add_(torch.arange(count)).div_(count) if stratified and count else drawn


def both(kind: type[Kind], prediction: Estimate, target: Estimate) -> tuple[Kind, Kind]:
    """Return the distributions of a loss, which must be of one kind."""
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
