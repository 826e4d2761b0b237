"""Deep DPE: the prediction error of return distributions, backed up through time.

Our extension of DPE (arXiv 2105.06696) with the frozen random target of RND (arXiv 1810.12894). Diverse projection
ensembles (Zanger et al. 2024, arXiv 2306.07124) propagate a W1 disagreement in a similar way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from monotau.distributions import Distribution
from monotau.errors import check_least, check_not_negative, check_share
from monotau.explorers.base import Explorer, ExplorerConfig, drain_means
from monotau.explorers.novelty import Distillation, FutureValues, Scale, best_allowed, without_options
from monotau.networks import Estimate, Network
from monotau.networks.factory import NetworkFactory
from monotau.networks.masks import of_allowed
from monotau.networks.optimiser import NetworkOptimiser
from monotau.replay import Batch


@dataclass(frozen=True, kw_only=True)
class DeepDpe(ExplorerConfig):
    """Act greedily on Q + c * (i + U): i is the novelty of this action, U the discounted novelty of later ones.

    i is the W1 distance between the return distributions of a frozen random network and of a predictor trained to match
    it; it is about 1 for actions that were never sampled. U is learned on sampled transitions:
    U(x,a) <- discount * max_a' (i + U)(x',a'), over allowed actions a'. Use it with n_step 1, because it ignores the
    novelty of the states that n steps skip, and with few random actions. Extends DPE (arXiv 2105.06696) and RND (arXiv
    1810.12894).
    """

    c: float = 3.0
    """Weight of the bonus; unseen actions keep about a third of their novelty, so 3 makes their bonus about 1."""
    views: int = 8
    """Random return distributions per action; i is the mean distance over them, so that chance matters less."""
    future_rate: float = 0.1
    """Step by which the target network of U moves towards U at each update."""

    def __post_init__(self) -> None:
        check_not_negative("explorer.", self, "c")
        check_least("explorer.", self, views=1)
        check_share("explorer.", self, "future_rate")

    def build(self, factory: NetworkFactory, online: Network, target: Network) -> "DeepDpeExplorer":
        """Make the explorer."""
        return DeepDpeExplorer(self, factory)


class DeepDpeExplorer(Explorer):
    """Owns the random target and the predictor of novelty, and U with its target network."""

    def __init__(self, config: DeepDpe, factory: NetworkFactory) -> None:
        self.config = config
        base, input_scale = without_options(factory), Scale()
        self.distillation = Distillation(
            base, items=factory.actions, views=config.views, power=1, input_scale=input_scale
        )
        self.future = FutureValues(base, rate=config.future_rate, input_scale=input_scale)
        self.recent_bonuses: list[Tensor] = []
        self.recent_losses: list[Tensor] = []

    def novelty(
        self, observations: Shaped[Tensor, "B S *frame"], generator: torch.Generator | None
    ) -> Float[Tensor, "B A"]:
        """Return the local bonus i of every action; 1 before the first update."""
        return self.distillation.novelty(observations, generator)

    @torch.no_grad()
    def bonus(
        self, observations: Shaped[Tensor, "B S *frame"], generator: torch.Generator | None
    ) -> Float[Tensor, "B A"]:
        """Return the novelty of each action and of what follows it, i + U."""
        return self.novelty(observations, generator) + self.future.values(observations)

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
        """Draw fractions and return constants for the predictor's loss; measure the first batch."""
        return self.distillation.prepare(batch.observations, generator)

    def loss(self, batch: Batch, target: Estimate | None, prepared: tuple[Tensor, ...]) -> Float[Tensor, ""]:
        """Mean square of the W1 distances of the sampled actions from the random target, over all views.

        Departure: the paper fits the predictor by the quantile Huber loss. With a large kappa or crossing quantiles,
        the distance at its minimum is not 0, and the remainder would count as novelty for ever; so the predictor
        minimises the distance itself.
        """
        return self.distillation.loss(batch.observations, batch.actions, prepared)

    def record(self, loss: Float[Tensor, ""]) -> None:
        """Keep the loss for `metrics`."""
        self.recent_losses.append(loss)

    @torch.no_grad()
    def _ahead(self, batch: Batch, generator: torch.Generator) -> Float[Tensor, " B"]:
        """Return the bootstrapped target of U, which uses the predictor's newest weights."""
        ahead = self.novelty(batch.next_observations, generator)
        ahead = ahead + self.future.target_values(batch.next_observations)
        return batch.discounts * best_allowed(ahead, batch.next_masks)

    def learn(self, batch: Batch, generator: torch.Generator) -> None:
        """Take one step of U towards its target."""
        self.future.learn(batch.observations, batch.actions, self._ahead(batch, generator))

    def metrics(self) -> dict[str, float]:
        """Return the mean bonus over the actions scored since the last call, and the predictor's mean loss."""
        return drain_means(bonus_mean=self.recent_bonuses, predictor_loss=self.recent_losses)

    def optimisers(self) -> Sequence[NetworkOptimiser]:
        """Return the optimiser of U."""
        return (self.future.optimiser,)

    def state(self) -> dict[str, Tensor]:
        """Return the weights of all four networks, the input scale and the unit of distance."""
        return self.distillation.state() | self.future.state()

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the weights, the scale and the unit."""
        self.distillation.load_state(tensors)
        self.future.load_state(tensors)
