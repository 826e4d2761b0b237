"""Malformed environments stop a run with their name and the cause, and its checkpoint stays intact.

Unusual but valid environments are trained on.
"""

import itertools
import math
import os
import warnings

import numpy as np
import pytest
from gymnasium import spaces

from monotau.config.resolve import resolve
from monotau.errors import ConfigError, EnvironmentFault
from monotau.report.run_figures import draw_run_figures
from monotau.runs.checkpoint import Checkpoints
from monotau.runs.files import read_json
from monotau.runs.runner import train_into
from tests.support.malformed_envs import (
    IMAGE,
    LEFT_OUT,
    SECOND_ITERATION,
    STATES,
    TINY,
    VECTOR,
    MalformedEnv,
    at,
    only_in,
)
from tests.support.small_runs import silent


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """The wait for the disk is not in question here."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def train(directory, source, draw=None, **settings):
    resolved = resolve("dqn", TINY, settings, source=source)
    train_into(directory, resolved, silent(), draw=draw)
    return read_json(directory / "result.json")


def stopped(directory, source, **settings):
    """Train until the fault, assert that the last checkpoint is intact, and return the message."""
    resolved = resolve("dqn", TINY, settings, source=source)
    with pytest.raises(EnvironmentFault) as caught:
        train_into(directory, resolved, silent())
    checkpoints = Checkpoints(directory, resolved.config)
    assert checkpoints.find() == []
    assert checkpoints.manifest.step == 20
    message = str(caught.value)
    assert "\n" not in message
    assert "the last good checkpoint is" in message
    return message


ONE_NUMBER = "but must be one number"
OBSERVATIONS = {
    "of another shape": (VECTOR, np.zeros(3), "has shape (3,), but its observation space has shape (2,)"),
    "of another number of axes": (VECTOR, 0.0, "has shape (), but its observation space has shape (2,)"),
    "of NaN": (VECTOR, np.array([0, np.nan]), "contains nan, which float32 cannot hold"),
    "of infinity": (VECTOR, np.array([-np.inf, 0]), "contains -inf, which float32 cannot hold"),
    "beyond float32": (VECTOR, np.array([1e39, 0]), "contains 1e+39, which float32 cannot hold"),
    "that is None": (VECTOR, None, "The observation is None, but"),
    "of text": (VECTOR, np.array(["up", "down"]), "The observation is array(['up', 'down']"),
    "that is a dictionary": (VECTOR, {"x": 1.0}, "The observation is {'x': 1.0}, but"),
    "that is ragged": (VECTOR, [[1.0], [1.0, 2.0]], "The observation is [[1.0], [1.0, 2.0]], but"),
    "of complex numbers": (VECTOR, np.zeros(2, np.complex64), "but its observation space is float32"),
    "of floats for an image of bytes": (IMAGE, np.full(IMAGE.shape, 0.5), "but its observation space is uint8"),
    "of numbers beyond bytes": (IMAGE, np.full(IMAGE.shape, 300, np.uint16), "contains 300, which uint8 cannot hold"),
    "of a state beyond the last": (STATES, 5, "The state is 5, but the Discrete observation space goes from 1 to 4"),
    "of a state before the first": (STATES, 0, "The state is 0, but the Discrete observation space goes from 1 to 4"),
    "of half a state": (STATES, 2.5, "but its observation space is int64"),
    "of a state without bounds": (STATES, 10**30, "The observation is 1000000"),
}


OTHER_WAY = [
    "of another shape",
    "of NaN",
    "that is None",
    "of floats for an image of bytes",
    "of a state before the first",
]
"""These are also tried as the last observation of an episode, which takes another code path."""


@pytest.mark.parametrize(
    ("name", "moment"), [*((name, 8) for name in OBSERVATIONS), *((name, 10) for name in OTHER_WAY)]
)
def test_an_observation_outside_its_space_stops_the_run(name, moment, tmp_path):
    space, observation, cause = OBSERVATIONS[name]
    source = only_in(SECOND_ITERATION, space=space, step=at(moment, observation=observation))
    message = stopped(tmp_path, source, torso={"width": 8})
    assert message.startswith(f"MalformedEnv, step {20 + moment}: ")
    assert cause in message


@pytest.mark.parametrize("count", [1, 2], ids=["first", "second"])
@pytest.mark.parametrize("name", ["of another shape", "of NaN"])
def test_a_first_observation_outside_its_space_stops_the_run(name, count, tmp_path):
    _, observation, cause = OBSERVATIONS[name]
    message = stopped(tmp_path, only_in(SECOND_ITERATION, reset=at(count, observation=observation)))
    assert message.startswith(f"MalformedEnv, step {20 + 5 * (count - 1)}: ")
    assert cause in message


ANSWERS = {
    "a reward of NaN": ({"reward": math.nan}, "the reward nan, which float32 cannot hold"),
    "a reward of infinity": ({"reward": math.inf}, "the reward inf, which float32 cannot hold"),
    "a reward beyond float32": ({"reward": 1e39}, "the reward 1e+39, which float32 cannot hold"),
    "no reward": ({"reward": None}, f"the reward is None, {ONE_NUMBER}"),
    "a reward of text": ({"reward": "1.5"}, f"the reward is '1.5', {ONE_NUMBER}"),
    "a reward in a list": ({"reward": [1.0]}, f"the reward is [1.0], {ONE_NUMBER}"),
    "many rewards": ({"reward": np.ones(3)}, f"the reward is array([1., 1., 1.]), {ONE_NUMBER}"),
    "a ragged reward": ({"reward": [1, [2, 3]]}, f"the reward is [1, [2, 3]], {ONE_NUMBER}"),
    "a complex reward": ({"reward": 1j}, f"the reward is 1j, {ONE_NUMBER}"),
    "a reward without bounds": ({"reward": 10**5000}, f"the reward is a number of thousands of digits, {ONE_NUMBER}"),
    "an end that is text": ({"terminated": "no"}, "terminated is 'no', but must be true or false"),
    "an end that is None": ({"truncated": None}, "truncated is None, but must be true or false"),
    "an end that is a number": ({"terminated": 0.5}, "terminated is 0.5, but must be true or false"),
    "no info": ({"info": None}, "info is None, but must be a dictionary"),
    "the four values of old": (
        {"truncated": LEFT_OUT},
        "step returned 4 values, but must return 5 values: observation,",
    ),
    "six values": ({"more": 1}, "step returned 6 values, but must return 5 values: observation,"),
    "an error": ({"reward": KeyError("lost\nkey")}, "it raised KeyError: 'lost\\nkey'"),
    "an error of the disk": ({"reward": OSError("no\nmap")}, "it raised OSError: no map"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_malformed_step_stops_the_run(name, tmp_path):
    change, cause = ANSWERS[name]
    message = stopped(tmp_path, only_in(SECOND_ITERATION, step=at(8, **change)))
    assert message.startswith("MalformedEnv, step 28: ")
    assert cause in message


RESETS = {
    "only an observation": (
        {"info": LEFT_OUT},
        "reset returned array([1., 1.], dtype=float32), but must return 2 values",
    ),
    "three values": ({"more": 1}, "reset returned 3 values, but must return 2 values: observation, info"),
    "no info": ({"info": 7}, "in reset, info is 7, but must be a dictionary"),
    "an error": ({"info": RuntimeError("no\nmap")}, "it raised RuntimeError: no map"),
    "an error of the disk": ({"info": FileNotFoundError("no map")}, "it raised FileNotFoundError: no map"),
}


@pytest.mark.parametrize("count", [1, 2], ids=["first", "second"])
@pytest.mark.parametrize("name", RESETS)
def test_a_malformed_reset_stops_the_run(name, count, tmp_path):
    change, cause = RESETS[name]
    message = stopped(tmp_path, only_in(SECOND_ITERATION, reset=at(count, **change)))
    assert message.startswith(f"MalformedEnv, step {20 + 5 * (count - 1)}: {cause}")


def test_a_step_that_returns_nothing_stops_the_run(tmp_path):
    nothing = at(8, observation=None, reward=LEFT_OUT, terminated=LEFT_OUT, truncated=LEFT_OUT, info=LEFT_OUT)
    message = stopped(tmp_path, only_in(SECOND_ITERATION, step=nothing))
    assert message.startswith("MalformedEnv, step 28: step returned None, but must return 5 values: observation, rew")


def failing_from(life, make=MalformedEnv):
    """Return a callable that makes environments until it fails."""
    lives = itertools.count(1)

    def source():
        if next(lives) >= life:
            raise PermissionError("no\nlicence")
        return make()

    return source


def test_an_environment_that_cannot_be_made_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"source.* cannot be made: PermissionError: no licence"):
        resolve("dqn", TINY, source=failing_from(1))


def test_an_environment_that_cannot_be_made_again_stops_the_run(tmp_path):
    message = stopped(tmp_path, failing_from(SECOND_ITERATION))
    assert message.startswith("MalformedEnv, step 20: it could be made once, but not again: ")
    assert "PermissionError: no licence" in message


def test_a_callable_whose_environments_differ_stops_the_run(tmp_path):
    spaces_in_turn = (spaces.Box(-1, 1, (2 + (life > 5),), np.float32) for life in itertools.count())
    message = stopped(tmp_path, lambda: MalformedEnv(next(spaces_in_turn)), env={"num_envs": 2})
    assert message.startswith("MalformedEnv, step 20: it could be made once, but not again: RuntimeError: ")


@pytest.mark.parametrize("count", [0, -1])
def test_an_environment_without_actions_is_refused(count):
    def source():
        world = MalformedEnv()
        world.action_space.n = np.int64(count)  # Discrete itself would refuse such a size
        return world

    with pytest.raises(ConfigError, match=r"MalformedEnv: the action space is .* with at least one action"):
        resolve("dqn", TINY, source=source)


def test_a_close_that_raises_is_a_warning_and_hides_no_fault(tmp_path):
    broken = {"close": RuntimeError("no\nscreen")}
    with pytest.warns(RuntimeWarning, match="MalformedEnv: closing it raised RuntimeError: no screen"):
        assert train(tmp_path / "whole", lambda: MalformedEnv(**broken))["steps"] == 40
    with pytest.warns(RuntimeWarning, match="closing it raised"):
        message = stopped(tmp_path / "cut", only_in(SECOND_ITERATION, step=at(8, reward=math.nan), **broken))
    assert "the reward nan" in message


UNUSUAL = {
    "episodes of one step": {"length": 1},
    "episodes without end": {"length": 10**9},
    "values out of bounds": {"step": lambda count: {"observation": np.full(2, 1e6)}},
    "an end that is also a cut": {"step": lambda count: {"truncated": count % 5 == 0}},
    "observations of another precision": {"step": lambda count: {"observation": np.zeros(2, np.float16)}},
    "observations of whole numbers": {"step": lambda count: {"observation": [count % 2, 0]}},
    "rewards of 1e30": {"step": lambda count: {"reward": 1e30}},
    "rewards as arrays without axes": {"step": lambda count: {"reward": np.array(1, np.int8)}},
    "ends as numpy has them": {"step": lambda count: {"terminated": np.bool_(count % 5 == 0)}},
    "info that changes its mind": {
        "step": lambda count: {"info": {7: [count, "text", None][count % 3]}},
        "reset": lambda count: {"info": {"final_obs": "mine"}},
    },
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_but_valid_environments_are_trained_on(name, tmp_path):
    with warnings.catch_warnings(action="error"):
        assert train(tmp_path, lambda: MalformedEnv(**UNUSUAL[name]))["steps"] == 40


def test_an_evaluation_with_endless_episodes_is_cut_off(tmp_path):
    result = train(tmp_path, lambda: MalformedEnv(length=10**9))
    assert result["final"]["length_mean"] == result["final"]["return_mean"] == 7


def test_ten_thousand_actions_are_learned_and_drawn(tmp_path):
    settings = {"head": {"hidden": 2}, "evaluation": {"episode_cap_steps": 1}, "steps": 20}
    assert train(tmp_path, lambda: MalformedEnv(actions=10_000), draw_run_figures, **settings)["updates"] > 0
    assert (tmp_path / "quantile_functions.png").stat().st_size > 0
