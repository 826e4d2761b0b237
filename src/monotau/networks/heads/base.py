"""The contract of a head: features in, return distributions out, and the loss that fits them."""

from abc import ABC, abstractmethod
from enum import Enum

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from monotau.distributions import Distribution
from monotau.networks.layers import Precision

Constants = tuple[Tensor, ...]
"""What a head computes from its weights alone, once for many states."""


class Role(Enum):
    """What a distribution is asked for; sampling heads use another number of fractions for each."""

    LEARN = "learn"
    TARGET = "target"
    ACT = "act"


class Head(nn.Module, ABC):
    """Turns features into a return distribution for each action."""

    samples: bool = False
    """Whether the distribution depends on the fractions it is asked at."""

    def fractions(self, role: Role, batch: int, generator: torch.Generator | None) -> Float[Tensor, "B n"]:
        """Draw the fractions that `forward` shall be given; evenly spread ones without a generator; none by default."""
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

    @abstractmethod
    def loss(self, prediction: Distribution, target: Distribution, generator: torch.Generator) -> Float[Tensor, " B"]:
        """Loss of each predicted distribution `[B]` against its target, which gets no gradient."""

    def statistics(self, distribution: Distribution) -> dict[str, float]:
        """Return numbers worth logging about the distributions `[B, A]` of a batch; none by default."""
        return {}


class HeadConfig(ABC):
    """Settings of a head, which they build."""

    @abstractmethod
    def build(self, features: int, actions: int, precision: Precision) -> Head:
        """Make the head."""


def draw_fractions(count: int, batch: int, generator: torch.Generator | None) -> Float[Tensor, "B n"]:
    """Uniform fractions in (0, 1), `count` for each row; without a generator the midpoints of `count` equal parts."""
    if generator is None:
        return ((torch.arange(count) + 0.5) / count).expand(batch, count)
    return torch.rand(batch, count, generator=generator)
