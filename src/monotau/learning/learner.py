"""The learner: the online and the target network, and one update of the online network."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from monotau.config.schema import MunchausenConfig
from monotau.distributions import Distribution
from monotau.explorers import EpsilonGreedy, ExplorerConfig
from monotau.losses import entropy_bonus, munchausen_bonus, soft_policy
from monotau.networks import Constants, Estimate, Network, Role
from monotau.networks.compile import Compiled
from monotau.networks.factory import NetworkFactory, prefixed, unprefixed
from monotau.networks.masks import allowed_scores
from monotau.networks.optimiser import Gradients
from monotau.replay import Batch, Priority

EPSILON_GREEDY = EpsilonGreedy()
NO_MUNCHAUSEN = MunchausenConfig()


class Draws(NamedTuple):
    """All random fractions of an update, drawn in advance so that the losses are a pure function of them."""

    choice: Float[Tensor, "C n"]
    """For selecting the greedy next actions; with Munchausen, for the soft policy in the sampled and next states."""
    target: Float[Tensor, "T n"]
    """For the target network: next states, or sampled and next states."""
    prediction: Float[Tensor, "B n"]
    """For the online network's prediction."""


class Descent(NamedTuple):
    """Losses of all networks on a batch, and the gradients of their sum."""

    losses: Float[Tensor, " B"]
    """Of the online network, without importance weights."""
    errors: Float[Tensor, " B"] | None
    """Absolute TD errors, if asked for."""
    explorer_loss: Float[Tensor, ""] | None
    total: Float[Tensor, ""]
    gradients: Gradients


@dataclass(frozen=True)
class Update:
    """Results of an update that the replay and the log need."""

    losses: Float[Tensor, " B"]
    """Loss of each transition, without importance weights."""
    priorities: Float[Tensor, " B"]
    """The losses, or the absolute TD errors between the means of prediction and target if these were asked for."""


