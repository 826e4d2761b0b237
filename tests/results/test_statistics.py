"""Statistics of scores agree with rliable, with naive twins where it has no answer, and intervals cover the truth."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monotau.errors import ConfigError
from monotau.results import (
    Sample,
    games_above,
    interquartile_mean,
    interval,
    mean,
    median,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
)

X = np.array(
    [
        [0.889, 1.065, 0.572, 0.602, 5.128, 2.035, 0.948],
        [0.055, 0.011, 1.935, 6.164, 0.657, 0.104, 0.132],
        [0.812, 0.288, 0.645, 0.01, 1.098, 4.304, 0.444],
        [1.46, 1.316, 0.214, 0.368, 0.955, 0.212, 1.258],
        [0.668, 0.151, 1.271, 0.196, 2.28, 2.443, 5.973],
    ]
)
Y = np.array(
    [
        [4.799, 1.347, 1.271, 0.269, 0.297, 0.039, 0.755],
        [0.652, 0.779, 0.298, 0.095, 0.261, 0.807, 1.092],
        [1.328, 0.212, 0.822, 0.184, 0.499, 1.175, 1.772],
    ]
)
TAUS = np.array([0.0, 0.25, 0.5, 1.0, 2.0, 4.0])
AGGREGATES = [mean, median, interquartile_mean, optimality_gap]

quarters = st.integers(-20, 20).map(lambda number: number / 4)  # their sums are exact, and there are ties
game = st.lists(quarters, min_size=1, max_size=4)
ragged = st.lists(game, min_size=1, max_size=6)


def sample(runs_by_games):
    return Sample.of(runs_by_games.T.tolist())


@pytest.mark.parametrize(
    ("scores", "aggregates", "profile"),
    [
        (
            X,
            [1.3332285714285717, 1.468, 0.8173684210526316, 0.3447714285714286],
            [1.0, 0.7428571428571429, 0.6571428571428571, 0.4, 0.2, 0.11428571428571428],
        ),
        (
            Y,
            [0.893, 0.7793333333333333, 0.6768181818181818, 0.38242857142857156],
            [
                1.0,
                0.8095238095238095,
                0.5714285714285714,
                0.3333333333333333,
                0.047619047619047616,
                0.047619047619047616,
            ],
        ),
    ],
    ids=["5 runs", "3 runs"],
)
def test_aggregates_and_profile_are_those_of_rliable(scores, aggregates, profile):
    """Frozen from rliable 1.2.0 (rows are runs).

    metrics.aggregate_mean(X), .aggregate_median(X), .aggregate_iqm(X), .aggregate_optimality_gap(X)
    library.score_distributions(X, TAUS)
    """
    np.testing.assert_allclose([statistic(sample(scores)) for statistic in AGGREGATES], aggregates, rtol=1e-12)
    np.testing.assert_allclose(performance_profile(sample(scores), TAUS), profile, rtol=1e-12)


def test_probability_of_improvement_is_that_of_rliable_ties_included():
    """Frozen from rliable 1.2.0: metrics.probability_of_improvement(X, Y), and of (Y, X)."""
    assert probability_of_improvement(sample(X), sample(Y)) == pytest.approx(0.5761904761904761, rel=1e-12)
    assert probability_of_improvement(sample(Y), sample(X)) == pytest.approx(0.4238095238095238, rel=1e-12)


FROZEN_ENDS = {
    "X": [[0.8667128571, 0.6402, 0.5637368421, 0.23317], [1.86926, 1.8522, 1.2081131579, 0.4572571429]],
    "Y": [[0.6015238095, 0.4176666667, 0.4803636364, 0.2812369048], [1.234525, 1.0523333333, 0.9180022727, 0.490525]],
}


@pytest.mark.parametrize(("name", "scores"), [("X", X), ("Y", Y)])
@pytest.mark.parametrize("number", range(4), ids=[statistic.__name__ for statistic in AGGREGATES])
def test_intervals_are_those_of_rliable_but_for_chance(name, scores, number):
    """Frozen from rliable 1.2.0.

    np.random.seed(0); library.get_interval_estimates({"x": X, "y": Y}, aggregates, reps=50_000)

    The 2.5 % quantile of n draws has the standard error sqrt(0.025 * 0.975 / n) / density, and a normal density of
    spread s is 0.0584 / s there. Four such errors of theirs and ours together are allowed.
    """
    statistic, ours = AGGREGATES[number], 20_000
    spread = statistic(sample(scores).resampled(ours, np.random.default_rng(1))).std()
    allowed = 4 * math.sqrt(0.025 * 0.975 * (1 / 50_000 + 1 / ours)) * spread / 0.0584
    ends = interval(statistic, sample(scores), resamples=ours)
    np.testing.assert_allclose(ends, np.array(FROZEN_ENDS[name])[:, number], atol=allowed, rtol=0)


def test_the_interval_of_the_probability_of_improvement_is_that_of_rliable_but_for_chance():
    """Frozen from rliable 1.2.0: library.get_interval_estimates({"xy": [X, Y]}, probability, reps=5_000).

    The statistic moves in steps of 1 / (2 * 7 * 15), and their own ends moved by one such step between seeds.
    """
    ends = interval(probability_of_improvement, sample(X), sample(Y), resamples=20_000)
    np.testing.assert_allclose(ends, [0.4333333333, 0.7142857143], atol=1.01 / 105, rtol=0)


def test_the_interval_of_a_profile_is_that_of_rliable_but_for_chance():
    """Frozen from rliable 1.2.0: library.create_performance_profile({"x": X}, TAUS, reps=10_000).

    A share of 35 runs moves in steps of 1 / 35; one is allowed.
    """
    ends = interval(lambda drawn: performance_profile(drawn, TAUS), sample(X), resamples=10_000)
    low = [1.0, 0.6, 0.5142857143, 0.2571428571, 0.0857142857, 0.0285714286]
    high = [1.0, 0.8857142857, 0.8, 0.5428571429, 0.3142857143, 0.2285714286]
    np.testing.assert_allclose(ends, [low, high], atol=1.01 / 35, rtol=0)


def naive_interquartile_mean(scores):
    """Each score as often as makes all games equal, sorted, a quarter cut off at each end."""
    common = math.lcm(*(len(game) for game in scores))
    everything = sorted(score for game in scores for score in game for _ in range(common // len(game)))
    cut = int(0.25 * len(everything))
    kept = everything[cut : len(everything) - cut]
    return sum(kept) / len(kept)


@given(ragged)
def test_interquartile_mean_of_games_with_unequal_runs_agrees_with_its_twin(scores):
    assert interquartile_mean(Sample.of(scores)) == pytest.approx(naive_interquartile_mean(scores), abs=1e-9)


@given(ragged)
def test_games_weigh_the_same_whatever_their_number_of_runs(scores):
    doubled = [game * (2 if number % 2 else 1) for number, game in enumerate(scores)]
    for statistic in (mean, median, optimality_gap, games_above):
        assert statistic(Sample.of(doubled)) == pytest.approx(statistic(Sample.of(scores)), abs=1e-9)
    profiles = [performance_profile(Sample.of(each), TAUS) for each in (scores, doubled)]
    np.testing.assert_allclose(*profiles, atol=1e-12)


def naive_improvement(one, other):
    shares = []
    for ours, theirs in zip(one, other, strict=True):
        wins = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a in ours for b in theirs)
        shares.append(wins / (len(ours) * len(theirs)))
    return sum(shares) / len(shares)


@given(st.lists(st.tuples(game, game), min_size=1, max_size=5))
def test_probability_of_improvement_agrees_with_its_twin_and_its_opposite(pairs):
    one, other = zip(*pairs, strict=True)
    probability = probability_of_improvement(Sample.of(one), Sample.of(other))
    assert probability == pytest.approx(naive_improvement(one, other), abs=1e-12)
    assert probability_of_improvement(Sample.of(other), Sample.of(one)) == pytest.approx(1 - probability, abs=1e-12)


def test_by_hand():
    scores = Sample.of([[0.5, 1.5, 1.3], [0.25], [3.0, 1.0]])  # means 1.1, 0.25, 2
    assert mean(scores) == pytest.approx(3.35 / 3)
    assert median(scores) == pytest.approx(1.1)
    assert games_above(scores) == 2
    assert games_above(scores, 1.1 + 1e-9) == 1
    assert optimality_gap(scores) == pytest.approx(1 - (2.5 / 3 + 0.25 + 1) / 3)
    profile = performance_profile(scores, np.array([0.5, 1.0]))
    np.testing.assert_allclose(profile, [(2 / 3 + 0 + 1) / 3, (2 / 3 + 0 + 1 / 2) / 3])


def test_a_statistic_of_resamples_is_that_of_each():
    drawn = sample(X).resampled(11, np.random.default_rng(3))
    other = sample(Y).resampled(11, np.random.default_rng(4))
    for statistic in (*AGGREGATES, games_above, lambda each: performance_profile(each, TAUS)):
        single = [statistic(Sample(row, drawn.runs)) for row in drawn.values]
        np.testing.assert_allclose(statistic(drawn), single, rtol=1e-12)
    singles = [
        probability_of_improvement(Sample(one, drawn.runs), Sample(two, other.runs))
        for one, two in zip(drawn.values, other.values, strict=True)
    ]
    np.testing.assert_allclose(probability_of_improvement(drawn, other), singles, rtol=1e-12)


@given(ragged)
def test_resampling_stays_within_each_game(scores):
    drawn = Sample.of(scores).resampled(5, np.random.default_rng(0))
    for game, values in zip(scores, drawn.games(), strict=True):
        assert values.shape == (5, len(game))
        assert set(values.ravel()) <= set(game)


def test_without_several_runs_of_every_game_there_is_no_interval():
    assert interval(mean, Sample.of([[1.0, 2.0], [1.0]])) is None
    assert interval(probability_of_improvement, Sample.of([[1.0, 2.0]]), Sample.of([[1.0]])) is None
    assert interval(mean, Sample.of([[1.0, 2.0], [1.0, 3.0]])) is not None


def test_intervals_are_the_same_each_time_and_hold_the_value():
    first, second = interval(mean, sample(X)), interval(mean, sample(X))
    assert first.tolist() == second.tolist()
    assert first[0] < mean(sample(X)) < first[1]
    assert interval(mean, sample(X), seed=1).tolist() != first.tolist()


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    """Ten runs of five games; the percentile bootstrap of ten runs is known to be a little too narrow."""
    rng, covered = np.random.default_rng(0), 0
    truth = np.arange(5.0)
    for _ in range(300):
        low, high = interval(mean, sample(rng.normal(truth, 1.0, (10, 5))), resamples=500)
        covered += low <= truth.mean() <= high
    assert 0.88 <= covered / 300 <= 0.98


@pytest.mark.parametrize("scores", [[], [[1.0], []]])
def test_a_sample_without_scores_is_refused(scores):
    with pytest.raises(ConfigError, match="needs at least one game and one run of each"):
        Sample.of(scores)


def test_a_sample_of_no_numbers_is_refused():
    with pytest.raises(ConfigError, match="that are not finite"):
        Sample.of([[1.0, math.nan]])


def test_samples_of_other_games_are_not_compared():
    with pytest.raises(ConfigError, match="samples cover 7 and 1 games"):
        probability_of_improvement(sample(X), Sample.of([[1.0]]))
