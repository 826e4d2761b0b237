"""Measures of one action against naive twins, and their level and power on distributions that are known."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monotau.audit.curves import Curve
from monotau.audit.measures import LEVELS, cvar_of, measure, noise_of, rank_p_value, shares_below
from monotau.envs import LongChain
from monotau.envs.probes import TwoShapes, TwoStepCoin

POINTS = 1_000
MIDDLES = (np.arange(POINTS) + 0.5) / POINTS


def curve_of(outcomes):
    """The distribution of outcomes with their probabilities, as probe worlds state it; of a thousand, every tenth."""
    some = outcomes[5::10] if len(outcomes) == 1000 else outcomes
    ordered = sorted((value, probability * len(outcomes) / len(some)) for probability, value in some)
    values = np.array([value for value, _ in ordered])
    return Curve(np.concatenate([[0.0], np.cumsum([p for _, p in ordered])]), values, values)


def naive_at(curve, tau):
    for start, stop, left, right in zip(curve.edges[:-1], curve.edges[1:], curve.left, curve.right, strict=True):
        if tau <= stop:
            return left + (tau - start) / (stop - start) * (right - left)
    return curve.right[-1]


@st.composite
def curves(draw):
    """A few rising pieces with jumps between them, some of them flat."""
    count = draw(st.integers(1, 5))
    widths = np.array(draw(st.lists(st.floats(0.1, 1), min_size=count, max_size=count)))
    steps = np.array(draw(st.lists(st.sampled_from([0.0, 0.5, 2.0]), min_size=2 * count, max_size=2 * count)))
    ends = np.cumsum(steps) - 2
    return Curve(np.concatenate([[0.0], np.cumsum(widths) / widths.sum()]), ends[::2], ends[1::2])


@settings(max_examples=30)
@given(curves(), st.lists(st.integers(-50, 80).map(lambda tenths: tenths / 10), min_size=1, max_size=7))
def test_a_curve_agrees_with_sums_over_fine_fractions(curve, returns):
    values = np.array([naive_at(curve, tau) for tau in MIDDLES])
    sample = np.array(returns)
    sampled = np.sort(sample)[np.minimum((MIDDLES * len(sample)).astype(int), len(sample) - 1)]
    assert curve.at(MIDDLES) == pytest.approx(values)
    assert curve.mean() == pytest.approx(values.mean(), abs=0.01)
    assert curve.spread() == pytest.approx(values.std(), abs=0.01)
    assert curve.cvar(0.3) == pytest.approx(values[:300].mean(), abs=0.02)
    assert float(curve.w1(sample)) == pytest.approx(np.abs(values - sampled).mean(), abs=0.02)
    assert curve.below(sample) == pytest.approx([(values < value).mean() for value in sample], abs=0.01)


def test_cvar_of_a_sample_counts_the_border_in_part():
    assert cvar_of(np.array([3.0, 1.0, 2.0, 9.0, 9.0]), 0.5) == pytest.approx((1 + 2 + 0.5 * 3) / 2.5)
    assert cvar_of(np.array([[4.0, 2.0], [1.0, 7.0]]), 1.0).tolist() == [3.0, 4.0]


def test_halves_estimate_the_distance_of_a_sample_to_its_source():
    rng = np.random.default_rng(1)
    source = curve_of(TwoShapes().truth(1.0)[0, 0])
    samples = source.draw((300, 64), rng)
    assert np.mean([noise_of(sample, rng) for sample in samples]) == pytest.approx(source.w1(samples).mean(), rel=0.08)


def test_the_rank_of_an_observation_breaks_ties_at_random():
    rng = np.random.default_rng(0)
    assert 0 < rank_p_value(9.0, np.arange(9.0), rng) < 0.1
    assert 0.9 < rank_p_value(-1.0, np.arange(9.0), rng) < 1
    drawn = [rank_p_value(0.0, np.zeros(9), rng) for _ in range(400)]
    assert np.mean(drawn) == pytest.approx(0.5, abs=0.05)
    assert max(drawn) > 0.95


def test_shares_below_levels_by_hand():
    assert shares_below(np.array([0.01, 0.3, 0.31, 0.99]))[[0, 5, 6, -1]].tolist() == [0.25, 0.5, 0.75, 0.75]
    assert LEVELS[[0, -1]].tolist() == [0.05, 0.95]


def uniformity(values):
    """The p-value of the Kolmogorov-Smirnov test that values are uniform on (0, 1)."""
    ordered, count = np.sort(values), len(values)
    ranks = np.arange(count)
    distance = max((ordered - ranks / count).max(), ((ranks + 1) / count - ordered).max())
    z = distance * (math.sqrt(count) + 0.12 + 0.11 / math.sqrt(count))
    return min(1.0, 2 * sum((-1) ** (k - 1) * math.exp(-2 * (k * z) ** 2) for k in range(1, 40)))


WORLDS = {
    "coin": TwoStepCoin().truth(0.9)[0, 0],
    "normal": TwoShapes().truth(1.0)[0, 0],
    "exponential": TwoShapes().truth(1.0)[0, 1],
    "chain": LongChain().truth(0.99)[0, 0],
}


@pytest.mark.parametrize("name", WORLDS)
def test_an_exact_distribution_is_not_refuted_beyond_its_level(name):
    rng, curve = np.random.default_rng(5), curve_of(WORLDS[name])
    found = [measure(curve, sample, rng) for sample in curve.draw((120, 32), rng)]
    p_values = np.array([each.p_value for each in found])
    assert uniformity(p_values) > 0.01
    assert (p_values < 0.05).sum() <= 12  # 6 are expected; more than 12 have a probability of 0.5 %
    for name in ("w1_excess", "bias", "cvar_error", "spread_error", "bias_excess", "cvar_excess", "spread_excess"):
        values = np.array([getattr(each, name) for each in found])
        assert abs(values.mean()) < 4 * values.std() / math.sqrt(len(values)) + 1e-9, name


@pytest.mark.parametrize("name", WORLDS)
def test_the_fractions_of_returns_of_an_exact_distribution_are_uniform(name):
    rng, curve = np.random.default_rng(2), curve_of(WORLDS[name])
    assert uniformity(curve.pit(curve.draw((1_000,), rng), rng)) > 0.01
    assert uniformity(curve.pit(curve.draw((1_000,), rng) + 0.3 * curve.spread(), rng)) < 1e-6


def test_a_float_beside_an_atom_counts_as_the_atom():
    coin = curve_of([(0.5, 100.0), (0.5, -100.0)])
    pits = coin.pit(np.full(400, np.float64(np.float32(100 / 3)) * 3), np.random.default_rng(0))
    assert 0.5 <= pits.min() < 0.52
    assert 0.98 < pits.max() <= 1


@pytest.mark.parametrize(("wrong", "power"), [("shifted by a spread", 0.99), ("twice the spread", 0.95)])
def test_a_wrong_distribution_is_found(wrong, power):
    """Sixty-four returns of a normal distribution refute these at the level of 5 % with the stated power."""
    rng, true = np.random.default_rng(3), curve_of(WORLDS["normal"])
    learned = Curve(true.edges, true.left + 1, true.right + 1)
    if wrong != "shifted by a spread":
        learned = Curve(true.edges, 2 * true.left, 2 * true.right)
    found = [measure(learned, sample, rng) for sample in true.draw((60, 64), rng)]
    assert np.mean([each.p_value < 0.05 for each in found]) >= power
    shift, widening = (1.0, 0.0) if wrong == "shifted by a spread" else (0.0, 1.0)
    assert np.mean([each.bias for each in found]) == pytest.approx(shift, abs=0.07)
    assert np.mean([each.spread_error for each in found]) == pytest.approx(widening, abs=0.07)
    true_distance = 1.0 if shift else math.sqrt(2 / math.pi)  # E|Z|, the distance between N(0, 1) and N(0, 4)
    # Far from the truth, chance no longer adds to the distance, so the excess is too small by up to the noise.
    excess, noise = (np.mean([getattr(each, name) for each in found]) for name in ("w1_excess", "noise"))
    assert true_distance - noise - 0.07 < excess < true_distance + 0.01
