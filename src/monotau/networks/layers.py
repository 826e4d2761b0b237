"""Layers that several networks share: linear ones with or without noise, last ones for actions, fractions embedded."""

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

Precision = Literal["fp32", "bf16"]
Body = TypeVar("Body", nn.Linear, nn.Conv2d)

FIRST_NOISE = 0.5
"""sigma_0 of NoisyNet: standard deviation of a weight's noise at the start, times the root of its layer's inputs."""

KEEPING = math.sqrt(2)
"""He's gain: a ReLU halves the mean square of a signal, and weights drawn with this gain double it again."""

LARGE_PRODUCT = 4_000_000
"""Multiply-adds from which on a product is worth a copy of its inputs for a quicker library."""

ALIKE = 0.1
"""Gain of a last layer: actions start nearly alike, so that none is preferred before anything is learned."""


@torch.no_grad()
def initialise(weight: Tensor, fan_in: int, gain: float = KEEPING) -> None:
    """Draw weights whose outputs have `gain` squared times the mean square of their inputs (He et al. 2015).

    The one rule for every torso and head; biases start at zero. Smaller first weights, such as torch's own, shrink the
    differences between states by 2.4 in every layer, and a deep network then starts as a constant.
    """
    bound = gain * math.sqrt(3 / fan_in)
    weight.uniform_(-bound, bound)


def initialised(layer: Body) -> Body:
    """Give a torch layer that precedes a ReLU its first weights."""
    initialise(layer.weight, layer.weight[0].numel())
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


@dataclass(frozen=True)
class Layers:
    """How a run wants its layers made."""

    precision: Precision = "fp32"
    noisy: bool = False
    dueling: bool = False
    last_gain: float = ALIKE
    """Gain of the last layers' first weights."""

    def linear(
        self, inputs: int, outputs: int, *, bias: bool = True, fan_in: int = 0, gain: float = KEEPING
    ) -> "Linear":
        """Make a linear layer of a head."""
        return Linear(inputs, outputs, noisy=self.noisy, bias=bias, fan_in=fan_in, gain=gain)

    def hidden(self, inputs: int, units: int) -> "Linear":
        """Make the layer before the last one; dueling needs it twice, once for each stream."""
        return self.linear(inputs, 2 * units if self.dueling else units)


