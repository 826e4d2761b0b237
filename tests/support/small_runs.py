"""Runs of seconds, and environments that the tests can see through."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from rich.console import Console

from monotau.agent import Agent
from monotau.config.presets import Resolved, resolve

SMALL: dict[str, Any] = {
    "steps": 200,
    "iteration_steps": 100,
    "log_every_steps": 50,
    "torso": {"width": 8},
    "head": {"hidden": 8, "cosines": 8},
    "epsilon": {"end": 0.01, "decay_steps": 50},
    "replay": {"warmup_steps": 50, "capacity_steps": 500},
    "update": {"batch_size": 8, "every_steps": 2, "sync_every_steps": 60},
    "evaluation": {"episodes": 2},
}
"""Settings of a run that is over in a second, in which each part of training has its turn."""

SMALL_FLAGS = [
    *("--steps", "100", "--iteration-steps", "100", "--log-every-steps", "50", "--torso.width", "8"),
    *("--head.hidden", "8", "--head.cosines", "8", "--replay.warmup-steps", "50", "--update.batch-size", "8"),
    *("--evaluation.episodes", "2"),
]
"""The same on the command line, shorter still."""


def small_run(preset: str = "ndqfn-dpe", env: str = "CartPole-v1", **settings: Any) -> Resolved:
    return resolve(preset, SMALL, {"env": {"id": env}}, settings)


BRIEF = SMALL | {"head": {"hidden": 8}, "replay": {"warmup_steps": 20, "capacity_steps": 100}}


def briefly_learned(preset: str, **settings: Any) -> Agent:
    """Return an agent after forty steps, half of them without learning."""
    return Agent("CartPole-v1", preset, **(BRIEF | settings)).learn(40)


def silent() -> Console:
    return Console(quiet=True)


class Frames(gym.Env):
    """Random frames of any shape; episodes of five steps."""

    def __init__(self, space: spaces.Space | None = None, actions: int = 3, first_action: int = 0) -> None:
        self.observation_space = space or spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = spaces.Discrete(actions, start=first_action)
        self.steps = self.closes = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.steps += 1
        return self.observation_space.sample(), 1.0, self.steps >= 5, False, {}

    def close(self):
        self.closes += 1
