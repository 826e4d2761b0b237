"""Actions have the names that people would use, or their numbers."""

import gymnasium as gym
import pytest

from monotau.envs.action_names import ACTION_NAMES, action_names
from monotau.envs.config import EnvConfig
from monotau.envs.make import EnvFactory
from tests.support.envs import MaskedEnv, factory


def test_actions_have_names():
    for name, actions in ACTION_NAMES.items():
        registered = [spec.id for spec in gym.registry.values() if spec.id.rpartition("-v")[0] == name]
        assert action_names(factory(max(registered, default=f"{name}-v0"))) == list(actions)
    assert action_names(factory("MinAtar/Breakout-v1")) == ["stay", "left", "right"]


def test_actions_without_names_have_the_numbers_of_the_environment():
    assert action_names(factory("monotau/Coin-v0")) == ["action 0", "action 1"]
    assert action_names(EnvFactory(EnvConfig(), MaskedEnv)) == [f"action {action}" for action in range(5, 9)]


def test_combined_actions_are_named_by_their_parts():
    class Pairs(gym.Env):
        observation_space, action_space = gym.spaces.Discrete(2), gym.spaces.MultiDiscrete([2, 2])

    assert action_names(EnvFactory(EnvConfig(), Pairs)) == ["(0, 0)", "(0, 1)", "(1, 0)", "(1, 1)"]


def test_atari_names_its_actions_by_the_joystick():
    pytest.importorskip("ale_py")
    names = action_names(factory("ALE/Boxing-v5", protocol="noop"))
    assert names[:3] == ["noop", "fire", "up"]
    assert len(names) == 18
