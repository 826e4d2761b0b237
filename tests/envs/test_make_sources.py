"""Environments passed as a callable or as an instance."""

import gymnasium as gym
import numpy as np
import pytest

from monotau.envs import EnvConfig, EnvFactory
from monotau.errors import ConfigError
from tests.support.envs import CountingEnv, episode_lengths


def test_an_episode_limit_holds_for_callables_and_instances():
    config = EnvConfig(max_episode_steps=2)
    for source in (CountingEnv, CountingEnv()):
        vector = EnvFactory(config, source).make_vector(1)
        vector.reset()
        vector.step(np.array([0]))
        _, _, terminated, truncated, infos = vector.step(np.array([0]))
        assert (terminated.item(), truncated.item()) == (False, True)
        assert infos["final_obs"][0].tolist() == [2, 2]


def test_an_instance_is_borrowed_and_not_closed():
    env = CountingEnv()
    made = EnvFactory(EnvConfig(), env)
    assert (made.name, made.reusable) == ("CountingEnv", False)
    for _ in range(2):
        vector = made.make_vector(1)
        assert vector.envs[0].unwrapped is env
        assert episode_lengths(vector, 6) == [3, 6]
        vector.close()
    assert env.closes == 0


def test_an_instance_made_by_id_is_called_by_its_id():
    assert EnvFactory(EnvConfig(), gym.make("MountainCar-v0")).name == "MountainCar-v0"


def test_an_instance_cannot_be_stepped_many_times_at_once():
    message = "num_envs is 2, but must be 1 if an environment object is passed"
    with pytest.raises(ConfigError, match=rf"env\.{message}"):
        EnvFactory(EnvConfig(num_envs=2), CountingEnv())
    with pytest.raises(ConfigError, match=message):
        EnvFactory(EnvConfig(), CountingEnv()).make_vector(2)


@pytest.mark.parametrize("num_envs", [1, 2])
def test_a_callable_that_returns_one_environment_twice_is_refused(num_envs):
    env = CountingEnv()
    with pytest.raises(ConfigError, match=r"CountingEnv: the callable returned the same environment twice"):
        EnvFactory(EnvConfig(), lambda: env).make_vector(num_envs)


def test_a_callable_that_repeats_itself_within_a_vector_is_refused():
    envs = iter([CountingEnv(), *[CountingEnv()] * 2])
    with pytest.raises(ConfigError, match=r"CountingEnv: the callable returned the same environment twice"):
        EnvFactory(EnvConfig(), lambda: next(envs)).make_vector(2)


def test_a_callable_that_makes_something_else_is_refused():
    with pytest.raises(ConfigError, match=r"returned builtins\.dict, but must return a gymnasium\.Env"):
        EnvFactory(EnvConfig(), dict)


def test_a_vector_of_environments_is_refused():
    with pytest.raises(ConfigError, match=r"already a vector \(SyncVectorEnv\), but must be an id, a gymnasium\.Env"):
        EnvFactory(EnvConfig(), gym.vector.SyncVectorEnv([CountingEnv]))


def test_keyword_arguments_without_an_id_are_refused():
    with pytest.raises(
        ConfigError, match=r"env\.kwargs is \{'length': 3\}, but only applies to environments given by id"
    ):
        EnvFactory(EnvConfig(kwargs={"length": 3}), CountingEnv)
