"""What a torso sees: stored observations as floats of about unit size."""

import math
from collections.abc import Mapping

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
    if spec.kind == "vector" and spec.scale == 1 and observations.dtype == torch.float32:
        return observations.flatten(1)
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
    """Scales each number of a vector by running statistics of the replayed steps, to mean 0 and deviation 1.

    Departure from the usual scaling by bounds: these are often far beyond what is met. Acrobot's velocities are bounded
    by 28 and are mostly below 2; divided by their bounds they vanish beside the angles, and the agent learns nothing.

    One object serves all networks of an agent, so it is part of the state of none of them.
    """

    def __init__(self, spec: ObservationSpec, stack: int, *, enabled: bool) -> None:
        super().__init__()
        self.spec = spec
        self.enabled = enabled and spec.kind == "vector" and spec.dtype == "float32"
        size = spec.size * stack if self.enabled else 0
        for name, values in {
            "offset": torch.zeros(size),
            "factor": torch.ones(size),
            # In float64: the variance of numbers far from zero is a small difference of large squares.
            "mean": torch.zeros(size, dtype=torch.float64),
            "square": torch.zeros(size, dtype=torch.float64),
            "batches": torch.zeros((), dtype=torch.float64),
        }.items():
            self.register_buffer(name, values, persistent=False)
        self.offset: Tensor
        self.factor: Tensor
        self.mean: Tensor
        self.square: Tensor
        self.batches: Tensor

    def forward(self, inputs: Float[Tensor, "B ..."]) -> Float[Tensor, "B ..."]:
        """Scale prepared observations."""
        if not self.enabled:
            return inputs
        return (inputs - self.offset).mul_(self.factor).clamp_(-LARGEST, LARGEST)

    @torch.no_grad()
    def observe(self, observations: Shaped[Tensor, "B S *frame"]) -> None:
        """Count a replayed batch in the statistics."""
        if not self.enabled:
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
        # What never changes is zero after the offset; its factor only has to be finite.
        factor = 1 / (deviation + 1e-6 * self.mean.abs() + 1e-12)
        self.offset.copy_(self.mean)
        self.factor.copy_(factor)

    def state(self) -> dict[str, Tensor]:
        """Return the running statistics; nothing where nothing is scaled."""
        return {"mean": self.mean, "square": self.square, "batches": self.batches} if self.enabled else {}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `state` returned."""
        for name, tensor in tensors.items():
            getattr(self, name).copy_(tensor)
        if self.enabled and self.batches > 0:
            self._renew()
