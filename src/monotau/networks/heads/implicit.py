"""Modules shared by heads with embedded fractions: IQN's network, and NDQFN's anchor and non-negative increments.

IQN: Dabney et al. 2018, arXiv 1806.06923. NDQFN: Zhou et al. 2021, arXiv 2105.06696.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from monotau.distributions import Anchor
from monotau.errors import ConfigError, check_least
from monotau.networks.heads.base import Constants
from monotau.networks.layers import ActionLayer, CosineEmbedding, Layers, large_products, product_without_gradient

Activation = Literal["relu", "sigmoid"]
Increment = Literal["scaled", "relu", "softplus", "elu1"]
InputForm = Literal["concat", "triple"]

MANY_FEATURES, LIVE_SHARE = 1_000, 0.9
"""Number of features from which, and share of live ones up to which, those that are zero are left out."""

TUKEY_LAMBDA = 0.135
"""Exponent with which Tukey's lambda distribution is closest to a normal one."""

FIRST_SPREAD = 0.2
"""Initial difference between highest and lowest quantile for `scaled` steps, in the unit of returns."""


class ImplicitQuantiles(nn.Module):
    """IQN's network, Linear(ReLU(Linear(psi(x) * phi(tau)))), evaluated at any fractions."""

    def __init__(self, features: int, hidden: int, cosines: int, actions: int, layers: Layers) -> None:
        super().__init__()
        self.precision = layers.precision
        self.embedding = CosineEmbedding(cosines, features)
        self.hidden = layers.hidden(features, hidden)
        self.last = ActionLayer(layers, hidden, actions)

    def forward(
        self, features: Float[Tensor, "B D"], taus: Float[Tensor, "B n"], actions: Int[Tensor, " B"] | None
    ) -> Float[Tensor, "B *A n"]:
        """Quantile estimates of every action, or of the chosen ones."""
        with large_products(self.precision, features.device):
            live = live_features(features)
            features = features if live is None else features.index_select(1, live)
            phi = self.embedding(taus, live)  # B n D
            hidden = F.relu(self.hidden(features[:, None, :] * phi.to(features.dtype), live))
        return self.last.along(hidden.float(), actions)


@dataclass(frozen=True, kw_only=True)
class StepConfig:
    """Settings of quantile functions that are sums of non-negative steps."""

    anchor: Anchor = "mean"
    """Point of the curve that f predicts: the mean, then learned independently of the spread; the median; or the lowest
    quantile (the paper), with which falling returns can shrink all steps to zero for good."""
    baseline: Activation = "relu"
    """Hidden activation of f: relu, or sigmoid (the paper), which starts near 1/2 in every state and learns slowly."""
    increment: Increment = "scaled"
    """Activation that makes steps non-negative: scaled (a softplus spread times the shares of the steps, which cannot
    die), relu (the paper; can die), softplus, or elu1 (ELU + 1)."""
    increment_scale: Literal["1", "1/N"] = "1/N"
    """Factor on relu, softplus and elu1 steps; with 1/N an update moves the highest quantile as far as any other."""
    hidden: int = 512
    """Hidden units of f and of g."""
    cosines: int = 64
    """Cosines in the embedding of a fraction."""

    def __post_init__(self) -> None:
        check_least("head.", self, hidden=1, cosines=1)
        if self.increment == "scaled" and self.increment_scale != "1/N":
            raise ConfigError(
                "head.increment_scale is '1', but head.increment 'scaled' has a learned scale instead; "
                "leave increment_scale out, or choose relu, softplus or elu1."
            )


class Location(nn.Module):
    """NDQFN's f: the anchor of each action's curve, which is unconstrained, and its spread for `scaled` steps.

    Departure: the paper's f has "a sigmoid activation" yet is unconstrained, so the sigmoid is taken as the hidden one.
    """

    def __init__(self, config: StepConfig, features: int, actions: int, layers: Layers) -> None:
        super().__init__()
        self.precision, self.config = layers.precision, config
        self.hidden = layers.hidden(features, config.hidden)
        scaled = config.increment == "scaled"
        self.last = ActionLayer(layers, config.hidden, actions, outputs=2 if scaled else 1)
        if scaled:
            self.last.shift(math.log(math.expm1(FIRST_SPREAD)), output=1)

    def forward(self, features: Float[Tensor, "B D"], actions: Int[Tensor, " B"] | None) -> Float[Tensor, "B *A n"]:
        """Anchor, and spread before its softplus, of every action or of the chosen ones."""
        with large_products(self.precision, features.device):
            hidden = self.hidden(features)
            hidden = F.relu(hidden) if self.config.baseline == "relu" else torch.sigmoid(hidden)
        return self.last.table(hidden.float(), actions)


