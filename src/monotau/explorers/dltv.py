"""Decaying left truncated variance (DLTV): optimism about the upper half of the return distribution.

Mavrin et al. 2019, arXiv 1905.06125.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from monotau.distributions import Distribution
from monotau.errors import check_not_negative
from monotau.explorers.base import DecisionCount, Explorer, ExplorerConfig, check_spread, drain_means
from monotau.networks import HeadConfig, Network, Role
from monotau.networks.factory import NetworkFactory
from monotau.networks.masks import of_allowed


@dataclass(frozen=True, kw_only=True)
class Dltv(ExplorerConfig):
    """Act greedily on Q + c_t * sigma_+, sigma_+^2 the variance above the median and c_t = c * sqrt(log t / t).

    DLTV: Mavrin et al. 2019, arXiv 1905.06125.
    """

    c: float = 50.0
    """Weight of the bonus before it decays."""

    def __post_init__(self) -> None:
        check_not_negative("explorer.", self, "c")

    def check(self, head: HeadConfig) -> None:
        """Raise ConfigError for a head that predicts only a mean."""
        check_spread("dltv", head, "the bonus would always be 0")

    def build(self, factory: NetworkFactory, online: Network, target: Network) -> "DltvExplorer":
        """Make the explorer."""
        return DltvExplorer(self, online)


class DltvExplorer(Explorer):
    """Counts its decisions as the time t over which the bonus decays; random actions do not count."""

    wants_spread = True

    def __init__(self, config: Dltv, online: Network) -> None:
        self.config, self.online = config, online
        self.decisions = DecisionCount()
        self.recent_bonuses: list[Tensor] = []

    @property
    def weight(self) -> float:
        """c_t of the next decision; 0 for the first, since log 1 = 0."""
        t = self.decisions.next
        return self.config.c * math.sqrt(math.log(t) / t)

    def scores(
        self,
        observations: Shaped[Tensor, "B S *frame"],
        prediction: Distribution,
        generator: torch.Generator | None,
        masks: Bool[Tensor, "B A"] | None = None,
    ) -> Float[Tensor, "B A"]:
        """Return the mean return plus the weighted upper deviation of the same prediction."""
        bonus = self.weight * prediction.upper_variance().sqrt()
        self.decisions.add(len(observations))
        self.recent_bonuses.append(of_allowed(bonus, masks).mean())
        return prediction.mean() + bonus

    def bonus(
        self, observations: Shaped[Tensor, "B S *frame"], generator: torch.Generator | None
    ) -> Float[Tensor, "B A"]:
        """Return the upper deviation, before it is weighted."""
        fractions = self.online.fractions(Role.ACT, len(observations), generator)
        return self.online.predict(observations, fractions).upper_variance().sqrt()

    def metrics(self) -> dict[str, float]:
        """Return the mean weighted bonus since the last call."""
        return drain_means(bonus_mean=self.recent_bonuses)

    def drain_stats(self) -> dict[str, Tensor]:
        """Return the number of new decisions."""
        return self.decisions.drain()

    def merge_stats(self, stats: Mapping[str, Tensor]) -> None:
        """Add another explorer's decisions."""
        self.decisions.merge(stats)

    def state(self) -> dict[str, Tensor]:
        """Return the number of decisions."""
        return self.decisions.state()

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the number of decisions."""
        self.decisions.load_state(tensors)
