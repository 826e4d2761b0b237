"""The non-decreasing quantile function network: an anchor and non-negative increments between fixed support points.

Zhou, Zhu, Kuang, Zhang 2021, arXiv 2105.06696.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from monotau.distributions import Distribution, Stepped, Support, uniform_support
from monotau.errors import ConfigError, check_least, check_positive
from monotau.losses import quantile_huber
from monotau.networks.heads.base import Constants, Estimate, Head, HeadConfig, Role, both, draw_fractions
from monotau.networks.heads.implicit import Curve, InputForm, StepConfig, normal_steps
from monotau.networks.layers import Layers, cosine_table


@dataclass(frozen=True, kw_only=True)
class CurveConfig(StepConfig, HeadConfig):
    """Settings shared by heads with steps between knots."""

    online_fractions: int = 32
    """Fractions drawn for the prediction in the loss, N1."""
    target_fractions: int = 32
    """Fractions drawn for the target in the loss, N2."""
    stratified: bool = True
    """Draw one fraction from each of as many equal intervals of (0, 1): the same expectation with less variance."""
    kappa: float = 1.0
    """Error, in the unit of returns, at which the Huber loss turns from quadratic to linear."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least("head.", self, online_fractions=1, target_fractions=1)
        check_positive("head.", self, "kappa")

    def draw(self, role: Role, batch: int, generator: torch.Generator | None) -> Float[Tensor, "B n"]:
        """Draw the fractions of the loss, which are cheap here; the curve itself needs none."""
        counts = {Role.LEARN: self.online_fractions, Role.TARGET: self.target_fractions, Role.ACT: 0}
        return draw_fractions(counts[role], batch, generator, stratified=self.stratified)


@dataclass(frozen=True, kw_only=True)
class Ndqfn(CurveConfig):
    """NDQFN: one pass over the support gives a quantile function that cannot cross.

    Zhou, Zhu, Kuang, Zhang 2021, arXiv 2105.06696; the anchor at the mean follows NQ-Net (Shen et al. 2025,
    arXiv 2504.08215).
    """

    knots: int = 32
    """Number of support points, N + 1 in the paper: 0.001, 1/N, ..., (N-1)/N, 0.999."""
    support: tuple[float, ...] = ()
    """Custom support points, strictly increasing inside (0, 1); if empty, the paper's, with `knots` points."""
    input_form: InputForm = "concat"
    """Input of g: [psi*phi_i, phi_i - phi_(i-1)] (the paper) or psi*phi_i*phi_(i-1) (the alternative it mentions)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.support:
            stored = torch.tensor(
                self.support, dtype=torch.float32
            ).tolist()  # close points may round to the same float32
            inside = all(0 < p < 1 for p in stored)
            rising = all(p < q for p, q in pairwise(stored))
            if len(self.support) < 2 or not (inside and rising):
                raise ConfigError(
                    f"head.support is {self.support}, but must be at least two points that increase strictly inside "
                    "(0, 1); otherwise the quantile function could decrease."
                )
        elif not 2 <= self.knots <= 1000:
            raise ConfigError(
                f"head.knots is {self.knots}, but must be between 2 and 1000: the ends of the support are 0.001 and "
                "0.999, and the points between them must increase."
            )

    def build(self, features: int, actions: int, layers: Layers) -> "NdqfnHead":
        """Make the head."""
        return NdqfnHead(self, features, actions, layers)


class CurveHead(Head):
    """Methods shared by heads with steps between knots."""

    config: CurveConfig
    curve: Curve

    def fractions(self, role: Role, batch: int, generator: torch.Generator | None) -> Float[Tensor, "B n"]:
        """Draw the fractions of the loss; the curve itself needs none."""
        return self.config.draw(role, batch, generator)

    def values(
        self, features: Float[Tensor, "B D"], fractions: Float[Tensor, "B n"], constants: Constants
    ) -> Float[Tensor, "B A"]:
        """Mean of each action's distribution: with the anchor at the mean, f alone gives it exactly."""
        if self.config.anchor == "mean":
            return self.curve.anchors(features)
        return super().values(features, fractions, constants)

    def rescale(self, factor: float) -> None:
        """Scale the curves."""
        self.curve.rescale(factor)

    def loss(self, prediction: Estimate, target: Estimate) -> Float[Tensor, " B"]:
        """Quantile Huber loss between two piecewise linear curves, at the fractions drawn for each."""
        curve, target_curve = both(Stepped, prediction, target)
        values, targets = curve.ramp_quantile(prediction.fractions), target_curve.ramp_quantile(target.fractions)
        return quantile_huber(values, prediction.fractions, targets, self.config.kappa)

    def statistics(self, distribution: Distribution) -> dict[str, float]:
        """Return the share of steps, over support points and actions, that are zero in every state of the batch."""
        dead = (distribution.curve().diff(dim=-1) <= 0).all(dim=0)
        return {"dead_increments": dead.float().mean().item()}


@final
class NdqfnHead(CurveHead):
    """f(psi) gives the anchor; g(psi, phi(p_i), phi(p_(i-1))) gives the step from p_(i-1) to p_i."""

    def __init__(self, config: Ndqfn, features: int, actions: int, layers: Layers) -> None:
        super().__init__()
        self.config = config
        points = config.support or uniform_support(config.knots)
        support = Support.of(torch.tensor(points), config.anchor)
        for name in ("knots", "rates", "offsets"):
            self.register_buffer(name, getattr(support, name), persistent=False)
        self.knots: Tensor
        self.rates: Tensor
        self.offsets: Tensor
        self.curve = Curve(config, features, actions, layers, config.input_form)
        self.register_buffer("cosines", cosine_table(points, config.cosines), persistent=False)
        self.cosines: Tensor
        self.register_buffer("normal", normal_steps(self.knots), persistent=False)
        self.normal: Tensor

    def constants(self) -> Constants:
        """Return the factors of psi and the addends of g's hidden layer for each increment: `[N, D]` and `[N, H]`."""
        return self.curve.increments.constants(self.cosines)

    def forward(
        self,
        features: Float[Tensor, "B D"],
        fractions: Float[Tensor, "B n"],
        constants: Constants,
        actions: Int[Tensor, " B"] | None = None,
    ) -> Stepped:
        """Return quantile functions that are linear between the knots."""
        anchors, steps = self.curve(features, constants, self.normal, actions)
        return Stepped(Support(self.knots, self.rates, self.offsets, self.config.anchor), anchors, steps)
