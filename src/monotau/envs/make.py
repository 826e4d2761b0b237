"""Makes vectors of environments from an id, a callable or an environment."""

import math
import warnings
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, final

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from monotau.envs.atari import FRAME, AtariVector, check_protocol, is_atari
from monotau.envs.catalog import MINATAR_PREFIX, is_emulators, register_minatar, unknown_id
from monotau.envs.checked import Checked, close, name_of
from monotau.envs.config import EnvConfig
from monotau.envs.masks import MaskUse, offers_masks
from monotau.envs.spec import ObservationSpec, describe_space
from monotau.errors import ConfigError, EnvironmentFault, MissingExtra, in_one_line
from monotau.own_envs import register_own

EnvSource = Callable[[], gym.Env] | gym.Env
"""An environment that is not given by id: a callable that makes a new one at each call, or one environment."""

RGB = "rgb_array"
"""Gymnasium's render mode that returns pictures as arrays."""

MOST_COMBINATIONS = 10_000
"""Largest number of combinations of the actions of a MultiDiscrete space, each of which has its own output."""


@final
class EnvFactory:
    """Makes vectors of one kind of environment, and knows its spaces.

    The agent's actions are 0 .. num_actions - 1; `action_start` is added before they are passed to the environment.
    """

    name: str
    """Name for messages: the id, or the class name if there is no id."""
    observation_spec: ObservationSpec
    """How its observations are stored."""
    num_actions: int
    """Number of its actions; for a MultiDiscrete action space, of their combinations."""
    action_start: int
    """First action of its Discrete action space."""
    action_sizes: tuple[int, ...]
    """Sizes of its MultiDiscrete action space; empty for a Discrete one."""
    masked: bool
    """Whether its masks of allowed actions are used."""
    lacks_masks: bool
    """Whether the setting says to use masks, but the environment offers none."""
    by_id: bool
    """Whether the environment is made from its id."""
    is_atari: bool
    """Whether it is an Atari game, made from its id."""
    source: EnvSource | None
    """The callable or environment given instead of an id."""
    reusable: bool
    """False if every vector wraps the same environment of the caller, so that only one vector may be used at a time."""

    # The type allows a VectorEnv only to refuse it with a clear message.
    def __init__(self, config: EnvConfig, source: EnvSource | VectorEnv | None = None) -> None:
        if isinstance(source, VectorEnv):
            raise ConfigError(
                f"The environment is already a vector ({type(source).__name__}), but must be an id, a gymnasium.Env or "
                f"a callable that makes one; env.num_envs sets how many are stepped in parallel."
            )
        if source is not None and config.kwargs:
            raise ConfigError(
                f"env.kwargs is {config.kwargs}, but only applies to environments given by id; set it in the callable."
            )
        check_protocol(config.id if source is None else "your own environment", config.protocol, config.kwargs)
        self.config = config
        self.by_id, self.reusable = source is None, not isinstance(source, gym.Env)
        self.source = source
        self._check_count("env.num_envs", config.num_envs)
        self.is_atari = self.by_id and is_atari(config.id)
        # None: none were found, so one that appears later is an error.
        self._reads_masks: bool | None = {"auto": None, "use": True, "ignore": False}[config.action_masks]
        if self.is_atari:
            if self._reads_masks:
                raise ConfigError(f"env.action_masks is 'use', but {config.id} has no masks; use auto or ignore.")
            self.masked = self.lacks_masks = False
            self.name, self.observation_spec = config.id, ObservationSpec.from_space(FRAME)
            self.num_actions = AtariVector(config.id, 1, config.protocol).num_actions
            self.action_start, self.action_sizes = 0, ()
            return
        with warnings.catch_warnings(action="ignore"):
            env = self._make_one()
            try:
                self._read_spaces(env)
                offered = self._reads_masks is not False and offers_masks(env)
            finally:
                close(env)
        self.lacks_masks = self._reads_masks is True and not offered
        if offered:
            self._reads_masks = True
        self.masked = bool(self._reads_masks)
        self._probe = weakref.ref(env.unwrapped)

    @property
    def mask_use(self) -> MaskUse:
        """The setting `action_masks` with which the environment behaves as found, for the record of a run."""
        return "use" if self.masked else "ignore"

    def make_vector(self, num_envs: int) -> VectorEnv:
        """Return a new vector of environments with SAME_STEP autoreset.

        The option `reset_mask` of `reset` selects the environments to reset. After an autoreset, `info` has
        `final_obs`. It may have `life_lost`, which ends an episode for learning only. If `masked`, it has
        `action_mask`: after an autoreset that of the new episode, and the last one of the old episode in `final_info`.
        """
        self._check_count("num_envs", num_envs)
        if self.is_atari:
            return AtariVector(self.config.id, num_envs, self.config.protocol, self.config.max_episode_steps)
        with warnings.catch_warnings(action="ignore"):
            try:
                makers = [self.make_one] * num_envs
                vector = SyncVectorEnv(makers, copy=True, autoreset_mode=AutoresetMode.SAME_STEP)
            except Exception as error:  # third-party code, or environments with different spaces
                reason = str(error) if isinstance(error, ConfigError) else in_one_line(error)
                raise EnvironmentFault(f"it could be made once, but not again: {reason}") from error
        unwrapped = [env.unwrapped for env in vector.envs]
        again = len({id(each) for each in unwrapped}) < num_envs or any(each is self._probe() for each in unwrapped)
        if self.reusable and again:
            raise ConfigError(
                f"{self.name}: the callable returned the same environment twice, but must make a new one at each call; "
                f"pass the environment itself to share it."
            )
        return vector

    def make_one(self, *, rendered: bool = False) -> Checked:
        """Return a new environment that does not reset itself; `rendered` lets it render pictures if it can.

        Atari games are only made as vectors.
        """
        with warnings.catch_warnings(action="ignore"):
            env = self._make_one()
            can_render = RGB in (env.metadata.get("render_modes") or ()) and "render_mode" not in self.config.kwargs
            if rendered and self.by_id and can_render:
                with suppress(ConfigError):  # its constructor may not take the argument after all
                    rendering = _make_by_id(self.config, RGB)
                    close(env)
                    env = rendering
        return Checked(env, self.observation_spec, self.action_sizes, masked=self._reads_masks)

    def _check_count(self, setting: str, num_envs: int) -> None:
        if num_envs < 1:
            raise ConfigError(f"{setting} is {num_envs}, but must be at least 1.")
        if num_envs > 1 and not self.reusable:
            raise ConfigError(
                f"{setting} is {num_envs}, but must be 1 if an environment object is passed; "
                f"pass an id or a callable that makes it."
            )

    def _make_one(self) -> gym.Env:
        if self.source is None:
            return _make_by_id(self.config)
        if isinstance(self.source, gym.Env):
            env: gym.Env = _Borrowed(self.source)
        else:
            try:
                env = self.source()
            except Exception as error:  # third-party code may raise anything
                raise ConfigError(f"The environment {self.source!r} cannot be made: {in_one_line(error)}") from error
            if not isinstance(env, gym.Env):
                raise ConfigError(
                    f"The callable {self.source!r} returned {type(env).__module__}.{type(env).__qualname__}, "
                    f"but must return a gymnasium.Env."
                )
        if self.config.max_episode_steps:
            env = gym.wrappers.TimeLimit(env, self.config.max_episode_steps)
        return env

    def _read_spaces(self, env: gym.Env) -> None:
        self.name = self.config.id if self.source is None else name_of(env)
        # An incomplete environment may have no spaces; None is refused like any unsupported space.
        actions = getattr(env, "action_space", None)
        if isinstance(actions, spaces.MultiDiscrete) and actions.nvec.ndim == 1 and not np.any(actions.start):
            self.action_sizes, self.action_start = tuple(int(size) for size in actions.nvec), 0
            self.num_actions = math.prod(self.action_sizes)
            suits = self.num_actions <= MOST_COMBINATIONS
        elif suits := isinstance(actions, spaces.Discrete) and actions.n >= 1:
            self.action_sizes, self.num_actions, self.action_start = (), int(actions.n), int(actions.start)
        if not suits:
            raise ConfigError(
                f"{self.name}: the action space is {describe_space(actions)}, but must be Discrete with at least one "
                f"action, or a flat MultiDiscrete that starts at 0 with at most {MOST_COMBINATIONS:,d} combinations, "
                f"because the agent learns one return distribution per action; a gymnasium.ActionWrapper can "
                f"discretise or flatten it to one of these."
            )
        try:
            self.observation_spec = ObservationSpec.from_space(getattr(env, "observation_space", None))
        except ConfigError as error:
            raise ConfigError(f"{self.name}: {error}") from None


