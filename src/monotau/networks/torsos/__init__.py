"""Torsos: map stacked observations to a feature vector, for vectors, small images, 84x84 images and joined parts."""

from monotau.envs.spec import ObservationSpec
from monotau.networks.torsos.base import Torso, TorsoConfig
from monotau.networks.torsos.images import Compact, Dopamine, Nature, Small, suited
from monotau.networks.torsos.joined import Joined
from monotau.networks.torsos.mlp import Mlp

__all__ = ["TORSOS", "Torso", "TorsoConfig", "default_torso"]

TORSOS: dict[str, type[TorsoConfig]] = {
    "mlp": Mlp,
    "small": Small,
    "compact": Compact,
    "nature": Nature,
    "dopamine": Dopamine,
    "joined": Joined,
}


def default_torso(spec: ObservationSpec) -> str:
    """Return the name of the default torso for such observations."""
    if any(part.image for part in spec.parts):
        return "joined"
    return suited(spec) if spec.kind == "image" else "mlp"
