"""The contract of an explorer: it scores actions, and may learn from sampled batches."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from monotau.distributions import Distribution
from monotau.errors import ConfigError
from monotau.networks import Estimate, HeadConfig, Network
from monotau.networks.factory import NetworkFactory
from monotau.networks.optimiser import NetworkOptimiser
from monotau.replay import Batch


class Explorer(ABC):
    """Scores actions for acting; the policy adds epsilon's random actions on top of every explorer."""

    wants_target: bool = False
    """Whether `loss` needs the target network's distributions of the sampled states and actions."""

    wants_spread: bool = False
    """Whether `scores` needs the predicted distributions; their means alone are cheaper for some heads."""

    @abstractmethod
    def scores(
        self,
        observations: Shaped[Tensor, "B S *frame"],
        prediction: Distribution,
        generator: torch.Generator | None,
        masks: Bool[Tensor, "B A"] | None = None,
    ) -> Float[Tensor, "B A"]:
        """Return the scores that acting maximises, given the online network's prediction `[B, A]`.

        Without `wants_spread` the prediction is a point mass at the mean. `masks` are the allowed actions: the policy
        never selects another one, but statistics of the scores should leave the others out.
        """

    def draw_episodes(self, count: int, generator: torch.Generator) -> Int[Tensor, " count"] | None:
        """Draw a number for each of `count` episodes that start; `scores_in_episodes` receives it until their ends.

        None, the default, if the explorer does not tell episodes apart.
        """
        return None

    def scores_in_episodes(
        self,
        observations: Shaped[Tensor, "B S *frame"],
        prediction: Distribution,
        generator: torch.Generator | None,
        masks: Bool[Tensor, "B A"] | None,
        numbers: Int[Tensor, " B"],
    ) -> Float[Tensor, "B A"]:
        """Return the scores in episodes for which these numbers were drawn; by default those of `scores`."""
        return self.scores(observations, prediction, generator, masks)

    @abstractmethod
    def bonus(
        self, observations: Shaped[Tensor, "B S *frame"], generator: torch.Generator | None
    ) -> Float[Tensor, "B A"]:
        """Return the exploration bonus of every action, before it is weighted."""

    def trained(self) -> dict[str, Network]:
        """Return the networks that `loss` trains, by name; none by default."""
        return {}

    def prepare(self, batch: Batch, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Return what `loss` needs beside the batch, such as random fractions and cached constants; nothing by default.

        `loss` is compiled, and a compiled function must be pure.
        """
        return ()

    def loss(self, batch: Batch, target: Estimate | None, prepared: tuple[Tensor, ...]) -> Float[Tensor, ""] | None:
        """Return the loss of the `trained` networks on a sampled batch, as a pure function; none by default.

        The learner adds it to its own loss, so that one graph, one backward pass and one optimiser step serve all
        networks.
        """
        return None

    def record(self, loss: Float[Tensor, ""]) -> None:
        """Note what `loss` returned, without a gradient, for `metrics`; nothing by default."""
        return

    def learn(self, batch: Batch, generator: torch.Generator) -> None:
        """Learn from a sampled batch after that step; nothing by default."""
        return

    def rescale(self, factor: float) -> None:
        """Multiply quantities in the unit of returns by `factor`, because the unit was divided by it."""
        return

    def diagnose(self, batch: Batch, generator: torch.Generator) -> dict[str, float]:
        """Return metrics of the bonus in the states of a batch; none by default."""
        return {}

    def metrics(self) -> dict[str, float]:
        """Return averages since the last call; none by default."""
        return {}

    def drain_stats(self) -> dict[str, Tensor]:
        """Return the statistics of acting since the last call or `load_state`; none by default."""
        return {}

    def merge_stats(self, stats: Mapping[str, Tensor]) -> None:
        """Add the statistics that another explorer's `drain_stats` returned; nothing by default."""
        return

    def optimisers(self) -> Sequence[NetworkOptimiser]:
        """Return the optimisers of `learn`; none by default."""
        return ()

    def state(self) -> dict[str, Tensor]:
        """Return everything that was learned, by name; nothing by default."""
        return {}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned; nothing by default."""
        return


class ExplorerConfig(ABC):
    """Settings of an explorer, and how to build it."""

    def check(self, head: HeadConfig) -> None:
        """Raise ConfigError for a head that this explorer cannot work with; by default it works with all."""
        return

    @abstractmethod
    def build(self, factory: NetworkFactory, online: Network, target: Network) -> Explorer:
        """Make the explorer for a learner's networks."""


class DecisionCount:
    """Counts an explorer's decisions, with those of its copies in other processes."""

    def __init__(self) -> None:
        self.total = 0
        self._reported = 0  # decisions that `drain` has returned or that came from another count

    @property
    def next(self) -> int:
        """Number of the next decision, the first being 1."""
        return self.total + 1

    def add(self, decisions: int) -> None:
        """Count new decisions."""
        self.total += decisions

    def drain(self) -> dict[str, Tensor]:
        """Return the number of new decisions since the last call."""
        new, self._reported = self.total - self._reported, self.total
        return {"decisions": torch.tensor(new)}

    def merge(self, stats: Mapping[str, Tensor]) -> None:
        """Add the decisions that another count's `drain` returned."""
        count = int(stats["decisions"])
        self.total, self._reported = self.total + count, self._reported + count

    def state(self) -> dict[str, Tensor]:
        """Return the number of decisions."""
        return {"decisions": torch.tensor(self.total)}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the number of decisions."""
        self.total = self._reported = int(tensors["decisions"])


def check_spread(explorer: str, head: HeadConfig, otherwise: str) -> None:
    """Raise ConfigError for a head without spread, saying what would happen otherwise."""
    if not head.has_spread:
        raise ConfigError(
            f"explorer {explorer!r} needs the spread of returns, but this head ({type(head).__name__.lower()}) "
            f"learns a single value, so {otherwise}; use a distributional head, or explorer 'dpe'."
        )


def no_bonus(explorer: str) -> ConfigError:
    """Return the error for asking an explorer without a bonus for it."""
    return ConfigError(
        f"this agent has no exploration bonus: its explorer is {explorer}; use one with dpe, deep-dpe, rnd or dltv."
    )


def drain_means(**values: list[Tensor]) -> dict[str, float]:
    """Return the mean of each list that is not empty, and clear all lists."""
    means = {name: torch.stack(recent).mean().item() for name, recent in values.items() if recent}
    for recent in values.values():
        recent.clear()
    return means
