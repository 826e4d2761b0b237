"""Policies: greedy with respect to the mean return, a risk measure or an explorer's scores, plus random actions."""

from functools import cache

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from monotau.distributions import MEAN, Distribution, Point, Risk
from monotau.explorers import Explorer
from monotau.networks import Network, Role
from monotau.networks.devices import sent
from monotau.networks.masks import allowed_scores


def random_actions(
    rng: np.random.Generator, count: int, actions: int, masks: Bool[np.ndarray, "E A"] | None = None
) -> Int[np.ndarray, " E"]:
    """Draw `count` actions uniformly, each among those that its mask allows."""
    if masks is None:
        return rng.integers(actions, size=count)
    ranks = rng.integers(masks.sum(axis=1))
    chosen: np.ndarray = (masks.cumsum(axis=1) > ranks[:, None]).argmax(axis=1)
    return chosen


class RandomActions:
    """Draws random actions and which environments take them; an action may be repeated for several steps."""

    def __init__(self, lanes: int, actions: int) -> None:
        self._actions = actions
        self._left = np.zeros(lanes, np.int64)
        self._current = np.zeros(lanes, np.int64)

    def draw(
        self,
        epsilon: float | Float[np.ndarray, " E"],
        rng: np.random.Generator,
        longest: int = 1,
        masks: Bool[np.ndarray, "E A"] | None = None,
    ) -> tuple[Int[np.ndarray, " E"], Bool[np.ndarray, " E"]]:
        """Return a random action for each environment, and whether to take it, with probability `epsilon` overall.

        A random action that starts now lasts for at most `longest` steps. If it is not allowed any more, another one
        takes its place for the steps that are left.
        """
        lanes = len(self._left)
        drawn, chance = random_actions(rng, lanes, self._actions, masks), rng.random(lanes)
        if longest == 1 and not self._left.any():
            return drawn, chance < epsilon
        cumulative, mean = _repeat_lengths(longest)
        # Longer repeats must start less often, so that random actions still take a share epsilon of all steps.
        starts = (self._left == 0) & (chance * (epsilon + mean * (1 - epsilon)) < epsilon)
        replaced = starts if masks is None else starts | ~masks[np.arange(lanes), self._current]
        self._current = np.where(replaced, drawn, self._current)
        self._left = np.where(starts, 1 + np.searchsorted(cumulative, rng.random(lanes), side="right"), self._left)
        taken = self._left > 0
        self._left = self._left - taken
        return self._current.copy(), taken


@cache
def _repeat_lengths(longest: int) -> tuple[Float[np.ndarray, " n"], float]:
    """Return the cumulative probabilities of repeat lengths, without the last, and the mean length.

    The probability of a length is proportional to one over the length.
    """
    probabilities = 1.0 / np.arange(1, longest + 1)
    probabilities /= probabilities.sum()
    return probabilities.cumsum()[:-1], float(probabilities @ np.arange(1, longest + 1))


class EpisodeNumbers:
    """The numbers that an explorer drew for the episodes in progress, one for each environment."""

    def __init__(self, lanes: int) -> None:
        self._numbers = np.zeros(lanes, np.int64)

    def begin(
        self, first: Bool[np.ndarray, " E"], explorer: Explorer, generator: torch.Generator
    ) -> Int[np.ndarray, " E"]:
        """Draw numbers where an episode starts, and return those of all environments."""
        count = int(np.count_nonzero(first))
        drawn = explorer.draw_episodes(count, generator) if count else None
        if drawn is not None:
            self._numbers[first] = drawn.numpy()
        return self._numbers


class Policy:
    """Selects actions: random with probability epsilon, else those with the explorer's highest score.

    Without an explorer, the score is the `risk` measure of the return, by default its mean.
    """

    def __init__(self, network: Network, actions: int, explorer: Explorer | None = None, risk: Risk = MEAN) -> None:
        self.network, self.actions, self.explorer, self.risk = network, actions, explorer, risk
        self.device = next(network.parameters()).device

    def act(
        self,
        observations: Shaped[np.ndarray, "E S *frame"],
        epsilon: float,
        rng: np.random.Generator,
        generator: torch.Generator | None,
        masks: Bool[np.ndarray, "E A"] | None = None,
    ) -> Int[np.ndarray, " E"]:
        """Select one allowed action for each environment, random with probability `epsilon`."""
        noise = RandomActions(len(observations), self.actions)
        return self.explore(observations, epsilon, rng, generator, noise, masks=masks)[0]

    @torch.no_grad()
    def explore(
        self,
        observations: Shaped[np.ndarray, "E S *frame"],
        epsilon: float | Float[np.ndarray, " E"],
        rng: np.random.Generator,
        generator: torch.Generator | None,
        noise: RandomActions,
        longest: int = 1,
        masks: Bool[np.ndarray, "E A"] | None = None,
        numbers: Int[np.ndarray, " E"] | None = None,
    ) -> tuple[Int[np.ndarray, " E"], Bool[np.ndarray, " E"]]:
        """Select one allowed action for each environment, which may have its own epsilon, and say which are random.

        Networks run only where the action is not random. `noise` tracks repeated random actions, of at most `longest`
        steps; `numbers` are those of the episodes in progress.
        """
        actions, random = noise.draw(epsilon, rng, longest, masks)
        greedy = ~random
        if greedy.all():
            return self.best(observations, generator, masks, numbers), random
        if greedy.any():
            of_greedy = (None if rows is None else rows[greedy] for rows in (masks, numbers))
            actions[greedy] = self.best(observations[greedy], generator, *of_greedy)
        return actions, random

    @torch.no_grad()
    def best(
        self,
        observations: Shaped[np.ndarray, "E S *frame"],
        generator: torch.Generator | None,
        masks: Bool[np.ndarray, "E A"] | None = None,
        numbers: Int[np.ndarray, " E"] | None = None,
    ) -> Int[np.ndarray, " E"]:
        """Return the action with the highest score for each observation, among those that its mask allows."""
        (batch,) = sent((torch.from_numpy(observations),), self.device)
        allowed = None if masks is None else sent((torch.from_numpy(masks),), self.device)[0]
        return allowed_scores(self._scores(batch, generator, allowed, numbers), allowed).argmax(dim=1).cpu().numpy()

    def _scores(
        self,
        batch: Shaped[Tensor, "E S *frame"],
        generator: torch.Generator | None,
        allowed: Bool[Tensor, "E A"] | None,
        numbers: Int[np.ndarray, " E"] | None,
    ) -> Float[Tensor, "E A"]:
        if self.explorer is None:
            return self.risk.of(self._prediction(batch, generator, self.risk == MEAN))
        self.network.resample_noise(generator)  # noisy weights are for exploration only
        prediction = self._prediction(batch, generator, mean_only=not self.explorer.wants_spread)
        if numbers is None:
            scores = self.explorer.scores(batch, prediction, generator, allowed)
        else:
            (episodes,) = sent((torch.from_numpy(numbers),), self.device)
            scores = self.explorer.scores_in_episodes(batch, prediction, generator, allowed, episodes)
        self.network.resample_noise(None)
        return scores

    def _prediction(
        self, batch: Shaped[Tensor, "E S *frame"], generator: torch.Generator | None, mean_only: bool
    ) -> Distribution:
        """Return the distributions of all actions, or point masses at their means, which may be cheaper."""
        fractions = self.network.fractions(Role.ACT, len(batch), generator)
        if mean_only:
            return Point(self.network.predict_values(batch, fractions))
        return self.network.predict(batch, fractions)
