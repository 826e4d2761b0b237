"""Shared parts of explorers that seek novelty: prediction errors of random networks, and values of novelty to come.

The prediction error of a frozen random network is that of RND (Burda et al. 2018, arXiv 1810.12894).
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from monotau.networks import Network, Role
from monotau.networks.factory import NetworkFactory, prefixed, unprefixed
from monotau.networks.heads.dqn import Dqn, DqnHead
from monotau.networks.layers import Layers
from monotau.networks.masks import allowed_scores

HIDDEN = 128
"""Hidden units of a network of future values."""


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

    @torch.no_grad()
    def measure(self, inputs: Float[Tensor, "B ..."]) -> None:
        """Set the factor that gives these inputs a root mean square of 1; zeros leave it at 1."""
        size = inputs.square().mean().sqrt()
        self.factor.copy_(torch.where(size > 0, 1 / size, 1.0))

    def before(self, network: Network) -> Network:
        """Scale the inputs of a network's torso, and return the network."""
        network.torso.body = nn.Sequential(self, network.torso.body).to(network.device)
        return network


def without_options(factory: NetworkFactory) -> NetworkFactory:
    """Return a factory without noise and dueling whose networks have outputs of unit size from the start."""
    return replace(factory, layers=Layers(factory.layers.precision, last_gain=1.0))


