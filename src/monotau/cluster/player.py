"""The side of an actor: environments and a copy of the brain in a process of their own, which send what they did."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer, Shaped

from monotau.brain import Brain
from monotau.configs import Config
from monotau.envs import EnvFactory, EnvSource
from monotau.replay import Steps
from monotau.rollout import RandomActions, Rollout
from monotau.streams import numpy_stream, stream_seed, torch_stream

Weights = dict[str, np.ndarray]
"""The state of a brain, in a form that processes share without a copy."""


class Order(NamedTuple):
    """What an actor is to do next."""

    iteration: int
    """One that is new starts with fresh environments."""
    step: int
    """Of training when this was ordered."""
    steps: int
    """Steps of each environment."""
    epsilons: Float[np.ndarray, " E"]


@dataclass(frozen=True)
class Sending:
    """T steps of E environments in a row."""

    frames: Shaped[np.ndarray, "T E *frame"]
    first: Bool[np.ndarray, "T E"]
    actions: Integer[np.ndarray, "T E"]
    rewards: Float[np.ndarray, "T E"]
    terminated: Bool[np.ndarray, "T E"]
    truncated: Bool[np.ndarray, "T E"]
    finals: dict[int, Shaped[np.ndarray, "E *frame"]]
    """Frames after those steps in which an episode was truncated; of others nobody asks."""
    newest: Shaped[np.ndarray, "E *frame"]
    """Frames after the last step."""
    returns: list[list[float]]
    """Of the episodes that ended in each step."""
    metrics: dict[str, float]
    """What the explorer averaged."""
    lived: dict[str, np.ndarray]
    """What the explorer counted."""

    @classmethod
    def of(cls, steps: list[Steps], returns: list[list[float]], newest: np.ndarray, brain: Brain) -> "Sending":
        """Pack steps for the way."""
        columns = ("frames", "first", "actions", "rewards", "terminated", "truncated")
        return cls(
            **{name: np.stack([getattr(step, name) for step in steps]) for name in columns},
            finals={number: step.final_frames for number, step in enumerate(steps) if step.truncated.any()},
            newest=newest.copy(),
            returns=returns,
            metrics=brain.explorer.metrics(),
            lived={name: tensor.numpy() for name, tensor in brain.explorer.lived().items()},
        )

    def __len__(self) -> int:
        return len(self.frames)

    def step(self, number: int) -> Steps:
        """Return one of the steps as the replay takes it."""
        return Steps(
            self.frames[number],
            self.first[number],
            self.actions[number],
            self.rewards[number],
            self.terminated[number],
            self.truncated[number],
            self.finals.get(number, self.frames[number]),
        )


class Player:
    """Acts with the weights it was sent last. Nothing is done before the first order, so that errors reach whoever
    gave it.
    """

    def __init__(self, config: Config, source: EnvSource | None, number: int, life: int) -> None:
        self._config = replace(config, device="cpu", compile=False)
        self._source = source
        self._name = f"actor {number}" if not life else f"actor {number}, life {life}"
        self._brain: Brain | None = None
        self._rollout: Rollout | None = None
        self._iteration = -1

    def play(self, order: Order, weights: Weights | None) -> Sending:
        """Make the steps that were ordered; without weights those of before are kept."""
        config = self._config
        if self._brain is None:
            torch.set_num_threads(1)
            self._envs = EnvFactory(config.env, self._source)
            self._brain = Brain(config, self._envs.observation_spec, self._envs.num_actions)
        if weights is not None:
            self._brain.load_state({name: torch.tensor(array) for name, array in weights.items()})
        if order.iteration != self._iteration or self._rollout is None:
            self._start(order)
        assert self._rollout is not None  # noqa: S101  # for the type checker
        longest = config.epsilon.longest_at(order.step - config.replay.warmup_steps)
        steps, returns = [], []
        for _ in range(order.steps):
            actions = self._brain.curious.act(
                self._rollout.observations, order.epsilons, self._explore, self._fractions, self._noise, longest
            )
            outcome = self._rollout.step(actions)
            steps.append(outcome.steps)
            returns.append([returned for _, returned, _ in outcome.returns])
        return Sending.of(steps, returns, self._rollout.observations[:, -1], self._brain)

    def _start(self, order: Order) -> None:
        """Begin an iteration, whose chance follows from its number, the actor's and how often it was replaced."""
        if self._rollout is not None:
            self._rollout.close()
        config, self._iteration = self._config, order.iteration
        self._explore = numpy_stream(config.seed, f"explore of {self._name}", order.iteration)
        self._fractions = torch_stream(config.seed, f"explore of {self._name}", order.iteration)
        seed = stream_seed(config.seed, f"environments of {self._name}", order.iteration)
        self._noise = RandomActions(config.env.num_envs, self._envs.num_actions)
        self._rollout = Rollout(self._envs, config.env.num_envs, config.env.frame_stack, seed, order.step)
