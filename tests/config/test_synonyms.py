"""Names of other libraries lead to the settings here, and parts may be given by their names alone."""

import pytest

from monotau import Agent
from monotau.config.plain import kind_of
from monotau.config.presets import PRESETS
from monotau.config.resolve import resolve, with_kinds
from monotau.config.schema import KINDS
from monotau.config.synonyms import SYNONYMS
from monotau.errors import ConfigError, near_names
from monotau.results.read import flatten_settings


def test_every_synonym_names_a_setting_and_is_none_itself():
    configs = [resolve(preset).config.to_plain() for preset in PRESETS]
    paths = {path for plain in configs for path, _ in flatten_settings(plain)} | {*configs[0]}
    assert {*SYNONYMS.values()} <= paths
    assert not {*SYNONYMS} & paths


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lr": 1e-3}, r"the setting 'lr' is unknown\. Did you mean optimiser=\{'learning_rate': \.\.\.\}\? Allowed: "),
        ({"learning_rate": 1e-3}, r"'learning_rate' is unknown\. Did you mean optimiser=\{'learning_rate': \.\.\.\}\?"),
        ({"buffer_size": 10}, r"'buffer_size' is unknown\. Did you mean replay=\{'capacity_steps': \.\.\.\}\?"),
        ({"batch_size": 10}, r"'batch_size' is unknown\. Did you mean update=\{'batch_size': \.\.\.\}\?"),
        ({"optimiser": {"lr": 1}}, r"'optimiser\.lr' is unknown\. Did you mean 'optimiser\.learning_rate'\?"),
        ({"gama": 1}, r"'gama' is unknown\. Did you mean 'gamma'"),
        ({"preset": "DQN"}, r"the preset 'DQN' is unknown\. Did you mean 'dqn'"),
        ({"preset": "QRDQN"}, r"the preset 'QRDQN' is unknown\. Did you mean 'qr-dqn'"),
        ({"head": "QR"}, r"head\.kind 'QR' is unknown\. Did you mean 'qr'"),
    ],
)
def test_an_unknown_name_comes_with_what_was_probably_meant(settings, message):
    with pytest.raises(ConfigError, match=message):
        Agent("CartPole-v1", **settings)


def test_names_are_near_in_any_case():
    assert near_names("DQN", ["c51", "dqn"]) == ["dqn"]
    assert near_names("RAINBOW", ["Rainbow", "dqn"]) == ["Rainbow"]
    assert near_names("xyz", ["c51", "dqn"]) == []


PARTS = {"head": "qr", "explorer": "dltv", "torso": "mlp", "replay": "uniform"}


def test_a_part_may_be_given_by_its_name_alone():
    mappings = {part: {"kind": kind} for part, kind in PARTS.items()}
    short, long = Agent("CartPole-v1", **PARTS).config, Agent("CartPole-v1", **mappings).config
    assert short == long
    assert {part: kind_of(getattr(short, part), KINDS) for part in PARTS} == PARTS
    given = resolve("ndqfn", with_kinds("ndqfn", PARTS), {"head": {"quantiles": 7}}).config.head
    assert (kind_of(given, KINDS), given.quantiles) == ("qr", 7)
    assert resolve("ndqfn").override({"head": "c51"}).config.head == resolve("ndqfn", {"head": "c51"}).config.head
