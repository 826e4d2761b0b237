"""An environment that the tests can see through, and short ways to use it."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from monotau.envs import EnvConfig, EnvFactory

TWO_ACTIONS = spaces.Discrete(2)


class CountingEnv(gym.Env):
    """Observes how many steps it took, in a buffer that it uses again and again; ends after `length` steps."""

    def __init__(self, length: int = 3, truncates: bool = False, action_space: Any = TWO_ACTIONS) -> None:
        self.observation_space: Any = spaces.Box(-1, 99, (2,), np.float32)
        self.action_space = action_space
        self.length, self.truncates = length, truncates
        self.buffer = np.zeros(2)  # float64, unlike its space
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


def factory(env_id: str, **settings: Any) -> EnvFactory:
    return EnvFactory(EnvConfig(id=env_id, **settings))


def episode_lengths(vector: gym.vector.VectorEnv, steps: int) -> list[int]:
    """Steps at which the first environment's episodes ended."""
    vector.reset(seed=0)
    ends = []
    for step in range(1, steps + 1):
        _, _, terminated, truncated, _ = vector.step(np.zeros(vector.num_envs, np.int64))
        if terminated[0] or truncated[0]:
            ends.append(step)
    return ends
