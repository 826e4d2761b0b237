"""The non-decreasing quantile function network: a baseline and non-negative increments at fixed support points."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from monotau.distributions import Distribution, PiecewiseLinear, uniform_support
from monotau.errors import ConfigError, check_least, check_positive
from monotau.losses import quantile_huber
from monotau.networks.heads.base import Constants, Head, HeadConfig, draw_fractions
from monotau.networks.layers import CosineEmbedding, Precision, action_columns, large_products


@dataclass(frozen=True, kw_only=True)
class Ndqfn(HeadConfig):
    """NDQFN: one pass over the support gives a quantile function that cannot cross."""

    knots: int = 32
    """Number of support points, N + 1 in the paper: 0.001, 1/N, ..., (N-1)/N, 0.999."""
    support: tuple[float, ...] = ()
    """Support points of your own, strictly increasing inside (0, 1); empty places `knots` of them as the paper does."""
    increment: Literal["relu", "softplus", "elu1"] = "relu"
    """What makes increments non-negative: relu (the paper), softplus, or ELU + 1; the last two cannot die."""
    input_form: Literal["concat", "triple"] = "concat"
    """Input of g: [psi*phi_i, phi_i - phi_(i-1)] (the paper) or psi*phi_i*phi_(i-1) (the alternative it mentions)."""
    increment_scale: Literal["1", "1/N"] = "1"
    """Factor on the increments; 1/N is the paper's formula read literally."""
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
        check_least("head.", self, hidden=1, cosines=1, online_fractions=1, target_fractions=1)
        check_positive("head.", self, "kappa")

    def build(self, features: int, actions: int, precision: Precision) -> "NdqfnHead":
        """Make the head."""
        return NdqfnHead(self, features, actions, precision)


