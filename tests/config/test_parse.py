"""Parsing of settings is strict: an error names the path of the invalid setting in one line."""

import json
import math
import re
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from monotau.config.parse import LARGEST_FILE, override, read_settings
from monotau.config.plain import kind_of, to_plain
from monotau.config.presets import PRESETS
from monotau.config.profiles import PROFILES
from monotau.config.resolve import resolve_for_spec
from monotau.config.schema import KINDS, Config, EvaluationConfig, UpdateConfig
from monotau.envs import EnvConfig
from monotau.errors import ConfigError, brief
from monotau.networks.heads.iqn import Iqn
from monotau.networks.heads.ndqfn import Ndqfn
from tests.support.networks import VECTOR

BASE = resolve_for_spec("ndqfn-dpe", "classic", {}, VECTOR)


def nest(path, value):
    """Return {"a": {"b": value}} for the path a.b."""
    for name in reversed(path.split(".")):
        value = {name: value}
    return value


@pytest.fixture
def read(tmp_path):
    def read(text, suffix=".yaml"):
        path = tmp_path / f"settings{suffix}"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_settings(path)

    return read


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_in_every_profile_survives_the_trip_through_json(preset, profile):
    config = resolve_for_spec(preset, profile, {}, VECTOR)
    base = resolve_for_spec("iqn" if preset != "iqn" else "ndqfn-vpe", "classic", {"seed": 7}, VECTOR)
    assert base != config
    assert override(base, json.loads(json.dumps(config.to_plain())), KINDS) == config


def test_settings_other_than_the_defaults_survive_the_trip_through_json():
    changes = {
        "env": {"id": "x-v0", "kwargs": {"size": 3, "slippery": True, "name": "a", "cost": 0.5}},
        "head": {"support": [0.1, 0.5, 0.9], "increment": "elu1"},
        "explorer": {"c": 2.5, "target": "frozen"},
    }
    config = override(BASE, changes, KINDS)
    assert config.head == replace(BASE.head, support=(0.1, 0.5, 0.9), increment="elu1")
    assert config.env.kwargs == changes["env"]["kwargs"]
    assert override(BASE, json.loads(json.dumps(config.to_plain())), KINDS) == config


def test_plain_settings_share_nothing_with_the_settings():
    config = override(BASE, {"env": {"kwargs": {"size": 3}}}, KINDS)
    to_plain(config, KINDS)["env"]["kwargs"]["size"] = 4
    assert config.env.kwargs == {"size": 3}


def test_a_part_is_written_under_the_name_of_its_table():
    assert kind_of(Iqn(), KINDS) == "iqn"
    assert next(iter(to_plain(Ndqfn(), KINDS).items())) == ("kind", "ndqfn")


def test_another_kind_brings_its_own_defaults_and_the_same_kind_keeps_what_was_set():
    base = override(BASE, {"head": {"hidden": 9}}, KINDS)
    assert override(base, {"head": {"kind": "iqn"}}, KINDS).head == Iqn()
    assert override(base, {"head": {"kind": "ndqfn", "knots": 5}}, KINDS).head == Ndqfn(hidden=9, knots=5)


UNKNOWN = [
    ("stps", 3, r"the setting 'stps' is unknown\. Did you mean 'steps'"),
    ("head.knotz", 3, r"the setting 'head\.knotz' is unknown\. Did you mean 'head\.knots'"),
    ("env.kind", "x", r"the setting 'env\.kind' is unknown"),
    ("head.kind", "ndqfm", r"head\.kind 'ndqfm' is unknown\. Did you mean 'ndqfn' or 'nq'\? Allowed: c51, dqn"),
    ("head.increment", "soft", r"head\.increment 'soft' is unknown\. .*Allowed: elu1, relu, scaled, softplus\."),
]
WRONG = [
    ("steps", True, "steps is True, but must be a whole number"),
    ("steps", 1.0, "steps is 1.0, but must be a whole number"),
    ("steps", "1", "steps is '1', but must be a whole number"),
    ("steps", None, "steps is None, but must be a whole number"),
    ("steps", [5], "steps is [5], but must be a whole number"),
    ("gamma", "0.9", "gamma is '0.9', but must be a number"),
    ("gamma", True, "gamma is True, but must be a number"),
    ("gamma", {"a": 1}, "gamma is {'a': 1}, but must be a number"),
    ("double_q", 1, "double_q is 1, but must be true or false"),
    ("env.id", 3, "env.id is 3, but must be text"),
    ("precision", 16, "precision is 16, but must be text"),
    ("head", "iqn", "head must be a mapping of names to values, but got 'iqn'"),
    ("head.kind", ["iqn"], "head.kind is ['iqn'], but must be text"),
    ("head.support", 0.5, "head.support is 0.5, but must be a list"),
    ("head.support", [0.1, "x"], "head.support[1] is 'x', but must be a number"),
    ("env.kwargs", 3, "env.kwargs is 3, but must be a mapping with identifiers as keys"),
    ("env.kwargs", {"a b": 1}, "env.kwargs is {'a b': 1}, but must be a mapping with identifiers as keys"),
    ("env.kwargs", {3: 1}, "env.kwargs is {3: 1}, but must be a mapping with identifiers as keys"),
    ("env.kwargs", {"a": [1]}, "env.kwargs.a is [1], but must be one of: bool, int, float, str, null"),
    ("env.kwargs", {"a": math.nan}, "env.kwargs.a is nan, but must be a finite number"),
    ("gamma", math.nan, "gamma is nan, but must be a finite number"),
    ("optimiser.learning_rate", math.inf, "optimiser.learning_rate is inf, but must be a finite number"),
    ("steps", 2**63, f"steps is {2**63}, but must be a number that fits in 64 bits"),
    ("gamma", -(2**63) - 1, f"gamma is {-(2**63) - 1}, but must be a number that fits in 64 bits"),
]


