"""Scaling a suite to a smaller budget: proportional, in whole steps, and always valid."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monotau.config.presets import PRESETS
from monotau.config.resolve import resolve
from monotau.errors import ConfigError
from monotau.suites.scaling import check_scale, scaled

CONFIG = resolve(
    "ndqfn-dpe-fast",
    {
        "steps": 12_000,
        "iteration_steps": 3_000,
        "log_every_steps": 500,
        "env": {"num_envs": 6},
        "epsilon": {"decay_steps": 4_000},
        "replay": {"capacity_steps": 8_000, "warmup_steps": 1_000},
        "evaluation": {"steps": 700, "episodes": 9},
    },
).config


def test_durations_are_scaled_and_the_settings_of_an_update_are_kept():
    config = scaled(CONFIG, 0.25)
    assert (config.steps, config.iteration_steps, config.log_every_steps) == (3_000, 750, 125)
    assert (config.replay.capacity_steps, config.replay.warmup_steps) == (2_000, 250)
    assert (config.epsilon.decay_steps, config.evaluation.steps) == (1_000, 175)
    assert (config.update, config.head, config.explorer) == (CONFIG.update, CONFIG.head, CONFIG.explorer)
    assert config.evaluation.episodes == 9


def test_scaled_steps_are_rounded_up_to_a_multiple_of_the_environments():
    assert scaled(CONFIG, 0.0001).steps == 6
    assert scaled(CONFIG, 0.3333).steps == 4_002  # 3999.6


@pytest.mark.parametrize("preset", sorted(PRESETS))
@settings(max_examples=10, deadline=None)
@given(scale=st.floats(1e-9, 1.0))
def test_any_scale_of_any_preset_is_valid_and_no_larger(preset, scale):
    whole = resolve(preset).config
    config = scaled(whole, scale)  # the checks of the config itself refuse invalid settings
    assert config.steps <= whole.steps
    assert config.replay.capacity_steps <= whole.replay.capacity_steps
    assert config.iteration_steps <= config.steps


def test_the_smallest_scaled_replay_has_room_for_the_environments_of_all_actors():
    config = replace(resolve("dqn").config, actors=40)
    least = scaled(config, 1e-6).replay.capacity_steps
    assert least == 40 * scaled(replace(config, actors=0), 1e-6).replay.capacity_steps > 0


def test_a_scale_of_one_changes_nothing():
    assert scaled(CONFIG, 1.0) == CONFIG


@pytest.mark.parametrize("scale", [0, -0.1, 1.01, float("nan"), "0.5", True])
def test_an_invalid_scale_is_refused(scale):
    with pytest.raises(ConfigError, match=r"the scale is .* but must be above 0 and at most 1"):
        check_scale(scale)
