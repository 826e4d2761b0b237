"""Torsos: map stacked observations to a feature vector, for vectors, small images and 84x84 images."""

from collections.abc import Mapping

from monotau.envs.spec import ObservationSpec
from monotau.networks.inputs import input_shape
from monotau.networks.torsos.base import Torso, TorsoConfig
from monotau.networks.torsos.images import Compact, Dopamine, Nature, Small
from monotau.networks.torsos.mlp import Mlp

__all__ = ["TORSOS", "Torso", "TorsoConfig", "default_torso"]

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
