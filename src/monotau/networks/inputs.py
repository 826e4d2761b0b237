"""Preprocessing: turns stored observations into floats of about unit size."""

import math
from collections.abc import Mapping

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn import functional as F

from monotau.envs.spec import ObservationSpec

LARGEST = 10.0
"""Scaled inputs are clipped to this magnitude, so that one outlier cannot dominate the others."""
AVERAGED_BATCHES = 1_000
"""Time constant of the running statistics, in batches; before that, all batches count equally."""


def prepare(observations: Shaped[Tensor, "B S *frame"], spec: ObservationSpec) -> Float[Tensor, "B ..."]:
    """Convert stored frames to floats: `[B, S*C, H, W]` for images, `[B, S*size]` for everything else.

    Parts are flattened and joined in their order.
    """
    if spec.kind == "parts":
        return torch.cat(
            [
                prepare(part_of(observations, spec, index), part.spec).flatten(1)
                for index, part in enumerate(spec.parts)
            ],
            dim=1,
        )
    if spec.kind == "discrete":
        # One entry in `size` is not zero; this factor makes the mean square 1 for any number of states.
        return F.one_hot(observations.long(), spec.size).flatten(1).float() * math.sqrt(spec.size)
    if spec.kind == "vector" and spec.scale == 1 and observations.dtype == torch.float32:
        return observations.flatten(1)
    inputs = observations * spec.scale  # the product is float32 for every stored type
    if spec.kind == "vector":
        return inputs.flatten(1)
    if inputs.ndim > 4:  # grey-scale images have no channel axis
        inputs = (inputs.movedim(-1, 2) if spec.channels_last else inputs).flatten(1, 2)
    # With channels last in memory, the backward pass of convolutions with few channels takes a third of the time.
    return inputs.contiguous(memory_format=torch.channels_last) if torch.is_grad_enabled() else inputs


def part_of(observations: Shaped[Tensor, "B S bytes"], spec: ObservationSpec, index: int) -> Shaped[Tensor, "B S ..."]:
    """Return one part of stored frames with parts."""
    part, start = spec.parts[index], sum(part.bytes for part in spec.parts[:index])
    # A copy, because a view of another dtype must begin at a multiple of its size.
    raw = observations[..., start : start + part.bytes].clone(memory_format=torch.contiguous_format)
    return raw.view(getattr(torch, part.spec.dtype)).reshape(*observations.shape[:2], *part.spec.shape)


def input_shape(spec: ObservationSpec, stack: int) -> tuple[int, ...]:
    """Shape of one prepared observation."""
    blank = torch.zeros(1, stack, *spec.shape, dtype=getattr(torch, spec.dtype), device="meta")  # takes no memory
    return tuple(prepare(blank, spec).shape[1:])


class InputScaling(nn.Module):
    """Standardises each entry of a vector to mean 0 and deviation 1, by running statistics of the sampled batches.

    Of observations with parts, it standardises the vectors of floats, which come first.

    Departure from the usual scaling by bounds, which are often far beyond typical values. Acrobot's velocities are
    bounded by 28 but mostly below 2; divided by their bounds they vanish beside the angles, and the agent learns
    nothing.

    All networks of an agent share one object, so it is not part of any network's state dict.
    """

    def __init__(self, spec: ObservationSpec, stack: int, *, enabled: bool) -> None:
        super().__init__()
        self.spec = spec.leading(floats=True) if spec.parts else spec
        self.enabled = enabled and (bool(self.spec.parts) or spec.floats)
        size = input_shape(self.spec, stack)[0] if self.enabled else 0
        for name, values in {
            "offset": torch.zeros(size),
            "factor": torch.ones(size),
            # In float64: the variance of values far from zero is a small difference of large squares.
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
        """Standardise prepared observations."""
        if not self.enabled:
            return inputs
        size = len(self.offset)
        scaled = (inputs[:, :size] - self.offset).mul_(self.factor).clamp_(-LARGEST, LARGEST)
        return scaled if inputs.shape[1] == size else torch.cat([scaled, inputs[:, size:]], dim=1)

    @torch.no_grad()
    def observe(self, observations: Shaped[Tensor, "B S *frame"]) -> None:
        """Add a sampled batch to the statistics."""
        if not self.enabled:
            return
        inputs = prepare(observations, self.spec).double()
        self.batches += 1
        rate = 1 / self.batches.clamp_max(AVERAGED_BATCHES)
        self.mean.lerp_(inputs.mean(dim=0), rate)
        self.square.lerp_(inputs.square().mean(dim=0), rate)
        self._update_scale()

    def _update_scale(self) -> None:
        """Compute offsets and factors from the statistics."""
        deviation = (self.square - self.mean.square()).clamp_min(0).sqrt()
        # An entry that never changes is zero after the offset; its factor only has to be finite.
        factor = 1 / (deviation + 1e-6 * self.mean.abs() + 1e-12)
        self.offset.copy_(self.mean)
        self.factor.copy_(factor)

    def state(self) -> dict[str, Tensor]:
        """Return the running statistics; empty if scaling is off."""
        return {"mean": self.mean, "square": self.square, "batches": self.batches} if self.enabled else {}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned."""
        for name, tensor in tensors.items():
            getattr(self, name).copy_(tensor)
        if self.enabled and self.batches > 0:
            self._update_scale()
