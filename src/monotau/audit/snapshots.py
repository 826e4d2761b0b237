"""Environments that return to an earlier state: by copies, by the emulator's states, or by methods of their own."""

import copy
import os
import random
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, final

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import TimeLimit
from jaxtyping import Bool, Shaped

from monotau.envs.atari import PROTOCOLS, is_atari, single_game
from monotau.envs.checked import Checked, close
from monotau.envs.make import EnvFactory
from monotau.envs.masks import ACTION_MASK
from monotau.envs.spec import ObservationSpec
from monotau.errors import ConfigError, EnvironmentFault, in_one_line
from monotau.report.formatting import plural

COPIES, IN_PLACE = 512, 32
"""Environments that are stepped together: copies are small, while emulators take megabytes."""
CHECKED_STEPS = 40
"""Steps after a snapshot that must repeat exactly."""
LONGEST_SIDE = 240
"""Longest side of a picture of a state, in pixels."""

Generators = np.random.Generator | np.random.RandomState | random.Random


class Seen(NamedTuple):
    """What an environment returns."""

    frame: Shaped[np.ndarray, "*frame"]
    mask: Bool[np.ndarray, " A"] | None
    reward: float = 0.0
    ended: bool = False
    """The episode ended for learning: it was terminated, or a life was lost where that ends it."""
    truncated: bool = False
    over: bool = False
    """The environment must be reset before its next step."""


class Game(ABC):
    """One environment in play."""

    @abstractmethod
    def reset(self, seed: int) -> Seen:
        """Start an episode."""

    @abstractmethod
    def step(self, action: int) -> Seen:
        """Take a step; actions count from 0."""

    @abstractmethod
    def picture(self) -> Shaped[np.ndarray, "H W 3"] | None:
        """Draw the state, if the environment can."""

    @abstractmethod
    def close(self) -> None:
        """Close the environment."""


class Snapshots(ABC):
    """Makes games of one environment, saves their states and continues from them."""

    lanes: int
    """Number of games to step together."""
    limit_steps: int | None
    """Steps after which a time limit, which the games here do not have, truncates an episode of the environment."""

    @abstractmethod
    def new_game(self) -> Game:
        """Make a game."""

    @abstractmethod
    def save(self, game: Game) -> Any:
        """Return the state of a game."""

    @abstractmethod
    def resume(self, state: Any, seed: int | None, lane: int = 0) -> Game:
        """Return a game in a saved state, with new randomness unless `seed` is None.

        Resuming again in the same lane may end the earlier game there.
        """


def snapshots_of(factory: EnvFactory) -> Snapshots:
    """Return how to save and restore an environment, and raise a ConfigError with the reason if it cannot be done."""
    if factory.by_id and is_atari(factory.config.id):
        found: Snapshots = EmulatorSnapshots(factory)
    else:
        game = new_game(factory)
        own = [callable(getattr(game.env.unwrapped, name, None)) for name in ("snapshot", "restore")]
        game.close()
        found = OwnSnapshots(factory) if all(own) else CopySnapshots(factory)
    check_replay(found, factory.name, factory.num_actions)
    return found


def check_replay(snapshots: Snapshots, name: str, actions: int) -> None:
    """Raise unless a restored state continues as the original did, and twice the same with the same new randomness."""
    rng = np.random.default_rng(0)
    game = snapshots.new_game()
    seen, taken = game.reset(seed=0), 0
    while taken < 5 and not seen.over:  # a snapshot in the middle of an episode, if it has one
        seen, taken = game.step(_any_action(seen, actions, rng)), taken + 1
    if seen.over:
        seen = game.reset(seed=0)
    try:
        state = snapshots.save(game)
        original = _trace(game, seen, actions, 2)
        once = _trace(snapshots.resume(state, 1), seen, actions, 3)
        _trace(snapshots.resume(state, 4), seen, actions, 5)  # what it leaves behind must not matter
        again = _trace(snapshots.resume(state, 1), seen, actions, 3)
        continued = _trace(snapshots.resume(state, None), seen, actions, 2)
    except Exception as error:  # third-party code may raise anything
        reason = in_one_line(error).rstrip(".")[:200]
        if isinstance(snapshots, CopySnapshots):
            reason = f"its state cannot be copied ({reason}); give it methods snapshot() and restore(state)"
        raise ConfigError(f"{name} cannot be restored from a snapshot: {reason}.") from None
    game.close()
    for what, one, other in (("continues", original, continued), ("repeats", once, again)):
        if (step := _first_difference(one, other)) is not None:
            raise ConfigError(
                f"{name} cannot be audited: a restored snapshot {what} differently after {plural(step, 'step')} with "
                f"the same actions and seed; its state or its randomness lies outside of what can be restored."
            )


def _any_action(seen: Seen, actions: int, rng: np.random.Generator) -> int:
    return int(rng.choice(actions if seen.mask is None else np.flatnonzero(seen.mask)))


