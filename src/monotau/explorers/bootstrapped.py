"""Bootstrapped DQN with randomised priors: act in each episode by the values of one member of an ensemble.

Osband, Blundell, Pritzel, Van Roy 2016, arXiv 1602.04621; Osband, Aslanides, Cassirer 2018, arXiv 1806.03335.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64, Shaped, UInt64
from torch import Tensor

from monotau.distributions import Distribution
from monotau.errors import check_least, check_not_negative, check_share
from monotau.explorers.base import Explorer, ExplorerConfig, drain_means
from monotau.explorers.novelty import HIDDEN, Scale, follow, restore, values_of, without_options
from monotau.networks import Estimate, Network
from monotau.networks.factory import NetworkFactory, prefixed
from monotau.networks.heads.dqn import Dqn
from monotau.replay import Batch


@dataclass(frozen=True, kw_only=True)
class Bootstrapped(ExplorerConfig):
    """Act greedily on Q_k, the values of a member k of an ensemble that is drawn anew for each episode.

    Q_k = f_k + prior_scale * p_k, with f_k trained on a random part of the transitions and p_k random and fixed: where
    data are scarce, the priors make the members disagree. Evaluation follows the agent's head, which learns from the
    same replay. Bootstrapped DQN: Osband et al. 2016, arXiv 1602.04621; priors: Osband et al. 2018, arXiv 1806.03335.
    """

    members: int = 20
    """Size of the ensemble (20 in the authors' agent for bsuite, arXiv 1908.03568)."""
    prior_scale: float = 3.0
    """Weight of the priors, which have a root mean square of about 1 in the unit of returns (3 in the authors' agent
    for bsuite)."""
    inclusion: float = 0.5
    """Probability that a transition trains a member, fixed for the time that it is stored (0.5 in the authors' agent
    for bsuite)."""
    target_rate: float = 0.1
    """Step by which the ensemble's target network moves at each update; the authors copy it every four updates."""

    def __post_init__(self) -> None:
        check_least("explorer.", self, members=1)
        check_not_negative("explorer.", self, "prior_scale")
        check_share("explorer.", self, "inclusion", "target_rate")

    def build(self, factory: NetworkFactory, online: Network, target: Network) -> "BootstrappedExplorer":
        """Make the explorer."""
        return BootstrappedExplorer(self, factory)


class BootstrappedExplorer(Explorer):
    """Owns the ensemble, its target network and the priors.

    Departures: the members share the torso and a hidden layer, as the priors do among themselves (the authors share
    the torso on Atari and nothing in bsuite), and inputs are scaled to a root mean square of 1.
    """

    def __init__(self, config: Bootstrapped, factory: NetworkFactory) -> None:
        self.config, self.actions = config, factory.actions
        self.input_scale, self.measured = Scale(), False
        base = replace(without_options(factory), head=Dqn(hidden=HIDDEN), actions=factory.actions * config.members)
        learned = replace(base, layers=replace(base.layers, last_gain=factory.layers.last_gain))
        self.ensemble, self.target = (self.input_scale.before(learned.make("ensemble")) for _ in range(2))
        self.priors = self.input_scale.before(base.make("priors"))
        self.networks = {"ensemble": self.ensemble, "ensemble_target": self.target, "priors": self.priors}
        self.recent_losses: list[Tensor] = []

    def draw_episodes(self, count: int, generator: torch.Generator) -> Int[Tensor, " count"]:
        """Draw a member for each episode."""
        return torch.randint(self.config.members, (count,), generator=generator)

    @torch.no_grad()
    def values(self, observations: Shaped[Tensor, "B S *frame"]) -> Float[Tensor, "B A K"]:
        """Return the value of every action according to every member."""
        return self._by_member(
            values_of(self.ensemble, observations) + self.config.prior_scale * values_of(self.priors, observations)
        )

    def scores_in_episodes(
        self,
        observations: Shaped[Tensor, "B S *frame"],
        prediction: Distribution,
        generator: torch.Generator | None,
        masks: Bool[Tensor, "B A"] | None,
        numbers: Int[Tensor, " B"],
    ) -> Float[Tensor, "B A"]:
        """Return the values according to the member of each episode."""
        rows = torch.arange(len(numbers), device=numbers.device)
        return self.values(observations)[rows, :, numbers]

    def scores(
        self,
        observations: Shaped[Tensor, "B S *frame"],
        prediction: Distribution,
        generator: torch.Generator | None,
        masks: Bool[Tensor, "B A"] | None = None,
    ) -> Float[Tensor, "B A"]:
        """Return the values according to a member drawn for each observation; without a generator, their mean."""
        if generator is None:
            return self.values(observations).mean(dim=-1)
        numbers = self.draw_episodes(len(observations), generator).to(observations.device)
        return self.scores_in_episodes(observations, prediction, generator, masks, numbers)

    def bonus(
        self, observations: Shaped[Tensor, "B S *frame"], generator: torch.Generator | None
    ) -> Float[Tensor, "B A"]:
        """Return the deviation of the members' values, which shows their disagreement; acting adds it to nothing."""
        return self.values(observations).std(dim=-1, correction=0)

    def trained(self) -> dict[str, Network]:
        """Return the ensemble."""
        return {"ensemble": self.ensemble}

    def prepare(self, batch: Batch, generator: torch.Generator) -> tuple[Tensor, ...]:
        """Return which transitions train which members; measure the scale of inputs on the first batch."""
        if not self.measured:
            self.input_scale.measure(self.ensemble.torso.inputs(batch.observations))
            self.measured = True
        chosen = included(batch.index, self.config.members, self.config.inclusion)
        return (torch.from_numpy(chosen).to(batch.rewards.device),)

    def loss(self, batch: Batch, target: Estimate | None, prepared: tuple[Tensor, ...]) -> Float[Tensor, ""]:
        """Mean over members and transitions of the squared TD errors of the transitions that train a member.

        Each member has the target r + discount * max_a Q_k(x',a) of its own (arXiv 1806.03335, Section 3).
        """
        (chosen,) = prepared
        nothing = torch.empty(len(batch.actions), 0, device=batch.actions.device)
        rows = torch.arange(len(batch.actions), device=batch.actions.device)
        with torch.no_grad():
            fixed, later, ahead = (
                self._by_member(network(observations, nothing, ()).mean())
                for network, observations in (
                    (self.priors, batch.observations),
                    (self.priors, batch.next_observations),
                    (self.target, batch.next_observations),
                )
            )
            ahead = ahead + self.config.prior_scale * later
            if batch.next_masks is not None:
                ahead = ahead.masked_fill(~batch.next_masks[..., None], -torch.inf)
            wanted = batch.rewards[:, None] + batch.discounts[:, None] * ahead.amax(dim=1)
            wanted = wanted - self.config.prior_scale * fixed[rows, batch.actions]
        predicted = self._by_member(self.ensemble(batch.observations, nothing, ()).mean())[rows, batch.actions]
        loss: Tensor = ((predicted - wanted).square() * chosen).mean()
        return loss

    def _by_member(self, values: Float[Tensor, "B AK"]) -> Float[Tensor, "B A K"]:
        split: Tensor = values.unflatten(1, (self.actions, self.config.members))
        return split

    def record(self, loss: Float[Tensor, ""]) -> None:
        """Keep the loss for `metrics`."""
        self.recent_losses.append(loss)

    def learn(self, batch: Batch, generator: torch.Generator) -> None:
        """Move the target network towards the ensemble."""
        follow(self.target, self.ensemble, self.config.target_rate)

    def rescale(self, factor: float) -> None:
        """Scale the values of the members and their priors."""
        for network in self.networks.values():
            network.rescale(factor)

    def metrics(self) -> dict[str, float]:
        """Return the ensemble's mean loss since the last call."""
        return drain_means(ensemble_loss=self.recent_losses)

    def state(self) -> dict[str, Tensor]:
        """Return the weights of all networks and the scale of inputs; 0 if it was not measured."""
        scale = self.input_scale.factor * self.measured
        tensors = {"input_scale": scale}
        for name, network in self.networks.items():
            tensors |= prefixed(name, network.state_dict())
        return tensors

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the weights and the scale."""
        self.measured = bool(tensors["input_scale"] > 0)
        if self.measured:
            self.input_scale.factor.copy_(tensors["input_scale"])
        restore(self.networks, tensors)


def included(index: Int64[np.ndarray, "B"], members: int, probability: float) -> Bool[np.ndarray, "B K"]:
    """Return which members each stored transition trains: independent of each other, and fixed by its slot.

    The random numbers are hashes of slot and member, so that they need no memory and survive an interruption.
    """
    pairs = index[:, None] * members + np.arange(members)
    below: np.ndarray = (hashed(pairs) >> np.uint64(11)) * 2.0**-53 < probability
    return below


def hashed(numbers: Int64[np.ndarray, "..."]) -> UInt64[np.ndarray, "..."]:
    """Return the outputs number 0, 1, ... of SplitMix64 seeded with 0 (Steele et al. 2014, doi 10.1145/2660193)."""
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64
        mixed = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    result: np.ndarray = mixed ^ (mixed >> np.uint64(31))
    return result
