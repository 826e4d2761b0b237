"""Distributional prediction error (DPE): explore where a predictor does not match the target's distribution yet.

Zhou et al. 2021, arXiv 2105.06696; with a frozen random target it is the distributional form of RND (Burda et
al. 2018, arXiv 1810.12894).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from monotau.distributions import Distribution
from monotau.errors import ConfigError, check_not_negative, check_positive
from monotau.explorers.base import Explorer, ExplorerConfig, drain_means
from monotau.networks import Estimate, HeadConfig, Network, Role
from monotau.networks.factory import NetworkFactory, prefixed, unprefixed
from monotau.networks.masks import of_allowed
from monotau.replay import Batch


@dataclass(frozen=True, kw_only=True)
class Dpe(ExplorerConfig):
    """Act greedily on Q + c * i, where i is the distance between the target's and a predictor's return distribution.

    DPE: Zhou, Zhu, Kuang, Zhang 2021, arXiv 2105.06696.
    """

    c: float = 1.0
    """Weight of the bonus, which is in the same unit as the returns."""
    kappa: float = 0.05
    """Error at which the predictor's Huber loss turns from quadratic to linear, in the unit of returns. For smaller
    errors the loss fits expectiles: with 1, as in heads, a bonus of 10 to 25 % of the spread never goes away."""
    error: Literal["distribution", "value"] = "distribution"
    """Distance: 1-Wasserstein between the distributions (DPE), or between their means only (value-based error)."""
    target: Literal["shared", "frozen"] = "shared"
    """Network that the predictor imitates: the agent's target network (the paper), or a frozen random network (RND)."""
    predictor_fraction: float = 1.0
    """Share of each batch that trains the predictor; values below 1 are faster, but not the paper's method."""
    normalise: bool = False
    """Divide the bonus by its running standard deviation, so that c does not depend on the scale of rewards."""

    def __post_init__(self) -> None:
        check_not_negative("explorer.", self, "c")
        check_positive("explorer.", self, "kappa")
        if not 0 < self.predictor_fraction <= 1:
            raise ConfigError(
                f"explorer.predictor_fraction is {self.predictor_fraction}, but must be above 0 and at most 1: "
                "without training, the predictor's error never falls."
            )

    def build(self, factory: NetworkFactory, online: Network, target: Network) -> "DpeExplorer":
        """Make the explorer."""
        return DpeExplorer(self, factory, target)