class Learner:
    """Fits the online network to Bellman targets from the target network, and the explorer's networks beside it."""

    def __init__(
        self,
        factory: NetworkFactory,
        *,
        double_q: bool,
        explorer: ExplorerConfig = EPSILON_GREEDY,
        averaged: bool = False,
        munchausen: MunchausenConfig = NO_MUNCHAUSEN,
    ) -> None:
        """Make the networks; if `averaged`, also one for a running average of the online weights."""
        self.online = factory.make("online")
        self.target = factory.make("online").requires_grad_(False)
        self.average = factory.make("online").requires_grad_(False) if averaged else None
        self.explorer = explorer.build(factory, self.online, self.target)
        self.optimiser = factory.make_optimiser({"online": self.online} | self.explorer.trained())
        self.double_q, self.scaling, self.munchausen = double_q, factory.scaling, munchausen
        # Collecting the weights takes longer than averaging those of a small network.
        self._weights: dict[str, list[Tensor]] = {
            name: list(network.parameters()) for name, network in self._networks.items()
        }
        self._compiler = factory.compiler
        self._descent = Compiled(self.descent, self._compiler)

    def update(self, batch: Batch, generator: torch.Generator, *, priority: Priority | None = None) -> Update:
        """Take one step of all networks on a batch; use the result before the next update."""
        self._compiler.begin_update()
        if self.scaling is not None:
            self.scaling.observe(batch.observations)
        for network in (self.online, self.target):
            network.resample_noise(generator)
        with_current = self.explorer.wants_target
        draws = self.draw(len(batch.actions), generator, with_current=with_current)
        descent = self._descent(
            batch,
            draws,
            self.explorer.prepare(batch, generator),
            self.target.cached_constants(),
            with_current=with_current,
            with_errors=priority == "td",
        )
        self.optimiser.descend(descent.total, descent.gradients)
        if descent.explorer_loss is not None:
            self.explorer.record(descent.explorer_loss)
        self.explorer.learn(batch, generator)
        for network in (self.online, self.target):
            network.resample_noise(None)
        return Update(descent.losses, descent.losses if descent.errors is None else descent.errors)

    def draw(self, size: int, generator: torch.Generator, *, with_current: bool) -> Draws:
        """Draw the fractions of an update."""
        soft = self.munchausen.alpha > 0
        # The policy in the sampled states takes a pass of its own if the head samples, and is read off the target's
        # distributions if it does not.
        both_states = with_current or (soft and not self.target.head.samples)
        return Draws(
            self.online.fractions(Role.ACT, 2 * size if soft else size, generator),
            self.target.fractions(Role.TARGET, 2 * size if both_states else size, generator),
            self.online.fractions(Role.LEARN, size, generator),
        )

    def descent(
        self,
        batch: Batch,
        draws: Draws,
        prepared: tuple[Tensor, ...],
        target_constants: Constants,
        *,
        with_current: bool,
        with_errors: bool,
    ) -> Descent:
        """Return the losses on a batch and their gradients: a pure function, which can be compiled into one graph."""
        losses, side, current, errors = self.losses(
            batch, draws, target_constants, with_current=with_current, with_errors=with_errors
        )
        explorer_loss = self.explorer.loss(batch, current, prepared)
        total = (losses * batch.weights).mean()
        for part in (side, explorer_loss):
            total = total if part is None else total + part
        gradients = self.optimiser.gradients(total)
        explorer_loss = None if explorer_loss is None else explorer_loss.detach()
        return Descent(losses.detach(), errors, explorer_loss, total.detach(), gradients)

    def losses(
        self,
        batch: Batch,
        draws: Draws,
        target_constants: Constants,
        *,
        with_current: bool,
        with_errors: bool = False,
    ) -> tuple[Float[Tensor, " B"], Float[Tensor, ""] | None, Estimate | None, Float[Tensor, " B"] | None]:
        """Return losses, the head's side loss, the target's distributions of sampled pairs, and absolute TD errors."""
        constants = self.online.head.constants()  # shared by the passes over the current and the next states
        current, target = self._targets(batch, draws, constants, target_constants, with_current=with_current)
        losses, side, errors = self.online.losses(
            batch.observations, batch.actions, draws.prediction, constants, target, with_errors=with_errors
        )
        return losses, side, current, errors

    def _targets(
        self, batch: Batch, draws: Draws, constants: Constants, target_constants: Constants, *, with_current: bool
    ) -> tuple[Estimate | None, Estimate]:
        """Return the target's distributions of the sampled pairs, if asked for, and the Bellman targets."""
        if self.munchausen.alpha:
            return self._soft_targets(batch, draws, target_constants, with_current=with_current)
        best = self._online_choice(batch, draws, constants) if self.double_q else None
        current, future = self._target_distributions(batch, best, draws, target_constants, with_current=with_current)
        return current, Estimate(future.distribution.affine(batch.discounts, batch.rewards), future.fractions)

    @torch.no_grad()
    def _soft_targets(
        self, batch: Batch, draws: Draws, constants: Constants, *, with_current: bool
    ) -> tuple[Estimate | None, Estimate]:
        """Return what `_targets` does, with Munchausen's targets (M-IQN, Vieillard et al. 2020, arXiv 2007.14430).

        The target network's softmax policy weights all next actions, its entropy adds to their return, and the
        log-probability of the taken action to the reward. With n-step returns only the first action has such a bonus,
        as in BTR (Clark et al. 2024, arXiv 2411.03820): the policy of the steps between would take a pass for each.
        """
        size, setting = len(batch.actions), self.munchausen
        both = torch.cat([batch.observations, batch.next_observations])
        seen = both if len(draws.target) == 2 * size else batch.next_observations
        predicted: Distribution = self.target(seen, draws.target, constants)
        values = self.target.values(both, draws.choice, constants) if self.target.head.samples else predicted.mean()
        masks = None
        if batch.masks is not None and batch.next_masks is not None:
            masks = torch.cat([batch.masks, batch.next_masks])
        policy, scaled_logs = soft_policy(allowed_scores(values, masks), setting.temperature)
        taken = scaled_logs[:size].gather(1, batch.actions[:, None])[:, 0]
        rewards = batch.rewards + munchausen_bonus(taken, setting.alpha, setting.clip)
        rewards = rewards + batch.discounts * entropy_bonus(policy[size:], scaled_logs[size:])
        future = predicted.rows(len(seen) - size, len(seen)).average(policy[size:])
        target = Estimate(future.affine(batch.discounts, rewards), draws.target[len(seen) - size :])
        if not with_current:
            return None, target
        return Estimate(predicted.rows(0, size).take(batch.actions), draws.target[:size]), target

    @torch.no_grad()
    def _online_choice(self, batch: Batch, draws: Draws, constants: Constants) -> Int[Tensor, " B"]:
        """Return the greedy next actions of the online network, among those allowed (double Q-learning)."""
        values = self.online.values(batch.next_observations, draws.choice, constants)
        return allowed_scores(values, batch.next_masks).argmax(dim=1)

    @torch.no_grad()
    def _target_distributions(
        self,
        batch: Batch,
        best: Int[Tensor, " B"] | None,
        draws: Draws,
        constants: Constants,
        *,
        with_current: bool,
    ) -> tuple[Estimate | None, Estimate]:
        """Return the target's distributions of the sampled pairs, if asked for, and of the next ones, in one pass."""
        size = len(batch.actions)
        if best is None and self.target.head.samples:
            # A sampling head selects actions with separate fractions, which takes a separate pass.
            values = self.target.values(batch.next_observations, draws.choice, constants)
            best = allowed_scores(values, batch.next_masks).argmax(dim=1)
        observations, actions = batch.next_observations, best
        if with_current:
            observations = torch.cat([batch.observations, observations])
            actions = None if best is None else torch.cat([batch.actions, best])
        predicted: Distribution = self.target(observations, draws.target, constants, actions)
        if best is None:  # all actions were predicted: select the best next ones from the same pass
            values = predicted.rows(len(observations) - size, len(observations)).mean()
            best = allowed_scores(values, batch.next_masks).argmax(dim=1)
            predicted = predicted.take(torch.cat([batch.actions, best]) if with_current else best)
        estimate = Estimate(predicted, draws.target)
        if not with_current:
            return None, estimate
        return estimate.rows(0, size), estimate.rows(size, 2 * size)

    def sync(self, share: float = 1.0) -> None:
        """Move the target network's weights by a share of the way towards the online network's; 1 copies them."""
        self._approach("target", share)

    def update_average(self, share: float) -> None:
        """Move the averaged weights, if there are any, by a share of the way towards the online network's."""
        if self.average is not None:
            self._approach("average", share)

    @torch.no_grad()
    def _approach(self, name: str, share: float) -> None:
        network = self._networks[name]
        if share == 1:
            network.load_state_dict(self.online.state_dict())
        else:
            torch._foreach_lerp_(self._weights[name], self._weights["online"], share)
        network.invalidate_cache()

    @property
    def _networks(self) -> dict[str, Network]:
        """All networks, by the names of their weights."""
        averaged = {} if self.average is None else {"average": self.average}
        return {"online": self.online, "target": self.target} | averaged

    def rescale(self, factor: float) -> None:
        """Multiply the predictions of all networks by `factor`, because the unit of returns was divided by it."""
        for network in self._networks.values():
            network.rescale(factor)

    def finite(self) -> bool:
        """Whether all weights of the online network are finite."""
        return all(bool(parameter.isfinite().all()) for parameter in self.online.parameters())

    @torch.no_grad()
    def diagnose(self, batch: Batch, generator: torch.Generator) -> dict[str, float]:
        """Return metrics of the online network's distributions in the states of a batch."""
        states, count = batch.observations, len(batch.actions)
        sampled = self.online.predict(states, self.online.fractions(Role.LEARN, count, generator))
        shared = sampled
        if self.online.head.samples:
            # The same fractions in all states: sampling noise would hide that the states have the same value.
            shared = self.online.predict(states, self.online.fractions(Role.ACT, 1, None).expand(count, -1))
        best = allowed_scores(shared.mean(), batch.masks).max(dim=1).values
        # A q_std of about zero means that the network does not distinguish states: its features have died.
        numbers = {"q_mean": best.mean().item(), "q_std": best.std(correction=0).item()}
        numbers["crossing"] = sampled.crossing().mean().item()
        if (states != states[:1]).any():  # both need at least two different states
            size = shared.magnitude().mean().clamp_min(torch.finfo(torch.float32).tiny)
            numbers["q_contrast"] = (best.std(correction=0) / size).item()
            numbers["dead_features"] = (self.online.torso(states) == 0).all(dim=0).float().mean().item()
        return numbers | self.online.head.statistics(sampled) | self._outside_support(batch, generator)

    def _outside_support(self, batch: Batch, generator: torch.Generator) -> dict[str, float]:
        """Return the share of the Bellman targets' mass outside the head's support, and the largest overshoot.

        Overshoot is the distance of a target's mean from the support, in half-widths of the support.
        """
        if self.online.head.reach is None:
            return {}
        low, high = self.online.head.reach
        draws, half = self.draw(len(batch.actions), generator, with_current=False), (high - low) / 2
        _, target = self._targets(
            batch, draws, self.online.cached_constants(), self.target.cached_constants(), with_current=False
        )
        mean = target.distribution.mean()
        return {
            # Rounding errors do not count.
            "clipped": target.distribution.outside(low - 1e-3 * half, high + 1e-3 * half).mean().item(),
            "overshoot": torch.maximum(low - mean, mean - high).max().clamp_min(0).item() / half,
        }

    def state(self) -> dict[str, Tensor]:
        """Return the weights of all networks, by name."""
        states = (prefixed(name, network.state_dict()) for name, network in self._networks.items())
        return {name: tensor for state in states for name, tensor in state.items()}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the weights that `state` returned."""
        for name, network in self._networks.items():
            network.load_state_dict(unprefixed(name, tensors))
            network.invalidate_cache()
