"""Action masks of environments: how they are found, what is read from them, and what is refused."""

import gymnasium as gym
import numpy as np
import pytest

from monotau import Agent, ConfigError, EnvironmentFault
from monotau.config.resolve import resolve
from monotau.envs import EnvConfig, EnvFactory
from monotau.envs.masks import as_masks
from monotau.learning.rollout import Rollout
from tests.support.envs import CountingEnv, MaskedEnv, MethodMaskedEnv, allowed_at


class Masker(gym.Wrapper):
    """Adds the masks of MaskedEnv to an environment that does not offer them, as sb3-contrib's ActionMasker does."""

    def action_masks(self):
        return allowed_at(self.env.unwrapped.count)


class Bare(MaskedEnv):
    """Has neither masks in info nor a method."""

    def __init__(self):
        super().__init__(info=lambda count: {})


class Broken(MaskedEnv):
    """Cannot be reset."""

    def reset(self, *, seed=None, options=None):
        raise RuntimeError("no power")


@pytest.mark.parametrize(
    ("make", "offered"),
    [
        (MaskedEnv, True),
        (MethodMaskedEnv, True),
        (lambda: Masker(Bare()), True),
        (lambda: gym.wrappers.TimeLimit(MethodMaskedEnv(), 5), True),
        (Bare, False),
        (CountingEnv, False),
        (Broken, False),
    ],
)
def test_auto_uses_the_masks_that_an_environment_offers(make, offered):
    assert EnvFactory(EnvConfig(), make).masked == offered
    assert EnvFactory(EnvConfig(action_masks="use"), make).masked
    assert not EnvFactory(EnvConfig(action_masks="ignore"), make).masked


@pytest.mark.parametrize(
    ("env_id", "given", "recorded"),
    [
        ("Taxi-v4", {}, "use"),
        ("Taxi-v4", {"action_masks": "ignore"}, "ignore"),
        ("monotau/Gate-v0", {}, "use"),
        ("CartPole-v1", {}, "ignore"),
    ],
)
def test_the_settings_record_whether_masks_are_used(env_id, given, recorded):
    resolved = resolve("dqn", {"env": {"id": env_id} | given})
    assert resolved.config.env.action_masks == recorded
    longer = resolved.override({"steps": 70_000})
    assert longer.config.env.action_masks == recorded
    assert longer.envs is resolved.envs
    other = {"use": "ignore", "ignore": "use"}[recorded]
    assert resolved.override({"env": {"action_masks": other}}).config.env.action_masks == other
    assert EnvFactory(resolved.config.env).masked == (recorded == "use")


def test_masks_of_atari_games_cannot_be_used_because_there_are_none():
    with pytest.raises(ConfigError, match=r"env.action_masks is 'use', but ALE/Pong-v5 has no masks"):
        EnvFactory(EnvConfig(id="ALE/Pong-v5", protocol="noop", action_masks="use"))


@pytest.mark.parametrize("make", [MaskedEnv, MethodMaskedEnv, lambda: Masker(Bare())])
def test_a_reset_gives_the_first_masks_and_a_step_those_of_the_new_observation(make):
    """After an autoreset they are those of the new episode, and the last of the old one are in final_info."""
    vector = EnvFactory(EnvConfig(), make).make_vector(2)
    _, info = vector.reset(seed=0)
    assert info["action_mask"].dtype == np.bool_
    assert info["action_mask"].tolist() == [allowed_at(0)] * 2
    info = vector.step(np.array([6, 7]))[-1]
    assert info["action_mask"].tolist() == [allowed_at(1)] * 2
    info = vector.step(np.array([5, 6]))[-1]
    assert info["action_mask"].tolist() == [allowed_at(0)] * 2


def played(info, steps=3, truncates=False, action_masks="auto"):
    """Play steps with the first allowed action and masks as `info` gives them; return the masks of each."""
    envs = EnvFactory(EnvConfig(action_masks=action_masks), lambda: MaskedEnv(2, truncates, info))
    rollout = Rollout(envs, 1, 1, seed=0, first_step=0)
    return [rollout.step(np.array([allowed_at(step % 2).index(True)])).steps.masks for step in range(steps)]


def at(moment, mask):
    """Return masks as they are meant except at one step count."""
    return lambda count: {"action_mask": mask if count == moment else allowed_at(count)}


