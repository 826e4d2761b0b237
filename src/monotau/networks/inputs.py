"""What a torso sees: stored observations as floats of about unit size."""

import math

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn import functional as F

from monotau.envs.spec import ObservationSpec

LARGEST = 10.0
"""Scaled numbers beyond this are cut: one sensor that goes wild must not drown the others."""
MEMORY_BATCHES = 1_000
"""Batches over which running statistics are averaged, once there were so many."""


def prepare(observations: Shaped[Tensor, "B S *frame"], spec: ObservationSpec) -> Float[Tensor, "B ..."]:
    """Bring stored frames to floats: `[B, S*C, H, W]` for images, `[B, S*size]` for the rest."""
    if spec.kind == "discrete":
        # One number in `size` is not zero; with this factor the mean square is 1, however many states there are.
        return F.one_hot(observations.long(), spec.size).flatten(1).float() * math.sqrt(spec.size)
    inputs = observations * spec.scale  # in float32, whatever they were
    if spec.kind == "vector":
        return inputs.flatten(1)
    if inputs.ndim > 4:  # grey images come without a channel axis
        inputs = (inputs.movedim(-1, 2) if spec.channels_last else inputs).flatten(1, 2)
    # With channels last in memory, the way back through convolutions of few channels takes a third of the time.
    return inputs.contiguous(memory_format=torch.channels_last) if torch.is_grad_enabled() else inputs


def input_shape(spec: ObservationSpec, stack: int) -> tuple[int, ...]:
    """Shape of one prepared observation."""
    blank = torch.zeros(1, stack, *spec.shape, dtype=getattr(torch, spec.dtype), device="meta")  # takes no memory
    return tuple(prepare(blank, spec).shape[1:])


class InputScaling(nn.Module):
    """Scales each number of a vector: by its bounds, or where it has none by running statistics of replayed steps.

    One object serves all networks of an agent, so it is part of the state of none of them.
    """

    def __init__(self, spec: ObservationSpec, stack: int, *, enabled: bool) -> None:
        super().__init__()
        self.spec = spec
        self.enabled = enabled and spec.kind == "vector" and spec.dtype == "float32"
        size = spec.size * stack if self.enabled else 0
        ends = (spec.low, spec.high)
        low, high = (torch.tensor(each or (0.0,)).expand(spec.size).repeat(stack)[:size] for each in ends)
        bounded = high > low
        # Zero stays zero where it is inside the bounds: one-hot vectors and counts keep their meaning.
        offset = torch.where(low * high > 0, (low + high) / 2, 0.0)
        reach = torch.maximum((low - offset).abs(), (high - offset).abs())
        self.running = self.enabled and not spec.bounded
        for name, values in {
            "bounded": bounded,
            "offset": offset,
            "factor": torch.where(bounded, 1 / torch.where(bounded, reach, 1.0), 1.0),
            # In float64: the variance of numbers far from zero is a small difference of large squares.
            "mean": torch.zeros(size, dtype=torch.float64),
            "square": torch.zeros(size, dtype=torch.float64),
            "batches": torch.zeros((), dtype=torch.float64),
        }.items():
            self.register_buffer(name, values, persistent=False)
        self.bounded: Tensor
        self.offset: Tensor
        self.factor: Tensor
        self.mean: Tensor
        self.square: Tensor
        self.batches: Tensor

    def forward(self, inputs: Float[Tensor, "B ..."]) -> Float[Tensor, "B ..."]:
        """Scale prepared observations."""
        if not self.enabled:
            return inputs
        return ((inputs - self.offset) * self.factor).clamp(-LARGEST, LARGEST)

    @torch.no_grad()
    def observe(self, observations: Shaped[Tensor, "B S *frame"]) -> None:
        """Count a replayed batch in the running statistics of numbers without bounds."""
        if not self.running:
            return
        inputs = prepare(observations, self.spec).double()
        self.batches += 1
        rate = 1 / self.batches.clamp_max(MEMORY_BATCHES)
        self.mean.lerp_(inputs.mean(dim=0), rate)
        self.square.lerp_(inputs.square().mean(dim=0), rate)
        self._renew()

    def _renew(self) -> None:
        """Work out offsets and factors from the statistics."""
        deviation = (self.square - self.mean.square()).clamp_min(0).sqrt()
        factor = 1 / (deviation + 1e-6 * self.mean.abs() + 1e-12)
        self.offset.copy_(torch.where(self.bounded, self.offset, self.mean.float()))
        self.factor.copy_(torch.where(self.bounded, self.factor, factor.float()))

    def state(self) -> dict[str, Tensor]:
        """Return the running statistics; nothing where there are none."""
        return {"mean": self.mean, "square": self.square, "batches": self.batches} if self.running else {}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Take over what `state` returned."""
        for name, tensor in tensors.items():
            getattr(self, name).copy_(tensor)
        if self.running and self.batches > 0:
            self._renew()
