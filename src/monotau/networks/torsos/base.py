"""The contract of a torso, which maps stacked observations to a feature vector."""

from abc import ABC, abstractmethod

from jaxtyping import Float, Shaped
from torch import Tensor, nn

from monotau.envs.spec import ObservationSpec
from monotau.networks.inputs import InputScaling, prepare
from monotau.networks.layers import Precision, large_products


class Torso(nn.Module):
    """Scales and reshapes observations according to their spec, then applies `body`.

    Heads with embedded fractions pass no gradient to features that are exactly zero in a whole batch, like the ReLU at
    the end of `body`.
    """

    def __init__(self, spec: ObservationSpec, body: nn.Module, features: int, precision: Precision) -> None:
        super().__init__()
        self.spec, self.body, self.features, self.precision = spec, body, features, precision
        self.scaling: InputScaling | None = None

    def use_scaling(self, scaling: InputScaling | None) -> None:
        """Scale inputs by statistics that all networks of an agent share."""
        self.scaling = scaling

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
