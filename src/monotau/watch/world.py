"""One environment as a viewer plays it: whole episodes by seed, without autoreset, and a picture of each state."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from jaxtyping import Bool, Shaped, UInt8

from monotau.envs.atari import AtariVector
from monotau.envs.catalog import MINATAR_PREFIX
from monotau.envs.make import RGB, EnvFactory
from monotau.envs.masks import ACTION_MASK
from monotau.errors import ConfigError, EnvironmentFault, in_one_line
from monotau.own_envs import OWN
from monotau.watch.drawing import draw_observation

LARGEST_SEED = 2**31 - 1
"""Some environments keep their seed in 32 bits."""


@dataclass(frozen=True)
class Arrival:
    """What an environment returns: the new frame as the agent stores it, and how the step ended."""

    frame: Shaped[np.ndarray, "*frame"]
    mask: Bool[np.ndarray, " A"] | None = None
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False


class World(ABC):
    """One environment."""

    picture_note: str | None = None
    """Why there is no picture, if there is none."""

    @abstractmethod
    def reset(self, seed: int) -> Arrival:
        """Start the episode of a seed."""

    @abstractmethod
    def step(self, action: int) -> Arrival:
        """Take an action, numbered from 0."""

    @abstractmethod
    def picture(self) -> UInt8[np.ndarray, "H W 3"] | None:
        """Return a picture of the current state; None if the environment has none."""

    @abstractmethod
    def close(self) -> None:
        """Close the environment."""


def make_world(envs: EnvFactory) -> World:
    """Make an environment to be watched."""
    return AtariWorld(envs) if envs.is_atari else SingleWorld(envs)


@final
class SingleWorld(World):
    """A Gymnasium environment, drawn by itself, or by us if it is MinAtar's or one of our own."""

    def __init__(self, envs: EnvFactory) -> None:
        self._envs, self._env, self._steps = envs, envs.make_one(rendered=True), 0
        self._seen: np.ndarray = np.zeros(())
        self._drawn_here = envs.by_id and (envs.config.id in OWN or envs.config.id.startswith(MINATAR_PREFIX))
        if not self._drawn_here and self._env.render_mode != RGB:
            self.picture_note = f"{envs.name} cannot render pictures (it has no render mode {RGB})"

    def reset(self, seed: int) -> Arrival:
        """Start the episode of a seed."""
        self._steps = 0
        with self._located():
            observation, info = self._env.reset(seed=seed)
            return self._arrival(observation, info)

    def step(self, action: int) -> Arrival:
        """Take an action."""
        self._steps += 1
        with self._located():
            observation, reward, terminated, truncated, info = self._env.step(action + self._envs.action_start)
            if not np.isfinite(reward):
                raise EnvironmentFault(f"the environment returned the reward {reward}.")
            return self._arrival(observation, info, reward, terminated, truncated)

    def _arrival(self, observation: np.ndarray, info: dict[str, Any], *ending: Any) -> Arrival:
        self._seen = observation
        frame = np.squeeze(self._envs.observation_spec.frame(np.asarray(observation)[None]), axis=0)
        return Arrival(frame, info.get(ACTION_MASK), *ending)

    def picture(self) -> UInt8[np.ndarray, "H W 3"] | None:
        """Render the environment, or draw its observation; the first failure becomes the note."""
        if self.picture_note:
            return None
        if self._drawn_here:
            drawn = draw_observation(self._seen, self._env.observation_space)
            if drawn is None:
                self.picture_note = f"there is no drawing of {self._envs.name}"
            return drawn
        try:
            with warnings.catch_warnings(action="ignore"):
                rendered: Any = self._env.render()
                picture = np.asarray(rendered)
                if picture.dtype.kind == "f":
                    picture = picture * 255
            if picture.ndim != 3 or picture.shape[2] != 3 or not picture.size:
                raise ValueError(f"render returned an array of shape {picture.shape}, which is no RGB picture")
            return np.ascontiguousarray(picture.clip(0, 255).astype(np.uint8))
        except Exception as error:  # third-party code may raise anything
            self.picture_note = f"{self._envs.name} cannot be rendered: {in_one_line(error)[:200]}"
            return None

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    @contextmanager
    def _located(self) -> Iterator[None]:
        """Add the environment's name and the step to its errors."""
        try:
            yield
        except ConfigError:
            raise
        except EnvironmentFault as fault:
            raise EnvironmentFault(f"{self._envs.name}, step {self._steps}: {fault}") from fault.__cause__
        except Exception as error:  # third-party code may raise anything
            raise EnvironmentFault(f"{self._envs.name}, step {self._steps}: it raised {in_one_line(error)}") from error


@final
class AtariWorld(World):
    """A game in two emulators with the same seed and actions: the agent plays one, the other shows it in colour."""

    def __init__(self, envs: EnvFactory) -> None:
        config = envs.config
        self._played, self._shown = (
            AtariVector(config.id, 1, config.protocol, config.max_episode_steps, colour=colour)
            for colour in (False, True)
        )
        self._picture = np.zeros((1, 1, 3), np.uint8)

    def reset(self, seed: int) -> Arrival:
        """Start the game of a seed."""
        frames, _ = self._played.reset(seed=seed)
        self._picture = self._shown.reset(seed=seed)[0][0]
        return Arrival(frames[0])

    def step(self, action: int) -> Arrival:
        """Take an action; the vectors begin the next game at once, so the last frame of this one is in `final_obs`."""
        taken = np.array([action])
        frames, rewards, terminated, truncated, info = self._played.step(taken)
        screens, _, _, _, shown = self._shown.step(taken)
        over = bool(terminated[0] or truncated[0])
        self._picture = (shown["final_obs"] if over else screens)[0]
        frame = (info["final_obs"] if over else frames)[0]
        return Arrival(frame, None, float(rewards[0]), bool(terminated[0]), bool(truncated[0]))

    def picture(self) -> UInt8[np.ndarray, "H W 3"] | None:
        """Return the screen."""
        return self._picture

    def close(self) -> None:
        """Close both emulators."""
        self._played.close()
        self._shown.close()
