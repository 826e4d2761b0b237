"""Layers that heads share: linear layers with optional noise, output layers per action, and cosine embeddings."""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

Precision = Literal["fp32", "bf16"]
Body = TypeVar("Body", nn.Linear, nn.Conv2d)

FIRST_NOISE = 0.5
"""sigma_0 of NoisyNet: initial standard deviation of a weight's noise times the root of its layer's fan-in."""

HE_GAIN = math.sqrt(2)
"""A ReLU halves the mean square of a signal, and weights drawn with this gain double it again."""

LARGE_PRODUCT = 4_000_000
"""Multiply-adds above which a faster library is worth the longer call."""

OUTPUT_GAIN = 0.1
"""Gain of an output layer: all actions start with nearly equal values, so that none is preferred before learning."""


@torch.no_grad()
def initialise(weight: Tensor, fan_in: int, gain: float = HE_GAIN) -> None:
    """Draw weights whose outputs have `gain` squared times the mean square of their inputs (He et al. 2015).

    All torsos and heads use this rule; biases start at zero. Smaller initial weights, such as torch's default, shrink
    the differences between states by a factor of 2.4 per layer, and a deep network then starts as a constant.
    """
    bound = gain * math.sqrt(3 / fan_in)
    weight.uniform_(-bound, bound)


def initialised(layer: Body) -> Body:
    """Initialise a torch layer that precedes a ReLU, and return it."""
    initialise(layer.weight, layer.weight[0].numel())
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


@dataclass(frozen=True)
class Layers:
    """Options of a run that apply to all its layers, and makers of such layers."""

    precision: Precision = "fp32"
    noisy: bool = False
    dueling: bool = False
    last_gain: float = OUTPUT_GAIN
    """Gain of the output layers' initial weights."""

    def linear(
        self, inputs: int, outputs: int, *, bias: bool = True, fan_in: int = 0, gain: float = HE_GAIN
    ) -> "Linear":
        """Make a linear layer of a head."""
        return Linear(inputs, outputs, noisy=self.noisy, bias=bias, fan_in=fan_in, gain=gain)

    def hidden(self, inputs: int, units: int) -> "Linear":
        """Make the hidden layer before the output layer; dueling doubles it, one half for each stream."""
        return self.linear(inputs, 2 * units if self.dueling else units)


