"""Every kind and layout of distribution against its naive twin."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest
import torch
from torch import Tensor

from monotau.distributions import Categorical, Diracs, Distribution
from tests.support.naive_distributions import (
    BATCH,
    LAYOUTS,
    for_each_entry,
    make,
    naive_crossing,
    naive_integral,
    naive_upper_variance,
    naive_w1,
    twin,
)

every_layout = pytest.mark.parametrize("layout", LAYOUTS)
ALL_32NDS = [i / 32 for i in range(1, 33)]  # every edge that `make` can draw
BESIDE_THEM = [math.nextafter(tau, side) for tau in ALL_32NDS for side in (0, 2) if math.nextafter(tau, side) <= 1]
TAUS = torch.tensor([1e-9, 0.001, 0.3, 0.71, 0.999, *ALL_32NDS, *BESIDE_THEM], dtype=torch.float64)


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-13)


def naive_quantiles(distribution: Distribution, taus: Tensor) -> Tensor:
    """Return `[*batch, M]` for fractions `[*batch, M]`."""
    columns = [
        for_each_entry(lambda index, m=m: twin(distribution, index).quantile(Fraction(taus[index][m].item())))
        for m in range(taus.shape[-1])
    ]
    return torch.stack(columns, dim=-1)


@every_layout
def test_mean_is_the_integral_of_the_quantile_function(layout: str) -> None:
    distribution = make(layout, seed=1)
    close(distribution.mean(), for_each_entry(lambda index: naive_integral(twin(distribution, index))))


@every_layout
def test_quantiles_agree_on_between_and_beside_all_edges(layout: str) -> None:
    distribution = make(layout, seed=2)
    close(distribution.quantile(TAUS), naive_quantiles(distribution, TAUS.expand(*BATCH, -1)))


@every_layout
def test_quantiles_take_other_fractions_for_each_batch_entry(layout: str) -> None:
    distribution = make(layout, seed=3)
    taus = torch.rand(*BATCH, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    close(distribution.quantile(taus), naive_quantiles(distribution, taus))


@every_layout
def test_fraction_zero_is_the_lowest_end_of_the_curve(layout: str) -> None:
    distribution = make(layout, seed=4)
    at_zero, just_above = distribution.quantile(torch.tensor([0.0, 1e-12], dtype=torch.float64)).unbind(-1)
    assert torch.equal(at_zero, just_above)
    assert torch.equal(at_zero, distribution.curve()[..., 0])


@pytest.mark.parametrize("theirs", LAYOUTS)
@pytest.mark.parametrize("mine", LAYOUTS)
def test_w1_is_the_integral_of_the_absolute_difference(mine: str, theirs: str) -> None:
    one, two = make(mine, seed=5), make(theirs, seed=6)
    close(one.w1(two), for_each_entry(lambda index: naive_w1(twin(one, index), twin(two, index))))


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout.startswith("diracs")])
def test_w1_of_diracs_on_the_same_fractions_sorts_nothing_by_value(layout: str) -> None:
    one = make(layout, seed=7)
    assert isinstance(one, Diracs)
    two = Diracs(one.taus, make("diracs", seed=8).curve(), one.weights)
    close(one.w1(two), for_each_entry(lambda index: naive_w1(twin(one, index), twin(two, index))))


@pytest.mark.parametrize("shared", ["taus", "weights"])
def test_w1_of_diracs_that_share_only_their_fractions_or_only_their_weights(shared: str) -> None:
    one, other = make("diracs", seed=24), make("diracs", seed=25)
    assert isinstance(one, Diracs)
    assert isinstance(other, Diracs)
    two = replace(other, **{shared: getattr(one, shared)})
    assert not torch.equal(one.taus, two.taus) or not torch.equal(one.weights, two.weights)
    close(one.w1(two), for_each_entry(lambda index: naive_w1(twin(one, index), twin(two, index))))


@pytest.mark.parametrize("layout", ["categorical", "categorical with batched atoms"])
def test_w1_of_categoricals_on_the_same_atoms_is_the_area_between_their_cdfs(layout: str) -> None:
    one = make(layout, seed=9)
    assert isinstance(one, Categorical)
    two = Categorical(one.atoms, make(layout, seed=10).probs)
    close(one.w1(two), for_each_entry(lambda index: naive_w1(twin(one, index), twin(two, index))))


@every_layout
def test_upper_variance_is_the_squared_distance_above_the_median(layout: str) -> None:
    for seed in (11, 12, 13):  # 1/2 falls on an edge for some entries, inside a segment for others
        distribution = make(layout, seed)
        expected = for_each_entry(lambda index, d=distribution: naive_upper_variance(twin(d, index)))
        close(distribution.upper_variance(), expected)


@pytest.mark.parametrize("alpha", [1e-3, 0.1, 0.25, 9 / 32, 0.5, 0.9, 1 - 1e-3])
@every_layout
def test_cvar_is_the_mean_of_the_worst_share(layout: str, alpha: float) -> None:
    distribution = make(layout, seed=14)
    share = Fraction(alpha)
    expected = for_each_entry(lambda index: naive_integral(twin(distribution.ordered(), index), stop=share) / share)
    close(distribution.cvar(alpha), expected)


@every_layout
def test_cvar_of_everything_is_the_mean(layout: str) -> None:
    distribution = make(layout, seed=15)
    close(distribution.cvar(1.0), distribution.mean())


@pytest.mark.parametrize("alpha", [0.0, -0.1, 1.5, math.nan])
def test_cvar_refuses_a_share_outside_zero_to_one(alpha: float) -> None:
    with pytest.raises(ValueError, match=rf"alpha is {alpha}, but must be in \(0, 1\]"):
        make("point", seed=0).cvar(alpha)


@every_layout
def test_crossing_counts_the_neighbours_that_fall(layout: str) -> None:
    distribution = make(layout, seed=16)
    close(distribution.crossing(), for_each_entry(lambda index: naive_crossing(twin(distribution, index))))


@every_layout
def test_curve_lists_the_estimates_in_the_order_of_their_fractions(layout: str) -> None:
    distribution = make(layout, seed=22)
    curve = distribution.curve()
    for row, action in product(range(3), range(2)):
        assert curve[row, action].tolist() == twin(distribution, (row, action)).estimates


@every_layout
def test_take_keeps_the_distribution_of_each_rows_action(layout: str) -> None:
    distribution = make(layout, seed=17)
    taken = distribution.take(torch.tensor([1, 0, 1]))
    assert type(taken) is type(distribution)
    assert taken.batch_shape == (3,)
    for row, action in enumerate([1, 0, 1]):
        assert torch.equal(taken.quantile(TAUS)[row], distribution.quantile(TAUS)[row, action])
        assert taken.mean()[row] == distribution.mean()[row, action]


@every_layout
def test_rows_keeps_the_batch_rows_from_start_up_to_stop(layout: str) -> None:
    distribution = make(layout, seed=18)
    kept = distribution.rows(1, 3)
    assert type(kept) is type(distribution)
    assert kept.batch_shape == (2, 2)
    assert torch.equal(kept.quantile(TAUS), distribution.quantile(TAUS)[1:3])
    assert torch.equal(kept.mean(), distribution.mean()[1:3])


@every_layout
def test_affine_moves_and_scales_every_quantile(layout: str) -> None:
    distribution = make(layout, seed=19)
    scale = torch.tensor([[0.0, 0.5], [0.99, 1.0], [2.0, 0.97]], dtype=torch.float64)  # 0: a terminal step
    shift = torch.tensor([[-1.0, 0.0], [3.0, -0.25], [0.5, 10.0]], dtype=torch.float64)
    moved = distribution.affine(scale, shift)
    assert type(moved) is type(distribution)
    assert moved.batch_shape == BATCH
    close(moved.quantile(TAUS), shift[..., None] + scale[..., None] * distribution.quantile(TAUS))
    close(moved.mean(), shift + scale * distribution.mean())


@every_layout
def test_affine_after_take_still_follows_the_rows(layout: str) -> None:
    distribution = make(layout, seed=20)
    scale, shift = torch.tensor([0.0, 0.5, 2.0]).double(), torch.tensor([1.0, -2.0, 3.0]).double()
    moved = distribution.take(torch.tensor([0, 1, 1])).affine(scale, shift)
    expected = shift + scale * torch.stack([distribution.mean()[0, 0], *distribution.mean()[1:, 1]])
    close(moved.mean(), expected)
    close(moved.cvar(1.0), expected)


@every_layout
def test_segments_name_the_same_function_from_zero_to_one(layout: str) -> None:
    distribution = make(layout, seed=21)
    segments = distribution.segments()
    edges = segments.edges.expand(*BATCH, -1)
    assert (edges[..., 0] == 0).all()
    assert (edges[..., -1] == 1).all()
    assert (segments.widths >= 0).all()
    close((segments.widths * (segments.left + segments.right) / 2).sum(-1), distribution.mean())
