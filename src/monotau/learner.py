"""The learner: online and target network, and one update of the online one."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from monotau.distributions import Distribution
from monotau.networks import Role
from monotau.networks.factory import NetworkFactory, prefixed, unprefixed
from monotau.replay import Batch


@dataclass(frozen=True)
class Update:
    """What an update leaves behind for others."""

    losses: Float[Tensor, " B"]
    """Loss of each transition, without importance weights."""
    current: Distribution | None
    """The target network's distributions of the replayed states and actions, where asked for."""


class Learner:
    """Fits the online network to Bellman targets made with the target network."""

    def __init__(self, factory: NetworkFactory, *, double_q: bool) -> None:
        self.online = factory.make("online")
        self.target = factory.make("online")
        self.target.requires_grad_(False)
        self.trainer = factory.trainer(self.online)
        self.double_q = double_q

    def update(self, batch: Batch, generator: torch.Generator, *, with_current: bool) -> Update:
        """One step on a batch; `with_current` adds the target's view of the replayed pairs, by the same pass."""
        head = self.online.head
        size = len(batch.actions)
        constants = head.constants()  # one table for the passes over this state and the next
        best = self._online_choice(batch, constants, generator) if self.double_q else None
        current, future = self._target_view(batch, best, generator, with_current=with_current)
        target = future.affine(batch.discounts, batch.rewards)
        fractions = head.fractions(Role.LEARN, size, generator)
        prediction = self.online(batch.observations, fractions, constants, batch.actions)
        losses = head.loss(prediction, target, generator)
        self.trainer.descend((losses * batch.weights).mean())
        return Update(losses.detach(), current)

    @torch.no_grad()
    def _online_choice(
        self, batch: Batch, constants: tuple[Tensor, ...], generator: torch.Generator
    ) -> Int[Tensor, " B"]:
        """Best next actions by the online network (double Q-learning)."""
        fractions = self.online.head.fractions(Role.ACT, len(batch.actions), generator)
        view: Distribution = self.online(batch.next_observations, fractions, constants)
        return view.mean().argmax(dim=1)

    @torch.no_grad()
    def _target_view(
        self, batch: Batch, best: Int[Tensor, " B"] | None, generator: torch.Generator, *, with_current: bool
    ) -> tuple[Distribution | None, Distribution]:
        """Target network's distributions of the replayed pairs, if asked, and of the best next ones, in one pass."""
        head, size = self.target.head, len(batch.actions)
        if best is None and head.samples:
            # A sampling head picks actions by fractions of their own, hence by a pass of its own.
            fractions = head.fractions(Role.ACT, size, generator)
            best = self.target.look(batch.next_observations, fractions).mean().argmax(dim=1)
        observations, actions = batch.next_observations, best
        if with_current:
            observations = torch.cat([batch.observations, observations])
            actions = None if best is None else torch.cat([batch.actions, best])
        view = self.target.look(observations, head.fractions(Role.TARGET, len(observations), generator), actions)
        if best is None:  # all actions are in view: take the best of the next states from the same pass
            best = view.rows(len(observations) - size, len(observations)).mean().argmax(dim=1)
            view = view.take(torch.cat([batch.actions, best]) if with_current else best)
        if not with_current:
            return None, view
        return view.rows(0, size), view.rows(size, 2 * size)

    def sync(self) -> None:
        """Copy the online network into the target network."""
        self.target.load_state_dict(self.online.state_dict())
        self.target.changed()

    def diagnose(self, batch: Batch, generator: torch.Generator) -> dict[str, float]:
        """Numbers worth logging about the online network's distributions in the states of a batch."""
        fractions = self.online.head.fractions(Role.LEARN, len(batch.actions), generator)
        view = self.online.look(batch.observations, fractions)
        numbers = {"q_mean": view.mean().max(dim=1).values.mean().item(), "crossing": view.crossing().mean().item()}
        return numbers | self.online.head.statistics(view)

    def state(self) -> dict[str, Tensor]:
        """Weights of both networks, by name."""
        return prefixed("online", self.online.state_dict()) | prefixed("target", self.target.state_dict())

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over weights that `state` returned."""
        for name, network in (("online", self.online), ("target", self.target)):
            network.load_state_dict(unprefixed(name, tensors))
            network.changed()
