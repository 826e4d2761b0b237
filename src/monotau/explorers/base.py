"""The contract of an explorer: it scores actions, and may learn from what is replayed."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from monotau.distributions import Distribution
from monotau.networks import Estimate, HeadConfig, Network
from monotau.networks.factory import NetworkFactory
from monotau.networks.optimiser import NetworkOptimiser
from monotau.replay import Batch


class Explorer(ABC):
    """Says how promising each action is; random actions are mixed in elsewhere, on top of every explorer."""

    wants_target: bool = False
    """Whether `learn` needs the target network's distributions of the replayed states and actions."""

    wants_spread: bool = False
    """Whether `scores` needs more than the mean of the predicted returns, which costs some heads another network."""

    @abstractmethod
    def scores(
        self,
        observations: Shaped[Tensor, "B S *frame"],
        prediction: Distribution,
        generator: torch.Generator | None,
    ) -> Float[Tensor, "B A"]:
        """Return what to maximise when acting, given the online network's prediction `[B, A]`.

        Without `wants_spread` that is the mean alone, as a point.
        """

    @abstractmethod
    def bonus(
        self, observations: Shaped[Tensor, "B S *frame"], generator: torch.Generator | None
    ) -> Float[Tensor, "B A"]:
        """Return what exploring is thought to be worth, before any factor."""

    def learn(self, batch: Batch, target: Estimate | None, generator: torch.Generator) -> None:
        """Learn from a replayed batch; the default has nothing to learn."""
        return

    def rescale(self, factor: float) -> None:
        """Take note that the unit of returns has become 1 / factor times as large; by default nothing is in it."""
        return

    def diagnose(self, batch: Batch, generator: torch.Generator) -> dict[str, float]:
        """Return numbers worth logging about the bonus in the states of a batch; none by default."""
        return {}

    def metrics(self) -> dict[str, float]:
        """Return averages since the last call."""
        return {}

    def drain_stats(self) -> dict[str, Tensor]:
        """Return what acting has counted since the last call or `load_state`; the default counts nothing."""
        return {}

    def merge_stats(self, lived: Mapping[str, Tensor]) -> None:
        """Count what another's acting has: what its `lived` returned."""
        return

    def optimisers(self) -> dict[str, NetworkOptimiser]:
        """Return the optimisers of everything that is learned; the default has none."""
        return {}

    def state(self) -> dict[str, Tensor]:
        """Return everything that is learned, by name."""
        return {}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `state` returned; the default has no state."""
        return


class ExplorerConfig(ABC):
    """Settings of an explorer, which they build."""

    def check(self, head: HeadConfig) -> None:
        """Refuse a head with which exploring so makes no sense; any does by default."""
        return

    @abstractmethod
    def build(self, factory: NetworkFactory, online: Network, target: Network) -> Explorer:
        """Make the explorer beside a learner's networks."""


def drained(**values: list[Tensor]) -> dict[str, float]:
    """Return the mean of each list that is not empty, and empty them."""
    means = {name: torch.stack(line).mean().item() for name, line in values.items() if line}
    for line in values.values():
        line.clear()
    return means