def large_products(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which convolutions and matrix products run in `precision`; weights always stay in fp32."""
    # Even when disabled, torch.autocast takes longer to enter than a small layer takes to compute.
    return torch.autocast(device.type, dtype=torch.bfloat16) if precision == "bf16" else nullcontext()


def settle_precision(wanted: Literal["fp32", "bf16", "auto"], device: torch.device) -> Precision:
    """Return the requested precision, or for `auto` the faster one on the device."""
    if wanted != "auto":
        return wanted
    return "bf16" if multiplies_bf16(device.type) else "fp32"


def multiplies_bf16(device: str) -> bool:
    """Whether a device multiplies bf16 in hardware; without that, bf16 is slower than fp32."""
    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device == "cpu" and not {"avx512_bf16", "amx_bf16"}.isdisjoint(cpu_flags())


def product(
    inputs: Float[Tensor, "*batch I"], weight: Float[Tensor, "O I"], bias: Float[Tensor, " O"] | None = None
) -> Float[Tensor, "*batch O"]:
    """Apply weights and biases to inputs, with the library that is faster at this size."""
    if not suits_onednn(inputs, weight):
        return F.linear(inputs, weight, bias)
    outputs: Tensor = _OneDnnProduct.apply(inputs.flatten(0, -2), weight, bias)
    return outputs.view(*inputs.shape[:-1], len(weight))


def product_without_gradient(rows: Float[Tensor, "R I"], weight: Float[Tensor, "O I"]) -> Float[Tensor, "R O"]:
    """Apply weights to rows like `product`, inside of a formula that has its own gradient."""
    return onednn_linear(rows, weight) if suits_onednn(rows, weight) else F.linear(rows, weight)


def suits_onednn(inputs: Tensor, weight: Tensor) -> bool:
    """Whether oneDNN is the faster library for a product, and can compute it."""
    return (
        not torch.compiler.is_compiling()  # first, because sizes are symbols then
        and inputs.numel() * len(weight) >= LARGE_PRODUCT
        and inputs.device.type == "cpu"
        and inputs.dtype == torch.float32
        and onednn_is_faster()
        and not torch.is_autocast_enabled("cpu")
    )


class _OneDnnProduct(torch.autograd.Function):
    """A linear layer by oneDNN on dense tensors; torch's own way to oneDNN copies inputs and outputs."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Apply weights and biases."""
        ctx.save_for_backward(inputs, weight)
        ctx.set_materialize_grads(False)
        return onednn_linear(inputs, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Return the gradients of inputs, weights and biases, with two more products."""
        (inputs, weight), (gradient,) = ctx.saved_tensors, gradients
        if gradient is None:  # as on the target's side of a loss
            return None, None, None
        of_inputs, of_weight, of_bias = ctx.needs_input_grad
        return (
            onednn_linear(gradient, weight.t()) if of_inputs else None,
            onednn_linear(gradient.t(), inputs.t()) if of_weight else None,
            gradient.sum(dim=0) if of_bias else None,
        )


def onednn_linear(
    rows: Float[Tensor, "R I"], weight: Float[Tensor, "O I"], bias: Float[Tensor, " O"] | None = None
) -> Float[Tensor, "R O"]:
    """Apply weights and biases by the operator that torch's compiler uses for linear layers on CPUs."""
    outputs: Tensor = torch.ops.mkldnn._linear_pointwise.default(rows, weight, bias, "none", [], "")
    return outputs


@cache
def onednn_is_faster() -> bool:
    """Whether oneDNN halves the time of large products, as on AMD processors with AVX-512.

    There MKL, which torch uses for dense tensors, leaves half of the vector width unused.
    """
    return {"AuthenticAMD", "avx512f"} <= cpu_flags() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def cpu_flags() -> set[str]:
    """Return the words in which Linux describes the CPU, its flags among them; empty on other systems."""
    try:
        return set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    except OSError:
        return set()


class Linear(nn.Module):
    """A linear layer, optionally with NoisyNet's factorised Gaussian noise of learned size on its weights.

    `resample_noise` draws noise that holds until the next call; before the first call there is none.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        noisy: bool = False,
        bias: bool = True,
        fan_in: int = 0,
        gain: float = HE_GAIN,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        initialise(self.weight, fan_in or inputs, gain)
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None
        self.noisy = noisy
        if noisy:
            noise = FIRST_NOISE / math.sqrt(fan_in or inputs)
            self.weight_noise = nn.Parameter(torch.full((outputs, inputs), noise))
            self.bias_noise = nn.Parameter(torch.full((outputs,), noise)) if bias else None
            self.register_buffer("noise_in", torch.zeros(inputs), persistent=False)
            self.register_buffer("noise_out", torch.zeros(outputs), persistent=False)
            self.noise_in: Tensor
            self.noise_out: Tensor

    def noisy_weights(self) -> tuple[Float[Tensor, "outputs inputs"], Float[Tensor, " outputs"] | None]:
        """Weights and biases with the current noise added."""
        if not self.noisy:
            return self.weight, self.bias
        weight = self.weight + self.weight_noise * torch.outer(self.noise_out, self.noise_in)
        if self.bias is None or self.bias_noise is None:
            return weight, None
        return weight, self.bias + self.bias_noise * self.noise_out

    def resample_noise(self, generator: torch.Generator | None) -> None:
        """Draw new noise; without a generator, remove it."""
        for noise in (self.noise_in, self.noise_out):
            if generator is None:
                noise.zero_()
            else:
                drawn = torch.randn(noise.shape, generator=generator)
                noise.copy_(drawn.sign() * drawn.abs().sqrt())

    def forward(
        self, inputs: Float[Tensor, "*batch I"], live: Int[Tensor, " I"] | None = None
    ) -> Float[Tensor, "*batch O"]:
        """Apply the layer to all of its inputs, or to those numbered `live`, the others being zero."""
        weight, bias = self.noisy_weights()
        return product(inputs, weight if live is None else weight.index_select(1, live), bias)


class ActionLayer(nn.Module):
    """The output layer: outputs for every action, or for the chosen ones only.

    With dueling, half of the hidden units feed a value that all actions share and the other half feeds the advantages,
    whose mean over the actions is subtracted. Because this is linear, it is done on the weights before the product.
    """

    def __init__(self, layers: Layers, hidden: int, actions: int, outputs: int = 1) -> None:
        super().__init__()
        self.shape = (actions, outputs)
        self.advantages = layers.linear(hidden, actions * outputs, gain=layers.last_gain)
        self.value = layers.linear(hidden, outputs, gain=layers.last_gain) if layers.dueling else None

    def weights(self) -> tuple[Float[Tensor, "AK H"], Float[Tensor, " AK"]]:
        """Weights and biases of each action's outputs; with dueling, their means over the actions are subtracted."""
        weight, bias = self.advantages.noisy_weights()
        assert bias is not None  # noqa: S101  # an output layer always has one; for the type checker
        if self.value is None:
            return weight, bias
        weight, bias = weight.unflatten(0, self.shape), bias.unflatten(0, self.shape)
        return (weight - weight.mean(dim=0)).flatten(0, 1), (bias - bias.mean(dim=0)).flatten()

    def table(self, hidden: Float[Tensor, "B H"], actions: Int[Tensor, " B"] | None) -> Float[Tensor, "B *A K"]:
        """K outputs of every action, or of the chosen ones."""
        weight, bias = self.weights()
        if self.value is not None:
            of_value, hidden = hidden.chunk(2, dim=-1)
        # One product for all actions is cheaper than a small product per row for its own action.
        outputs: Tensor = F.linear(hidden, weight, bias).unflatten(-1, self.shape)
        if actions is not None:
            outputs = outputs[torch.arange(len(actions), device=actions.device), actions]
        if self.value is None:
            return outputs
        value: Tensor = self.value(of_value)
        return outputs + (value[:, None] if actions is None else value)

    def along(self, hidden: Float[Tensor, "B n H"], actions: Int[Tensor, " B"] | None) -> Float[Tensor, "B *A n"]:
        """One output of every action, or of the chosen ones, at each of n points; for layers made with `outputs=1`."""
        weight, bias = self.weights()
        if self.value is not None:
            of_value, hidden = hidden.chunk(2, dim=-1)
        if actions is None:
            outputs = F.linear(hidden, weight, bias).movedim(1, -1)
        else:
            # Not baddbmm, which takes twice as long forward and three times backward for products with one column.
            outputs = torch.linalg.vecdot(hidden, weight[actions, None]) + bias[actions, None]
        if self.value is None:
            return outputs
        value: Tensor = self.value(of_value).squeeze(-1)  # B n
        return outputs + (value[:, None] if actions is None else value)

    @torch.no_grad()
    def multiply(self, factor: float, outputs: slice = slice(None)) -> None:
        """Scale all outputs, or a slice of each action's K."""
        for parameter in self.parameters():
            parameter.unflatten(0, (-1, self.shape[1]))[:, outputs].mul_(factor)

    @torch.no_grad()
    def shift(self, offset: float, output: int | slice | None = None) -> None:
        """Shift all outputs, or some of each action's K; with dueling in the value, because advantages cancel it."""
        bias = (self.value or self.advantages).bias
        assert bias is not None  # noqa: S101
        rows = bias.view(-1, self.shape[1])
        (rows if output is None else rows[:, output]).add_(offset)


def cosine_table(points: Sequence[float], cosines: int) -> Float[Tensor, "K C"]:
    """Return the cosines of fixed fractions, which are computed once, in float64 before they are rounded."""
    multiples = torch.tensor(points, dtype=torch.float64)[:, None].expand(-1, cosines).cumsum(dim=1)
    return torch.cos(math.pi * multiples).float()


class CosineEmbedding(nn.Module):
    """IQN's embedding of fractions: ReLU(Linear(cos(pi * i * tau))) for i = 1..cosines."""

    def __init__(self, cosines: int, features: int) -> None:
        super().__init__()
        self.linear = initialised(nn.Linear(cosines, features))
        # Cosines have a mean square of 1/2: twice He's variance compensates, so that psi * phi is as large as psi.
        initialise(self.linear.weight, cosines, math.sqrt(2) * HE_GAIN)
        self.register_buffer("frequencies", math.pi * torch.arange(1, cosines + 1), persistent=False)
        self.frequencies: Tensor

    def cosines(self, taus: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch C"]:
        """Return the cosines of each fraction, which do not depend on the weights."""
        return torch.cos(taus[..., None] * self.frequencies)

    def forward(
        self, taus: Float[Tensor, "*batch"], live: Int[Tensor, " D"] | None = None
    ) -> Float[Tensor, "*batch D"]:
        """Embed each fraction, in all features or in those numbered `live`."""
        return self.embed(self.cosines(taus), live)

    def embed(
        self, cosines: Float[Tensor, "*batch C"], live: Int[Tensor, " D"] | None = None
    ) -> Float[Tensor, "*batch D"]:
        """Embed the fractions that have these cosines."""
        parameters = self.linear.weight, self.linear.bias
        weight, bias = parameters if live is None else (part.index_select(0, live) for part in parameters)
        return F.relu(product(cosines, weight, bias))
