"""Decaying left truncated variance (DLTV): optimism about the upper half of the return distribution.

Mavrin et al. 2019, arXiv 1905.06125.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from monotau.distributions import Distribution
from monotau.errors import ConfigError
from monotau.explorers.base import Explorer, ExplorerConfig, drained
from monotau.networks import HeadConfig, Network, Role
from monotau.networks.factory import NetworkFactory


@dataclass(frozen=True, kw_only=True)
class Dltv(ExplorerConfig):
    """Act greedily on Q + c_t * sigma_+, sigma_+^2 the variance above the median and c_t = c * sqrt(log t / t).

    DLTV: Mavrin et al. 2019, arXiv 1905.06125.
    """

    c: float = 50.0
    """Weight of the bonus before it decays."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.c) and self.c >= 0):
            raise ConfigError(f"explorer.c is {self.c}, but must be a number that is not negative.")

    def check(self, head: HeadConfig) -> None:
        """Refuse a head whose distributions are points."""
        if not head.has_spread:
            raise ConfigError(
                f"explorer 'dltv' explores by the spread of returns, but this head ({type(head).__name__.lower()}) "
                "learns a single value: there is nothing to explore by; use a distributional head, or explorer 'dpe'."
            )

    def build(self, factory: NetworkFactory, online: Network, target: Network) -> "DltvExplorer":
        """Make the explorer."""
        return DltvExplorer(self, online)


class DltvExplorer(Explorer):
    """Counts its greedy decisions: they are the time t with which the bonus decays; random steps do not count."""

    wants_spread = True

    def __init__(self, config: Dltv, online: Network) -> None:
        self.config, self.online = config, online
        self.decisions = 0
        self._told = 0  # of these decisions others know
        self.seen: list[Tensor] = []

    @property
    def weight(self) -> float:
        """c_t at the decision to come; the first has none, since log 1 = 0."""
        t = self.decisions + 1
        return self.config.c * math.sqrt(math.log(t) / t)

    def scores(
        self,
        observations: Shaped[Tensor, "B S *frame"],
        prediction: Distribution,
        generator: torch.Generator | None,
    ) -> Float[Tensor, "B A"]:
        """Mean return plus the decayed upper deviation, both of one prediction."""
        bonus = self.weight * prediction.upper_variance().sqrt()
        self.decisions += len(observations)
        self.seen.append(bonus.mean())
        return prediction.mean() + bonus

    def bonus(
        self, observations: Shaped[Tensor, "B S *frame"], generator: torch.Generator | None
    ) -> Float[Tensor, "B A"]:
        """Upper deviation, before its weight."""
        fractions = self.online.fractions(Role.ACT, len(observations), generator)
        return self.online.predict(observations, fractions).upper_variance().sqrt()

    def metrics(self) -> dict[str, float]:
        """Mean of the weighted bonus since the last call."""
        return drained(bonus_mean=self.seen)

    def drain_stats(self) -> dict[str, Tensor]:
        """Return the number of new decisions."""
        fresh, self._told = self.decisions - self._told, self.decisions
        return {"decisions": torch.tensor(fresh)}

    def merge_stats(self, lived: Mapping[str, Tensor]) -> None:
        """Count another's decisions."""
        count = int(lived["decisions"])
        self.decisions, self._told = self.decisions + count, self._told + count

    def state(self) -> dict[str, Tensor]:
        """Return the number of decisions."""
        return {"decisions": torch.tensor(self.decisions)}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over the number of decisions."""
        self.decisions = self._told = int(tensors["decisions"])
