"""Random network distillation (RND): explore where a predictor does not match a random network yet.

Burda, Edwards, Storkey, Klimov 2018, arXiv 1810.12894; their code is github.com/openai/random-network-distillation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from monotau.distributions import Distribution
from monotau.errors import ConfigError, check_least, check_not_negative, check_share
from monotau.explorers.base import Explorer, ExplorerConfig, drain_means
from monotau.explorers.novelty import HIDDEN, Distillation, FutureValues, Scale, best_allowed, without_options
from monotau.networks import Estimate, Network
from monotau.networks.factory import NetworkFactory
from monotau.networks.heads.dqn import Dqn
from monotau.networks.masks import of_allowed
from monotau.networks.optimiser import NetworkOptimiser
from monotau.replay import Batch


@dataclass(frozen=True, kw_only=True)
class Rnd(ExplorerConfig):
    """Act greedily on Q + c * U, where U is the discounted sum of the novelty of all observations ahead.

    The novelty e(x) of an observation is the squared error of a predictor of a random network's features, in units of
    its mean before learning. U is learned on sampled transitions and, as in the paper, across the ends of episodes:
    U(x,a) <- e(x') + discount * max_a' U(x',a'). The local form acts on Q + c * e(x,a) instead, with features of their
    own for each action. Use it with n_step 1, because it ignores observations that n steps skip. RND: Burda et al.
    2018, arXiv 1810.12894.
    """

    form: Literal["backed-up", "local"] = "backed-up"
    """Novelty of the observations ahead, as in the paper, or of the next action only, as in DPE."""
    c: float = 0.5
    """Weight of the bonus, in the unit of returns; the paper weighs intrinsic advantages 1 and extrinsic ones 2."""
    features: int = 512
    """Random features of an observation, or of each action in the local form (512 in the authors' code)."""
    discount: float = 0.99
    """Discount of later novelty in the form backed-up (0.99 in the paper)."""
    future_rate: float = 0.1
    """Step by which the target network of U moves towards U at each update, as in deep DPE; the paper's PPO has no
    target network."""

    def __post_init__(self) -> None:
        check_not_negative("explorer.", self, "c")
        check_least("explorer.", self, features=1)
        if not 0 <= self.discount < 1:
            raise ConfigError(
                f"explorer.discount is {self.discount}, but must be at least 0 and below 1: novelty is summed across "
                "the ends of episodes, without end."
            )
        check_share("explorer.", self, "future_rate")

    def build(self, factory: NetworkFactory, online: Network, target: Network) -> "RndExplorer":
        """Make the explorer."""
        return RndExplorer(self, factory)


class RndExplorer(Explorer):
    """Owns the random network, the predictor and, in the form backed-up, U with its target network.

    Departures: inputs are scaled to root mean square 1 instead of whitened and clipped, and novelty is divided by its
    mean before learning instead of the running deviation of its returns, which samples of a replay do not show. U is
    learned by Q-learning instead of PPO. The predictor is as deep as the random network.
    """

    def __init__(self, config: Rnd, factory: NetworkFactory) -> None:
        self.config = config
        base, input_scale = without_options(factory), Scale()
        self.distillation = Distillation(
            replace(base, head=Dqn(hidden=HIDDEN)),
            items=factory.actions if config.form == "local" else 1,
            views=config.features,
            power=2,
            input_scale=input_scale,
        )
        self.future = (
            None if config.form == "local" else FutureValues(base, rate=config.future_rate, input_scale=input_scale)
        )
        self.recent_bonuses: list[Tensor] = []
        self.recent_losses: list[Tensor] = []

    @torch.no_grad()
    def bonus(
        self, observations: Shaped[Tensor, "B S *frame"], generator: torch.Generator | None
    ) -> Float[Tensor, "B A"]:
        """Return U, or the novelty of each action in the local form."""
        if self.future is None:
            return self.distillation.novelty(observations, generator)
        return self.future.values(observations)

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
        self.recent_bonuses.append(of_allowed(bonus, masks).mean())
        return prediction.mean() + self.config.c * bonus

    def trained(self) -> dict[str, Network]:
        """Return the predictor."""
        return {"predictor": self.distillation.predictor}

    def prepare(self, batch: Batch, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Return what the predictor's loss needs; measure the scales on the first batch."""
        return self.distillation.prepare(self._distilled(batch), generator)

    def loss(self, batch: Batch, target: Estimate | None, prepared: tuple[Tensor, ...]) -> Float[Tensor, ""]:
        """Mean squared error of the features of the sampled actions or, in the form backed-up, next observations."""
        chosen = batch.actions if self.future is None else None
        return self.distillation.loss(self._distilled(batch), chosen, prepared)

    def _distilled(self, batch: Batch) -> Shaped[Tensor, "B S *frame"]:
        """Return the observations that train the predictor: those whose novelty is a reward, as in the paper."""
        return batch.observations if self.future is None else batch.next_observations

    def record(self, loss: Float[Tensor, ""]) -> None:
        """Keep the loss for `metrics`."""
        self.recent_losses.append(loss)

    def learn(self, batch: Batch, generator: torch.Generator) -> None:
        """Take one step of U towards its bootstrapped target, which uses the predictor's newest weights."""
        if self.future is None:
            return
        novelty = self.distillation.novelty(batch.next_observations, generator)[:, 0]
        later = best_allowed(self.future.target_values(batch.next_observations), batch.next_masks)
        self.future.learn(batch.observations, batch.actions, novelty + self.config.discount * later)

    def metrics(self) -> dict[str, float]:
        """Return the mean bonus over the actions scored since the last call, and the predictor's mean loss."""
        return drain_means(bonus_mean=self.recent_bonuses, predictor_loss=self.recent_losses)

    def optimisers(self) -> Sequence[NetworkOptimiser]:
        """Return the optimiser of U, if there is one."""
        return () if self.future is None else (self.future.optimiser,)

    def state(self) -> dict[str, Tensor]:
        """Return the weights of all networks, the input scale and the unit of novelty."""
        return self.distillation.state() | ({} if self.future is None else self.future.state())

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the weights, the scale and the unit."""
        self.distillation.load_state(tensors)
        if self.future is not None:
            self.future.load_state(tensors)
