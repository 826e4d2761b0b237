"""Deep DPE: the prediction error of return distributions, backed up through time.

Our extension of DPE (arXiv 2105.06696) with the frozen random target of RND (arXiv 1810.12894). Diverse projection
ensembles (Zanger et al. 2024, arXiv 2306.07124) propagate a W1 disagreement in a similar way.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from monotau.distributions import Distribution
from monotau.errors import ConfigError, check_least
from monotau.explorers.base import Explorer, ExplorerConfig, drain_means
from monotau.networks import Estimate, Network, Role
from monotau.networks.factory import NetworkFactory, prefixed, unprefixed
from monotau.networks.heads.dqn import Dqn, DqnHead
from monotau.networks.layers import Layers
from monotau.networks.masks import allowed_scores, of_allowed
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
        if not (math.isfinite(self.c) and self.c >= 0):
            raise ConfigError(f"explorer.c is {self.c}, but must be finite and not negative.")
        check_least("explorer.", self, views=1)
        if not 0 < self.future_rate <= 1:
            raise ConfigError(f"explorer.future_rate is {self.future_rate}, but must be above 0 and at most 1.")

    def build(self, factory: NetworkFactory, online: Network, target: Network) -> "DeepDpeExplorer":
        """Make the explorer."""
        return DeepDpeExplorer(self, factory)


class Scale(nn.Module):
    """Multiplies its input by a factor that is measured on the first batch."""

    def __init__(self) -> None:
        super().__init__()
        # Shared by several networks, so not part of any network's state dict.
        self.register_buffer("factor", torch.ones(()), persistent=False)
        self.factor: Tensor

    def forward(self, inputs: Float[Tensor, "B ..."]) -> Float[Tensor, "B ..."]:
        """Scale the inputs."""
        return inputs * self.factor


class DeepDpeExplorer(Explorer):
    """Owns the random target, the predictor, U with its target network, and the two scales that make 1 mean novel."""

    def __init__(self, config: DeepDpe, factory: NetworkFactory) -> None:
        self.config, self.actions = config, factory.actions
        base = replace(factory, layers=Layers(factory.layers.precision, last_gain=1.0))
        views = replace(base, actions=factory.actions * config.views)
        values = replace(base, head=Dqn(hidden=128))
        self.input_scale = Scale()
        self.target, self.predictor = (views.make(name) for name in ("frozen target", "predictor"))
        self.future, self.future_target = (values.make("future") for _ in range(2))
        for network in (self.future, self.future_target):
            zero_values(network)  # no novelty is known to lie ahead
        self.networks = {
            "target": self.target,
            "predictor": self.predictor,
            "future": self.future,
            "future_target": self.future_target,
        }
        for network in self.networks.values():
            network.torso.body = nn.Sequential(self.input_scale, network.torso.body).to(factory.device)
        self.future_optimiser = base.make_optimiser({"future": self.future})
        self.unit = torch.zeros((), device=factory.device)  # mean distance before learning; 0: not yet measured
        self.measured = False  # the same as unit > 0, without a GPU synchronisation
        self.recent_bonuses: list[Tensor] = []
        self.recent_losses: list[Tensor] = []

    @torch.no_grad()
    def novelty(
        self, observations: Shaped[Tensor, "B S *frame"], generator: torch.Generator | None
    ) -> Float[Tensor, "B A"]:
        """Return the local bonus i of every action; 1 before the first update."""
        fractions = self.predictor.fractions(Role.ACT, len(observations), generator)
        distance = self.target.predict(observations, fractions).w1(self.predictor.predict(observations, fractions))
        mean = distance.unflatten(1, (self.actions, self.config.views)).mean(dim=-1)
        return torch.where(self.unit > 0, mean / self.unit, 1.0)

    @torch.no_grad()
    def bonus(
        self, observations: Shaped[Tensor, "B S *frame"], generator: torch.Generator | None
    ) -> Float[Tensor, "B A"]:
        """Return the novelty of each action and of what follows it, i + U."""
        return self.novelty(observations, generator) + values_of(self.future, observations)

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
        return {"predictor": self.predictor}

    def prepare(self, batch: Batch, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Draw the fractions of both networks, and return the random target's constants; measure the first batch."""
        if not self.measured:
            self._measure(batch, generator)
        fractions = self.predictor.fractions(Role.ACT, len(batch.actions), generator)
        return (fractions, *self.target.cached_constants())

    def loss(self, batch: Batch, target: Estimate | None, prepared: tuple[Tensor, ...]) -> Float[Tensor, ""]:
        """Mean square of the W1 distances of the sampled actions from the random target, over all views.

        Departure: the paper fits the predictor by the quantile Huber loss. With a large kappa or crossing quantiles,
        the distance at its minimum is not 0, and the remainder would count as novelty for ever; so the predictor
        minimises the distance itself.
        """
        fractions, *constants = prepared
        with torch.no_grad():
            wanted = self.target(batch.observations, fractions, tuple(constants))
        predicted = self.predictor(batch.observations, fractions, self.predictor.head.constants())
        distance = predicted.w1(wanted).unflatten(1, (self.actions, self.config.views))
        rows = torch.arange(len(batch.actions), device=batch.actions.device)
        loss: Tensor = distance[rows, batch.actions].square().mean()
        return loss

    def record(self, loss: Float[Tensor, ""]) -> None:
        """Keep the loss for `metrics`."""
        self.recent_losses.append(loss)

    def learn(self, batch: Batch, generator: torch.Generator) -> None:
        """Take one step of U towards its bootstrapped target, which uses the predictor's newest weights."""
        with torch.no_grad():
            ahead = self.novelty(batch.next_observations, generator)
            ahead = ahead + values_of(self.future_target, batch.next_observations)
            ahead = allowed_scores(ahead, batch.next_masks).max(dim=1).values
        empty = torch.empty(len(batch.actions), 0, device=batch.actions.device)
        predicted = self.future(batch.observations, empty, (), batch.actions).mean()
        self.future_optimiser.step((predicted - batch.discounts * ahead).square().mean())
        with torch.no_grad():
            for target_weight, weight in zip(self.future_target.parameters(), self.future.parameters(), strict=True):
                target_weight.lerp_(weight, self.config.future_rate)

    @torch.no_grad()
    def _measure(self, batch: Batch, generator: torch.Generator) -> None:
        """Set the scales on the first batch: inputs to root mean square 1, distances to mean 1."""
        size = self.target.torso.inputs(batch.observations).square().mean().sqrt()
        self.input_scale.factor.copy_(torch.where(size > 0, 1 / size, 1.0))
        fractions = self.predictor.fractions(Role.ACT, len(batch.actions), generator)
        target, predicted = (
            network.predict(batch.observations, fractions) for network in (self.target, self.predictor)
        )
        self.unit.copy_(target.w1(predicted).mean().clamp_min(torch.finfo(torch.float32).tiny))
        self.measured = True

    def metrics(self) -> dict[str, float]:
        """Return the mean bonus over the actions scored since the last call, and the predictor's mean loss."""
        return drain_means(bonus_mean=self.recent_bonuses, predictor_loss=self.recent_losses)

    def optimisers(self) -> Sequence[NetworkOptimiser]:
        """Return the optimiser of U."""
        return (self.future_optimiser,)

    def state(self) -> dict[str, Tensor]:
        """Return the weights of all four networks, the input scale and the unit of distance."""
        tensors = {"unit": self.unit, "input_scale": self.input_scale.factor}
        for name, network in self.networks.items():
            tensors |= prefixed(name, network.state_dict())
        return tensors

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the weights, the scale and the unit."""
        self.input_scale.factor.copy_(tensors["input_scale"])
        for name, network in self.networks.items():
            network.load_state_dict(unprefixed(name, tensors))
            network.invalidate_cache()
        self.unit.copy_(tensors["unit"])
        self.measured = bool(tensors["unit"] > 0)


def values_of(network: Network, observations: Shaped[Tensor, "B S *frame"]) -> Float[Tensor, "B A"]:
    """Return the action values of a network with a DQN head."""
    return network.predict(observations, torch.empty(len(observations), 0, device=observations.device)).mean()


def zero_values(network: Network) -> None:
    """Make a network with a DQN head predict zero everywhere; it can still learn from there."""
    head = network.head
    assert isinstance(head, DqnHead)  # noqa: S101  # for the type checker
    head.last.multiply(0.0)
