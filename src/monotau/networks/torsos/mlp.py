"""The torso for vectors and discrete states."""

from dataclasses import dataclass

import torch
from torch import nn

from monotau.envs.spec import ObservationSpec
from monotau.errors import ConfigError, check_least
from monotau.networks.inputs import input_shape
from monotau.networks.layers import Precision, initialised
from monotau.networks.torsos.base import Torso, TorsoConfig

MOST_LAYERS = 100
"""Without skip connections, gradients vanish in deeper networks."""


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
