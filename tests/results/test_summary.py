"""Runs are found, read, put together by preset and protocol, and compared."""

import json
from dataclasses import replace

import numpy as np
import pytest

from monotau.errors import ConfigError
from monotau.results import (
    atari_run,
    compare,
    find_runs,
    performance_profile,
    profile_of,
    published,
    published_row,
    read_run,
)
from monotau.results import run_rows as rows_of
from monotau.results.summary import TAUS
from tests.support.runs import write_atari_run as write_run


def scored(directory):
    return atari_run(read_run(directory))


def test_a_run_is_read(tmp_path):
    run = scored(write_run(tmp_path / "a", [1.0, 5.0, 3.5], preset="ndqfn", seed=4, protocol="noop"))
    assert (run.preset, run.protocol, run.game, run.seed) == ("ndqfn", "noop", "pong", 4)
    assert (run.best, run.last, run.step, run.finished) == (5.0, 3.5, 3000, True)


def test_an_unfinished_run_counts_with_what_it_has(tmp_path):
    directory = write_run(tmp_path / "a", [1.0, 2.0], finished=False)
    with (directory / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3000, "kind": "ev')
    run = scored(directory)
    assert (run.last, run.step, run.finished) == (2.0, 2000, False)
    last, best = rows_of([run], "dqn_zoo", "atari57")
    assert (last.unfinished, best.unfinished) == (1, 1)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"env_id": "CartPole-v1"}, "CartPole-v1 is not one of the 57 Atari games"),
        ({"protocol": None}, "env.protocol is 'none', and only noop and sticky can be compared"),
        ({"protocol": ["noop"]}, r"env.protocol is \['noop'\], but must be a str"),
    ],
)
def test_what_cannot_be_compared_says_why(tmp_path, settings, reason):
    with pytest.raises(ConfigError, match=reason):
        scored(write_run(tmp_path / "a", [1.0], **settings))


def test_a_run_without_an_evaluation_says_so(tmp_path):
    directory = write_run(tmp_path / "a", [], finished=False)
    with pytest.raises(ConfigError, match="it has no evaluation yet"):
        scored(directory)
    (directory / "metrics.jsonl").unlink()
    with pytest.raises(ConfigError, match="it has no evaluation yet"):
        scored(directory)


@pytest.mark.parametrize("config", [{}, {"preset": "iqn", "seed": 0, "env": []}, {"preset": 1, "seed": 0, "env": {}}])
def test_what_is_not_a_run_is_refused(tmp_path, config):
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=r"config.json is not the configuration of a run: preset, seed, steps or"):
        scored(tmp_path)


@pytest.mark.parametrize("value", [None, "7", True, float("nan"), 10**400])
def test_an_evaluation_that_is_no_number_is_refused(tmp_path, value):
    directory = write_run(tmp_path / "a", [1.0, value])
    with pytest.raises(ConfigError, match=r"metrics.jsonl, line 5: return_mean is .+, but must be a finite number"):
        scored(directory)


def test_runs_are_found_inside_and_each_once(tmp_path):
    first = write_run(tmp_path / "runs" / "a", [1.0])
    second = write_run(tmp_path / "runs" / "deeper" / "b", [1.0])
    write_run(first / "checkpoints" / "not_one", [1.0])
    assert find_runs([tmp_path / "runs"]) == [first, second]
    assert find_runs([second, tmp_path / "runs", first]) == [second, first]


def test_a_place_without_runs_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "absent"):
        with pytest.raises(ConfigError, match="is not a run directory and contains none"):
            find_runs([path])


def many_runs(tmp_path):
    """Two presets under two protocols, with unequal seeds; `iqn` scores below `ndqfn`."""
    runs = []
    for preset, seeds, offset in (("iqn", 3, 0.0), ("ndqfn", 2, 2.0)):
        for protocol in ("noop", "sticky"):
            for game, human in (("Pong", 14.6), ("Freeway", 29.6)):
                for seed in range(seeds):
                    directory = tmp_path / f"{preset}_{protocol}_{game}_{seed}"
                    returns = [human + offset + seed / 4, human + offset - seed / 4]
                    runs.append(
                        write_run(
                            directory, returns, preset=preset, env_id=f"ALE/{game}-v5", protocol=protocol, seed=seed
                        )
                    )
    return [scored(directory) for directory in runs]


