"""The searched settings: around the defaults, without what the user fixed or the preset does not have."""

import pytest
import yaml

from monotau.config.presets import PRESETS
from monotau.config.resolve import resolve
from monotau.tuning.space import SPACE, Dimension, defaults_of, nested, searched


def plain(preset="ndqfn-dpe", **settings):
    return resolve(preset, {"env": {"id": "CartPole-v1"}}, settings).config.to_plain()


@pytest.mark.parametrize("preset", PRESETS)
def test_each_default_lies_in_its_range(preset):
    config = plain(preset)
    space = searched(config, {})
    assert {"optimiser.learning_rate", "update.batch_size", "head.hidden"} <= space.keys()
    for setting, default in defaults_of(config, space).items():
        kind, *numbers = space[setting]
        assert numbers[0] < default < numbers[-1] if kind == "log" else default in numbers, setting
        assert numbers == sorted(set(numbers)), setting


def test_ranges_by_hand():
    assert Dimension(setting="x", factors=(0.1, 4.0)).range_around(0.5) == ["log", 0.05, 2.0]
    assert Dimension(setting="x", choices=(1, 3)).range_around(2) == ["choice", 1, 2, 3]
    assert Dimension(setting="x", multiples=(0.5, 2.0)).range_around(3) == ["choice", 2, 3, 6]
    assert Dimension(setting="x", multiples=(0.1,)).range_around(1) == ["choice", 1]
    assert Dimension(setting="x", factors=(0.1, 4.0)).range_around(0.0) is None


def test_only_what_a_preset_has_is_searched():
    everything = {dimension.setting for dimension in SPACE}
    assert searched(plain(), {}).keys() == everything
    assert searched(plain("dqn"), {}).keys() == everything - {"explorer.c"}
    for preset in ("ndqfn-deep-dpe", "ndqfn-rnd", "pe-dqn"):
        assert "n_step" not in searched(plain(preset), {})
    assert "epsilon.end" not in searched(plain("rainbow"), {})  # it is 0: noise explores


def test_what_the_user_fixed_is_not_searched():
    fixed = {"n_step": 3, "head": {"kind": "ndqfn", "hidden": 32}}
    assert searched(plain(**fixed), fixed).keys().isdisjoint({"n_step", "head.hidden"})


@pytest.mark.parametrize("preset", ["ndqfn-dpe", "c51", "ndqfn-deep-dpe"])
def test_the_ends_of_all_ranges_are_valid_settings(preset):
    config = plain(preset)
    space = searched(config, {})
    for end in (1, -1):
        values = {setting: allowed[end] for setting, allowed in space.items()}
        found = resolve(preset, {"env": {"id": "CartPole-v1"}}, nested(values)).config.to_plain()
        assert defaults_of(found, space) == values


def test_paths_become_a_settings_file():
    values = {"a.b.c": 1, "a.d": 2.5, "e": "f"}
    assert nested(values) == {"a": {"b": {"c": 1}, "d": 2.5}, "e": "f"}
    assert yaml.safe_load(yaml.safe_dump(nested(values))) == nested(values)
