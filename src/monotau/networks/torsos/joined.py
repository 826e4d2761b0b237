"""The torso for observations with several parts, some of which are images."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from monotau.envs.spec import ObservationSpec
from monotau.errors import ConfigError
from monotau.networks.inputs import InputScaling, part_of
from monotau.networks.layers import Precision
from monotau.networks.torsos.base import Torso
from monotau.networks.torsos.images import Nature, Small, suited
from monotau.networks.torsos.mlp import Mlp


@dataclass(frozen=True, kw_only=True)
class Joined(Mlp):
    """Convolutions for each image of a Dict or Tuple and fully connected layers for its other parts, joined.

    Images of at least 36x36 pass through the torso `nature`, smaller ones through `small`.
    """

    width: int = 128
    """Units in each fully connected layer."""
    layers: int = 2
    """Number of fully connected layers."""
    norm: bool = True
    """LayerNorm before each ReLU of the fully connected layers."""

    def build(self, spec: ObservationSpec, stack: int, precision: Precision) -> Torso:
        """Make the torso."""
        if not any(part.image for part in spec.parts):
            raise ConfigError(
                f"torso 'joined' needs a Dict or Tuple with an image, but the observations are {spec.kind}s of shape "
                f"{spec.shape}; use torso 'mlp'{', small or nature' if spec.kind == 'image' else ''}."
            )
        rest = spec.leading(floats=False)
        vectors = super().build(rest, stack, precision) if rest.parts else None
        makers = {"nature": Nature(), "small": Small()}
        images = [makers[suited(part.spec)].build(part.spec, stack, precision) for part in spec.parts if part.image]
        return JoinedTorso(spec, vectors, images, precision)


class JoinedTorso(Torso):
    """The features of the fully connected layers, followed by those of each image."""

    def __init__(
        self, spec: ObservationSpec, vectors: Torso | None, images: Sequence[Torso], precision: Precision
    ) -> None:
        torsos = [*images, *([] if vectors is None else [vectors])]
        super().__init__(spec, nn.Identity(), sum(torso.features for torso in torsos), precision)
        self.vectors, self.images = vectors, nn.ModuleList(images)

    def use_scaling(self, scaling: InputScaling | None) -> None:
        """Scale the inputs of the fully connected layers."""
        if self.vectors is not None:
            self.vectors.use_scaling(scaling)

    def forward(self, observations: Shaped[Tensor, "B S bytes"]) -> Float[Tensor, "B D"]:
        """Features of a batch of stacked observations."""
        features: list[Tensor] = [] if self.vectors is None else [self.vectors(observations)]
        first = len(self.spec.parts) - len(self.images)
        for index, image in enumerate(self.images, first):
            features.append(image(part_of(observations, self.spec, index)))
        return torch.cat([each.float() for each in features], dim=1)