def test_rows_never_mix_presets_protocols_or_measures(tmp_path):
    rows = rows_of(many_runs(tmp_path), "dqn_zoo", "atari55")
    assert [(row.name, row.protocol, row.measure) for row in rows] == [
        (preset, protocol, measure)
        for preset in ("iqn", "ndqfn")
        for protocol in ("noop", "sticky")
        for measure in ("last", "best")
    ]
    assert [row.sample.runs for row in rows] == [(3, 3)] * 4 + [(2, 2)] * 4
    last, best = rows[0], rows[1]
    assert last.raw == {"freeway": (29.6, 29.35, 29.1), "pong": (14.6, 14.35, 14.1)}
    assert best.raw["pong"] == (14.6, 14.85, 15.1)
    assert len(last.missing) == 53
    # Worked by hand: Pong's mean is 14.35 of -20.7 .. 14.6, Freeway's 29.35 of 0 .. 29.6.
    assert last.aggregates["mean"].value == pytest.approx((35.05 / 35.3 + 29.35 / 29.6) / 2)
    assert last.aggregates["above_human"].value == 0
    low, high = last.aggregates["mean"].interval
    assert low < last.aggregates["mean"].value < high


def test_one_seed_gives_no_interval(tmp_path):
    runs = [run for run in many_runs(tmp_path) if run.seed == 0]
    for row in rows_of(runs, "dqn_zoo", "atari57"):
        assert all(estimate.interval is None for estimate in row.aggregates.values())


def test_games_outside_the_set_do_not_count(tmp_path):
    runs = [replace(run, game="defender") for run in many_runs(tmp_path) if run.game == "pong"]
    assert rows_of(runs, "dqn_zoo", "atari55") == []
    assert len(rows_of(runs, "dqn_zoo", "atari57")) == 8


def test_the_same_seed_twice_is_refused(tmp_path):
    runs = [scored(write_run(tmp_path / name, [1.0], seed=3)) for name in "ab"]
    with pytest.raises(ConfigError, match=r"a and .*b are both iqn on pong \(sticky\) with seed 3; a seed counts once"):
        rows_of(runs, "dqn_zoo", "atari57")


def test_comparisons_stay_within_protocol_and_measure(tmp_path):
    sources = [published_row(source, "dqn_zoo", "atari57") for source in published()]
    found = compare(sources + rows_of(many_runs(tmp_path), "dqn_zoo", "atari57"))
    assert all(each.one.protocol == each.other.protocol for each in found)
    assert all(each.other.measure in (each.one.measure, "published") for each in found)
    assert all(each.one.measure != "published" for each in found)
    # For each of two presets and two measures: 5 published with noop, 4 with sticky; and ndqfn with iqn.
    assert len(found) == 2 * 2 * (5 + 4) + 2 * 2
    for each in found:
        assert each.games == 2
        assert (each.probability.interval is None) == (each.other.measure == "published")
        if each.other.name == "iqn":
            assert each.one.name == "ndqfn"
            assert each.probability.value == 1


def test_rows_without_a_game_in_common_are_not_compared(tmp_path):
    runs = many_runs(tmp_path)
    apart = [run for run in runs if (run.game == "pong") == (run.preset == "iqn")]
    assert compare(rows_of(apart, "dqn_zoo", "atari57")) == []


def test_profiles_are_arrays_with_ends_around_them(tmp_path):
    row = rows_of(many_runs(tmp_path), "dqn_zoo", "atari57")[0]
    shares, ends = profile_of(row)
    np.testing.assert_array_equal(shares, performance_profile(row.sample, TAUS))
    assert ends.shape == (2, len(TAUS))
    assert (ends[0] <= shares).all()
    assert (shares <= ends[1]).all()
    assert (np.diff(shares) <= 0).all()
    assert profile_of(published_row(published()[0], "dqn_zoo", "atari57"))[1] is None
