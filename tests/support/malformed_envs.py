"""An environment whose every answer a test can replace, and settings that save a checkpoint before it breaks."""

import itertools

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from tests.support.small_runs import SMALL

TINY = SMALL | {
    "steps": 40,
    "iteration_steps": 20,
    "log_every_steps": 10,
    "head": {"hidden": 8},
    "replay": {"warmup_steps": 5, "capacity_steps": 100},
    "update": {"batch_size": 8, "every_steps": 5, "sync_every_steps": 10},
    "evaluation": {"episodes": 1, "num_envs": 1, "episode_cap_steps": 7},
}

VECTOR = spaces.Box(-1, 1, (2,), np.float32)
IMAGE = spaces.Box(0, 255, (10, 10, 1), np.uint8)
STATES = spaces.Discrete(4, start=1)

SECOND_ITERATION = 5
"""A run makes its environment anew for: its spaces, the random policy, iteration 1, its evaluation, iteration 2."""

LEFT_OUT = object()


class MalformedEnv(gym.Env):
    """Has episodes of five steps; tests can replace any part of an answer, also by an exception, which it raises."""

    def __init__(self, space=VECTOR, step=lambda count: {}, reset=lambda count: {}, close=None, length=5, actions=2):
        self.observation_space, self.action_space = space, spaces.Discrete(actions)
        self.bend_step, self.bend_reset, self.bend_close, self.length = step, reset, close, length
        self.steps = self.resets = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.resets += 1
        return told({"observation": self.seen(), "info": {}} | self.bend_reset(self.resets))

    def step(self, action):
        self.steps += 1
        answer = {
            "observation": self.seen(),
            "reward": 1.0,
            "terminated": self.steps % self.length == 0,
            "truncated": False,
            "info": {},
        }
        return told(answer | self.bend_step(self.steps))

    def seen(self):
        return 2 if isinstance(self.observation_space, spaces.Discrete) else np.ones_like(self.observation_space.low)

    def close(self):
        if self.bend_close:
            raise self.bend_close


def told(answer):
    values = [value for value in answer.values() if value is not LEFT_OUT]
    for value in values:
        if isinstance(value, Exception):
            raise value
    return tuple(values) if len(values) > 1 else values[0]


def at(moment, **change):
    """Change the answer of one single step or reset."""
    return lambda count: change if count == moment else {}


def only_in(made, **faults):
    """Return a callable that makes environments, of which only number `made` is faulty."""
    count = itertools.count(1)
    space = faults.pop("space", VECTOR)
    return lambda: MalformedEnv(space, **(faults if next(count) == made else {}))
