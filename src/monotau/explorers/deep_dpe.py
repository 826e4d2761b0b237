"""Deep DPE: the prediction error of return distributions, backed up through time.

Our extension of DPE (arXiv 2105.06696) with the frozen random target of RND (arXiv 1810.12894). Diverse projection
ensembles (Zanger et al. 2024, arXiv 2306.07124) propagate a W1 disagreement in a similar way.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from monotau.distributions import Distribution
from monotau.errors import ConfigError, check_least
from monotau.explorers.base import Explorer, ExplorerConfig, drained
from monotau.networks import Estimate, Network, Role
from monotau.networks.factory import NetworkFactory, prefixed, unprefixed
from monotau.networks.heads.dqn import Dqn, DqnHead
from monotau.networks.layers import Layers
from monotau.networks.optimiser import NetworkOptimiser
from monotau.replay import Batch


@dataclass(frozen=True, kw_only=True)
class DeepDpe(ExplorerConfig):
    """Act greedily on Q + c * (i + U): i is the novelty of this action, U the discounted novelty of what follows.

    i is the W1 distance between the return distributions of a frozen random network and of a predictor that learns it;
    it is about 1 for what was never replayed. U is learned on replayed transitions:
    U(x,a) <- discount * max_a' (i + U)(x',a'). Use it with n_step 1, because it ignores the novelty of the states that
    n steps skip, and with few random actions. Extends DPE (arXiv 2105.06696) and RND (arXiv 1810.12894).
    """

    c: float = 3.0
    """Weight of the bonus; what was never seen keeps about a third of its novelty, so 3 makes it worth about 1."""
    views: int = 8
    """Random return distributions for each action; i is their mean distance, so that none is near by chance alone."""
    future_rate: float = 0.1
    """Share of U's weights that its target takes over at each update."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.c) and self.c >= 0):
            raise ConfigError(f"explorer.c is {self.c}, but must be a number that is not negative.")
        check_least("explorer.", self, views=1)
        if not 0 < self.future_rate <= 1:
            raise ConfigError(f"explorer.future_rate is {self.future_rate}, but must be above 0 and at most 1.")

    def build(self, factory: NetworkFactory, online: Network, target: Network) -> "DeepDpeExplorer":
        """Make the explorer."""
        return DeepDpeExplorer(self, factory)


class Scale(nn.Module):
    """Multiplies by a number that is measured on the first batch."""

    def __init__(self) -> None:
        super().__init__()
        # Several networks share it, so it is part of the state of none.
        self.register_buffer("factor", torch.ones(()), persistent=False)
        self.factor: Tensor

    def forward(self, inputs: Float[Tensor, "B ..."]) -> Float[Tensor, "B ..."]:
        """Scale the inputs."""
        return inputs * self.factor