class NdqfnHead(Head):
    """f(psi) gives the quantile at p_0; g(psi, phi(p_i), phi(p_(i-1))) >= 0 gives the step from p_(i-1) to p_i."""

    def __init__(self, config: Ndqfn, features: int, actions: int, precision: Precision) -> None:
        super().__init__()
        self.config, self.precision = config, precision
        support = config.support or uniform_support(config.knots)
        self.register_buffer("knots", torch.tensor(support), persistent=False)
        self.knots: Tensor
        steps = len(support) - 1
        self.scale = 1 / steps if config.increment_scale == "1/N" else 1.0
        self.embedding = CosineEmbedding(config.cosines, features)
        # Departure: the paper's f has "a sigmoid activation" yet is unconstrained, so the sigmoid is the hidden one.
        self.baseline_hidden = nn.Linear(features, config.hidden)
        self.baseline_last = nn.Linear(config.hidden, actions)
        # W [psi*phi_i ; phi_i - phi_(i-1)] + b is split in W1 (psi*phi_i) and W2 (phi_i - phi_(i-1)) + b: the second
        # does not depend on the state, so it is computed once for all of them. Drawn as the one layer they stand for.
        inputs = 2 * features if config.input_form == "concat" else features
        whole = nn.Linear(inputs, config.hidden)
        self.mixed_weight = nn.Parameter(whole.weight.detach()[:, :features].clone())
        self.knot_bias = nn.Parameter(whole.bias.detach().clone())
        if config.input_form == "concat":
            self.knot_weight = nn.Parameter(whole.weight.detach()[:, features:].clone())
        self.increment_last = nn.Linear(config.hidden, actions)
        self._shrink_first_increments(steps)

    @torch.no_grad()
    def _shrink_first_increments(self, steps: int) -> None:
        """Start with a spread of at most about one over all increments, whatever their number and activation.

        Departure: the paper's factor 1/N contradicts its own definition of an increment; it is dropped, and its effect
        at the start kept. softplus and ELU + 1 are not near 0 at 0, so their bias starts where they are 1/N.
        """
        if self.config.increment_scale == "1/N":
            return
        self.increment_last.weight.div_(steps)
        self.increment_last.bias.div_(steps)
        if self.config.increment == "softplus":
            self.increment_last.bias.add_(math.log(math.expm1(1 / steps)))
        elif self.config.increment == "elu1":
            self.increment_last.bias.sub_(math.log(steps))

    def constants(self) -> Constants:
        """Return the factors of psi and the addends of g's hidden layer for each increment: `[N, D]` and `[N, H]`."""
        phi = self.embedding(self.knots)  # K D
        if self.config.input_form == "triple":
            return phi[1:] * phi[:-1], self.knot_bias
        with large_products(self.precision, phi.device):
            addends = F.linear(phi.diff(dim=0), self.knot_weight, self.knot_bias)
        return phi[1:], addends

    def increments(
        self, features: Float[Tensor, "B D"], constants: Constants, actions: Int[Tensor, " B"] | None
    ) -> Float[Tensor, "B N *A"]:
        """Steps of the quantile function from each support point to the next."""
        factors, addends = constants
        with large_products(self.precision, features.device):
            mixed = features[:, None, :] * factors.to(features.dtype)  # B N D
            # In place: a B*N*H tensor is written once, and neither the product nor the sum is needed for the gradient.
            hidden = F.linear(mixed, self.mixed_weight).add_(addends).relu_()
        outputs = action_columns(self.increment_last, hidden.float(), actions)
        if self.config.increment == "relu":
            increments = F.relu(outputs)
        elif self.config.increment == "softplus":
            increments = F.softplus(outputs)
        else:
            increments = F.elu(outputs) + 1
        return increments if self.scale == 1 else increments * self.scale

    def forward(
        self,
        features: Float[Tensor, "B D"],
        fractions: Float[Tensor, "B 0"],
        constants: Constants,
        actions: Int[Tensor, " B"] | None = None,
    ) -> PiecewiseLinear:
        """Return quantile functions with lines between the cumulated increments."""
        with large_products(self.precision, features.device):
            hidden = torch.sigmoid(self.baseline_hidden(features))
        baseline = action_columns(self.baseline_last, hidden.float(), actions)
        increments = self.increments(features, constants, actions)
        # Summed in order in the last axis, which keeps the curve from falling by rounding.
        values = torch.cat([baseline[:, None], increments], dim=1)
        return PiecewiseLinear(self.knots, cumulate(values.movedim(1, -1)))

    def loss(self, prediction: Distribution, target: Distribution, generator: torch.Generator) -> Float[Tensor, " B"]:
        """Quantile Huber loss at fresh fractions of both curves; more of them cost next to nothing here."""
        if not (isinstance(prediction, PiecewiseLinear) and isinstance(target, PiecewiseLinear)):
            given = f"{type(prediction).__name__} and {type(target).__name__}"
            raise TypeError(f"NDQFN's loss needs piecewise linear distributions, but got {given}.")
        batch, device = prediction.batch_shape[0], self.knots.device
        taus = draw_fractions(self.config.online_fractions, batch, generator).to(device)
        target_taus = draw_fractions(self.config.target_fractions, batch, generator).to(device)
        values, targets = prediction.ramp_quantile(taus), target.ramp_quantile(target_taus)
        return quantile_huber(values, taus, targets, self.config.kappa)

    def statistics(self, distribution: Distribution) -> dict[str, float]:
        """Share of the increments, over support points and actions, that are zero in every state of the batch."""
        dead = (distribution.curve().diff(dim=-1) <= 0).all(dim=0)
        return {"dead_increments": dead.float().mean().item()}


def cumulate(values: Float[Tensor, "*batch K"]) -> Float[Tensor, "*batch K"]:
    """Cumulative sums that never fall where `values[1:]` are non-negative, rounding included.

    On a CPU the sum runs in order and cannot fall; on other devices a parallel scan may round differently from one
    sum to the next, so its running maximum is taken.
    """
    sums = values.cumsum(dim=-1)
    return sums if sums.device.type == "cpu" else sums.cummax(dim=-1).values