@pytest.mark.parametrize(
    ("info", "match"),
    [
        (at(1, [False] * 4), "MaskedEnv, step 1: the action mask allows no action, but must allow at least one"),
        (at(1, [True] * 3), r"MaskedEnv, step 1: the action mask has shape \(3,\), but must have \(4,\)"),
        (at(1, True), r"step 1: the action mask has shape \(\), but must have \(4,\)"),
        (at(1, [0, 1, 2, 1]), r"step 1: the action mask is \[0, 1, 2, 1\], but must be an array of true and false"),
        (at(1, [0.5, 1, 1, 1]), "step 1: the action mask is .* or 1 and 0"),
        (at(1, "yes"), "step 1: the action mask is 'yes', but must be an array"),
        (at(1, None), "step 1: the action mask is None, but must be an array"),
        (at(1, [[1, 0], [1]]), r"step 1: the action mask is \[\[1, 0\], \[1\]\], but must be an array"),
        (at(0, [False] * 4), "MaskedEnv, step 0: in reset, the action mask allows no action"),
        (
            lambda count: {"action_mask": allowed_at(count)} if count else {},
            "MaskedEnv, step 1: info has an action_mask, but the first reset had none: return one from reset too",
        ),
    ],
)
def test_an_invalid_mask_stops_the_run_with_env_and_step(info, match):
    with pytest.raises(EnvironmentFault, match=match):
        played(info)


def test_a_fault_in_an_evaluation_is_located_by_the_steps_of_each_environment():
    envs = EnvFactory(EnvConfig(), lambda: MaskedEnv(3, False, at(2, [False] * 4)))
    rollout = Rollout(envs, 3, 1, seed=0)
    rollout.step(np.full(3, allowed_at(0).index(True)))
    with pytest.raises(EnvironmentFault, match="MaskedEnv, evaluation step 2: the action mask allows no action"):
        rollout.step(np.full(3, allowed_at(1).index(True)))


def test_an_observation_without_a_mask_allows_all_actions():
    masks = played(lambda count: {} if count == 1 else {"action_mask": allowed_at(count)})
    assert [mask.tolist() for mask in masks] == [[allowed_at(0)], [[True] * 4], [allowed_at(0)]]


def test_a_first_mask_in_a_step_is_read_if_the_setting_says_so_and_masks_are_not_read_if_it_forbids_them():
    late = lambda count: {"action_mask": allowed_at(count)} if count else {}  # noqa: E731
    masks = played(late, 2, action_masks="use")
    assert [mask.tolist() for mask in masks] == [[[True] * 4], [allowed_at(1)]]
    assert played(at(1, "nonsense"), 2, action_masks="ignore") == [None, None]


def test_a_terminal_state_may_allow_no_action_but_a_truncated_one_may_not():
    nothing_left = at(2, [False] * 4)
    assert len(played(nothing_left)) == 3
    with pytest.raises(EnvironmentFault, match="step 2: the action mask allows no action"):
        played(nothing_left, truncates=True)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.bool_, np.float32, list])
def test_masks_may_be_booleans_or_numbers(kind):
    given = [0, 1, 1] if kind is list else np.array([0, 1, 1], kind)
    mask = as_masks(given, 3)
    assert mask.dtype == np.bool_
    assert mask.tolist() == [False, True, True]


def test_an_ignored_mask_lets_the_agent_take_any_action():
    with pytest.raises(EnvironmentFault, match=r"action \d is not allowed after \d steps"):
        Agent(MaskedEnv, "dqn", env_settings={"action_masks": "ignore"}, steps=200).learn(200)


def test_the_mask_of_a_multidiscrete_space_has_one_value_for_each_choice_of_each_axis():
    """Axes of 2 and 3 choices: combination 3 i + j is allowed if both i and j are."""
    mask = as_masks([1, 0, 0, 1, 1], 6, (2, 3))
    assert mask.tolist() == [False, True, True, False, False, False]
    both = as_masks([[1, 1, 0, 0, 1], [0, 1, 1, 1, 1]], 6, (2, 3), (2,))
    assert both.tolist() == [[False, False, True, False, False, True], [False, False, False, True, True, True]]
    with pytest.raises(
        EnvironmentFault, match=r"shape \(6,\), but must have \(5,\): one value for each action of each"
    ):
        as_masks([1] * 6, 6, (2, 3))
    with pytest.raises(EnvironmentFault, match="allows no action"):
        as_masks([1, 1, 0, 0, 0], 6, (2, 3))