class DpeExplorer(Explorer):
    """Owns the predictor and the running moments of the bonus."""

    def __init__(self, config: Dpe, factory: NetworkFactory, target: Network) -> None:
        self.config = config
        self.wants_target = config.target == "shared"
        # Unlike the online network, the predictor and a random target need outputs of unit size from the start, so that
        # they differ between states and actions: the error is then large wherever the predictor was not trained.
        base = replace(
            factory, layers=replace(factory.layers, last_gain=1.0), head=with_kappa(factory.head, config.kappa)
        )
        self.target = target if self.wants_target else base.make("frozen target")
        self.predictor = base.make("predictor")
        # Count, mean and sum of squared deviations (Welford) of all bonuses computed while acting.
        self.moments = torch.zeros(3, dtype=torch.float64)
        self._new_moments = torch.zeros(3, dtype=torch.float64)  # of the bonuses since the last `drain_stats`
        self.recent_bonuses: list[Tensor] = []
        self.recent_losses: list[Tensor] = []

    def bonus(
        self, observations: Shaped[Tensor, "B S *frame"], generator: torch.Generator | None
    ) -> Float[Tensor, "B A"]:
        """Return the distance between target and predictor, at the same fractions, for every action."""
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
        masks: Bool[Tensor, "B A"] | None = None,
    ) -> Float[Tensor, "B A"]:
        """Return the mean return plus c times the bonus."""
        if self.config.c == 0:
            return prediction.mean()
        bonus = self.bonus(observations, generator)
        scored = of_allowed(bonus, masks)
        self.recent_bonuses.append(scored.mean())
        if self.config.normalise:
            self._update_moments(scored)
            bonus = bonus / self.deviation
        return prediction.mean() + self.config.c * bonus

    @property
    def deviation(self) -> float:
        """Standard deviation of the bonuses so far; 1 until two of them differ."""
        count, _, squares = self.moments.tolist()
        return math.sqrt(squares / count) if squares > 0 else 1.0

    def _update_moments(self, bonus: Float[Tensor, "..."]) -> None:
        """Merge new bonuses into the running moments."""
        values = bonus.double().cpu()
        mean = values.mean()
        new = torch.stack([torch.tensor(float(values.numel())).double(), mean, (values - mean).square().sum()])
        self.moments, self._new_moments = merged(self.moments, new), merged(self._new_moments, new)

    def drain_stats(self) -> dict[str, Tensor]:
        """Return the moments of new bonuses."""
        new, self._new_moments = self._new_moments, torch.zeros(3, dtype=torch.float64)
        return {"moments": new}

    def merge_stats(self, stats: Mapping[str, Tensor]) -> None:
        """Add the moments of another explorer's bonuses."""
        self.moments = merged(self.moments, stats["moments"])

    def trained(self) -> dict[str, Network]:
        """Return the predictor."""
        return {"predictor": self.predictor}

    def prepare(self, batch: Batch, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Draw the predictor's fractions; with a frozen target also its fractions and constants."""
        rows = self._rows(batch)
        if self.config.target == "shared":
            return (self.predictor.fractions(Role.LEARN, rows, generator),)
        drawn = self.target.fractions(Role.TARGET, rows, generator)
        return (self.predictor.fractions(Role.LEARN, rows, generator), drawn, *self.target.cached_constants())

    def loss(self, batch: Batch, target: Estimate | None, prepared: tuple[Tensor, ...]) -> Float[Tensor, ""]:
        """Return the predictor's loss against the target's distributions of the sampled states and actions."""
        rows = self._rows(batch)
        observations, actions = batch.observations[:rows], batch.actions[:rows]
        fractions, *of_target = prepared
        if self.config.target == "frozen":
            drawn, *constants = of_target
            with torch.no_grad():
                target = Estimate(self.target(observations, drawn, tuple(constants), actions), drawn)
        elif target is None:
            raise TypeError(
                "DPE with explorer.target 'shared' learns from the target network's distributions, but got none."
            )
        else:
            target = target.rows(0, rows)
        losses, side, _ = self.predictor.losses(
            observations, actions, fractions, self.predictor.head.constants(), target
        )
        loss = losses.mean()
        return loss if side is None else loss + side

    def record(self, loss: Float[Tensor, ""]) -> None:
        """Keep the loss for `metrics`."""
        self.recent_losses.append(loss)

    def _rows(self, batch: Batch) -> int:
        """Return how many transitions of a batch train the predictor."""
        return math.ceil(self.config.predictor_fraction * len(batch.actions))

    def rescale(self, factor: float) -> None:
        """Scale the predictions of the predictor and of a frozen target, and with them all bonuses."""
        for network in (self.predictor,) if self.wants_target else (self.predictor, self.target):
            network.rescale(factor)
        self.moments, self._new_moments = (
            moments * self.moments.new_tensor([1, factor, factor**2]) for moments in (self.moments, self._new_moments)
        )

    @torch.no_grad()
    def diagnose(self, batch: Batch, generator: torch.Generator) -> dict[str, float]:
        """Return the mean bonus of the sampled actions and of the others allowed there, which should be higher."""
        bonus = self.bonus(batch.observations, generator)
        taken = torch.nn.functional.one_hot(batch.actions, bonus.shape[1]).bool()
        others = bonus[~taken if batch.masks is None else batch.masks & ~taken]
        numbers = {"bonus_taken": bonus[taken].mean().item()}
        return numbers | ({"bonus_other": others.mean().item()} if len(others) else {})

    def metrics(self) -> dict[str, float]:
        """Return the mean bonus over the actions scored since the last call, and the predictor's mean loss."""
        return drain_means(bonus_mean=self.recent_bonuses, predictor_loss=self.recent_losses)

    def state(self) -> dict[str, Tensor]:
        """Return the weights of the predictor and of a frozen target, and the moments."""
        frozen = prefixed("frozen", self.target.state_dict()) if self.config.target == "frozen" else {}
        return prefixed("predictor", self.predictor.state_dict()) | frozen | {"moments": self.moments}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the weights and the moments."""
        self.predictor.load_state_dict(unprefixed("predictor", tensors))
        self.predictor.invalidate_cache()
        if self.config.target == "frozen":
            self.target.load_state_dict(unprefixed("frozen", tensors))
            self.target.invalidate_cache()
        self.moments = tensors["moments"].clone()
        self._new_moments = torch.zeros(3, dtype=torch.float64)


def with_kappa(head: HeadConfig, kappa: float) -> HeadConfig:
    """Return a head's settings with another kappa; C51, which is fitted by cross-entropy, has none."""
    settings: Any = head
    return replace(settings, kappa=kappa) if hasattr(head, "kappa") else head


def merged(one: Float[Tensor, "3"], other: Float[Tensor, "3"]) -> Float[Tensor, "3"]:
    """Return count, mean and sum of squared deviations of the union of two samples."""
    count, mean, squares = one.tolist()
    other_count, other_mean, other_squares = other.tolist()
    if not (total := count + other_count):
        return one
    shift = other_mean - mean
    squares += other_squares + shift**2 * count * other_count / total
    return torch.tensor([total, mean + shift * other_count / total, squares], dtype=torch.float64)
