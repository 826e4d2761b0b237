"""The non-decreasing quantile function network: a baseline and non-negative increments at fixed support points."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from monotau.distributions import Distribution, PiecewiseLinear, uniform_support
from monotau.errors import ConfigError, check_least, check_positive
from monotau.losses import quantile_huber
from monotau.networks.heads.base import Constants, Estimate, Head, HeadConfig, Role, both, draw_fractions
from monotau.networks.heads.implicit import Baseline, Increment, Increments, InputForm, cumulate
from monotau.networks.layers import Layers


@dataclass(frozen=True, kw_only=True)
class CurveConfig(HeadConfig):
    """Settings that heads with increments between knots have in common."""

    increment: Increment = "relu"
    """What makes increments non-negative: relu (the paper), softplus, or ELU + 1; the last two cannot die."""
    hidden: int = 512
    """Hidden units of f and of g."""
    cosines: int = 64
    """Cosines in the embedding of a fraction."""
    online_fractions: int = 32
    """Fractions drawn for the prediction in the loss, N1."""
    target_fractions: int = 32
    """Fractions drawn for the target in the loss, N2."""
    kappa: float = 1.0
    """Where the Huber loss turns from quadratic to linear."""

    def __post_init__(self) -> None:
        check_least("head.", self, hidden=1, cosines=1, online_fractions=1, target_fractions=1)
        check_positive("head.", self, "kappa")

    def draw(self, role: Role, batch: int, generator: torch.Generator | None) -> Float[Tensor, "B n"]:
        """Draw the fractions of the loss; more of them cost next to nothing here. The curve itself needs none."""
        counts = {Role.LEARN: self.online_fractions, Role.TARGET: self.target_fractions, Role.ACT: 0}
        return draw_fractions(counts[role], batch, generator)


@dataclass(frozen=True, kw_only=True)
class Ndqfn(CurveConfig):
    """NDQFN: one pass over the support gives a quantile function that cannot cross."""

    knots: int = 32
    """Number of support points, N + 1 in the paper: 0.001, 1/N, ..., (N-1)/N, 0.999."""
    support: tuple[float, ...] = ()
    """Support points of your own, strictly increasing inside (0, 1); empty places `knots` of them as the paper does."""
    input_form: InputForm = "concat"
    """Input of g: [psi*phi_i, phi_i - phi_(i-1)] (the paper) or psi*phi_i*phi_(i-1) (the alternative it mentions)."""
    increment_scale: Literal["1", "1/N"] = "1"
    """Factor on the increments; 1/N is the paper's formula read literally."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.support:
            stored = torch.tensor(self.support, dtype=torch.float32).tolist()  # in which near points may become one
            inside = all(0 < p < 1 for p in stored)
            rising = all(p < q for p, q in pairwise(stored))
            if len(self.support) < 2 or not (inside and rising):
                raise ConfigError(
                    f"head.support is {self.support}, but must be at least two points that increase strictly inside "
                    "(0, 1); otherwise the quantile function could fall."
                )
        elif not 2 <= self.knots <= 1000:
            raise ConfigError(
                f"head.knots is {self.knots}, but must be between 2 and 1000: the ends of the support are 0.001 and "
                "0.999, and the points between them must increase."
            )

    def build(self, features: int, actions: int, layers: Layers) -> "NdqfnHead":
        """Make the head."""
        return NdqfnHead(self, features, actions, layers)


class NdqfnHead(Head):
    """f(psi) gives the quantile at p_0; g(psi, phi(p_i), phi(p_(i-1))) >= 0 gives the step from p_(i-1) to p_i."""

    def __init__(self, config: Ndqfn, features: int, actions: int, layers: Layers) -> None:
        super().__init__()
        self.config = config
        support = config.support or uniform_support(config.knots)
        self.register_buffer("knots", torch.tensor(support), persistent=False)
        self.knots: Tensor
        self.baseline = Baseline(features, config.hidden, actions, layers)
        self.increments = Increments(
            features,
            config.hidden,
            config.cosines,
            actions,
            layers,
            steps=len(support) - 1,
            increment=config.increment,
            input_form=config.input_form,
            literal_scale=config.increment_scale == "1/N",
        )

    def fractions(self, role: Role, batch: int, generator: torch.Generator | None) -> Float[Tensor, "B n"]:
        """Draw the fractions of the loss; the curve itself needs none."""
        return self.config.draw(role, batch, generator)

    def constants(self) -> Constants:
        """Return the factors of psi and the addends of g's hidden layer for each increment: `[N, D]` and `[N, H]`."""
        return self.increments.constants(self.knots)

    def forward(
        self,
        features: Float[Tensor, "B D"],
        fractions: Float[Tensor, "B n"],
        constants: Constants,
        actions: Int[Tensor, " B"] | None = None,
    ) -> PiecewiseLinear:
        """Return quantile functions with lines between the cumulated increments."""
        steps = self.increments(features, constants, actions)
        # Summed in order in the last axis, which keeps the curve from falling by rounding.
        return PiecewiseLinear(self.knots, cumulate(torch.cat([self.baseline(features, actions), steps], dim=-1)))

    def loss(self, prediction: Estimate, target: Estimate) -> Float[Tensor, " B"]:
        """Quantile Huber loss at the drawn fractions of both curves."""
        return curve_loss(prediction, target, self.config.kappa)

    def statistics(self, distribution: Distribution) -> dict[str, float]:
        """Share of the increments, over support points and actions, that are zero in every state of the batch."""
        return dead_increments(distribution)


def curve_loss(prediction: Estimate, target: Estimate, kappa: float) -> Float[Tensor, " B"]:
    """Quantile Huber loss between two piecewise linear curves, at the fractions drawn for each."""
    curve, target_curve = both(PiecewiseLinear, prediction, target)
    values, targets = curve.ramp_quantile(prediction.fractions), target_curve.ramp_quantile(target.fractions)
    return quantile_huber(values, prediction.fractions, targets, kappa)


def dead_increments(distribution: Distribution) -> dict[str, float]:
    """Share of increments that are zero in every state of the batch: those whose gradient died."""
    dead = (distribution.curve().diff(dim=-1) <= 0).all(dim=0)
    return {"dead_increments": dead.float().mean().item()}
