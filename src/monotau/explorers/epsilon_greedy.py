"""Epsilon-greedy exploration, and the epsilon schedule that every explorer uses.

Epsilon-greedy as in DQN (Mnih et al. 2015, doi 10.1038/nature14236); repeated random actions are epsilon-z-greedy
(Dabney et al. 2021, arXiv 2006.01782).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from monotau.distributions import Distribution
from monotau.errors import ConfigError
from monotau.explorers.base import Explorer, ExplorerConfig, no_bonus
from monotau.networks import Network
from monotau.networks.factory import NetworkFactory


@dataclass(frozen=True, kw_only=True)
class EpsilonSchedule:
    """Probability of a random action in training, for every explorer."""

    start: float = 1.0
    """Probability until learning starts."""
    end: float = 0.01
    """Probability after the decay."""
    decay_steps: int = 250_000
    """Steps after the warm-up over which epsilon decays linearly from start to end."""
    longest_repeat: int = 1
    """Maximum number of steps for which a random action is repeated during the warm-up; n steps have a probability
    proportional to 1/n (in the manner of epsilon-z-greedy, Dabney et al. 2021, arXiv 2006.01782). Later random actions
    are single, because they compare similar actions better."""

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"epsilon.{name} is {getattr(self, name)}, but must be a probability from 0 to 1.")
        if self.longest_repeat < 1:
            raise ConfigError(
                f"epsilon.longest_repeat is {self.longest_repeat}, but must be at least 1, which means no repeats."
            )
        if self.decay_steps < 0:
            raise ConfigError(f"epsilon.decay_steps is {self.decay_steps}, but must not be negative.")

    def at(self, steps_since_warmup: int) -> float:
        """Return epsilon at a number of steps after the warm-up; `start` during the warm-up."""
        if steps_since_warmup < 0:
            return self.start
        if steps_since_warmup >= self.decay_steps:
            return self.end
        return self.start + (self.end - self.start) * steps_since_warmup / self.decay_steps

    def longest_at(self, steps_since_warmup: int) -> int:
        """Return the longest repeat at a number of steps after the warm-up."""
        return self.longest_repeat if steps_since_warmup < 0 else 1


@dataclass(frozen=True, kw_only=True)
class EpsilonGreedy(ExplorerConfig):
    """Epsilon-greedy: the action with the highest mean return, or a random one with probability epsilon.

    Mnih et al. 2015, doi 10.1038/nature14236.
    """

    def build(self, factory: NetworkFactory, online: Network, target: Network) -> "GreedyExplorer":
        """Make the explorer."""
        return GreedyExplorer()


class GreedyExplorer(Explorer):
    """Scores an action by its mean return."""

    def scores(
        self,
        observations: Shaped[Tensor, "B S *frame"],
        prediction: Distribution,
        generator: torch.Generator | None,
        masks: Bool[Tensor, "B A"] | None = None,
    ) -> Float[Tensor, "B A"]:
        """Return the mean of the predicted distributions."""
        return prediction.mean()

    def bonus(
        self, observations: Shaped[Tensor, "B S *frame"], generator: torch.Generator | None
    ) -> Float[Tensor, "B A"]:
        """Raise ConfigError: there is no bonus."""
        raise no_bonus("epsilon-greedy")