class Increments(nn.Module):
    """NDQFN's g: the steps of the quantile function from each fraction to the next, before their activation.

    W [psi*phi_i ; phi_i - phi_(i-1)] + b is split into W1 (psi*phi_i) and W2 (phi_i - phi_(i-1)) + b: the second term
    does not depend on the state, so for fixed fractions it is computed once for all states.
    """

    def __init__(
        self, config: StepConfig, features: int, actions: int, layers: Layers, input_form: InputForm = "concat"
    ) -> None:
        super().__init__()
        self.precision, self.input_form = layers.precision, input_form
        self.embedding = CosineEmbedding(config.cosines, features)
        units = 2 * config.hidden if layers.dueling else config.hidden
        inputs = 2 * features if input_form == "concat" else features
        self.mixed = layers.linear(features, units, bias=False, fan_in=inputs)
        self.shift = layers.linear(features, units, fan_in=inputs) if input_form == "concat" else None
        self.bias = nn.Parameter(torch.zeros(units)) if input_form == "triple" else None
        self.last = ActionLayer(layers, config.hidden, actions)
        # A ReLU needs this: the steps of an action start with the same sign, and an action whose steps are all negative
        # would be dead before it learns.
        self.last.shift({"relu": 1.0, "softplus": math.log(math.expm1(1.0))}.get(config.increment, 0.0))

    def between(self, taus: Float[Tensor, "*batch K"]) -> Constants:
        """Return the constants of the steps between neighbouring fractions."""
        return self.constants(self.embedding.cosines(taus))

    def constants(self, cosines: Float[Tensor, "*batch K C"]) -> Constants:
        """Return the factors of psi and the addends of the hidden layer, for the steps between neighbouring fractions.

        The fractions are given by their cosines, which for a fixed support are computed once.
        """
        phi = self.embedding.embed(cosines)  # *batch K D
        after, before = phi[..., 1:, :], phi[..., :-1, :]
        if self.shift is None:
            assert self.bias is not None  # noqa: S101  # either shift or bias is set; for the type checker
            return after * before, self.bias
        with large_products(self.precision, phi.device):
            addends = self.shift(after - before)
        return after, addends

    def forward(
        self, features: Float[Tensor, "B D"], constants: Constants, actions: Int[Tensor, " B"] | None
    ) -> Float[Tensor, "B *A N"]:
        """Return a number of any sign for each step of every action's quantile function, or of the chosen actions'."""
        factors, addends = constants
        with large_products(self.precision, features.device):
            weight, _ = self.mixed.noisy_weights()
            live = live_features(features)
            if live is not None:
                features, factors, weight = (part.index_select(-1, live) for part in (features, factors, weight))
            if self.precision == "fp32" and not torch.compiler.is_compiling():
                hidden = mixed_layer(features, factors, weight, addends)
            else:
                mixed = features[:, None, :] * factors.to(features.dtype)  # B N D
                hidden = F.relu(F.linear(mixed, weight) + addends)
        return self.last.along(hidden.float(), actions)


def live_features(features: Float[Tensor, "B D"]) -> Int[Tensor, " live"] | None:
    """Return which features are not zero in every state; None if leaving the others out would not save time.

    A feature that is zero in the whole batch adds nothing to a product. It also needs no gradient, because torsos end
    in a ReLU, which passes none where it is zero.
    """
    if torch.compiler.is_compiling() or features.device.type != "cpu" or features.shape[1] < MANY_FEATURES:
        return None
    live = features.detach().any(dim=0).nonzero()[:, 0]
    return live if len(live) <= LIVE_SHARE * features.shape[1] else None


def mixed_layer(
    features: Float[Tensor, "B D"],
    factors: Float[Tensor, "*shared N D"],
    weight: Float[Tensor, "H D"],
    addends: Float[Tensor, "*broadcast H"],
) -> Float[Tensor, "B N H"]:
    """ReLU(W (psi * phi_i) + addend_i) for each state and step; factors and addends may differ between states."""
    if not torch.is_grad_enabled():  # a call of an autograd function takes longer than the layer of a single state
        return _mixed_and_hidden(features, factors, weight, addends)[1]
    hidden: Tensor = _MixedLayer.apply(features, factors, weight, addends)
    return hidden


def _mixed_and_hidden(
    features: Tensor, factors: Tensor, weight: Tensor, addends: Tensor
) -> tuple[Float[Tensor, "B N D"], Float[Tensor, "B N H"]]:
    """Return psi * phi_i and the hidden units, without a gradient."""
    mixed = features[:, None, :] * factors
    hidden = product_without_gradient(mixed.flatten(0, 1), weight)
    # In place: the B*N*H tensor is allocated once.
    return mixed, hidden.view(*mixed.shape[:2], -1).add_(addends).relu_()


