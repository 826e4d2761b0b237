"""Makes networks of one architecture, each with its own initialisation, and their optimisers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import torch

from monotau.envs.spec import ObservationSpec
from monotau.networks.compile import Compiler
from monotau.networks.heads import HeadConfig
from monotau.networks.inputs import InputScaling
from monotau.networks.layers import Layers
from monotau.networks.network import Network
from monotau.networks.optimiser import NetworkOptimiser, OptimiserConfig
from monotau.networks.torsos import TorsoConfig
from monotau.seeding import stream_seed


@dataclass(frozen=True)
class NetworkFactory:
    """What all networks of a run have in common."""

    spec: ObservationSpec
    stack: int
    actions: int
    torso: TorsoConfig
    head: HeadConfig
    layers: Layers
    optimiser: OptimiserConfig
    seed: int
    device: torch.device
    compiler: Compiler = field(default_factory=lambda: Compiler(wanted=False))
    scaling: InputScaling | None = None
    """Shared by all networks; None leaves observations unscaled."""

    def make(self, name: str) -> Network:
        """Make a network; its name seeds its initial weights, and the global generators are left untouched."""
        with torch.random.fork_rng(devices=[]):
            # Not torch.manual_seed, which would also reseed the generators of all GPUs for good.
            torch.default_generator.manual_seed(stream_seed(self.seed, f"weights of {name}"))
            torso = self.torso.build(self.spec, self.stack, self.layers.precision)
            network = Network(torso, self.head.build(torso.features, self.actions, self.layers))
        torso.use_scaling(self.scaling)
        network.device = self.device
        return network.to(self.device)

    def make_optimiser(self, networks: Mapping[str, Network]) -> NetworkOptimiser:
        """Make the optimiser of some networks, which are trained in one step."""
        return NetworkOptimiser(networks, self.optimiser)


V = TypeVar("V")


def prefixed(prefix: str, tensors: Mapping[str, V]) -> dict[str, V]:
    """Return the tensors with the prefix added to their names."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def unprefixed(prefix: str, tensors: Mapping[str, V]) -> dict[str, V]:
    """Return the tensors whose names start with the prefix, with the prefix removed."""
    return {name.removeprefix(f"{prefix}."): t for name, t in tensors.items() if name.startswith(f"{prefix}.")}