def large_products(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Context in which convolutions and matrix products run in `precision`; weights stay in fp32 whatever it is."""
    # Even switched off, torch's context takes longer to enter than a small layer takes to compute.
    return torch.autocast(device.type, dtype=torch.bfloat16) if precision == "bf16" else nullcontext()


def settle_precision(wanted: Literal["fp32", "bf16", "auto"], device: torch.device) -> Precision:
    """Return what is wanted, or for `auto` what is faster on the device."""
    if wanted != "auto":
        return wanted
    return "bf16" if multiplies_bf16(device.type) else "fp32"


def multiplies_bf16(device: str) -> bool:
    """Whether a device has instructions for products in bf16, without which they are slower than in fp32."""
    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device == "cpu" and not {"avx512_bf16", "amx_bf16"}.isdisjoint(processor_words())


def product(
    inputs: Float[Tensor, "*batch I"], weight: Float[Tensor, "O I"], bias: Float[Tensor, " O"] | None = None
) -> Float[Tensor, "*batch O"]:
    """Apply weights and biases to inputs, by the library that is quicker at products of this size."""
    if (
        torch.compiler.is_compiling()
        or inputs.numel() * len(weight) < LARGE_PRODUCT
        or inputs.device.type != "cpu"
        or inputs.dtype != torch.float32
        or not onednn_is_quicker()
        or torch.is_autocast_enabled("cpu")
    ):
        return F.linear(inputs, weight, bias)
    return F.linear(inputs.to_mkldnn(), weight, bias).to_dense()


@cache
def onednn_is_quicker() -> bool:
    """Whether large products take about half the time with oneDNN, copies included, as on AMD with AVX-512.

    There MKL, with which torch multiplies dense tensors, leaves half of the processor's width unused.
    """
    flags = processor_words()
    return torch.backends.mkldnn.is_available() and {"AuthenticAMD", "avx512f"} <= flags


def processor_words() -> set[str]:
    """Return the words by which Linux describes the processor; none elsewhere, where there is nobody to ask."""
    try:
        return set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    except OSError:
        return set()


class Linear(nn.Module):
    """A linear layer whose weights may carry noise of learned size (NoisyNet's factorised Gaussian noise).

    Noise is drawn by `renew` and stays until the next call; before the first there is none.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        noisy: bool = False,
        bias: bool = True,
        fan_in: int = 0,
        gain: float = KEEPING,
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

    def drawn(self) -> tuple[Float[Tensor, "outputs inputs"], Float[Tensor, " outputs"] | None]:
        """Weights and biases with the noise of now."""
        if not self.noisy:
            return self.weight, self.bias
        weight = self.weight + self.weight_noise * torch.outer(self.noise_out, self.noise_in)
        if self.bias is None or self.bias_noise is None:
            return weight, None
        return weight, self.bias + self.bias_noise * self.noise_out

    def resample_noise(self, generator: torch.Generator | None) -> None:
        """Draw new noise, or without a generator remove it."""
        for noise in (self.noise_in, self.noise_out):
            if generator is None:
                noise.zero_()
            else:
                drawn = torch.randn(noise.shape, generator=generator)
                noise.copy_(drawn.sign() * drawn.abs().sqrt())

    def forward(self, inputs: Float[Tensor, "*batch I"]) -> Float[Tensor, "*batch O"]:
        """Apply the layer."""
        return product(inputs, *self.drawn())


class ActionLayer(nn.Module):
    """The last layer: outputs for every action, or for the chosen ones only.

    With dueling, half of the hidden units feed a value that all actions share and the other half the advantages, whose
    mean over the actions is taken off. Being linear, that is done on the weights, before anything is multiplied.
    """

    def __init__(self, layers: Layers, hidden: int, actions: int, outputs: int = 1) -> None:
        super().__init__()
        self.shape = (actions, outputs)
        self.advantages = layers.linear(hidden, actions * outputs, gain=layers.last_gain)
        self.value = layers.linear(hidden, outputs, gain=layers.last_gain) if layers.dueling else None

    def weights(self) -> tuple[Float[Tensor, "AK H"], Float[Tensor, " AK"]]:
        """Weights and biases of each action's outputs, less their means over the actions if dueling."""
        weight, bias = self.advantages.drawn()
        assert bias is not None  # noqa: S101  # a last layer always has one; for the type checker
        if self.value is None:
            return weight, bias
        weight, bias = weight.unflatten(0, self.shape), bias.unflatten(0, self.shape)
        return (weight - weight.mean(dim=0)).flatten(0, 1), (bias - bias.mean(dim=0)).flatten()

    def table(self, hidden: Float[Tensor, "B H"], actions: Int[Tensor, " B"] | None) -> Float[Tensor, "B *A K"]:
        """K outputs for each action, or of the chosen ones."""
        weight, bias = self.weights()
        if self.value is not None:
            of_value, hidden = hidden.chunk(2, dim=-1)
        # All columns by one product are cheaper than a small product for each row with the columns of its own action.
        outputs: Tensor = F.linear(hidden, weight, bias).unflatten(-1, self.shape)
        if actions is not None:
            outputs = outputs[torch.arange(len(actions), device=actions.device), actions]
        if self.value is None:
            return outputs
        value: Tensor = self.value(of_value)
        return outputs + (value[:, None] if actions is None else value)

    def along(self, hidden: Float[Tensor, "B n H"], actions: Int[Tensor, " B"] | None) -> Float[Tensor, "B *A n"]:
        """One output for each action, or of the chosen ones, at n points; the layer was made with one output."""
        weight, bias = self.weights()
        if self.value is not None:
            of_value, hidden = hidden.chunk(2, dim=-1)
        if actions is None:
            outputs = F.linear(hidden, weight, bias).movedim(1, -1)
        else:
            # Not baddbmm, which takes twice as long, and three times on the way back, for products of one column.
            outputs = torch.linalg.vecdot(hidden, weight[actions, None]) + bias[actions, None]
        if self.value is None:
            return outputs
        value: Tensor = self.value(of_value).squeeze(-1)  # B n
        return outputs + (value[:, None] if actions is None else value)

    @torch.no_grad()
    def multiply(self, factor: float, outputs: slice = slice(None)) -> None:
        """Multiply the outputs, or some of each action's K."""
        for parameter in self.parameters():
            parameter.unflatten(0, (-1, self.shape[1]))[:, outputs].mul_(factor)

    @torch.no_grad()
    def shift(self, offset: float, output: int | None = None) -> None:
        """Shift all first outputs, or one of each action's K. Advantages cancel a shift, so dueling's value has it."""
        bias = (self.value or self.advantages).bias
        assert bias is not None  # noqa: S101
        rows = bias.view(-1, self.shape[1])
        (rows if output is None else rows[:, output]).add_(offset)


class CosineEmbedding(nn.Module):
    """IQN's embedding of fractions: ReLU(Linear(cos(pi * i * tau))) for i = 1..cosines."""

    def __init__(self, cosines: int, features: int) -> None:
        super().__init__()
        self.linear = initialised(nn.Linear(cosines, features))
        # Cosines have a mean square of 1/2: twice He's variance makes up for it, so that psi * phi is as large as psi.
        initialise(self.linear.weight, cosines, math.sqrt(2) * KEEPING)
        self.register_buffer("frequencies", math.pi * torch.arange(1, cosines + 1), persistent=False)
        self.frequencies: Tensor

    def forward(self, taus: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch D"]:
        """Embed each fraction."""
        embedded: Tensor = F.relu(self.linear(torch.cos(taus[..., None] * self.frequencies)))
        return embedded
