"""Random settings and command lines: every one is either accepted or refused in one line."""

import contextlib
import io
import math
import os
import re
from collections import Counter
from copy import deepcopy
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from monotau import Agent
from monotau.cli import main
from monotau.config.presets import PRESETS
from monotau.config.profiles import PROFILES
from monotau.config.resolve import Resolved, resolve, resolve_for_spec
from monotau.envs import Coin, ObservationSpec
from monotau.errors import ConfigError, Divergence, EnvironmentFault
from monotau.explorers import EXPLORERS
from monotau.networks import HEADS, TORSOS
from monotau.replay import REPLAYS

ENV = "monotau/Coin-v0"
SPEC = ObservationSpec.from_space(Coin().observation_space)
# Computed up front: the type checks of the tests draw random numbers, which Hypothesis forbids in strategies.
IN_FULL = {
    (preset, profile): resolve_for_spec(preset, profile, {"env": {"id": ENV}}, SPEC).to_plain()
    for preset, profile in product(PRESETS, PROFILES)
}
KINDS = {"head": HEADS, "explorer": EXPLORERS, "torso": TORSOS, "replay": REPLAYS}
QUICK, FULL = 60, 1000
"""Numbers of examples in the default tests and in the slow tests."""

text = st.text(max_size=12) | st.sampled_from(["", " ", "nan", "1e400", "\x00", "a\nb", "ß😀", "[bold]", "../..", "--"])
numbers = (
    st.integers(-3, 70)
    | st.integers()
    | st.sampled_from([10**400, -(2**63), 2**63, 2**31, 10**9])
    | st.floats()
    | st.sampled_from([0.0, -0.0, 0.5, 1.0, math.nan, math.inf, -math.inf, 1e-320, 1e308])
)
plain = st.none() | st.booleans() | numbers | text
values = st.recursive(
    plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text | numbers, inner, max_size=2),
    max_leaves=4,
)


