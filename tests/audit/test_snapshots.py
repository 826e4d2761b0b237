"""Snapshots: what can be restored continues exactly, and what cannot is refused with the reason."""

import copy
import random
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from monotau.audit.snapshots import (
    CopySnapshots,
    EmulatorSnapshots,
    OwnSnapshots,
    _copy_state,
    new_game,
    reseed,
    snapshots_of,
    time_limit,
)
from monotau.envs import EnvConfig, EnvFactory
from monotau.envs.atari import single_game
from monotau.errors import ConfigError, EnvironmentFault, MissingExtra
from tests.support.envs import CountingEnv, MaskedEnv, factory


class Walk(gym.Env):
    """A random walk whose episodes end at 50 steps; its moves come from its own generator, or from elsewhere."""

    def __init__(self):
        self.observation_space, self.action_space = spaces.Box(-99, 99, (2,), np.float32), spaces.Discrete(2)
        self.place, self.steps = 0.0, 0

    def move(self):
        return self.np_random.normal()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = 0.0, 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.place, self.steps = self.place + action + self.move(), self.steps + 1
        return np.array([self.place, self.steps], np.float32), self.place, self.steps >= 50, False, {}


class Restoring(Walk):
    """Saves its own state; it cannot be copied."""

    def snapshot(self):
        return self.place, self.steps

    def restore(self, state):
        self.place, self.steps = state

    def __deepcopy__(self, memo):
        raise TypeError("cannot be copied")


class Forgetting(Restoring):
    def restore(self, state):
        self.steps = state[1]


class Breaking(Restoring):
    def restore(self, state):
        raise AttributeError


class GlobalRandomness(Walk):
    def move(self):
        return random.random()  # noqa: S311


class Uncopyable(Walk):
    def __deepcopy__(self, memo):
        raise TypeError("cannot pickle 'Body' object")


class SharedState(Walk):
    """Copies share one list."""

    def __init__(self):
        super().__init__()
        self.shared = _Shared()

    def move(self):
        self.shared.value += 1
        return self.shared.value


class _Shared:
    value = 0

    def __deepcopy__(self, memo):
        return self


def make(env):
    return EnvFactory(EnvConfig(), env)


def play(game, steps=20, first=0):
    """Take two actions in turn."""
    seen = [game.step(first + step % 2) for step in range(steps)]
    return [(each.frame.tolist(), each.reward, each.over) for each in seen]


@pytest.mark.parametrize(("env", "kind"), [(Walk, CopySnapshots), (Restoring, OwnSnapshots)])
def test_a_snapshot_continues_as_the_original_and_with_new_randomness(env, kind):
    snapshots = snapshots_of(make(env))
    assert type(snapshots) is kind
    game = snapshots.new_game()
    game.reset(seed=3)
    play(game, 5)
    state = snapshots.save(game)
    original = play(game)
    assert play(snapshots.resume(state, None)) == original
    one, other = (play(snapshots.resume(state, seed)) for seed in (1, 2))
    assert one == play(snapshots.resume(state, 1))
    assert original != one != other
    assert [frame[1] for frame, *_ in one] == [frame[1] for frame, *_ in original]  # the same step count
    assert one == play(snapshots.resume(state, 1, lane=1))


@pytest.mark.parametrize(
    "env_id", ["CartPole-v1", "FrozenLake-v1", "Taxi-v4", "MinAtar/Breakout-v1", "monotau/Gate-v0"]
)
def test_environments_of_gymnasium_minatar_and_our_own_can_be_restored(env_id):
    assert type(snapshots_of(factory(env_id))) is CopySnapshots


@pytest.mark.parametrize("protocol", ["noop", "sticky"])
def test_the_emulator_can_be_restored(protocol):
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    snapshots = snapshots_of(factory("ALE/Pong-v5", protocol=protocol))
    assert type(snapshots) is EmulatorSnapshots
    game = snapshots.new_game()
    first = game.reset(seed=1)
    assert first.frame.shape == (84, 84)
    state = snapshots.save(game)
    one, other = (play(snapshots.resume(state, seed), 40, first=2) for seed in (1, 2))
    assert (one == other) == (protocol == "noop")  # without sticky actions nothing is random
    assert game.picture().shape == (210, 160, 3)
    game.close()


