"""Torsos: map stacked observations to a feature vector, for vectors, small images and 84x84 images."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from monotau.envs.spec import ObservationSpec
from monotau.errors import ConfigError, check_least
from monotau.networks.inputs import InputScaling, input_shape, prepare
from monotau.networks.layers import Precision, initialised, large_products

NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Filters, kernel and stride of the Nature DQN's convolutions."""

MOST_LAYERS = 100
"""Without skip connections, gradients vanish in deeper networks."""


class Torso(nn.Module):
    """Scales and reshapes observations according to their spec, then applies `body`."""

    def __init__(self, spec: ObservationSpec, body: nn.Module, features: int, precision: Precision) -> None:
        super().__init__()
        self.spec, self.body, self.features, self.precision = spec, body, features, precision
        self.scaling: InputScaling | None = None
        """Set by the factory, which shares it among networks."""

    def inputs(self, observations: Shaped[Tensor, "B S *frame"]) -> Float[Tensor, "B ..."]:
        """Return the body's input for stacked observations."""
        inputs = prepare(observations, self.spec)
        return inputs if self.scaling is None else self.scaling(inputs)

    def forward(self, observations: Shaped[Tensor, "B S *frame"]) -> Float[Tensor, "B D"]:
        """Features of a batch of stacked observations."""
        inputs = self.inputs(observations)
        with large_products(self.precision, inputs.device):
            features: Tensor = self.body(inputs)
        return features


class TorsoConfig(ABC):
    """Settings of a torso, and how to build it."""

    @abstractmethod
    def build(self, spec: ObservationSpec, stack: int, precision: Precision) -> Torso:
        """Make the torso for stacks of frames like `spec`."""


@dataclass(frozen=True, kw_only=True)
class Mlp(TorsoConfig):
    """Fully connected layers, for vectors and discrete states."""

    width: int = 256
    """Units in each layer."""
    layers: int = 2
    """Number of layers."""
    norm: bool = False
    """LayerNorm before each ReLU: features keep the same size in every state, which keeps values from diverging."""

    def __post_init__(self) -> None:
        check_least("torso.", self, width=1, layers=1)
        if self.layers > MOST_LAYERS:
            raise ConfigError(
                f"torso.layers is {self.layers}, but must be at most {MOST_LAYERS}: deeper ones do not learn."
            )

    def build(self, spec: ObservationSpec, stack: int, precision: Precision) -> Torso:
        """Make the torso; images are flattened."""
        sizes = [torch.Size(input_shape(spec, stack)).numel()] + [self.width] * self.layers
        layers: list[nn.Module] = [nn.Flatten()]
        for i in range(self.layers):
            norms = [nn.LayerNorm(self.width, elementwise_affine=False)] if self.norm else []
            layers += [initialised(nn.Linear(sizes[i], sizes[i + 1])), *norms, nn.ReLU()]
        return Torso(spec, nn.Sequential(*layers), self.width, precision)


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
        body, features = convolutions(spec, stack, NATURE, ((0, 0), (0, 0), (0, 0)), name="nature", least=36)
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


TORSOS: Mapping[str, type[TorsoConfig]] = {
    "mlp": Mlp,
    "small": Small,
    "compact": Compact,
    "nature": Nature,
    "dopamine": Dopamine,
}


def default_torso(spec: ObservationSpec) -> str:
    """Return the name of the default torso for such observations."""
    if spec.kind != "image":
        return "mlp"
    height, width = input_shape(spec, 1)[1:]
    return "nature" if min(height, width) >= 36 else "small"