def _trace(game: Game, seen: Seen, actions: int, key: int) -> list[Seen]:
    """Play random actions, the same ones for the same key."""
    rng = np.random.default_rng(key)
    trace: list[Seen] = []
    while len(trace) < CHECKED_STEPS and not seen.over:
        seen = game.step(_any_action(seen, actions, rng))
        trace.append(seen._replace(frame=seen.frame.copy()))
    return trace


def _first_difference(one: Sequence[Seen], other: Sequence[Seen]) -> int | None:
    for step, (first, second) in enumerate(zip(one, other, strict=False), start=1):
        same = np.array_equal(first.frame, second.frame) and _same_mask(first.mask, second.mask)
        if not same or first[2:] != second[2:]:
            return step
    return None if len(one) == len(other) else min(len(one), len(other)) + 1


def _same_mask(one: Bool[np.ndarray, " A"] | None, other: Bool[np.ndarray, " A"] | None) -> bool:
    return one is other if one is None or other is None else np.array_equal(one, other)


def reseed(generators: Iterable[Generators], seed: int) -> None:
    """Give generators new states, each another one."""
    for place, generator in enumerate(generators):
        sequence = np.random.SeedSequence((seed, place))
        if isinstance(generator, np.random.Generator):
            generator.bit_generator.state = type(generator.bit_generator)(sequence).state
        elif isinstance(generator, np.random.RandomState):
            generator.seed(sequence.generate_state(8))
        else:
            generator.seed(int(sequence.generate_state(1, np.uint64)[0]))


@final
class CheckedGame(Game):
    """A game of an environment that `Checked` wraps."""

    def __init__(self, env: Checked, spec: ObservationSpec, action_start: int) -> None:
        self.env, self.spec, self.action_start = env, spec, action_start

    def reset(self, seed: int) -> Seen:
        """Start an episode."""
        observation, info = self.env.reset(seed=seed % 2**31)
        return Seen(self._frame(observation), info.get(ACTION_MASK))

    def step(self, action: int) -> Seen:
        """Take a step."""
        observation, reward, terminated, truncated, info = self.env.step(np.int64(action + self.action_start))
        if not np.isfinite(reward):
            raise EnvironmentFault(f"the environment returned the reward {reward}, which is not a finite number.")
        over = terminated or truncated
        return Seen(self._frame(observation), info.get(ACTION_MASK), reward, terminated, truncated, over)

    def _frame(self, observation: np.ndarray) -> np.ndarray:
        return np.array(self.spec.frame(np.asarray(observation)[None])[0])

    def picture(self) -> Shaped[np.ndarray, "H W 3"] | None:
        """Draw a copy, because drawing may leave objects behind that cannot be copied."""
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame then needs no screen
        with suppress(Exception), warnings.catch_warnings(action="ignore"):
            env = copy.deepcopy(self.env).unwrapped
            env.render_mode = "rgb_array"
            return _small(env.render())
        return None

    def close(self) -> None:
        """Close the environment."""
        close(self.env)


