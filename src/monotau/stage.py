"""Where the steps of training are made: the contract, and the usual case, in this process."""

from abc import ABC, abstractmethod
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Shaped

from monotau.brain import Brain
from monotau.configs import Config
from monotau.envs import EnvFactory
from monotau.replay import ALL_LANES, Steps
from monotau.rollout import RandomActions, Rollout
from monotau.streams import numpy_stream, stream_seed, torch_stream


@dataclass(frozen=True)
class Move:
    """One step of each of some lanes."""

    steps: Steps
    returns: list[float]
    """Of the episodes that ended."""
    epsilon: float
    """Share of random actions, on average."""
    lanes: slice
    lost: Shaped[np.ndarray, "E *frame"] | None = None
    """If whoever played there is gone: the newest frames before, at which the episodes in flight are to be cut."""


class Stage(ABC):
    """Makes steps with a brain that learns meanwhile."""

    newest: Shaped[np.ndarray, "L *frame"]
    """The newest frame of every lane, once all moves were made: where the episodes in flight are to be cut."""

    @abstractmethod
    def moves(self, iteration: int, step: int, steps: int) -> Generator[Move]:
        """Make so many steps from `step` on, in fresh environments."""

    def learned(self, updates: int) -> None:
        """Take note that the brain has made so many updates by now."""
        return

    def metrics(self) -> dict[str, float]:
        """Return averages since the last call."""
        return {}


class Here(Stage):
    """Acts and steps in this process, with the weights of the moment."""

    def __init__(self, config: Config, envs: EnvFactory, brain: Brain) -> None:
        self._config, self._envs, self._brain = config, envs, brain

    def moves(self, iteration: int, step: int, steps: int) -> Generator[Move]:
        """Make one step of all environments at a time."""
        config, lanes = self._config, self._config.env.num_envs
        explore = numpy_stream(config.seed, "explore", iteration)
        fractions = torch_stream(config.seed, "explore", iteration)
        seed = stream_seed(config.seed, "environments", iteration)
        noise = RandomActions(lanes, self._envs.num_actions)
        rollout = Rollout(self._envs, lanes, config.env.frame_stack, seed, step)
        try:
            for now in range(step, step + steps // lanes * lanes, lanes):
                learning_steps = now - config.replay.warmup_steps
                epsilon, longest = config.epsilon.at(learning_steps), config.epsilon.longest_at(learning_steps)
                actions = self._brain.curious.act(rollout.observations, epsilon, explore, fractions, noise, longest)
                outcome = rollout.step(actions)
                self.newest = rollout.observations[:, -1]
                yield Move(outcome.steps, [returned for _, returned, _ in outcome.returns], epsilon, ALL_LANES)
        finally:
            rollout.close()