def test_the_package_that_single_games_need_is_named(monkeypatch):
    pytest.importorskip("ale_py")
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MissingExtra, match=r"^env.id is 'ALE/Pong-v5', but OpenCV, .* pip install 'monotau\[atari\]'$"):
        single_game("ALE/Pong-v5", "noop")


@pytest.mark.parametrize(
    ("env", "reason"),
    [
        (
            Uncopyable,
            r"^Uncopyable cannot be restored .*: its state cannot be copied \(TypeError: cannot pickle 'Body'",
        ),
        (GlobalRandomness, r"^GlobalRandomness cannot be audited: a restored snapshot continues differently after 1 "),
        (SharedState, r"^SharedState cannot be audited: a restored snapshot continues differently after 1 step with"),
        (Breaking, r"^Breaking cannot be restored from a snapshot: AttributeError\.$"),
        (Forgetting, r"^Forgetting cannot be audited: a restored snapshot continues differently"),
    ],
)
def test_what_cannot_be_restored_is_refused(env, reason):
    with pytest.raises(ConfigError, match=reason):
        snapshots_of(make(env))


def test_box2d_is_refused():
    pytest.importorskip("Box2D")
    with pytest.raises(
        ConfigError,
        match=r"^LunarLander-v3 .*: its state cannot be copied \(AssertionError\); give it",
    ):
        snapshots_of(factory("LunarLander-v3"))


def test_a_time_limit_is_taken_off_and_known():
    assert time_limit(factory("CartPole-v1")) == 500
    assert time_limit(factory("CartPole-v1", max_episode_steps=7)) == 7
    assert time_limit(make(CountingEnv)) is None
    limited = EnvFactory(
        EnvConfig(max_episode_steps=9),
        lambda: gym.wrappers.TimeLimit(gym.wrappers.Autoreset(gym.wrappers.TimeLimit(CountingEnv(30), 5)), 7),
    )
    assert time_limit(limited) == 5
    game = new_game(limited)
    game.reset(seed=0)
    assert [game.step(0).over for _ in range(30)] == [False] * 29 + [True]


def test_actions_and_masks_are_the_environments():
    game = new_game(make(MaskedEnv))
    assert game.reset(seed=0).mask.tolist() == [False, True, True, False]
    assert game.step(1).mask.tolist() == [True, True, False, True]


def test_a_reward_that_is_not_finite_is_an_error():
    env = CountingEnv()
    env.step = lambda action: (env.buffer, np.inf, False, False, {})
    game = new_game(EnvFactory(EnvConfig(), env))
    game.reset(seed=0)
    with pytest.raises(EnvironmentFault, match="the environment returned the reward inf, which is not a finite number"):
        game.step(0)


GENERATORS = [np.random.default_rng(0), np.random.RandomState(0), random.Random(0), np.random.default_rng(1)]  # noqa: S311


def test_every_kind_of_generator_gets_a_state_of_its_own():
    def numbers(seed):
        generators = copy.deepcopy(GENERATORS)
        reseed(generators, seed)
        return [generator.random() for generator in generators]

    assert numbers(4) == numbers(4)
    assert len({*numbers(4), *numbers(5)}) == 8
    for source in GENERATORS:
        target = copy.deepcopy(source)
        target.random()
        _copy_state(source, target)
        assert target.random() == copy.deepcopy(source).random()
    with pytest.raises(TypeError, match="a generator was RandomState and now is Generator"):
        _copy_state(GENERATORS[1], GENERATORS[0])


def test_a_picture_is_small_and_leaves_the_game_alone():
    pytest.importorskip("pygame")
    game = new_game(factory("CartPole-v1"))
    game.reset(seed=0)
    assert game.picture().shape == (134, 200, 3)
    assert game.env.unwrapped.screen is None
    blind = new_game(make(Walk))
    blind.reset(seed=0)
    assert blind.picture() is None
