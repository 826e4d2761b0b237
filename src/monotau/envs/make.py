"""From a setting, a callable or an environment to a fresh vector of environments with known spaces."""

import warnings
import weakref
from collections.abc import Callable
from typing import final

import gymnasium as gym
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from monotau.envs.atari import FRAME, AtariVector, check_protocol, is_atari
from monotau.envs.catalog import MINATAR_PREFIX, is_emulators, register_minatar, register_own, unknown_id
from monotau.envs.checked import Checked, name_of
from monotau.envs.config import EnvConfig
from monotau.envs.spec import ObservationSpec, describe_space
from monotau.errors import ConfigError, EnvironmentFault, MissingExtra, in_one_line

EnvSource = Callable[[], gym.Env] | gym.Env
"""What may stand in for an id: something that makes a new environment at each call, or one environment."""


@final
class EnvFactory:
    """Makes vectors of one kind of environment, and knows its spaces.

    Actions are learned as 0 .. num_actions - 1; the environment is given `action_start` more.
    """

    name: str
    """For messages: the id, or the class of an environment that has none."""
    observation_spec: ObservationSpec
    """How its observations are stored."""
    num_actions: int
    """Size of its Discrete action space."""
    action_start: int
    """First action of its Discrete action space."""
    by_id: bool
    """Whether its id is all that is needed to make it."""
    source: EnvSource | None
    """What makes it, where that is not its id."""
    reusable: bool
    """False if every vector holds the same borrowed environment, so that only one of them may be in use."""

    # A VectorEnv is let in by its type only to be refused with a reason.
    def __init__(self, config: EnvConfig, source: EnvSource | VectorEnv | None = None) -> None:
        if isinstance(source, VectorEnv):
            raise ConfigError(
                f"The environment is a vector already ({type(source).__name__}), but must be an id, a gymnasium.Env or "
                f"a callable that makes one; env.num_envs says how many are stepped together."
            )
        if source is not None and config.kwargs:
            raise ConfigError(
                f"env.kwargs is {config.kwargs}, but is for environments given by id only; bind them in the callable."
            )
        check_protocol(config.id if source is None else "an environment of one's own", config.protocol, config.kwargs)
        self.config = config
        self.by_id, self.reusable = source is None, not isinstance(source, gym.Env)
        self.source = source
        self._check_count("env.num_envs", config.num_envs)
        self._atari = self.by_id and is_atari(config.id)
        if self._atari:
            self.name, self.observation_spec = config.id, ObservationSpec.from_space(FRAME)
            self.num_actions, self.action_start = AtariVector(config.id, 1, config.protocol).num_actions, 0
            return
        with warnings.catch_warnings(action="ignore"):
            env = self._make_one()
            try:
                self._read_spaces(env)
            finally:
                env.close()
        self._probe = weakref.ref(env.unwrapped)

    def make_vector(self, num_envs: int) -> VectorEnv:
        """Return new environments in a row that reset in the step that ends an episode (SAME_STEP autoreset).

        They reset some of them alone where the options of `reset` have a `reset_mask`.
        Their `info` has `final_obs` where that happens, and may have `life_lost`, which ends what is learned from only.
        """
        self._check_count("num_envs", num_envs)
        if self._atari:
            return AtariVector(self.config.id, num_envs, self.config.protocol, self.config.max_episode_steps)
        with warnings.catch_warnings(action="ignore"):
            try:
                vector = SyncVectorEnv([self._make_one] * num_envs, copy=True, autoreset_mode=AutoresetMode.SAME_STEP)
            except Exception as error:  # foreign code, or worlds that differ in their spaces
                reason = str(error) if isinstance(error, ConfigError) else in_one_line(error)
                raise EnvironmentFault(f"it was made before, but cannot be made again: {reason}") from error
        worlds = [env.unwrapped for env in vector.envs]
        again = len({id(world) for world in worlds}) < num_envs or any(world is self._probe() for world in worlds)
        if self.reusable and again:
            raise ConfigError(
                f"{self.name}: the callable returned one environment twice, but must make a new one at each call; "
                f"pass the environment itself to share it."
            )
        return vector

    def _check_count(self, setting: str, num_envs: int) -> None:
        if num_envs < 1:
            raise ConfigError(f"{setting} is {num_envs}, but must be at least 1.")
        if num_envs > 1 and not self.reusable:
            raise ConfigError(
                f"{setting} is {num_envs}, but must be 1 for an environment that is passed ready made; "
                f"pass an id or a callable that makes it."
            )

    def _make_one(self) -> gym.Env:
        if self.source is None:
            return Checked(_make_by_id(self.config))
        if isinstance(self.source, gym.Env):
            env: gym.Env = _Borrowed(self.source)
        else:
            try:
                env = self.source()
            except Exception as error:  # foreign code, which may raise anything
                raise ConfigError(f"The environment {self.source!r} cannot be made: {in_one_line(error)}") from error
            if not isinstance(env, gym.Env):
                raise ConfigError(
                    f"The callable {self.source!r} returned {type(env).__module__}.{type(env).__qualname__}, "
                    f"but must return a gymnasium.Env."
                )
        if self.config.max_episode_steps:
            env = gym.wrappers.TimeLimit(env, self.config.max_episode_steps)
        return Checked(env)

    def _read_spaces(self, env: gym.Env) -> None:
        self.name = self.config.id if self.source is None else name_of(env)
        # An unfinished environment has no spaces at all; None is refused like any other space.
        actions = getattr(env, "action_space", None)
        if not isinstance(actions, spaces.Discrete) or actions.n < 1:
            raise ConfigError(
                f"{self.name}: the action space is {describe_space(actions)}, but must be Discrete with at least one "
                f"action, because a value per action is learned."
            )
        self.num_actions, self.action_start = int(actions.n), int(actions.start)
        try:
            self.observation_spec = ObservationSpec.from_space(getattr(env, "observation_space", None))
        except ConfigError as error:
            raise ConfigError(f"{self.name}: {error}") from None


def _make_by_id(config: EnvConfig) -> gym.Env:
    """Make a registered environment; whatever Gymnasium says against it becomes one line."""
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
            disable_env_checker=True,  # it warns about lawful environments, and costs time at each step
            **config.kwargs,
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
    except Exception as error:  # the constructor is foreign code, and any keyword argument may upset it
        raise _not_made(config.id, error) from error


def _not_made(env_id: str, error: Exception) -> ConfigError:
    reason = (str(error).splitlines() or ["no reason given"])[0][:200]
    return ConfigError(f"env.id {env_id!r} cannot be made: {type(error).__name__}: {reason}")


class _Borrowed(gym.Wrapper):
    """Leaves the closing of a caller's environment to the caller."""

    def close(self) -> None:
        pass
