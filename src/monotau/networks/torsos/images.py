"""Torsos for small images and for 84x84 images."""

from dataclasses import dataclass
from typing import Literal

from torch import nn

from monotau.envs.spec import ObservationSpec
from monotau.errors import ConfigError, check_least
from monotau.networks.inputs import input_shape
from monotau.networks.layers import Precision, initialised
from monotau.networks.torsos.base import Torso, TorsoConfig

NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Filters, kernel and stride of the Nature DQN's convolutions."""
NATURE_LEAST = 36
"""Smallest side of an image for them."""


@dataclass(frozen=True, kw_only=True)
class Small(TorsoConfig):
    """One 3x3 convolution and one fully connected layer, for images of about 10x10 such as MinAtar's."""

    channels: int = 16
    """Filters of the convolution."""
    width: int = 128
    """Units of the fully connected layer."""

    def __post_init__(self) -> None:
        check_least("torso.", self, width=1, channels=1)

    def build(self, spec: ObservationSpec, stack: int, precision: Precision) -> Torso:
        """Make the torso."""
        channels, height, width = image_shape(spec, stack, "small", least=3)
        body = nn.Sequential(
            initialised(nn.Conv2d(channels, self.channels, 3)),
            nn.ReLU(),
            nn.Flatten(),
            initialised(nn.Linear(self.channels * (height - 2) * (width - 2), self.width)),
            nn.ReLU(),
        )
        return Torso(spec, body, self.width, precision)


@dataclass(frozen=True, kw_only=True)
class Nature(TorsoConfig):
    """The three convolutions of the Nature DQN without padding: 3,136 features of an 84x84 image."""

    def build(self, spec: ObservationSpec, stack: int, precision: Precision) -> Torso:
        """Make the torso."""
        body, features = convolutions(spec, stack, NATURE, ((0, 0), (0, 0), (0, 0)), name="nature", least=NATURE_LEAST)
        return Torso(spec, body, features, precision)


@dataclass(frozen=True, kw_only=True)
class Compact(TorsoConfig):
    """The two convolutions of the first DQN (2013) and a fully connected layer with LayerNorm: much less work."""

    width: int = 256
    """Units of the fully connected layer."""

    def __post_init__(self) -> None:
        check_least("torso.", self, width=1)

    def build(self, spec: ObservationSpec, stack: int, precision: Precision) -> Torso:
        """Make the torso."""
        shapes = ((16, 8, 4), (32, 4, 2))
        body, features = convolutions(spec, stack, shapes, ((0, 0), (0, 0)), name="compact", least=20)
        # Without the norm, the network fits the usual return by shrinking its features: all of them die within a few
        # thousand updates, and it predicts the same for every state. With it about half are positive in any state.
        norm = nn.LayerNorm(self.width, elementwise_affine=False)
        last = initialised(nn.Linear(features, self.width))
        return Torso(spec, nn.Sequential(body, last, norm, nn.ReLU()), self.width, precision)


@dataclass(frozen=True, kw_only=True)
class Dopamine(TorsoConfig):
    """The same three convolutions with SAME padding, as in the paper's code base: 7,744 features of an 84x84 image."""

    def build(self, spec: ObservationSpec, stack: int, precision: Precision) -> Torso:
        """Make the torso."""
        # At 84x84 SAME pads 2+2, 1+2 and 1+1; the second is uneven, hence explicit (before, after) pads.
        body, features = convolutions(spec, stack, NATURE, ((2, 2), (1, 2), (1, 1)), name="dopamine", least=8)
        return Torso(spec, body, features, precision)


def suited(spec: ObservationSpec) -> Literal["small", "nature"]:
    """Return the name of the default torso for images of this size."""
    return "nature" if min(input_shape(spec, 1)[1:]) >= NATURE_LEAST else "small"


def image_shape(spec: ObservationSpec, stack: int, name: str, least: int) -> tuple[int, int, int]:
    """Return channels, height and width of the input; raise ConfigError if this torso cannot process it."""
    shape = input_shape(spec, stack)
    if spec.kind != "image" or min(shape[1:]) < least:
        raise ConfigError(
            f"torso {name!r} needs images of at least {least}x{least}, but the observations are {spec.kind}s of shape "
            f"{spec.shape}; use torso 'mlp'{' or small' if spec.kind == 'image' else ''}."
        )
    return shape[0], shape[1], shape[2]


def convolutions(
    spec: ObservationSpec,
    stack: int,
    shapes: tuple[tuple[int, int, int], ...],
    paddings: tuple[tuple[int, int], ...],
    *,
    name: str,
    least: int,
) -> tuple[nn.Module, int]:
    """Return convolutions of (filters, kernel, stride), padded before and after each, and their number of features."""
    channels, height, width = image_shape(spec, stack, name, least)
    layers: list[nn.Module] = []
    for (filters, kernel, stride), (before, after) in zip(shapes, paddings, strict=True):
        if before or after:
            layers.append(nn.ZeroPad2d((before, after, before, after)))
        layers += [initialised(nn.Conv2d(channels, filters, kernel, stride)), nn.ReLU()]
        height, width = ((side + before + after - kernel) // stride + 1 for side in (height, width))
        channels = filters
    return nn.Sequential(*layers, nn.Flatten()), channels * height * width
