"""Perturbed quantile regression (PQR): act by a random risk criterion, which approaches the mean over time.

Cho, Han, Lee, Lee, Lee 2023, arXiv 2310.16546.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from monotau.distributions import Distribution
from monotau.errors import check_least, check_not_negative, check_positive
from monotau.explorers.base import DecisionCount, Explorer, ExplorerConfig, check_spread, drain_means, no_bonus
from monotau.networks import HeadConfig, Network
from monotau.networks.devices import sent
from monotau.networks.factory import NetworkFactory


@dataclass(frozen=True, kw_only=True)
class Pqr(ExplorerConfig):
    """Act greedily on a reweighted mean, the integral of xi(tau) F^-1(tau), with random weights xi for each decision.

    xi is constant on equal intervals of (0, 1). It is max(1 + Delta_t (N x - 1), 0), divided by its mean, where the N
    numbers x are drawn from a symmetric Dirichlet distribution and Delta_t = delta * t^-(1 + decay). Unlike DLTV's
    optimism it prefers neither risk nor safety. PQR: Cho et al. 2023, arXiv 2310.16546.
    """

    delta: float = 1e6
    """Delta_1, the size of the perturbation before it decays. It matters until Delta_t is well below 1, after about
    this many decisions. The value is ours; the profile classic has another."""
    decay: float = 1e-3
    """How much faster than 1/t the perturbation decays; any number above 0 makes its sum finite, as the proof of
    convergence in the paper requires. The value is ours."""
    concentration: float = 0.05
    """Parameter of the Dirichlet distribution: the smaller, the fewer intervals matter. The value is ours."""
    intervals: int = 200
    """Number N of intervals; the paper has one for each of QR-DQN's 200 quantiles."""

    def __post_init__(self) -> None:
        check_not_negative("explorer.", self, "delta")
        check_positive("explorer.", self, "decay", "concentration")
        check_least("explorer.", self, intervals=2)

    def check(self, head: HeadConfig) -> None:
        """Raise ConfigError for a head that predicts only a mean, which no risk criterion changes."""
        check_spread("pqr", head, "every risk criterion would be its mean")

    def build(self, factory: NetworkFactory, online: Network, target: Network) -> "PqrExplorer":
        """Make the explorer."""
        return PqrExplorer(self)


class PqrExplorer(Explorer):
    """Counts its decisions as the time t over which the perturbation decays; random actions do not count.

    Departure: the paper also chooses the next action of a target by its risk criterion. Here targets follow the mean,
    the limit of both.
    """

    wants_spread = True

    def __init__(self, config: Pqr) -> None:
        self.config = config
        self.decisions = DecisionCount()
        self.recent_perturbations: list[Tensor] = []

    @property
    def size(self) -> float:
        """Delta_t of the next decision."""
        return float(self.config.delta * self.decisions.next ** -(1 + self.config.decay))

    def scores(
        self,
        observations: Shaped[Tensor, "B S *frame"],
        prediction: Distribution,
        generator: torch.Generator | None,
        masks: Bool[Tensor, "B A"] | None = None,
    ) -> Float[Tensor, "B A"]:
        """Return the mean of each prediction under random weights, which are the same for all actions of a state."""
        if generator is None:
            return prediction.mean()
        weights = self.weights(len(observations), generator).to(prediction.mean().dtype)
        self.decisions.add(len(observations))
        self.recent_perturbations.append((weights - 1).abs().mean())
        return weighted_mean(prediction, sent((weights,), observations.device)[0])

    def weights(self, rows: int, generator: torch.Generator) -> Float[Tensor, "B N"]:
        """Draw the weights of the intervals for each state; their mean over the intervals is 1."""
        # numpy's draws stay finite for small concentrations, and torch's take no generator.
        seed = int(torch.randint(2**62, (1,), generator=generator))
        count = self.config.intervals
        drawn = np.random.default_rng(seed).dirichlet(np.full(count, self.config.concentration), size=rows)
        return perturbed_weights(torch.from_numpy(drawn), self.size)

    def bonus(
        self, observations: Shaped[Tensor, "B S *frame"], generator: torch.Generator | None
    ) -> Float[Tensor, "B A"]:
        """Raise ConfigError: there is no bonus."""
        raise no_bonus("pqr")

    def metrics(self) -> dict[str, float]:
        """Return the mean absolute perturbation of the weights since the last call; it lies between 0 and 2."""
        return drain_means(perturbation=self.recent_perturbations)

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


def perturbed_weights(drawn: Float[Tensor, "B N"], size: float) -> Float[Tensor, "B N"]:
    """Return max(1 + size (N drawn - 1), 0) divided by its mean (after arXiv 2310.16546)."""
    weights = (1 + size * (drawn.shape[-1] * drawn - 1)).clamp_min(0)
    return weights / weights.mean(dim=-1, keepdim=True)


def weighted_mean(distribution: Distribution, weights: Float[Tensor, "B N"]) -> Float[Tensor, "B A"]:
    """Return the integral of the quantile function times weights that are constant on N equal intervals of (0, 1)."""
    count, shape = weights.shape[-1], distribution.batch_shape
    segments = distribution.segments()
    bounds = torch.linspace(0, 1, count + 1, dtype=segments.edges.dtype, device=segments.edges.device)
    edges = torch.cat([segments.edges.expand(*shape, -1), bounds.expand(*shape, -1)], dim=-1).sort(dim=-1).values
    pieces = segments.over(edges)
    middles = (edges[..., 1:] + edges[..., :-1]) / 2
    interval = (middles * count).long().clamp(0, count - 1)
    chosen = weights[:, None].expand(*shape, -1).gather(-1, interval)
    mean: Tensor = (pieces.widths * chosen * (pieces.left + pieces.right) / 2).sum(dim=-1)
    return mean