def _make_by_id(config: EnvConfig, render_mode: str | None = None) -> gym.Env:
    """Make a registered environment, and turn any exception into a one-line ConfigError."""
    kwargs: dict[str, Any] = dict(config.kwargs) | ({"render_mode": render_mode} if render_mode else {})
    register_own()
    if config.id.startswith(MINATAR_PREFIX):
        register_minatar()
    registered = gym.registry.get(config.id)
    if registered and is_emulators(registered):
        raise unknown_id(config.id)
    try:
        return gym.make(
            config.id,
            max_episode_steps=config.max_episode_steps or None,
            disable_env_checker=True,  # it warns about valid environments, and slows down every step
            **kwargs,
        )
    except ConfigError:
        raise
    except gym.error.UnregisteredEnv:
        raise unknown_id(config.id) from None
    except gym.error.DependencyNotInstalled as error:
        if "box2d" not in str(error).lower():
            raise _not_made(config.id, error) from error
        raise MissingExtra(
            f"env.id is {config.id!r}, but Box2D cannot be imported ({error.__cause__}); pip install monotau[box2d]"
        ) from error
    except Exception as error:  # third-party constructors may raise anything
        raise _not_made(config.id, error) from error


def _not_made(env_id: str, error: Exception) -> ConfigError:
    reason = ": ".join((type(error).__name__, *(line[:200] for line in str(error).splitlines()[:1])))
    return ConfigError(f"env.id {env_id!r} cannot be made: {reason}")


class _Borrowed(gym.Wrapper):
    """Wraps an environment of the caller, who closes it."""

    def close(self) -> None:
        pass
