"""Collectors gather the steps that training learns from: the contract, and a collector in this process."""

from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from monotau.config.schema import Config
from monotau.envs.config import EnvMaker
from monotau.learning.agent_networks import AgentNetworks
from monotau.learning.policy import EpisodeNumbers, RandomActions
from monotau.learning.rollout import Rollout
from monotau.replay import ALL_LANES, Newest, Steps
from monotau.seeding import numpy_stream, stream_seed, torch_stream


@dataclass(frozen=True)
class StepBatch:
    """One step in each of some lanes; a lane is one environment's section of the replay."""

    steps: Steps
    returns: list[float]
    """Returns of the episodes that ended in this step."""
    epsilon: float
    """Mean epsilon over all lanes."""
    lanes: slice
    truncated_at: Newest | None = None
    """Set if the lanes' actor died: the last frames it sent, where its unfinished episodes are truncated."""


class Collector(ABC):
    """Steps environments with the exploration policy of the networks in training."""

    newest: Newest
    """The newest frame of every lane after `collect`; unfinished episodes are truncated there."""

    def session(self, updates: int) -> AbstractContextManager[None]:
        """Hold resources such as processes during collection; `updates` is the number of updates so far."""
        return nullcontext()

    @abstractmethod
    def collect(self, iteration: int, step: int, steps: int) -> Generator[StepBatch]:
        """Collect `steps` steps in newly reset environments; `step` is the number of steps before them."""

    def learned(self, updates: int) -> None:
        """Tell the collector that the networks have had `updates` updates; nothing by default."""
        return

    def metrics(self) -> dict[str, float]:
        """Return averages since the last call; none by default."""
        return {}


class LocalCollector(Collector):
    """Acts and steps environments in this process, always with the current weights."""

    def __init__(self, config: Config, envs: EnvMaker, networks: AgentNetworks) -> None:
        self._config, self._envs, self._networks = config, envs, networks

    def collect(self, iteration: int, step: int, steps: int) -> Generator[StepBatch]:
        """Step all environments together."""
        config, lanes, policy = self._config, self._config.env.num_envs, self._networks.exploration_policy
        rng = numpy_stream(config.seed, "explore", iteration)
        generator = torch_stream(config.seed, "explore", iteration)
        seed = stream_seed(config.seed, "environments", iteration)
        random_actions = RandomActions(lanes, self._envs.num_actions)
        episodes = EpisodeNumbers(lanes)
        rollout = Rollout(self._envs, lanes, config.env.frame_stack, seed, step)
        try:
            for now in range(step, step + steps // lanes * lanes, lanes):
                learning_steps = now - config.replay.warmup_steps
                epsilon, longest = config.epsilon.at(learning_steps), config.epsilon.longest_at(learning_steps)
                numbers = episodes.begin(rollout.first, self._networks.explorer, generator)
                chosen = policy.explore(
                    rollout.observations, epsilon, rng, generator, random_actions, longest, rollout.masks, numbers
                )
                outcome = rollout.step(*chosen)
                self.newest = rollout.newest
                yield StepBatch(outcome.steps, [returned for _, returned, _ in outcome.returns], epsilon, ALL_LANES)
        finally:
            rollout.close()