def _small(picture: Any) -> Shaped[np.ndarray, "H W 3"] | None:
    """Return a picture as bytes, with fewer pixels if it is large; None if it is no picture."""
    array = np.asarray(picture)
    if array.ndim != 3 or array.shape[-1] != 3 or 0 in array.shape:
        return None
    if array.dtype.kind == "f":
        array = 255 * array
    stride = -(-max(array.shape[:2]) // LONGEST_SIDE)
    return array[::stride, ::stride].clip(0, 255).astype(np.uint8)


def new_game(factory: EnvFactory) -> CheckedGame:
    """Make a game without a time limit: agents do not learn from it, as they bootstrap there."""
    env = factory.make_one()
    outer: gym.Wrapper = env
    while isinstance(outer.env, gym.Wrapper):
        if isinstance(outer.env, TimeLimit):
            outer.env = outer.env.env
        else:
            outer = outer.env
    return CheckedGame(env, factory.observation_spec, factory.action_start)


def time_limit(factory: EnvFactory) -> int | None:
    """Return the number of steps after which a wrapper truncates episodes, if one does."""
    env: gym.Env = factory.make_one()
    limits = []
    while isinstance(env, gym.Wrapper):
        if isinstance(env, TimeLimit):
            limits.append(int(env._max_episode_steps))
        env = env.env
    close(env)
    return min(limits, default=None)


@final
class CopySnapshots(Snapshots):
    """Saves a state as a deep copy of the environment, with all generators in it."""

    def __init__(self, factory: EnvFactory) -> None:
        self._factory, self.lanes, self.limit_steps = factory, COPIES, time_limit(factory)

    def new_game(self) -> CheckedGame:
        """Make a game."""
        return new_game(self._factory)

    def save(self, game: Game) -> Checked:
        """Return a copy of the environment."""
        assert isinstance(game, CheckedGame)  # noqa: S101  # `new_game` and `resume` make no others
        return copy.deepcopy(game.env)

    def resume(self, state: Checked, seed: int | None, lane: int = 0) -> CheckedGame:
        """Return a copy of the saved copy."""
        copies: dict[int, Any] = {}
        env = copy.deepcopy(state, copies)
        if seed is not None:
            reseed([each for each in copies.values() if isinstance(each, Generators)], seed)
        return CheckedGame(env, self._factory.observation_spec, self._factory.action_start)


def _attributes(env: gym.Env) -> list[Generators]:
    """Return the generators among the attributes of an environment."""
    return [each for each in vars(env).values() if isinstance(each, Generators)]


@final
class OwnSnapshots(Snapshots):
    """Saves a state by the environment's method `snapshot()`, and restores it by `restore(state)`.

    Its randomness must come from generators that are attributes of it, such as Gymnasium's `np_random`. They are saved
    and restored here.
    """

    def __init__(self, factory: EnvFactory) -> None:
        self._factory, self.lanes, self.limit_steps = factory, IN_PLACE, time_limit(factory)
        self._games: dict[int, CheckedGame] = {}

    def new_game(self) -> CheckedGame:
        """Make a game."""
        return new_game(self._factory)

    def save(self, game: Game) -> Any:
        """Return what the environment calls its state, and its generators."""
        assert isinstance(game, CheckedGame)  # noqa: S101
        env: Any = game.env.unwrapped
        return env.snapshot(), copy.deepcopy(_attributes(env))

    def resume(self, state: Any, seed: int | None, lane: int = 0) -> CheckedGame:
        """Restore a game that stays in its lane."""
        if lane not in self._games:
            self._games[lane] = self.new_game()
            self._games[lane].reset(seed=0)
        game = self._games[lane]
        saved, generators = state
        env: Any = game.env.unwrapped
        env.restore(saved)
        held = _attributes(env)
        for mine, theirs in zip(held, generators, strict=True):
            _copy_state(theirs, mine)
        if seed is not None:
            reseed(held, seed)
        return game


def _copy_state(source: Generators, target: Generators) -> None:
    if isinstance(source, np.random.Generator) and isinstance(target, np.random.Generator):
        target.bit_generator.state = source.bit_generator.state
    elif isinstance(source, np.random.RandomState) and isinstance(target, np.random.RandomState):
        target.set_state(source.get_state())
    elif isinstance(source, random.Random) and isinstance(target, random.Random):
        target.setstate(source.getstate())
    else:
        raise TypeError(f"a generator was {type(source).__name__} and now is {type(target).__name__}")


@final
class EmulatorGame(Game):
    """One Atari game."""

    def __init__(self, env_id: str, protocol: str) -> None:
        env: Any = single_game(env_id, protocol)
        self.env, self.sticky = env, env.env
        self.life_loss = PROTOCOLS[protocol].life_loss

    @property
    def emulator(self) -> Any:
        """The interface of the emulator."""
        return self.env.unwrapped.ale

    def reset(self, seed: int) -> Seen:
        """Start a game."""
        return Seen(self.env.reset(seed=seed % 2**31)[0], None)

    def step(self, action: int) -> Seen:
        """Play four frames."""
        lives = self.emulator.lives()
        frame, reward, terminated, truncated, _ = self.env.step(action)
        lost = self.life_loss and self.emulator.lives() < lives
        return Seen(frame, None, float(reward), bool(terminated or lost), truncated, bool(terminated or truncated))

    def picture(self) -> Shaped[np.ndarray, "H W 3"] | None:
        """Return the screen."""
        return _small(self.emulator.getScreenRGB())

    def close(self) -> None:
        """End the emulator."""
        self.env.close()


@final
class EmulatorSnapshots(Snapshots):
    """Saves the state of Atari's emulator; only sticky actions are random."""

    def __init__(self, factory: EnvFactory) -> None:
        self._config, self.lanes = factory.config, IN_PLACE
        self.limit_steps = factory.config.max_episode_steps or None
        self._games: dict[int, EmulatorGame] = {}

    def new_game(self) -> EmulatorGame:
        """Make a game."""
        return EmulatorGame(self._config.id, self._config.protocol)

    def save(self, game: Game) -> Any:
        """Return the state of the emulator and of the sticky actions."""
        assert isinstance(game, EmulatorGame)  # noqa: S101
        return game.emulator.cloneState(include_rng=True), game.sticky.last_action, copy.deepcopy(game.sticky.generator)

    def resume(self, state: Any, seed: int | None, lane: int = 0) -> EmulatorGame:
        """Restore a game that stays in its lane."""
        if lane not in self._games:
            self._games[lane] = self.new_game()
            self._games[lane].reset(seed=0)
        game = self._games[lane]
        emulator, game.sticky.last_action, generator = state
        game.emulator.restoreState(emulator)
        game.sticky.generator = copy.deepcopy(generator)
        if seed is not None:
            reseed([game.sticky.generator], seed)
        return game
