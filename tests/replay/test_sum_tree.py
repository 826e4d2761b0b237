"""The sum tree against a plain array of leaves, whose sums run from left to right."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from monotau.replay.sum_tree import FAN_OUT, LARGEST, SumTree

SIZES = [1, 2, 5, FAN_OUT - 1, FAN_OUT, FAN_OUT + 1, 700, FAN_OUT**2, FAN_OUT**2 + 1, 40_000]
"""One to three levels, full and not."""


def naive_find(leaves, mass):
    """The leaf at which the running sum first exceeds the mass; at the end, the last that holds any."""
    running = 0.0
    for leaf, value in enumerate(leaves):
        running += value
        if running > mass:
            return leaf
    return max(leaf for leaf, value in enumerate(leaves) if value > 0)


def changes(values):
    """A number of leaves, and rounds of (leaf, value) to set; leaves come up more than once, in a round and in all."""

    def rounds(size):
        leaf = st.one_of(st.integers(0, size - 1), st.integers(0, min(size - 1, 3)), st.just(size - 1))
        return st.tuples(st.just(size), st.lists(st.lists(st.tuples(leaf, values), max_size=12), max_size=6))

    return st.sampled_from(SIZES).flatmap(rounds)


WHOLE = st.integers(0, 9).map(float)  # sums of these are exact in any order
REAL = st.one_of(st.just(0.0), st.floats(0.0, 1e9), st.floats(1e-300, 1e-3), st.sampled_from([0.1, 1 / 3]))


def grown(size, rounds):
    tree, plain = SumTree(size), np.zeros(size)
    for pairs in rounds:
        tree.set(np.array([leaf for leaf, _ in pairs], np.int64), np.array([value for _, value in pairs], np.float64))
        for leaf, value in pairs:
            plain[leaf] = value
    return tree, plain


@given(changes(REAL))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_leaves_and_total_are_those_of_a_plain_array(change):
    tree, plain = grown(*change)
    assert tree.values(np.arange(len(plain))).tolist() == plain.tolist()
    assert tree.total == pytest.approx(math.fsum(plain), rel=1e-12)


@given(changes(WHOLE), st.lists(st.floats(0, 1), max_size=6))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_a_mass_finds_the_leaf_of_a_search_from_left_to_right(change, shares):
    tree, plain = grown(*change)
    if plain.any():
        whole = np.unique(np.cumsum(plain)).clip(max=plain.sum()).tolist()
        masses = [0.0, *whole[:20], plain.sum(), *(share * plain.sum() for share in shares)]
        expected = [naive_find(plain, mass) for mass in masses]
        assert tree.find(np.array(masses)).tolist() == expected


@given(changes(REAL), st.lists(st.floats(0, 1), max_size=6))
@example((FAN_OUT + 2, [[(leaf, 0.1) for leaf in range(FAN_OUT - 1)]]), [1.0])
@settings(max_examples=150, deadline=None, derandomize=True)
def test_a_leaf_of_zero_is_never_found(change, shares):
    tree, plain = grown(*change)
    if plain.any():
        edges = np.concatenate((np.cumsum(plain[plain > 0])[:20], [0.0, tree.total, plain.sum()]))
        masses = np.concatenate((edges, np.nextafter(edges, -1), np.nextafter(edges, math.inf)))
        masses = np.concatenate((masses, tree.total * np.array(shares), [-1.0, 2 * tree.total]))
        assert (tree.values(tree.find(masses)) > 0).all()


def test_a_mass_lost_to_rounding_goes_to_the_last_leaf_that_holds_any():
    """A parent adds up its children in another order than the search, and may come out larger."""
    rng = np.random.default_rng(0)
    beyond = 0
    for _ in range(200):
        leaves = np.zeros(3 * FAN_OUT)
        leaves[FAN_OUT : 2 * FAN_OUT - 7] = rng.random(FAN_OUT - 7)
        tree = SumTree(len(leaves))
        tree.set(np.arange(len(leaves)), leaves)
        beyond += tree.total > np.cumsum(leaves)[-1]
        assert tree.find(np.array([tree.total, np.nextafter(tree.total, 0)])).tolist() == [2 * FAN_OUT - 8] * 2
    assert beyond > 20


def test_masses_are_found_as_often_as_their_leaves_are_large():
    leaves = np.array([0.0, 3.0, 0.5, 0.0, 1.5, 5.0])
    tree = SumTree(6)
    tree.set(np.arange(6), leaves)
    draws = 20_000
    counts = np.bincount(tree.find(np.random.default_rng(0).random(draws) * tree.total), minlength=6)
    share = leaves / leaves.sum()
    assert (abs(counts - draws * share) <= 4 * np.sqrt(draws * share * (1 - share))).all()


def test_sums_do_not_drift():
    rng = np.random.default_rng(0)
    tree, size = SumTree(20_000), 20_000
    for _ in range(500):
        tree.set(rng.integers(size, size=64), 10.0 ** rng.uniform(-12, 12, 64))
    fresh = SumTree(size)
    fresh.set(np.arange(size), tree.values(np.arange(size)))
    assert tree.total == fresh.total
    tree.set(np.arange(size), np.zeros(size))
    assert tree.total == 0.0


def test_the_last_of_several_values_for_a_leaf_counts():
    tree = SumTree(300)
    tree.set(np.array([7, 200, 7, 7]), np.array([1.0, 2.0, 3.0, 4.0]))
    assert tree.values(np.array([7, 200])).tolist() == [4.0, 2.0]
    assert tree.total == 6.0


def test_setting_or_finding_no_leaves_is_allowed():
    tree = SumTree(3)
    tree.set(np.empty(0, np.int64), np.empty(0))
    assert tree.total == 0.0
    tree.set(np.array([1]), np.array([2.0]))
    assert tree.find(np.empty(0)).tolist() == []


@pytest.mark.parametrize(("index", "message"), [([3, -1], "-1 to 3"), ([0, 5], "0 to 5"), ([6], "6 to 6")])
def test_leaves_that_do_not_exist_are_refused(index, message):
    """Also those for which the rows of the tree would have room."""
    tree = SumTree(5)
    with pytest.raises(
        IndexError, match=f"The indices range from {message}, but must be between 0 and 4; mass outside"
    ):
        tree.set(np.array(index), np.ones(len(index)))
    assert tree.total == 0.0


@pytest.mark.parametrize("bad", [-1e-9, math.nan, math.inf, 2 * LARGEST])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_values_that_cannot_be_masses_are_refused(bad, place):
    tree, values = SumTree(5), [1.0, 1.0, 1.0]
    values[place] = bad
    with pytest.raises(
        ValueError, match=r"The values range from .* but must be between 0 and 1e\+300; otherwise their"
    ):
        tree.set(np.arange(3), np.array(values))
    assert tree.total == 0.0


def test_the_largest_values_have_a_finite_sum():
    tree = SumTree(1_000_000)
    tree.set(np.arange(1_000_000), np.full(1_000_000, LARGEST))
    assert math.isfinite(tree.total)


def test_finding_a_leaf_is_refused_if_all_are_zero():
    tree = SumTree(5)
    with pytest.raises(ValueError, match="The sum of all leaves is 0, but must be positive"):
        tree.find(np.array([0.0]))