class DeepDpeExplorer(Explorer):
    """Owns the random target, the predictor, U with its target, and the two scales that make 1 mean novel."""

    def __init__(self, config: DeepDpe, factory: NetworkFactory) -> None:
        self.config, self.actions = config, factory.actions
        plain = replace(factory, layers=Layers(factory.layers.precision, last_gain=1.0))
        views = replace(plain, actions=factory.actions * config.views)
        values = replace(plain, head=Dqn(hidden=128))
        self.input_scale = Scale()
        self.target, self.predictor = (views.make(name) for name in ("frozen target", "predictor"))
        self.future, self.future_target = (values.make("future") for _ in range(2))
        for network in (self.future, self.future_target):
            silence(network)  # nothing is known to be novel further on
        self.networks = {
            "target": self.target,
            "predictor": self.predictor,
            "future": self.future,
            "future_target": self.future_target,
        }
        for network in self.networks.values():
            network.torso.body = nn.Sequential(self.input_scale, network.torso.body).to(factory.device)
        self.optimiser, self.future_optimiser = plain.make_optimiser(self.predictor), plain.make_optimiser(self.future)
        self.unit = torch.zeros((), device=factory.device)  # distance before anything was learned; 0: not yet measured
        self.measured = False  # the same as unit > 0, known without waiting for a GPU
        self.seen: list[Tensor] = []
        self.losses: list[Tensor] = []

    @torch.no_grad()
    def novelty(
        self, observations: Shaped[Tensor, "B S *frame"], generator: torch.Generator | None
    ) -> Float[Tensor, "B A"]:
        """The local bonus i of every action, tried or not; 1 before the first update."""
        fractions = self.predictor.fractions(Role.ACT, len(observations), generator)
        distance = self.target.predict(observations, fractions).w1(self.predictor.predict(observations, fractions))
        mean = distance.unflatten(1, (self.actions, self.config.views)).mean(dim=-1)
        return torch.where(self.unit > 0, mean / self.unit, 1.0)

    @torch.no_grad()
    def bonus(
        self, observations: Shaped[Tensor, "B S *frame"], generator: torch.Generator | None
    ) -> Float[Tensor, "B A"]:
        """What is novel here and further on, i + U."""
        return self.novelty(observations, generator) + worth(self.future, observations)

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
        return prediction.mean() + self.config.c * bonus

    def learn(self, batch: Batch, target: Estimate | None, generator: torch.Generator) -> None:
        """One step of the predictor towards the random target, and one of U towards what comes next."""
        if not self.measured:
            self._measure(batch, generator)
        self.optimiser.step(loss := self._predictor_loss(batch, generator))
        with torch.no_grad():
            ahead = self.novelty(batch.next_observations, generator)
            ahead = (ahead + worth(self.future_target, batch.next_observations)).max(dim=1).values
        empty = torch.empty(len(batch.actions), 0, device=batch.actions.device)
        guess = self.future(batch.observations, empty, (), batch.actions).mean()
        self.future_optimiser.step((guess - batch.discounts * ahead).square().mean())
        with torch.no_grad():
            for slow, quick in zip(self.future_target.parameters(), self.future.parameters(), strict=True):
                slow.lerp_(quick, self.config.future_rate)
        self.losses.append(loss.detach())

    def _predictor_loss(self, batch: Batch, generator: torch.Generator) -> Float[Tensor, ""]:
        """Mean square of the distances of the replayed actions' views.

        Departure: the paper fits the predictor by the quantile Huber loss. Its least value is not a distance of 0 where
        kappa is wide or quantiles cross, and what is left would count as novelty for ever; so the distance itself is
        what is learned away.
        """
        rows = torch.arange(len(batch.actions), device=batch.actions.device)
        fractions = self.predictor.fractions(Role.ACT, len(rows), generator)
        target = self.target.predict(batch.observations, fractions)
        predicted = self.predictor(batch.observations, fractions, self.predictor.head.constants())
        distance = predicted.w1(target).unflatten(1, (self.actions, self.config.views))
        loss: Tensor = distance[rows, batch.actions].square().mean()
        return loss

    @torch.no_grad()
    def _measure(self, batch: Batch, generator: torch.Generator) -> None:
        """Set the scales on the first batch: inputs to a unit root mean square, distances to a unit mean."""
        size = self.target.torso.inputs(batch.observations).square().mean().sqrt()
        self.input_scale.factor.copy_(torch.where(size > 0, 1 / size, 1.0))
        fractions = self.predictor.fractions(Role.ACT, len(batch.actions), generator)
        looks = (network.predict(batch.observations, fractions) for network in (self.target, self.predictor))
        one, other = looks
        self.unit.copy_(one.w1(other).mean().clamp_min(torch.finfo(torch.float32).tiny))
        self.measured = True

    def metrics(self) -> dict[str, float]:
        """Mean bonus over the actions weighed since the last call, and the predictor's loss."""
        return drained(bonus_mean=self.seen, predictor_loss=self.losses)

    def optimisers(self) -> dict[str, NetworkOptimiser]:
        """Return what trains here."""
        return {"predictor": self.optimiser, "future": self.future_optimiser}

    def state(self) -> dict[str, Tensor]:
        """Weights of all four networks, the scale of inputs and the unit of distance."""
        tensors = {"unit": self.unit, "input_scale": self.input_scale.factor}
        for name, network in self.networks.items():
            tensors |= prefixed(name, network.state_dict())
        return tensors

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over the weights, the scale and the unit."""
        self.input_scale.factor.copy_(tensors["input_scale"])
        for name, network in self.networks.items():
            network.load_state_dict(unprefixed(name, tensors))
            network.invalidate_cache()
        self.unit.copy_(tensors["unit"])
        self.measured = bool(tensors["unit"] > 0)


def worth(network: Network, observations: Shaped[Tensor, "B S *frame"]) -> Float[Tensor, "B A"]:
    """Values of a network without spread."""
    return network.predict(observations, torch.empty(len(observations), 0, device=observations.device)).mean()


def silence(network: Network) -> None:
    """Make all values of a network without spread zero; it learns from there as well as from elsewhere."""
    head = network.head
    assert isinstance(head, DqnHead)  # noqa: S101  # for the type checker
    head.last.multiply(0.0)
