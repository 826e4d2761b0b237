"""Environments whose every step a test can predict, and shortcuts for stepping through them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from monotau.envs import EnvConfig, EnvFactory

TWO_ACTIONS = spaces.Discrete(2)


class CountingEnv(gym.Env):
    """Observes its own step count, always in the same buffer; episodes last `length` steps."""

    def __init__(self, length: int = 3, truncates: bool = False, action_space: Any = TWO_ACTIONS) -> None:
        self.observation_space: Any = spaces.Box(-1, 99, (2,), np.float32)
        self.action_space = action_space
        self.length, self.truncates = length, truncates
        self.buffer = np.zeros(2)  # float64, although the space says float32
        self.closes = 0
        self.actions: list[int] = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.buffer[:] = 0
        return self.buffer, {"steps": 0}

    def step(self, action):
        self.actions.append(int(action))
        self.buffer += 1
        end = bool(self.buffer[0] >= self.length)
        return self.buffer, 1.0, end and not self.truncates, end and self.truncates, {"steps": int(self.buffer[0])}

    def close(self):
        self.closes += 1


class Frames(gym.Env):
    """Shows random observations from any space, in episodes of five steps."""

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


def allowed_at(count: int) -> list[bool]:
    """Return which of four actions MaskedEnv allows after `count` steps of an episode."""
    return [(action + count) % 3 != 0 for action in range(4)]


class MaskedEnv(gym.Env):
    """Observes its step count, and raises for actions that its mask does not allow; `info` replaces the masks."""

    def __init__(self, length: int = 2, truncates: bool = False, info: Any = None) -> None:
        self.observation_space = spaces.Box(0, 99, (1,), np.float32)
        self.action_space = spaces.Discrete(4, start=5)
        self.length, self.truncates = length, truncates
        self.info = info or (lambda count: {"action_mask": np.array(allowed_at(count), np.int8)})
        self.count = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), self.info(0)

    def step(self, action):
        if not allowed_at(self.count)[action - 5]:
            raise ValueError(f"action {action} is not allowed after {self.count} steps")
        self.count += 1
        end = self.count >= self.length
        observation = np.full(1, self.count, np.float32)
        return observation, 1.0, end and not self.truncates, end and self.truncates, self.info(self.count)


@contextmanager
def registered_masked_env() -> Iterator[str]:
    """Register MaskedEnv while the block runs, and return its id."""
    gym.register("MaskedEnv-v0", MaskedEnv)
    try:
        yield "MaskedEnv-v0"
    finally:
        del gym.registry["MaskedEnv-v0"]


class MethodMaskedEnv(MaskedEnv):
    """Has its masks in a method, as sb3-contrib expects them, and none in info."""

    def __init__(self, length: int = 2, truncates: bool = False) -> None:
        super().__init__(length, truncates, lambda count: {})

    def action_masks(self):
        return allowed_at(self.count)


def factory(env_id: str, **settings: Any) -> EnvFactory:
    return EnvFactory(EnvConfig(id=env_id, **settings))


def episode_lengths(vector: gym.vector.VectorEnv, steps: int) -> list[int]:
    """Return the steps at which the episodes of the first environment ended."""
    vector.reset(seed=0)
    ends = []
    for step in range(1, steps + 1):
        _, _, terminated, truncated, _ = vector.step(np.zeros(vector.num_envs, np.int64))
        if terminated[0] or truncated[0]:
            ends.append(step)
    return ends