class Distillation:
    """A frozen random network, a predictor trained to match it, and the prediction error as novelty.

    Each of `items` (the actions, or a single one for the state as a whole) has `views` random outputs. Its error is the
    mean over them of the W1 distance to the power of `power`. Novelty is this error in units of its mean before
    learning, so that it is about 1 for what was never sampled.
    """

    def __init__(self, factory: NetworkFactory, *, items: int, views: int, power: int, input_scale: Scale) -> None:
        self.items, self.views, self.power, self.input_scale = items, views, power, input_scale
        base = replace(factory, actions=items * views)
        self.target, self.predictor = (input_scale.before(base.make(name)) for name in ("frozen target", "predictor"))
        self.unit = torch.zeros((), device=factory.device)  # mean error before learning; 0: not yet measured
        self.measured = False  # the same as unit > 0, without a GPU synchronisation

    @torch.no_grad()
    def errors(
        self, observations: Shaped[Tensor, "B S *frame"], generator: torch.Generator | None
    ) -> Float[Tensor, "B I"]:
        """Return the prediction error of every item."""
        views = self._errors_of_views(observations, generator).unflatten(1, (self.items, self.views))
        errors: Tensor = views.mean(dim=-1)
        return errors

    @torch.no_grad()
    def novelty(
        self, observations: Shaped[Tensor, "B S *frame"], generator: torch.Generator | None
    ) -> Float[Tensor, "B I"]:
        """Return the error of every item in units of its mean before learning; 1 before the first update."""
        return torch.where(self.unit > 0, self.errors(observations, generator) / self.unit, 1.0)

    def prepare(self, observations: Shaped[Tensor, "B S *frame"], generator: torch.Generator) -> tuple[Tensor, ...]:
        """Draw the fractions of both networks, and return the random target's constants; measure the first batch."""
        if not self.measured:
            self._measure(observations, generator)
        fractions = self.predictor.fractions(Role.ACT, len(observations), generator)
        return (fractions, *self.target.cached_constants())

    def loss(
        self,
        observations: Shaped[Tensor, "B S *frame"],
        chosen: Int[Tensor, " B"] | None,
        prepared: tuple[Tensor, ...],
    ) -> Float[Tensor, ""]:
        """Mean square of the distances of the chosen items, or of all items, over all views; a pure function."""
        fractions, *constants = prepared
        with torch.no_grad():
            wanted = self.target(observations, fractions, tuple(constants))
        predicted = self.predictor(observations, fractions, self.predictor.head.constants())
        distance = predicted.w1(wanted).unflatten(1, (self.items, self.views))
        if chosen is not None:
            distance = distance[torch.arange(len(chosen), device=chosen.device), chosen]
        loss: Tensor = distance.square().mean()
        return loss

    @torch.no_grad()
    def _measure(self, observations: Shaped[Tensor, "B S *frame"], generator: torch.Generator) -> None:
        """Set the scales on the first batch: inputs to root mean square 1, errors to mean 1."""
        self.input_scale.measure(self.target.torso.inputs(observations))
        unit = self._errors_of_views(observations, generator).mean()
        self.unit.copy_(unit.clamp_min(torch.finfo(torch.float32).tiny))
        self.measured = True

    def _errors_of_views(
        self, observations: Shaped[Tensor, "B S *frame"], generator: torch.Generator | None
    ) -> Float[Tensor, "B IV"]:
        fractions = self.predictor.fractions(Role.ACT, len(observations), generator)
        distance = self.target.predict(observations, fractions).w1(self.predictor.predict(observations, fractions))
        errors: Tensor = distance.pow(self.power)
        return errors

    def state(self) -> dict[str, Tensor]:
        """Return the weights of both networks, the input scale and the unit of novelty."""
        return (
            {"unit": self.unit, "input_scale": self.input_scale.factor}
            | prefixed("target", self.target.state_dict())
            | prefixed("predictor", self.predictor.state_dict())
        )

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned."""
        self.input_scale.factor.copy_(tensors["input_scale"])
        restore({"target": self.target, "predictor": self.predictor}, tensors)
        self.unit.copy_(tensors["unit"])
        self.measured = bool(tensors["unit"] > 0)


class FutureValues:
    """U: the values of what lies ahead, learned on sampled transitions with a slowly moving target network.

    It starts at zero: nothing is known to lie ahead.
    """

    def __init__(self, factory: NetworkFactory, *, rate: float, input_scale: Scale | None = None) -> None:
        self.rate = rate
        base = replace(factory, head=Dqn(hidden=HIDDEN))
        self.network, self.target = (base.make("future") for _ in range(2))
        for network in (self.network, self.target):
            zero_values(network)
            if input_scale is not None:
                input_scale.before(network)
        self.optimiser = factory.make_optimiser({"future": self.network})

    def values(self, observations: Shaped[Tensor, "B S *frame"]) -> Float[Tensor, "B A"]:
        """Return the value of every action."""
        return values_of(self.network, observations)

    def target_values(self, observations: Shaped[Tensor, "B S *frame"]) -> Float[Tensor, "B A"]:
        """Return the value of every action according to the target network."""
        return values_of(self.target, observations)

    def learn(
        self,
        observations: Shaped[Tensor, "B S *frame"],
        actions: Int[Tensor, " B"],
        wanted: Float[Tensor, " B"],
    ) -> None:
        """Take one step of the sampled actions' values towards the wanted ones, and move the target network."""
        empty = torch.empty(len(actions), 0, device=actions.device)
        predicted = self.network(observations, empty, (), actions).mean()
        self.optimiser.step((predicted - wanted).square().mean())
        follow(self.target, self.network, self.rate)

    def state(self) -> dict[str, Tensor]:
        """Return the weights of both networks."""
        return prefixed("future", self.network.state_dict()) | prefixed("future_target", self.target.state_dict())

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned."""
        restore({"future": self.network, "future_target": self.target}, tensors)


@torch.no_grad()
def follow(target: Network, network: Network, rate: float) -> None:
    """Move the weights of a target network by a share of the way towards those of a network."""
    for target_weight, weight in zip(target.parameters(), network.parameters(), strict=True):
        target_weight.lerp_(weight, rate)


def restore(networks: Mapping[str, Network], tensors: Mapping[str, Tensor]) -> None:
    """Load the weights of networks from tensors with their names as prefixes."""
    for name, network in networks.items():
        network.load_state_dict(unprefixed(name, tensors))
        network.invalidate_cache()


def best_allowed(values: Float[Tensor, "B A"], masks: Bool[Tensor, "B A"] | None) -> Float[Tensor, " B"]:
    """Return the largest value of the allowed actions."""
    return allowed_scores(values, masks).max(dim=1).values


def values_of(network: Network, observations: Shaped[Tensor, "B S *frame"]) -> Float[Tensor, "B A"]:
    """Return the action values of a network with a DQN head."""
    return network.predict(observations, torch.empty(len(observations), 0, device=observations.device)).mean()


def zero_values(network: Network) -> None:
    """Make a network with a DQN head predict zero everywhere; it can still learn from there."""
    head = network.head
    assert isinstance(head, DqnHead)  # noqa: S101  # for the type checker
    head.last.multiply(0.0)
