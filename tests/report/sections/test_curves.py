"""Curves: moving averages, means over seeds with their intervals, and aggregates over environments."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monotau.report.comparison import RunComparison
from monotau.report.sections.curves import aggregate_curve, mean_curve, trailing_mean, uses_budget_share
from monotau.results.methods import read_methods as read_runs
from monotau.results.statistics import Sample, interquartile_mean, interval, mean
from tests.support.runs import plain_settings, write_run


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.integers(1, 12))
def test_a_moving_average_is_the_mean_of_the_last_values(values, window):
    found = trailing_mean(np.array(values), window)
    for place, value in enumerate(found):
        last = [values[place - back] for back in range(window) if place - back >= 0]
        assert value == pytest.approx(sum(last) / len(last), rel=1e-9, abs=1e-6)


def test_a_moving_average_by_hand():
    assert trailing_mean(np.array([2.0, 4.0, 9.0, 1.0]), 3).tolist() == [2.0, 3.0, 5.0, 14 / 3]


def write_seeds(root, seeds, *, env="CartPole-v1", preset="ndqfn", steps=4000, random=0.0, every=1000):
    for seed, returns in enumerate(seeds):
        finished = len(returns) * every >= steps
        config = plain_settings(preset, env, seed, steps)
        name = f"{preset}-{env}-{seed}".replace("/", "-")
        write_run(root / name, returns, config=config, random=random, every=every, finished=finished)


def test_the_curve_of_seeds_and_its_interval_at_each_step(tmp_path):
    seeds = [[1.0, 3.0, 5.0, 5.0], [2.0, 2.0, 8.0, 0.0], [6.0, 1.0, 0.0, 4.0]]
    write_seeds(tmp_path, seeds)
    curve = mean_curve(read_runs([tmp_path]), window=2)
    smooth = np.array([[1.0, 2.0, 4.0, 5.0], [2.0, 2.0, 5.0, 4.0], [6.0, 3.5, 0.5, 2.0]])
    assert curve.steps.tolist() == [1000, 2000, 3000, 4000]
    assert curve.values == pytest.approx(smooth.mean(axis=0))
    for place in range(4):
        assert curve.ends[:, place] == pytest.approx(interval(mean, Sample.of([smooth[:, place].tolist()])))
    assert (curve.seeds, curve.shortened) == (3, False)


def test_a_curve_ends_with_its_shortest_run_and_says_so(tmp_path):
    write_seeds(tmp_path, [[1.0, 3.0, 5.0, 5.0], [2.0, 2.0]])
    curve = mean_curve(read_runs([tmp_path]), window=10)
    assert curve.steps.tolist() == [1000, 2000]
    assert curve.values == pytest.approx([1.5, 2.0])
    assert curve.shortened


def test_a_single_seed_has_no_interval(tmp_path):
    write_seeds(tmp_path, [[1.0, 3.0]])
    assert mean_curve(read_runs([tmp_path]), window=1).ends is None


def test_seeds_that_share_no_step_have_no_curve(tmp_path):
    write_run(tmp_path / "a", [1.0], every=1000)
    write_run(tmp_path / "b", [1.0], every=700, config=plain_settings(seed=1))
    assert mean_curve(read_runs([tmp_path]), window=1) is None


def test_the_aggregate_curve_agrees_with_the_scores_at_each_step(tmp_path):
    # In A the best mean at the end is 10, in B 40; random play earns 0 and 20. B is evaluated half as often.
    write_seeds(tmp_path, [[2.0, 4.0, 6.0, 10.0], [4.0, 4.0, 8.0, 10.0]], env="A-v0", random=0.0)
    write_seeds(tmp_path, [[24.0, 40.0], [36.0, 40.0]], env="B-v0", random=20.0, every=2000)
    comparison = RunComparison(read_runs([tmp_path]), smooth=1)
    (chosen,) = comparison.sets
    curve = aggregate_curve(comparison, chosen, "ndqfn")
    samples = [
        Sample.of([[0.4, 0.4], [0.2, 0.8]]),
        Sample.of([[0.6, 0.8], [0.2, 0.8]]),  # of B, the evaluation before
        Sample.of([[1.0, 1.0], [1.0, 1.0]]),
    ]
    assert curve.steps.tolist() == [2000, 3000, 4000]
    assert curve.values == pytest.approx([float(interquartile_mean(sample)) for sample in samples])
    assert curve.ends == pytest.approx(np.stack([interval(interquartile_mean, each) for each in samples], axis=-1))


def test_budgets_that_differ_between_environments_only_are_told_as_shares(tmp_path):
    write_seeds(tmp_path, [[2.0, 4.0]], env="A-v0", steps=2000)
    write_seeds(tmp_path, [[2.0, 4.0]], env="B-v0", steps=4000, every=2000)
    comparison = RunComparison(read_runs([tmp_path]), smooth=1)
    assert uses_budget_share(comparison, comparison.sets[0])
    assert aggregate_curve(comparison, comparison.sets[0], "ndqfn").steps.tolist() == [50.0, 100.0]
    write_seeds(tmp_path, [[2.0, 4.0]], env="A-v0", preset="iqn", steps=8000, every=4000)
    write_seeds(tmp_path, [[2.0, 4.0]], env="B-v0", preset="iqn", steps=4000, every=2000)
    comparison = RunComparison(read_runs([tmp_path]), smooth=1)
    assert not uses_budget_share(comparison, comparison.sets[0])


def test_runs_that_were_never_evaluated_at_one_time_have_no_aggregate_curve(tmp_path):
    write_seeds(tmp_path, [[2.0]], env="A-v0", every=1000)
    write_seeds(tmp_path, [[2.0]], env="B-v0", every=2000)
    comparison = RunComparison(read_runs([tmp_path]))
    assert aggregate_curve(comparison, comparison.sets[0], "ndqfn") is None