@pytest.mark.parametrize(("path", "value", "message"), UNKNOWN)
def test_an_unknown_name_is_refused_by_its_path(path, value, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        override(BASE, nest(path, value), KINDS)


@pytest.mark.parametrize(("path", "value", "message"), WRONG)
def test_a_wrong_type_is_refused_by_its_path(path, value, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}.$"):
        override(BASE, nest(path, value), KINDS)


def test_settings_that_are_no_mapping_are_refused():
    with pytest.raises(ConfigError, match=r"^the settings must be a mapping of names to values, but got \[1\]\.$"):
        override(BASE, [1], KINDS)


@pytest.mark.parametrize("path", ["steps", "gamma", "head", "head.kind", "env.id", "head.support", "env.kwargs"])
def test_a_number_too_long_to_print_is_refused(path, read):
    with pytest.raises(ConfigError, match=rf"^{path} .* a number of thousands of digits"):
        override(BASE, nest(path, read(f"a: 0x{'f' * 5000}")["a"]), KINDS)


def test_an_integer_is_accepted_where_a_float_is_expected():
    gamma = override(BASE, {"gamma": 1}, KINDS).gamma
    assert (gamma, type(gamma)) == (1.0, float)


def test_numpy_numbers_are_accepted_as_numbers():
    config = override(BASE, {"steps": np.int64(7), "gamma": np.float32(0.5), "double_q": np.bool_(False)}, KINDS)
    assert (config.steps, config.gamma, config.double_q) == (7, 0.5, False)
    assert [type(value) for value in (config.steps, config.gamma, config.double_q)] == [int, float, bool]
    with pytest.raises(ConfigError, match=r"^steps is 7\.0, but must be a whole number\.$"):
        override(BASE, {"steps": np.float64(7)}, KINDS)


def test_a_value_is_shown_on_one_short_line():
    deep = []
    for _ in range(5000):
        deep = [deep]
    for value in (deep, "x\ny" * 5000, 10**5000, [10**5000], dict.fromkeys(range(999), "z" * 50), range(3)):
        assert "\n" not in brief(value)
        assert 0 < len(brief(value)) < 400
    assert brief({"a": [1, "b"]}) == "{'a': [1, 'b']}"


NAMES = st.sampled_from(
    [*BASE.to_plain(), *(name for part in BASE.to_plain().values() if isinstance(part, dict) for name in part)]
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 10**6),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["ndqfn", "iqn", "dpe", "epsilon-greedy", "mlp", "nature", "relu", "cpu", "1"]),
)
GARBAGE = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.text(max_size=5) | SCALARS, inner, max_size=4)
    ),
    max_leaves=12,
)
LIKELY = st.fixed_dictionaries(
    {},
    optional={
        name: st.dictionaries(st.sampled_from(list(part)) | NAMES, GARBAGE, max_size=2)
        if isinstance(part, dict)
        else GARBAGE
        for name, part in BASE.to_plain().items()
    },
)


def attempt(values):
    try:
        return override(BASE, values, KINDS)
    except ConfigError as refusal:
        return refusal


@hypothesis_settings(max_examples=100, deadline=None)
@given(GARBAGE | LIKELY)
def test_garbage_is_refused_in_one_line_or_is_a_valid_config(garbage):
    outcome = attempt(garbage)
    if isinstance(outcome, Config):
        assert override(BASE, json.loads(json.dumps(outcome.to_plain(), allow_nan=False)), KINDS) == outcome
    else:
        assert "\n" not in str(outcome)


NUMBERS = [("1e-4", 1e-4), ("-1E+3", -1e3), ("5e6", 5e6), ("1.5e3", 1.5e3)]


