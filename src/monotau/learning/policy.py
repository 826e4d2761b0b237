"""Policies: greedy in the mean return, in a risk measure or in an explorer's scores, with random actions mixed in."""

from functools import cache

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from monotau.distributions import MEAN, Distribution, Point, Risk
from monotau.explorers import Explorer
from monotau.networks import Network, Role
from monotau.networks.devices import sent


class RandomActions:
    """Draws random actions and says which environments take them; an action may go on for several steps."""

    def __init__(self, lanes: int, actions: int) -> None:
        self._actions = actions
        self._left = np.zeros(lanes, np.int64)
        self._current = np.zeros(lanes, np.int64)

    def draw(
        self, epsilon: float | Float[np.ndarray, " E"], rng: np.random.Generator, longest: int = 1
    ) -> tuple[Int[np.ndarray, " E"], Bool[np.ndarray, " E"]]:
        """Return an action for each environment, and whether it is to be taken: in a share `epsilon` of all steps.

        A random action that begins now goes on for at most `longest` steps.
        """
        lanes = len(self._left)
        fresh, chance = rng.integers(self._actions, size=lanes), rng.random(lanes)
        if longest == 1 and not self._left.any():
            return fresh, chance < epsilon
        reached, mean = _lengths(longest)
        # Repeats of this mean length must begin less often, for their share of the steps to be epsilon.
        begins = (self._left == 0) & (chance * (epsilon + mean * (1 - epsilon)) < epsilon)
        self._current = np.where(begins, fresh, self._current)
        self._left = np.where(begins, 1 + np.searchsorted(reached, rng.random(lanes), side="right"), self._left)
        taken = self._left > 0
        self._left = self._left - taken
        return self._current.copy(), taken


@cache
def _lengths(longest: int) -> tuple[Float[np.ndarray, " n"], float]:
    """Chances that a repeat is of at most 1, 2, ... steps but not all, and its mean length.

    The chance of a length is in proportion to one over its square.
    """
    shares = 1.0 / np.arange(1, longest + 1) ** 2
    shares /= shares.sum()
    return shares.cumsum()[:-1], float(shares @ np.arange(1, longest + 1))


class Policy:
    """Chooses actions: at random with probability epsilon, else by the explorer's scores.

    Without an explorer the score of an action is `risk` of its return: the mean, if nothing else is asked for.
    """

    def __init__(self, network: Network, actions: int, explorer: Explorer | None = None, risk: Risk = MEAN) -> None:
        self.network, self.actions, self.explorer, self.risk = network, actions, explorer, risk
        self.device = next(network.parameters()).device

    @torch.no_grad()
    def act(
        self,
        observations: Shaped[np.ndarray, "E S *frame"],
        epsilon: float | Float[np.ndarray, " E"],
        rng: np.random.Generator,
        generator: torch.Generator | None,
        noise: RandomActions | None = None,
        longest: int = 1,
    ) -> Int[np.ndarray, " E"]:
        """Choose one action for each environment, which may have its own epsilon.

        Networks are run only for actions that are not random. `noise` remembers random actions that go on, for at most
        `longest` steps; without it each is for one step.
        """
        actions, random = (noise or RandomActions(len(observations), self.actions)).draw(epsilon, rng, longest)
        greedy = ~random
        if greedy.all():
            return self.best(observations, generator)
        if greedy.any():
            actions[greedy] = self.best(observations[greedy], generator)
        return actions

    @torch.no_grad()
    def best(
        self, observations: Shaped[np.ndarray, "E S *frame"], generator: torch.Generator | None
    ) -> Int[np.ndarray, " E"]:
        """Return the action with the highest score in each observation."""
        (batch,) = sent((torch.from_numpy(observations),), self.device)
        if self.explorer is None:
            return self.risk.of(self._prediction(batch, generator, self.risk == MEAN)).argmax(dim=1).cpu().numpy()
        self.network.resample_noise(generator)  # noise of the weights is for those who explore
        prediction = self._prediction(batch, generator, mean_only=not self.explorer.wants_spread)
        scores = self.explorer.scores(batch, prediction, generator)
        self.network.resample_noise(None)
        return scores.argmax(dim=1).cpu().numpy()

    def _prediction(
        self, batch: Shaped[Tensor, "E S *frame"], generator: torch.Generator | None, mean_only: bool
    ) -> Distribution:
        """Return distributions of all actions, or points at their means, which may take less work."""
        fractions = self.network.fractions(Role.ACT, len(batch), generator)
        if mean_only:
            return Point(self.network.predict_values(batch, fractions))
        return self.network.predict(batch, fractions)
