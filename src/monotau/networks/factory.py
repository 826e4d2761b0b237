"""Makes networks of one architecture, each with its own initialisation, and the optimisers that train them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from monotau.envs.spec import ObservationSpec
from monotau.errors import check_positive
from monotau.networks.heads import HeadConfig
from monotau.networks.layers import Layers
from monotau.networks.network import Network
from monotau.networks.torsos import TorsoConfig
from monotau.streams import stream_seed


@dataclass(frozen=True, kw_only=True)
class OptimiserConfig:
    """The optimiser, for the online network and for a predictor alike."""

    method: Literal["adam", "rmsprop"] = "adam"
    """Adam, or the centred RMSProp of the Nature DQN."""
    learning_rate: float = 5e-5
    """Step size."""
    epsilon: float = 0.01 / 32
    """Added to the root of the second moment; not negligible against gradients of the quantile Huber loss."""

    def __post_init__(self) -> None:
        check_positive("optimiser.", self, "learning_rate", "epsilon")


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

    def make(self, name: str) -> Network:
        """Make a network whose weights are drawn from the stream of its name; other randomness is left untouched."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(stream_seed(self.seed, f"weights of {name}"))
            torso = self.torso.build(self.spec, self.stack, self.layers.precision)
            network = Network(torso, self.head.build(torso.features, self.actions, self.layers))
        return network.to(self.device)

    def trainer(self, network: Network) -> "Trainer":
        """Make the optimiser of a network."""
        return Trainer(network, self.optimiser)


class Trainer:
    """The optimiser of one network, and those its head has for weights apart."""

    def __init__(self, network: Network, config: OptimiserConfig) -> None:
        self.network = network
        self.apart = network.head.optimisers()
        taken = {
            parameter for optimiser in self.apart for group in optimiser.param_groups for parameter in group["params"]
        }
        rest = [parameter for parameter in network.parameters() if parameter not in taken]
        rate, epsilon = config.learning_rate, config.epsilon
        self.main: torch.optim.Optimizer
        if config.method == "adam":
            self.main = torch.optim.Adam(rest, lr=rate, eps=epsilon, fused=True)
        else:
            self.main = torch.optim.RMSprop(rest, lr=rate, eps=epsilon, alpha=0.95, centered=True)

    def descend(self, loss: Tensor) -> None:
        """Take one step down the gradient of a scalar loss."""
        optimisers = (self.main, *self.apart)
        for optimiser in optimisers:
            optimiser.zero_grad(set_to_none=True)
        loss.backward()
        for optimiser in optimisers:
            optimiser.step()
        self.network.changed()


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors under names that start with the prefix."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def unprefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return those tensors whose names start with the prefix, without it."""
    return {name.removeprefix(f"{prefix}."): t for name, t in tensors.items() if name.startswith(f"{prefix}.")}
