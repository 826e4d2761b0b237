"""Environments that crash, hang or raise inside an actor; actors are other processes, which import them from here."""

import os
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class ProcessEnv(gym.Env):
    """Observes its process id, step count and episode count.

    Episodes last seven steps, and every third one is truncated.
    """

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, wait_seconds=0.0):
        self.wait_seconds, self.steps, self.episodes = wait_seconds, 0, 0

    def observation(self):
        return np.array([os.getpid(), self.steps, self.episodes], np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episodes, self.length = self.episodes + 1, 0
        return self.observation(), {}

    def step(self, action):
        time.sleep(self.wait_seconds)
        self.steps, self.length = self.steps + 1, self.length + 1
        over = self.length == 7
        terminated = over and self.episodes % 3 != 0
        return self.observation(), float(self.steps), terminated, over and not terminated, {}


class PidFileEnv(ProcessEnv):
    """Creates a file named after its process id once it has taken ten steps."""

    def __init__(self, directory):
        super().__init__(wait_seconds=0.005)
        self.directory = Path(directory)

    def step(self, action):
        if self.steps == 10:
            (self.directory / str(os.getpid())).touch()
        return super().step(action)


class FailingEnv(ProcessEnv):
    """Exits, hangs or raises in its thirtieth step; marks in a directory count how often that has happened."""

    def __init__(self, directory, what, times=1):
        super().__init__()
        self.directory, self.what, self.times = Path(directory), what, times

    def step(self, action):
        if self.steps == 29 and len(marks := list(self.directory.glob("mark*"))) < self.times:
            (self.directory / f"mark{len(marks)}-{os.getpid()}").touch()
            if self.what == "exit":
                os._exit(1)
            elif self.what == "hang":
                time.sleep(1000)
            raise RuntimeError("the mill is broken")
        return super().step(action)