@pytest.mark.parametrize(("text", "number"), NUMBERS)
def test_yaml_reads_a_power_of_ten_as_a_number(text, number, read):
    value = read(f"a: {text}\n")["a"]
    assert (value, type(value)) == (number, float)


def test_yaml_and_json_read_nested_settings(read):
    expected = {"steps": 5, "head": {"kind": "iqn", "kappa": 0.5}, "double_q": False, "x": [1, 2.5, "a"]}
    text = "steps: 5\nhead:\n  kind: iqn\n  kappa: 0.5\ndouble_q: false\nx: [1, 2.5, a]\n"
    assert read(text) == read(text, ".yml") == expected
    assert read(json.dumps(expected), ".json") == expected


def test_a_file_with_a_byte_order_mark_is_read(read):
    assert read(b'\xef\xbb\xbf{"a": 1}', ".json") == read(b"\xef\xbb\xbfa: 1\n") == {"a": 1}


@pytest.mark.parametrize("suffix", [".yaml", ".json"])
@pytest.mark.parametrize("text", ['{"a": 1, "a": 1}', '{"b": [{"a": 1, "c": 2, "a": 3}]}'])
def test_a_duplicate_key_is_refused(text, suffix, read):
    with pytest.raises(ConfigError, match=rf"settings{suffix}: the key 'a' appears more than once\.$"):
        read(text, suffix)


@pytest.mark.parametrize(("text", "key"), [("1: 2", "1"), ("{a: {yes: 2}}", "True"), ("? [1, 2]\n: 3", r"\[1, 2\]")])
def test_a_key_that_is_not_text_is_refused(text, key, read):
    with pytest.raises(ConfigError, match=f"the key {key} is not a string"):
        read(text)


TAGS = [
    "a: !!python/object/apply:os.system ['touch pwned']",
    "!!python/name:os.system",
    "a: !!python/tuple [1]",
    "a: !!bool x",
    "a: !!int ''",
    "a: !!timestamp x",
    "a: !!set {x}",
    "a: !own x",
    "a: &x 1\nb: 2",
    "a: &x [*x]",
    "a: {<<: *x}",
]


@pytest.mark.parametrize("text", TAGS)
def test_yaml_with_more_than_plain_values_is_refused(text, read, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="line 1 has an anchor, an alias or a tag"):
        read(text)
    assert [path.name for path in tmp_path.iterdir()] == ["settings.yaml"]


def test_yaml_cannot_grow_by_aliases(read):
    """The aliases would expand to 10^30 items; the error names their line."""
    levels = "".join(f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 10)}]\n" for i in range(1, 30))
    with pytest.raises(ConfigError, match="line 2 has an anchor"):
        read("b: 1\na: &l0 [1]\n" + levels)


def test_a_file_with_many_keys_is_read_quickly(read):
    text, start = json.dumps({f"key{i}": i for i in range(50_000)}), time.process_time()
    assert len(read(text, ".json")) == 50_000
    assert time.process_time() - start < 10  # a quadratic comparison would take a minute


@pytest.mark.parametrize("depth", [200, 900, 100_000])
@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_deep_nesting_is_refused_and_does_not_crash(depth, suffix, read):
    """Nesting that the parser can still read is refused as a setting."""
    with pytest.raises(ConfigError, match=r"is not valid (YAML|JSON): maximum recursion|gamma is \[\[\[") as caught:
        override(BASE, read('{"gamma": ' + "[" * depth + "]" * depth + "}", suffix), KINDS)
    assert len(str(caught.value)) < 400


BROKEN = [
    ("{", ".json", "is not valid JSON: Expecting property name"),
    ("", ".json", "is not valid JSON: Expecting value"),
    ("{a: ", ".yaml", "is not valid YAML: while parsing"),
    ("a: 1\n---\nb: 2", ".yaml", "is not valid YAML: expected a single document"),
    ("a: 2020-13-45", ".yaml", "is not valid YAML: month must be in"),
    (b"a: \xff", ".yaml", "is not valid YAML: 'utf-8' codec can't decode"),
    (b"\xff\xfe{}", ".json", "is not valid JSON: 'utf-8' codec can't decode"),
    ("a: 1", ".toml", r"the settings file \S+\.toml must end in \.json, \.yaml or \.yml\.$"),
    ("a: 1", "", r"the settings file \S+/settings must end in \.json, \.yaml or \.yml\.$"),
    ("[1, 2]", ".json", r"must contain a mapping of settings, but contains \[1, 2\]\.$"),
    ("", ".yaml", r"must contain a mapping of settings, but contains None\.$"),
    ("just text", ".yaml", r"must contain a mapping of settings, but contains 'just text'\.$"),
    (b"#" * (LARGEST_FILE + 1), ".yaml", rf"is larger than {LARGEST_FILE} bytes"),
]


