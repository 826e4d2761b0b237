"""The actor process: it steps its environments with a copy of the networks and sends the steps to the learner."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer, Shaped

from monotau.config.imports import import_parts
from monotau.config.schema import Config
from monotau.envs.make import EnvFactory, EnvSource
from monotau.learning.agent_networks import AgentNetworks
from monotau.learning.policy import EpisodeNumbers, RandomActions
from monotau.learning.rollout import Rollout
from monotau.replay import Newest, Steps
from monotau.seeding import numpy_stream, stream_seed, torch_stream

Weights = dict[str, np.ndarray]
"""The state of `AgentNetworks` as arrays, which processes share without copying."""


class CollectRequest(NamedTuple):
    """What an actor should collect next."""

    iteration: int
    """A new iteration starts with freshly reset environments."""
    step: int
    """Training step at the time of the request."""
    steps: int
    """Steps per environment."""
    epsilons: Float[np.ndarray, " E"]


@dataclass(frozen=True)
class Experience:
    """T consecutive steps of E environments."""

    frames: Shaped[np.ndarray, "T E *frame"]
    first: Bool[np.ndarray, "T E"]
    actions: Integer[np.ndarray, "T E"]
    rewards: Float[np.ndarray, "T E"]
    terminated: Bool[np.ndarray, "T E"]
    truncated: Bool[np.ndarray, "T E"]
    random: Bool[np.ndarray, "T E"]
    finals: dict[int, Newest]
    """Frames after steps that truncated an episode; the replay needs no others."""
    newest: Newest
    """Frames after the last step."""
    returns: list[list[float]]
    """Returns of the episodes that ended in each step."""
    metrics: dict[str, float]
    """Metrics of the explorer."""
    stats: dict[str, np.ndarray]
    """Statistics that the explorer gathered while acting."""
    masks: Bool[np.ndarray, "T E A"] | None = None

    @classmethod
    def of(
        cls, steps: list[Steps], returns: list[list[float]], newest: Newest, networks: AgentNetworks
    ) -> "Experience":
        """Stack steps to send them."""
        masks = () if newest.masks is None else ("masks",)
        columns = ("frames", "first", "actions", "rewards", "terminated", "truncated", "random", *masks)
        return cls(
            **{name: np.stack([getattr(step, name) for step in steps]) for name in columns},
            finals={
                number: Newest(step.final_frames, step.final_masks)
                for number, step in enumerate(steps)
                if step.truncated.any()
            },
            newest=newest._replace(frames=newest.frames.copy()),
            returns=returns,
            metrics=networks.explorer.metrics(),
            stats={name: tensor.numpy() for name, tensor in networks.explorer.drain_stats().items()},
        )

    def __len__(self) -> int:
        return len(self.frames)

    def step(self, number: int) -> Steps:
        """Return one of the steps in the replay's format."""
        masks = None if self.masks is None else self.masks[number]
        final = self.finals.get(number, Newest(self.frames[number], masks))
        return Steps(
            self.frames[number],
            self.first[number],
            self.actions[number],
            self.rewards[number],
            self.terminated[number],
            self.truncated[number],
            final.frames,
            self.random[number],
            masks,
            final.masks,
        )


class RolloutActor:
    """Acts with the weights that it received last.

    It builds its networks and environments at the first request, so that errors reach the caller.
    """

    def __init__(self, config: Config, source: EnvSource | None, number: int, life: int) -> None:
        self._config = replace(config, device="cpu", compile="off")
        self._source = source
        self._name = f"actor {number}" if not life else f"actor {number}, life {life}"
        self._networks: AgentNetworks | None = None
        self._rollout: Rollout | None = None
        self._iteration = -1

    def collect(self, request: CollectRequest, weights: Weights | None) -> Experience:
        """Collect the requested steps with the given weights, or with the current ones if there are none."""
        config = self._config
        if self._networks is None:
            torch.set_num_threads(1)
            import_parts(*config.imports)  # the user has named them to the learner
            self._envs = EnvFactory(config.env, self._source)
            self._networks = AgentNetworks(config, self._envs.observation_spec, self._envs.num_actions)
        if weights is not None:
            self._networks.load_state({name: torch.tensor(array) for name, array in weights.items()})
        if request.iteration != self._iteration or self._rollout is None:
            self._start(request)
        assert self._rollout is not None  # noqa: S101  # for the type checker
        longest = config.epsilon.longest_at(request.step - config.replay.warmup_steps)
        steps, returns = [], []
        for _ in range(request.steps):
            numbers = self._episodes.begin(self._rollout.first, self._networks.explorer, self._fractions)
            chosen = self._networks.exploration_policy.explore(
                self._rollout.observations,
                request.epsilons,
                self._explore,
                self._fractions,
                self._noise,
                longest,
                self._rollout.masks,
                numbers,
            )
            outcome = self._rollout.step(*chosen)
            steps.append(outcome.steps)
            returns.append([returned for _, returned, _ in outcome.returns])
        return Experience.of(steps, returns, self._rollout.newest, self._networks)

    def _start(self, request: CollectRequest) -> None:
        """Start an iteration, whose random streams depend on its number, the actor and the actor's replacements."""
        if self._rollout is not None:
            self._rollout.close()
        config, self._iteration = self._config, request.iteration
        self._explore = numpy_stream(config.seed, f"explore of {self._name}", request.iteration)
        self._fractions = torch_stream(config.seed, f"explore of {self._name}", request.iteration)
        seed = stream_seed(config.seed, f"environments of {self._name}", request.iteration)
        self._noise = RandomActions(config.env.num_envs, self._envs.num_actions)
        self._episodes = EpisodeNumbers(config.env.num_envs)
        self._rollout = Rollout(self._envs, config.env.num_envs, config.env.frame_stack, seed, request.step)
