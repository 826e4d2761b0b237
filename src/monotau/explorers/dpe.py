"""Distributional prediction error (DPE): explore where a predictor does not know the target's distribution yet.

Zhou et al. 2021, arXiv 2105.06696; with a frozen random target it is the distributional form of RND (Burda et
al. 2018, arXiv 1810.12894).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from monotau.distributions import Distribution
from monotau.errors import ConfigError, check_positive
from monotau.explorers.base import Explorer, ExplorerConfig, drained
from monotau.networks import Estimate, HeadConfig, Network, Role
from monotau.networks.compile import Compiled
from monotau.networks.factory import NetworkFactory, prefixed, unprefixed
from monotau.networks.optimiser import NetworkOptimiser
from monotau.replay import Batch


@dataclass(frozen=True, kw_only=True)
class Dpe(ExplorerConfig):
    """Act greedily on Q + c * i, i the distance between the target's and a predictor's return distribution.

    DPE: Zhou, Zhu, Kuang, Zhang 2021, arXiv 2105.06696.
    """

    c: float = 1.0
    """Weight of the bonus, which is in the same unit as the returns."""
    kappa: float = 0.05
    """Where the predictor's Huber loss turns from quadratic to linear, in the unit of returns. Below it the loss fits
    expectiles: with the head's usual 1, a bonus of a tenth to a quarter of the spread remains for ever, everywhere."""
    error: Literal["distribution", "value"] = "distribution"
    """Distance: 1-Wasserstein between the distributions (DPE), or between their means only (value-based error)."""
    target: Literal["shared", "frozen"] = "shared"
    """What the predictor learns: the agent's target network (the paper), or a random network that stays (RND)."""
    predictor_fraction: float = 1.0
    """Share of each batch the predictor is trained on; below 1 is faster and not the paper's method."""
    normalise: bool = False
    """Divide the bonus by its standard deviation so far, so that c means the same on any scale of rewards."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.c) and self.c >= 0):
            raise ConfigError(f"explorer.c is {self.c}, but must be a number that is not negative.")
        check_positive("explorer.", self, "kappa")
        if not 0 < self.predictor_fraction <= 1:
            raise ConfigError(
                f"explorer.predictor_fraction is {self.predictor_fraction}, but must be above 0 and at most 1: "
                "a predictor that learns nothing never stops being surprised."
            )

    def build(self, factory: NetworkFactory, online: Network, target: Network) -> "DpeExplorer":
        """Make the explorer."""
        return DpeExplorer(self, factory, target)


class DpeExplorer(Explorer):
    """Owns the predictor, its optimiser and the running size of the bonus."""

    def __init__(self, config: Dpe, factory: NetworkFactory, target: Network) -> None:
        self.config = config
        self.wants_target = config.target == "shared"
        # Unlike the online network, a predictor (and what it is to learn, if that is a random network) must tell
        # states and actions apart from the start: what it knows nothing of is then far from the target.
        apart = replace(factory, layers=replace(factory.layers, last_gain=1.0), head=narrow(factory.head, config.kappa))
        self.target = target if self.wants_target else apart.make("frozen target")
        self.predictor = apart.make("predictor")
        self.optimiser = apart.make_optimiser(self.predictor)
        # Count, mean and sum of squared deviations (Welford) of all bonuses seen while acting.
        self.moments = torch.zeros(3, dtype=torch.float64)
        self._fresh = torch.zeros(3, dtype=torch.float64)  # those of them that others do not know of
        self.seen: list[Tensor] = []
        self.lost: list[Tensor] = []
        self._losses = Compiled(self.losses, factory.compiler)

    def bonus(
        self, observations: Shaped[Tensor, "B S *frame"], generator: torch.Generator | None
    ) -> Float[Tensor, "B A"]:
        """Distance between target and predictor at the same fractions, for every action, tried or not."""
        fractions = self.predictor.fractions(Role.ACT, len(observations), generator)
        target = self.target.predict(observations, fractions)
        predicted = self.predictor.predict(observations, fractions)
        if self.config.error == "value":
            return (target.mean() - predicted.mean()).abs()
        return target.w1(predicted)

    def scores(
        self,
        observations: Shaped[Tensor, "B S *frame"],
        prediction: Distribution,
        generator: torch.Generator | None,
    ) -> Float[Tensor, "B A"]:
        """Mean return plus c times the bonus; without a weight there is nothing to compute."""
        if self.config.c == 0:
            return prediction.mean()
        bonus = self.bonus(observations, generator)
        self.seen.append(bonus.mean())
        if self.config.normalise:
            self._measure(bonus)
            bonus = bonus / self.deviation
        return prediction.mean() + self.config.c * bonus

    @property
    def deviation(self) -> float:
        """Standard deviation of the bonuses so far; 1 before there are two different ones."""
        count, _, squares = self.moments.tolist()
        return math.sqrt(squares / count) if squares > 0 else 1.0

    def _measure(self, bonus: Float[Tensor, "B A"]) -> None:
        """Merge new bonuses into the running moments."""
        values = bonus.double().cpu()
        mean = values.mean()
        seen = torch.stack([torch.tensor(float(values.numel())).double(), mean, (values - mean).square().sum()])
        self.moments, self._fresh = merged(self.moments, seen), merged(self._fresh, seen)

    def drain_stats(self) -> dict[str, Tensor]:
        """Return the moments of new bonuses."""
        fresh, self._fresh = self._fresh, torch.zeros(3, dtype=torch.float64)
        return {"moments": fresh}

    def merge_stats(self, lived: Mapping[str, Tensor]) -> None:
        """Merge the moments of another's bonuses."""
        self.moments = merged(self.moments, lived["moments"])

    def learn(self, batch: Batch, target: Estimate | None, generator: torch.Generator) -> None:
        """Fit the predictor to the target's distributions of the replayed states and actions; one step."""
        rows = math.ceil(self.config.predictor_fraction * len(batch.actions))
        observations, actions = batch.observations[:rows], batch.actions[:rows]
        if self.config.target == "frozen":
            fractions = self.target.fractions(Role.TARGET, rows, generator)
            target = Estimate(self.target.predict(observations, fractions, actions), fractions)
        elif target is None:
            raise TypeError("DPE with a shared target learns from the target network's distributions, but got none.")
        else:
            target = target.rows(0, rows)
        fractions = self.predictor.fractions(Role.LEARN, rows, generator)
        losses, side = self._losses(observations, actions, fractions, target)
        loss = losses.mean()
        self.optimiser.step(loss if side is None else loss + side)
        self.lost.append(loss.detach())

    def losses(
        self,
        observations: Shaped[Tensor, "B S *frame"],
        actions: Int[Tensor, " B"],
        fractions: Float[Tensor, "B n"],
        target: Estimate,
    ) -> tuple[Float[Tensor, " B"], Float[Tensor, ""] | None]:
        """Losses of the predictor, and what its head learns beside them; no side effects."""
        return self.predictor.losses(observations, actions, fractions, self.predictor.head.constants(), target)

    def rescale(self, factor: float) -> None:
        """Multiply what the predictor (and a target of its own) predicts, and so all bonuses."""
        for network in (self.predictor,) if self.wants_target else (self.predictor, self.target):
            network.rescale(factor)
        self.moments, self._fresh = (
            moments * self.moments.new_tensor([1, factor, factor**2]) for moments in (self.moments, self._fresh)
        )

    @torch.no_grad()
    def diagnose(self, batch: Batch, generator: torch.Generator) -> dict[str, float]:
        """Mean bonus of the replayed actions, and of the others in the same states: novelty is in the difference."""
        bonus = self.bonus(batch.observations, generator)
        taken = torch.nn.functional.one_hot(batch.actions, bonus.shape[1]).bool()
        numbers = {"bonus_taken": bonus[taken].mean().item()}
        return numbers | ({"bonus_other": bonus[~taken].mean().item()} if bonus.shape[1] > 1 else {})

    def metrics(self) -> dict[str, float]:
        """Mean bonus over the actions weighed since the last call, and the predictor's loss."""
        return drained(bonus_mean=self.seen, predictor_loss=self.lost)

    def optimisers(self) -> dict[str, NetworkOptimiser]:
        """Return what trains here."""
        return {"predictor": self.optimiser}

    def state(self) -> dict[str, Tensor]:
        """Weights of the predictor (and of a frozen target) and the moments."""
        frozen = prefixed("frozen", self.target.state_dict()) if self.config.target == "frozen" else {}
        return prefixed("predictor", self.predictor.state_dict()) | frozen | {"moments": self.moments}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over the weights and the moments."""
        self.predictor.load_state_dict(unprefixed("predictor", tensors))
        self.predictor.invalidate_cache()
        if self.config.target == "frozen":
            self.target.load_state_dict(unprefixed("frozen", tensors))
            self.target.invalidate_cache()
        self.moments = tensors["moments"].clone()
        self._fresh = torch.zeros(3, dtype=torch.float64)


def narrow(head: HeadConfig, kappa: float) -> HeadConfig:
    """Return a head's settings with another kappa; C51, which is fitted by cross-entropy, has none."""
    settings: Any = head
    return replace(settings, kappa=kappa) if hasattr(head, "kappa") else head


def merged(one: Float[Tensor, "3"], other: Float[Tensor, "3"]) -> Float[Tensor, "3"]:
    """Count, mean and sum of squared deviations of two samples together."""
    count, mean, squares = one.tolist()
    fresh_count, fresh_mean, fresh_squares = other.tolist()
    if not (total := count + fresh_count):
        return one
    shift = fresh_mean - mean
    squares += fresh_squares + shift**2 * count * fresh_count / total
    return torch.tensor([total, mean + shift * fresh_count / total, squares], dtype=torch.float64)
