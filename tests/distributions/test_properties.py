"""What must hold for every distribution, whatever its numbers."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from monotau.distributions import Categorical, Diracs, Distribution, PiecewiseLinear, Point, uniform_support
from tests.support.naive_distributions import LAYOUTS, make

FEW = settings(deadline=None, max_examples=60)
MANY = settings(deadline=None, max_examples=150)

SUPPORT = torch.tensor(uniform_support(32))
wild_sizes = st.one_of(st.just(0.0), st.builds(lambda u, e: u * 10.0**e, st.floats(1, 9), st.integers(-30, 29)))
wild_values = st.builds(lambda size, sign: sign * size, wild_sizes, st.sampled_from([-1.0, 1.0]))
modest_values = st.floats(-10, 10, width=32)
fractions = st.floats(0, 1, width=32)


def awkward_fractions(knots: Tensor) -> Tensor:
    """Return sorted float32 fractions: 0, 1, a dense grid, all knots, their float neighbours and their middles."""
    above, below = (torch.nextafter(knots, torch.tensor(side)) for side in (2.0, -1.0))
    middles = (knots[1:] + knots[:-1]) / 2
    return torch.cat([torch.linspace(0, 1, 257), knots, above, below, middles]).clamp(0, 1).sort().values


@st.composite
def supports(draw: st.DrawFn, dtype: torch.dtype = torch.float32) -> Tensor:
    """Draw a strictly increasing support inside (0, 1)."""
    places = draw(st.sets(st.integers(1, 999), min_size=2, max_size=8))
    return torch.tensor(sorted(places), dtype=dtype) / 1000


@st.composite
def distributions(draw: st.DrawFn, dtype: torch.dtype = torch.float64) -> Distribution:
    """Draw one distribution `[1]` of any kind; quantiles may cross and atoms may lack mass."""

    def values(count: int) -> Tensor:
        return torch.tensor([draw(st.lists(modest_values, min_size=count, max_size=count))], dtype=dtype)

    def masses(count: int) -> Tensor:
        counts = draw(st.lists(st.integers(0, 8), min_size=count, max_size=count).filter(any))
        return torch.tensor(counts, dtype=dtype) / sum(counts)

    kind = draw(st.sampled_from([PiecewiseLinear, Diracs, Categorical, Point]))
    if kind is PiecewiseLinear:
        knots = draw(supports(dtype))
        return PiecewiseLinear(knots, values(len(knots)))
    if kind is Point:
        return Point(values(1)[:, 0])
    count = draw(st.integers(1, 6))
    if kind is Diracs:
        taus = draw(st.permutations([(i + 0.5) / count for i in range(count)]))
        return Diracs(torch.tensor(taus, dtype=dtype), values(count), masses(count))
    return Categorical(values(count)[0].sort().values, masses(count)[None])


@st.composite
def pairs_on_shared_knots(draw: st.DrawFn) -> tuple[PiecewiseLinear, PiecewiseLinear]:
    knots = draw(supports(torch.float64))
    curves = [draw(st.lists(modest_values, min_size=len(knots), max_size=len(knots))) for _ in range(2)]
    one, two = (PiecewiseLinear(knots, torch.tensor([curve], dtype=torch.float64)) for curve in curves)
    return one, two


def scaled(distribution: Distribution, factor: float) -> Distribution:
    shape, dtype = distribution.batch_shape, distribution.curve().dtype
    return distribution.affine(torch.full(shape, factor, dtype=dtype), torch.zeros(shape, dtype=dtype))


@MANY
@given(first=wild_values, increments=st.lists(wild_sizes, min_size=31, max_size=31))
def test_quantiles_never_cross(first: float, increments: list[float]) -> None:
    values = torch.tensor([[first, *increments]]).cumsum(-1)
    quantiles = PiecewiseLinear(SUPPORT, values).quantile(awkward_fractions(SUPPORT))
    assert int((quantiles.diff(dim=-1) < 0).sum()) == 0
    assert (quantiles[:, 0].item(), quantiles[:, -1].item()) == (values[:, 0].item(), values[:, -1].item())


@FEW
@given(data=st.data(), knots=supports())
def test_quantiles_never_cross_on_any_support(data: st.DataObject, knots: Tensor) -> None:
    increments = data.draw(st.lists(wild_sizes, min_size=len(knots) - 1, max_size=len(knots) - 1))
    values = torch.tensor([[data.draw(wild_values), *increments]]).cumsum(-1)
    quantiles = PiecewiseLinear(knots[None], values).quantile(awkward_fractions(knots))
    assert int((quantiles.diff(dim=-1) < 0).sum()) == 0


def test_quantiles_of_thousands_of_curves_never_cross() -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = 10 ** (torch.rand(4000, 32, generator=generator) * torch.rand(4000, 1, generator=generator) * 60 - 30)
    alive = torch.rand(4000, 32, generator=generator) < torch.rand(4000, 1, generator=generator)
    increments = sizes * alive
    increments[:, 0] *= torch.randn(4000, generator=generator).sign()
    values = increments.cumsum(-1)
    quantiles = PiecewiseLinear(SUPPORT, values).quantile(awkward_fractions(SUPPORT))
    assert int((quantiles.diff(dim=-1) < 0).sum()) == 0


def test_a_line_never_passes_its_right_knot() -> None:
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(4000, 32, generator=generator).sort(-1).values
    fractions = torch.nextafter(SUPPORT, torch.zeros(()))
    quantiles = PiecewiseLinear(SUPPORT, values).quantile(torch.cat([SUPPORT, fractions]))
    assert int((quantiles > torch.cat([values, values], dim=-1)).sum()) == 0


@pytest.mark.parametrize("layout", LAYOUTS)
@FEW
@given(taus=st.lists(fractions, min_size=1, max_size=9), data=st.data())
def test_a_quantile_does_not_depend_on_the_other_fractions(layout: str, taus: list[float], data: st.DataObject) -> None:
    distribution = make(layout, seed=30)
    asked = torch.tensor(taus, dtype=torch.float64)
    together = distribution.quantile(asked)
    place = data.draw(st.integers(0, len(taus) - 1))
    assert torch.equal(distribution.quantile(asked[place : place + 1]), together[..., place : place + 1])
    order = torch.tensor(data.draw(st.permutations(range(len(taus)))))
    assert torch.equal(distribution.quantile(asked[order]), together[..., order])
    assert torch.equal(distribution.quantile(asked.expand(3, 2, -1)), together)
    assert torch.equal(distribution.rows(1, 2).quantile(asked), together[1:2])


@FEW
@given(
    taus=st.lists(fractions, min_size=2, max_size=40),
    first=wild_values,
    increments=st.lists(wild_sizes, min_size=31, max_size=31),
)
def test_a_quantile_of_extreme_values_does_not_depend_on_the_other_fractions(
    taus: list[float], first: float, increments: list[float]
) -> None:
    values = torch.tensor([[first, *increments]]).cumsum(-1)
    asked = torch.tensor(taus)
    together = PiecewiseLinear(SUPPORT, values).quantile(asked)
    alone = torch.cat([PiecewiseLinear(SUPPORT, values).quantile(tau[None]) for tau in asked], dim=-1)
    assert torch.equal(alone, together)
    crowd = PiecewiseLinear(SUPPORT, torch.cat([-values.flip(-1), values, values * 0.5]))
    assert torch.equal(crowd.quantile(asked)[1:2], together)
    assert torch.equal(crowd.quantile(torch.stack([asked * 0.5, asked, asked.flip(0)]))[1:2], together)


@MANY
@given(one=distributions(), two=distributions())
def test_w1_is_symmetric(one: Distribution, two: Distribution) -> None:
    torch.testing.assert_close(one.w1(two), two.w1(one), rtol=1e-12, atol=1e-12)


@MANY
@given(one=distributions(), two=distributions(), three=distributions())
def test_w1_keeps_the_triangle_inequality(one: Distribution, two: Distribution, three: Distribution) -> None:
    assert one.w1(three).item() <= one.w1(two).item() + two.w1(three).item() + 1e-12


@FEW
@given(one=distributions(torch.float32))
def test_w1_of_a_distribution_and_itself_is_exactly_zero(one: Distribution) -> None:
    assert one.w1(one).tolist() == [0.0]
    assert one.w1(one.map(torch.clone)).tolist() == [0.0]


@MANY
@given(one=distributions(), shift=st.floats(-10, 10))
def test_w1_of_a_shifted_distribution_is_the_shift(one: Distribution, shift: float) -> None:
    moved = one.affine(torch.ones(1, dtype=torch.float64), torch.tensor([shift], dtype=torch.float64))
    assert moved.w1(one).item() == pytest.approx(abs(shift), abs=1e-12)


@MANY
@given(one=distributions(), two=distributions())
def test_w1_is_at_least_the_difference_of_the_means(one: Distribution, two: Distribution) -> None:
    assert one.w1(two).item() >= abs(one.mean() - two.mean()).item() - 1e-12


@MANY
@given(one=distributions(), two=distributions())
def test_w1_of_ordered_distributions_is_the_difference_of_the_means(one: Distribution, two: Distribution) -> None:
    above = two.affine(torch.ones(1, dtype=torch.float64), torch.full((1,), 20.0, dtype=torch.float64))
    assert above.w1(one).item() == pytest.approx((above.mean() - one.mean()).item(), rel=1e-12)


@MANY
@given(pair=pairs_on_shared_knots())
def test_w1_lies_between_the_midpoint_and_the_trapezoid_rule(pair: tuple[PiecewiseLinear, PiecewiseLinear]) -> None:
    one, two = pair
    difference = (one.values - two.values)[0]
    widths = one.knots.diff()
    tails = one.knots[0] * difference[0].abs() + (1 - one.knots[-1]) * difference[-1].abs()
    midpoint = tails + (widths * (difference[1:] + difference[:-1]).abs() / 2).sum()
    trapezoid = tails + (widths * (difference[1:].abs() + difference[:-1].abs()) / 2).sum()
    assert midpoint.item() - 1e-12 <= one.w1(two).item() <= trapezoid.item() + 1e-12


@MANY
@given(one=distributions(torch.float32), two=distributions(torch.float32), exponent=st.integers(-90, 120))
def test_w1_scales_with_its_distributions_from_tiny_to_huge(
    one: Distribution, two: Distribution, exponent: int
) -> None:
    expected = one.w1(two).item()
    found = scaled(one, 2.0**exponent).w1(scaled(two, 2.0**exponent)).item() / 2.0**exponent
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-5)


@MANY
@given(
    one=st.lists(st.sampled_from([-1.0, -0.3, 0.0, 0.7, 1.0]), min_size=4, max_size=4),
    two=st.lists(st.sampled_from([-1.0, -0.3, 0.0, 0.7, 1.0]), min_size=4, max_size=4),
)
def test_w1_does_not_overflow_near_the_largest_float(one: list[float], two: list[float]) -> None:
    knots, huge = torch.tensor([0.001, 0.3, 0.6, 0.999]), 1e38 / 4
    small_one, small_two = (PiecewiseLinear(knots, torch.tensor([values])) for values in (one, two))
    big_one, big_two = scaled(small_one, huge), scaled(small_two, huge)
    expected = small_one.w1(small_two).item() * huge
    assert big_one.w1(big_two).item() == pytest.approx(expected, rel=1e-5)
    for stranger in (
        Point(torch.tensor([-huge])),
        PiecewiseLinear(torch.tensor([0.2, 0.8]), torch.tensor([[-huge, huge]])),
    ):
        distance = big_one.w1(stranger).item()
        assert 0 <= distance <= 2 * huge * (1 + 1e-6)


subnormal_values = st.sampled_from([0.0, -0.0, 1e-45, -1e-45, 3e-40, -3e-40, 2e-38, -2e-38])


@MANY
@given(one=st.lists(subnormal_values, min_size=4, max_size=4), two=st.lists(subnormal_values, min_size=4, max_size=4))
def test_w1_of_zeros_and_subnormals_is_never_nan_and_stays_in_bounds(one: list[float], two: list[float]) -> None:
    knots = torch.tensor([0.001, 0.3, 0.6, 0.999])
    first, second = (PiecewiseLinear(knots, torch.tensor([values])) for values in (one, two))
    largest = first.values.abs().max().item() + second.values.abs().max().item()
    for distance in (first.w1(second), first.w1(PiecewiseLinear(knots + 0.0005, second.values))):
        assert 0 <= distance.item() <= largest * (1 + 1e-6) + 1e-44


@MANY
@given(one=distributions(), alpha=st.floats(0.01, 1), beta=st.floats(0.01, 1))
def test_cvar_of_a_curve_that_does_not_fall_rises_with_its_share(one: Distribution, alpha: float, beta: float) -> None:
    if isinstance(one, Diracs):
        one = Diracs(one.taus.sort().values, one.values.sort().values, one.weights)
    elif isinstance(one, PiecewiseLinear):
        one = PiecewiseLinear(one.knots, one.values.sort().values)
    low, high = sorted([alpha, beta])
    assert one.cvar(low).item() <= one.cvar(high).item() + 1e-12
    assert one.cvar(high).item() <= one.mean().item() + 1e-12


@FEW
@given(one=distributions(), shift=st.floats(-10, 10), scale=st.floats(0, 4))
def test_upper_variance_forgets_the_shift_and_squares_the_scale(one: Distribution, shift: float, scale: float) -> None:
    moved = one.affine(torch.tensor([scale], dtype=torch.float64), torch.tensor([shift], dtype=torch.float64))
    expected = scale**2 * one.upper_variance().item()
    assert moved.upper_variance().item() == pytest.approx(expected, rel=1e-9, abs=1e-9)