class _MixedLayer(torch.autograd.Function):
    """The layer and its gradient with one tensor of each large size; autograd would keep and fill several."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, factors: Tensor, weight: Tensor, addends: Tensor) -> Tensor:
        """Compute the hidden units."""
        mixed, hidden = _mixed_and_hidden(features, factors, weight, addends)
        ctx.save_for_backward(features, factors, weight, mixed, hidden)
        ctx.addends_shape = addends.shape
        ctx.set_materialize_grads(False)
        return hidden

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the gradients of features, factors, weights and addends."""
        (gradient,) = gradients
        if gradient is None:  # as on the target's side of a loss
            return None, None, None, None
        features, factors, weight, mixed, hidden = ctx.saved_tensors
        # B N H, of W (psi * phi) + addends; `where` takes twenty times as long as autograd's own operator.
        sums = torch.ops.aten.threshold_backward(gradient, hidden, 0)
        rows = sums.flatten(0, 1)
        of_weight = product_without_gradient(rows.t(), mixed.flatten(0, 1).t())
        products = product_without_gradient(rows, weight.t()).view_as(mixed)  # B N D: of psi * phi
        of_features = (products * factors).sum(dim=1)
        of_factors = products.mul_(features[:, None, :]).sum_to_size(factors.shape)
        return of_features, of_factors, of_weight, sums.sum_to_size(ctx.addends_shape)


class Curve(nn.Module):
    """f and g together: an anchor and the steps of the quantile function."""

    def __init__(
        self, config: StepConfig, features: int, actions: int, layers: Layers, input_form: InputForm = "concat"
    ) -> None:
        super().__init__()
        self.config = config
        self.location = Location(config, features, actions, layers)
        self.increments = Increments(config, features, actions, layers, input_form)

    def rescale(self, factor: float) -> None:
        """Scale anchors and steps: exactly for ReLU steps, approximately for softplus steps far above zero."""
        self.location.last.multiply(factor)
        if self.config.increment != "scaled":
            self.increments.last.multiply(factor)

    def anchors(self, features: Float[Tensor, "B D"]) -> Float[Tensor, "B A"]:
        """Anchor of every action's curve, which needs only f."""
        located: Tensor = self.location(features, None)
        return located[..., 0]

    def forward(
        self,
        features: Float[Tensor, "B D"],
        constants: Constants,
        normal: Float[Tensor, "*shared N"],
        actions: Int[Tensor, " B"] | None,
    ) -> tuple[Float[Tensor, "B *A"], Float[Tensor, "B *A N"]]:
        """Anchors, and steps that are never negative; `normal` are the steps of a normal distribution."""
        located = self.location(features, actions)
        rises = self.increments(features, constants, actions)
        if self.config.increment == "scaled":
            if actions is None and normal.ndim > 1:
                normal = normal[:, None]  # the same for all actions
            steps = F.softplus(located[..., 1:]) * shares(rises, normal)
        else:
            # The activation comes after dueling's sum, which could otherwise make steps negative.
            steps = STEPS[self.config.increment](rises)
            if self.config.increment_scale == "1/N":
                steps = steps / steps.shape[-1]
        return located[..., 0], steps


def shares(numbers: Float[Tensor, "*batch N"], normal: Float[Tensor, "*#broadcast N"]) -> Float[Tensor, "*batch N"]:
    """Turn numbers of any sign into positive shares that sum to one: normal_i (z + sqrt(z^2 + 4)), divided by its sum.

    Before anything is learned, the shares are those of the steps of a normal distribution. Equal steps are a worse
    start: those of the tails would have to grow most, and they get the smallest gradients.

    The shares of a softmax fall exponentially, and with them their gradients: while values climb to a distant return,
    all targets lie above the curve, which drives the logits so far apart that the shape never recovers. These shares
    fall like 1 / |z|.
    """
    root = (numbers * numbers + 4).sqrt()
    # Below zero the sum would cancel to 0 in floating point, so it is 4 / (sqrt(z^2 + 4) - z) there, which is the same.
    parts = normal * torch.where(numbers > 0, root + numbers, 4 / (root + (-numbers).clamp_min(0)))
    return parts / parts.sum(dim=-1, keepdim=True)


def normal_steps(taus: Float[Tensor, "*batch K"]) -> Float[Tensor, "*batch N"]:
    """Steps of a normal quantile function between increasing fractions, up to a factor.

    By Tukey's lambda distribution (Joiner and Rosenblatt 1971, doi 10.1080/01621459.1971.10482275), whose quantile
    function (tau^l - (1 - tau)^l) / l nearly is a normal one for l = 0.135, and which is finite at 0 and 1.
    """
    return (taus**TUKEY_LAMBDA - (1 - taus) ** TUKEY_LAMBDA).diff(dim=-1)


def elu1(values: Tensor) -> Tensor:
    """ELU + 1, which is positive."""
    return F.elu(values) + 1


STEPS: Mapping[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "softplus": F.softplus, "elu1": elu1}