@st.composite
def configurations(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    """Draw a preset, a profile and complete settings, some of which are invalid."""
    preset = draw(st.sampled_from(sorted(PRESETS)))
    profile = draw(st.none() | st.sampled_from(sorted(PROFILES)))
    config = deepcopy(IN_FULL[preset, profile or "classic"])
    del config["preset"], config["profile"]
    for _ in range(draw(st.integers(1, 3))):
        section = draw(
            st.sampled_from([config, *(part for part in config.values() if isinstance(part, dict) and part)])
        )
        name = draw(st.sampled_from(sorted(section, key=str)))
        match draw(st.sampled_from(["like", "like", "like", "any", "kind", "unknown", "gone"])):
            case "like":
                section[name] = draw(like(section[name]))
            case "any":
                section[name] = draw(values)
            case "kind":
                part = draw(st.sampled_from(sorted(KINDS)))
                config[part] = {"kind": draw(st.sampled_from(sorted(KINDS[part])) | text)}
            case "unknown":
                section[draw(text if section is config else text | numbers)] = draw(values)
            case "gone" if len(section) > 1:
                del section[name]
    return draw(st.just(preset) | text if draw(st.integers(0, 9)) == 0 else st.just(preset)), profile, config


def like(value: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for values of the same type, many of them valid."""
    if isinstance(value, bool):
        return st.booleans()
    if isinstance(value, int):
        return st.integers(0, 40) | st.integers(-1, 2**70)
    if isinstance(value, float):
        return st.floats(0, 1) | st.floats(allow_nan=True)
    if isinstance(value, str):
        return st.just(value) | st.sampled_from(["fp32", "bf16", "adam", "rmsprop", "cpu", "value", "softplus"]) | text
    return st.lists(st.floats(0, 1), max_size=4).map(sorted) if isinstance(value, list) else values


def outcome(preset: Any, profile: Any, config: Any) -> Resolved | None:
    """Resolve settings; return None if they are refused properly."""
    try:
        return resolve(preset, config, profile=profile)
    except ConfigError:
        return None


SIZES = {
    "steps": 24,
    "iteration_steps": 12,
    "log_every_steps": 6,
    "replay": {"capacity_steps": 64, "warmup_steps": 8},
    "update": {"batch_size": 4, "every_steps": 4},
    "evaluation": {"episodes": 2, "steps": 0, "num_envs": 2},
    "device": "cpu",
    "threads": 1,
}
LARGEST = 64


def small(config: dict[str, Any]) -> bool:
    """Whether a run with these settings is short and allocates no large array."""
    sizes = ("hidden", "cosines", "width", "quantiles", "atoms", "knots", "noise", "channels", "layers", "views")
    inner = [item for part in config.values() if isinstance(part, dict) for item in part.items()]
    counts = [value for name, value in inner if name in sizes or name.endswith("_fractions")]
    return all(value <= LARGEST for value in [*counts, config["n_step"], config["env"]["frame_stack"]])


def learn(resolved: Resolved) -> str:
    """Run valid settings for a few steps, with sizes that no setting can make large."""
    config = resolved.config.to_plain()
    for name, value in SIZES.items():
        config[name] = config[name] | value if isinstance(value, dict) else value
    config["env"] |= {"num_envs": min(config["env"]["num_envs"], 2)}
    for name in ("hidden", "width"):
        for part in ("head", "torso"):
            if name in config[part]:
                config[part][name] = min(config[part][name], 8)
    if not small(config):
        return "too large to run"
    preset, profile, seed = config.pop("preset"), config.pop("profile"), config.pop("seed")
    env = config.pop("env")
    try:
        Agent(env.pop("id"), preset, seed, profile=profile, env_settings=env, **config).learn(24, evaluated=True)
    except (ConfigError, Divergence, EnvironmentFault) as error:
        return type(error).__name__
    return "learned"


def flags() -> list[str]:
    """Return the flags of the real parser, read from its help."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        main(["train", "--help"])
    return sorted(set(re.findall(r"--[a-z][a-z.-]*[a-z]", shown.getvalue())) - {"--help"})


FLAGS = flags()
given_values = st.sampled_from(["0", "1", "8", "0.5", "1e-3", "-1", "nan", "inf", "True", "none", "1,2", "x", "", "-"])
names = st.sampled_from([*PRESETS, *PROFILES, *HEADS, *EXPLORERS, *TORSOS, *REPLAYS])
paths = st.sampled_from(
    [".", "/", "/dev/null", "/nowhere/a.yaml", "a.json", "~", "x" * 300, "/proc/self/mem", "a\x00b"]
)
words = given_values | names | paths | text | st.integers().map(str) | st.floats().map(str)
flag_like = st.sampled_from(FLAGS) | st.sampled_from(FLAGS).flatmap(
    lambda flag: st.integers(2, len(flag) - 1).map(lambda at: flag[:at] + flag[at + 1 :])
)
lines = st.tuples(
    st.sampled_from(["train"] * 8 + ["evaluate", "list", "trian", ""]),
    st.lists(st.sampled_from(sorted(PRESETS)) | words, max_size=1),
    st.lists(st.tuples(flag_like, words) | st.tuples(flag_like) | st.tuples(words), max_size=4),
).map(lambda parts: [parts[0], *parts[1], *(word for group in parts[2] for word in group)])


def called(line: list[str]) -> str:
    """Call the program; return whether it accepted the command line or refused it in one line."""
    out, err = io.StringIO(), io.StringIO()
    code: Any = 0
    shown = [*line, "--show"] if line[0] == "train" else line
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(shown)
        except SystemExit as stop:
            code = stop.code or 0
    assert code in (0, 2), (code, err.getvalue())
    if code:
        assert re.fullmatch(r"error: [^\n]+\n", err.getvalue()), err.getvalue()
        return "refused"
    assert not err.getvalue()
    return "taken"


def fuzz_settings(examples: int, every: int) -> Counter[str]:
    """Resolve random settings, and train with every `every`-th valid one."""
    seen: Counter[str] = Counter()

    @settings(
        max_examples=examples, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(configurations())
    def settled(case: tuple[Any, Any, Any]) -> None:
        resolved = outcome(*case)
        seen["valid" if resolved else "refused"] += 1
        if resolved and seen["valid"] % every == 0:
            seen[learn(resolved)] += 1

    settled()
    return seen


def fuzz_lines(examples: int) -> Counter[str]:
    """Call the program with random command lines."""
    seen: Counter[str] = Counter()

    @settings(
        max_examples=examples, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(lines)
    def said(line: list[str]) -> None:
        seen[called(line)] += 1

    said()
    return seen


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the test, which must stay empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(seen: Counter[str], examples: int, directory: Path) -> None:
    """Assert that both outcomes occurred, and that nothing was written."""
    print(dict(seen))  # noqa: T201  # shown by pytest -s, and where a test fails
    outcomes = [seen[name] for name in ("valid", "taken", "refused") if seen[name]]
    assert sum(outcomes) >= examples * 0.9
    assert len(outcomes) == 2
    assert os.listdir(directory) == []


def test_random_settings_are_resolved_or_refused_in_one_line(working_directory):
    seen = fuzz_settings(QUICK, every=8)
    check(seen, QUICK, working_directory)


def test_random_command_lines_are_accepted_or_refused_in_one_line(working_directory):
    check(fuzz_lines(QUICK), QUICK, working_directory)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_thousand_random_settings_are_resolved_or_refused_in_one_line(working_directory):
    check(fuzz_settings(FULL, every=8), FULL, working_directory)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_thousand_random_command_lines_are_accepted_or_refused_in_one_line(working_directory):
    check(fuzz_lines(FULL), FULL, working_directory)
