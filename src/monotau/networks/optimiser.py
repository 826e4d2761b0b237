"""The optimiser of a network: its settings, its steps and its state."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from monotau.errors import ConfigError, Divergence, check_positive
from monotau.networks.network import Network

Gradients = tuple[Tensor | None, ...]
"""Gradients of an optimiser's weights, in their order."""

SCALAR_BYTES = 4
"""Size of the step counter that Adam keeps for each weight tensor."""


@dataclass(frozen=True, kw_only=True)
class OptimiserConfig:
    """The optimiser of the online network and of a predictor."""

    method: Literal["adam", "rmsprop"] = "adam"
    """Adam, or the centred RMSProp of the Nature DQN."""
    learning_rate: float = 5e-5
    """Step size."""
    epsilon: float = 0.01 / 32
    """Added to the root of the second moment; it matters, because gradients of the quantile Huber loss are small."""
    anneal: float = 1.0
    """Share of learning_rate left at the end of the run, reached by linear decay; 1 keeps the rate constant."""

    def __post_init__(self) -> None:
        check_positive("optimiser.", self, "learning_rate", "epsilon")
        if not 0 <= self.anneal <= 1:
            raise ConfigError(
                f"optimiser.anneal is {self.anneal}, but must be a number from 0 to 1: it is the share of "
                "optimiser.learning_rate that is left at the end of the run."
            )

    def rate(self, share_done: float) -> float:
        """Return the step size after a share of the run; after its end it stays at the last value."""
        return self.learning_rate * (1 - (1 - self.anneal) * min(share_done, 1.0))


class NetworkOptimiser:
    """The optimiser of some networks, which are trained in one step, and any that their heads make for own weights."""

    def __init__(self, networks: Mapping[str, Network], config: OptimiserConfig) -> None:
        self.networks, self.config = networks, config
        self._weights = [weight for network in networks.values() for weight in network.parameters()]
        of_heads: dict[torch.optim.Optimizer, dict[str, Tensor]] = {
            optimiser: _places(f"{name}.{number}", weights_of(optimiser))
            for name, network in networks.items()
            for number, optimiser in enumerate(network.head.optimisers(), start=1)
        }
        taken = {weight for places in of_heads.values() for weight in places.values()}
        rest: dict[str, Tensor] = {}
        for name, network in networks.items():
            rest |= _places(f"{name}.0", [weight for weight in network.parameters() if weight not in taken])
        rate, epsilon = config.learning_rate, config.epsilon
        self.main: torch.optim.Optimizer
        if config.method == "adam":
            self.main = torch.optim.Adam(rest.values(), lr=rate, eps=epsilon, fused=True)
        else:
            self.main = torch.optim.RMSprop(rest.values(), lr=rate, eps=epsilon, alpha=0.95, centered=True)
        self.head_optimisers = tuple(of_heads)
        self._places = {self.main: rest} | of_heads  # the weights of each optimiser, in its order, by name

    def set_progress(self, share_done: float) -> None:
        """Set the step size for a share of the run; the heads' own optimisers keep theirs."""
        rate = self.config.rate(share_done)
        for group in self.main.param_groups:
            group["lr"] = rate

    def step(self, loss: Tensor) -> None:
        """Take one step down the gradient of a scalar loss."""
        self.descend(loss.detach(), self.gradients(loss))

    def gradients(self, loss: Tensor) -> Gradients:
        """Return the gradient of a scalar loss for each weight; None for weights on which it does not depend."""
        return torch.autograd.grad(loss, self._weights, allow_unused=True)

    def descend(self, loss: Tensor, gradients: Gradients) -> None:
        """Take one step down the gradients of a loss; raise Divergence first if anything is NaN or infinite."""
        for weight, gradient in zip(self._weights, gradients, strict=True):
            weight.grad = gradient
        found = [gradient for gradient in gradients if gradient is not None]
        # A sum is not finite if any of its terms is not: this is cheaper than a norm, with one GPU synchronisation.
        # It must come before the step, which would otherwise destroy the weights.
        if not math.isfinite((loss + torch.stack([gradient.sum() for gradient in found]).sum()).item()):
            steepest = nn.utils.get_total_norm(found, math.inf)
            raise Divergence(f"the loss is {loss.item():g} and the largest gradient {steepest.item():g}")
        for optimiser in self._places:
            optimiser.step()
        for network in self.networks.values():
            network.invalidate_cache()

    def memory(self) -> int:
        """Return the bytes of gradients and optimiser state, both allocated at the first step."""
        total = 0
        for optimiser, places in self._places.items():
            full_size = _state_fields(optimiser).values()
            wide, scalar = sum(full_size), len(full_size) - sum(full_size)
            total += sum(weight.nbytes * (1 + wide) + SCALAR_BYTES * scalar for weight in places.values())
        return total

    def state(self) -> dict[str, Tensor]:
        """Return the state of the optimisers, named by network and the numbers of optimiser and weight in it."""
        return {
            f"{place}.{name}": value
            for optimiser, places in self._places.items()
            for place, weight in places.items()
            for name, value in optimiser.state.get(weight, {}).items()
        }

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned."""
        left = dict(tensors)
        for optimiser, places in self._places.items():
            fields = _state_fields(optimiser)
            memories: dict[int, dict[str, Tensor]] = {}
            for index, (place, weight) in enumerate(places.items()):
                memory = {name: left.pop(key) for name in fields if (key := f"{place}.{name}") in left}
                if any(memory[name].shape != (weight.shape if wide else ()) for name, wide in fields.items() if memory):
                    raise RuntimeError(f"the state of weight {place} has a different shape from the weight")
                if memory:
                    memories[index] = memory
            groups = optimiser.state_dict()["param_groups"]
            optimiser.load_state_dict({"state": memories, "param_groups": groups})
        if left:
            raise RuntimeError(f"no optimiser has the state {', '.join(sorted(left)[:3])}")


def weights_of(optimiser: torch.optim.Optimizer) -> list[Tensor]:
    """Return the weights of an optimiser in the order of its state."""
    return [weight for group in optimiser.param_groups for weight in group["params"]]


def _places(prefix: str, weights: Sequence[Tensor]) -> dict[str, Tensor]:
    """Return weights by prefix and number."""
    return {f"{prefix}.{index}": weight for index, weight in enumerate(weights)}


def _state_fields(optimiser: torch.optim.Optimizer) -> dict[str, bool]:
    """Return the names in an optimiser's state of a weight, and whether they have its shape; found by a trial step."""
    weight = torch.zeros(2, requires_grad=True)
    weight.grad = torch.zeros(2)
    settings = {name: value for name, value in optimiser.param_groups[0].items() if name != "params"}
    kind: Any = type(optimiser)
    trial = kind([{"params": [weight]} | settings])
    trial.step()
    return {name: bool(value.ndim) for name, value in trial.state[weight].items()}