@pytest.mark.parametrize(("text", "suffix", "message"), BROKEN, ids=[message for _, _, message in BROKEN])
def test_a_file_that_is_not_settings_is_refused(text, suffix, message, read):
    with pytest.raises(ConfigError, match=message) as caught:
        read(text, suffix)
    assert "\n" not in str(caught.value)


def test_the_largest_file_is_read(read):
    assert read(b"a: 1 " + b"#" * (LARGEST_FILE - 5)) == {"a": 1}


def test_a_file_that_cannot_be_opened_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"the settings file \S+missing\.yaml cannot be read: .*No such file"):
        read_settings(tmp_path / "missing.yaml")
    (tmp_path / "directory.yaml").mkdir()
    with pytest.raises(ConfigError, match=r"the settings file \S+directory\.yaml cannot be read: .*Is a directory"):
        read_settings(tmp_path / "directory.yaml")


IMPOSSIBLE = [
    ("steps", 0, "steps is 0, but must be at least 1"),
    ("seed", -1, "seed is -1, but must be at least 0"),
    ("n_step", 0, "n_step is 0, but must be at least 1"),
    ("iteration_steps", 0, "iteration_steps is 0, but must be at least 1"),
    ("log_every_steps", 0, "log_every_steps is 0, but must be at least 1"),
    ("threads", -1, "threads is -1, but must be at least 0"),
    ("threads", 1025, "threads is 1025, but must be at most 1024; 0 uses all cores"),
    ("gamma", 1.01, "gamma is 1.01, but must be from 0 to 1"),
    ("gamma", -0.1, "gamma is -0.1, but must be from 0 to 1"),
    ("update.batch_size", 0, r"update\.batch_size is 0, but must be at least 1"),
    ("update.every_steps", 0, r"update\.every_steps is 0, but must be at least 1"),
    ("update.sync", "mean", r"update\.sync 'mean' is unknown\. Allowed: average, copy"),
    ("update.sync_every_steps", 0, r"update\.sync_every_steps is 0, but must be at least 1"),
    ("update.average", -0.1, r"update\.average is -0\.1, but must be a share from 0 to 1"),
    ("update.average", 1.1, r"update\.average is 1\.1, but must be a share from 0 to 1"),
    ("evaluation.episodes", 0, r"evaluation\.episodes is 0, but must be at least 1"),
    ("evaluation.steps", -1, r"evaluation\.steps is -1, but must be at least 0"),
    ("evaluation.num_envs", 0, r"evaluation\.num_envs is 0, but must be at least 1"),
    ("evaluation.episode_cap_steps", 0, r"evaluation\.episode_cap_steps is 0, but must be at least 1"),
    ("optimiser.anneal", -0.1, r"optimiser\.anneal is -0\.1, but must be a number from 0 to 1: it is the share"),
    ("optimiser.anneal", 1.01, r"optimiser\.anneal is 1\.01, but must be a number from 0 to 1: it is the share"),
    ("evaluation.epsilon", 1.5, r"evaluation\.epsilon is 1\.5, but must be a probability"),
]


@pytest.mark.parametrize(("path", "value", "message"), IMPOSSIBLE)
def test_a_value_out_of_range_is_refused(path, value, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        override(BASE, nest(path, value), KINDS)


def test_values_at_the_limits_are_allowed():
    update = {"batch_size": 1, "every_steps": 1, "sync_every_steps": 1, "sync": "average", "average": 1.0}
    evaluation = {"episodes": 1, "steps": 0, "epsilon": 1.0, "num_envs": 1, "episode_cap_steps": 1}
    edges = {"gamma": 1.0, "threads": 0, "steps": 1, "seed": 0, "update": update, "evaluation": evaluation}
    config = override(BASE, edges, KINDS)
    assert (config.gamma, config.threads, config.steps) == (1.0, 0, 1)
    assert (config.update, config.evaluation) == (UpdateConfig(**update), EvaluationConfig(**evaluation))


def test_steps_are_shared_out_evenly_over_the_environments():
    changes = {"env": {"num_envs": 3}, "steps": 6, "iteration_steps": 6}
    assert override(BASE, changes, KINDS).env == EnvConfig(id="CartPole-v1", num_envs=3)
    with pytest.raises(ConfigError, match=r"^iteration_steps is 5, but must be a multiple of env\.num_envs \(3\)"):
        override(BASE, changes | {"iteration_steps": 5}, KINDS)
    with pytest.raises(ConfigError, match=r"^steps is 7, but must be a multiple of env\.num_envs \(3\)"):
        override(BASE, changes | {"steps": 7}, KINDS)
