"""Distributions small enough to work out on paper."""

from itertools import pairwise

import pytest
import torch

from monotau.distributions import Categorical, Diracs, Distribution, PiecewiseLinear, Point, uniform_support
from monotau.errors import ConfigError

CURVE = PiecewiseLinear(torch.tensor([0.25, 0.5, 0.875]), torch.tensor([[-1.0, 1.0, 4.0]]))
COIN = Diracs(torch.tensor([0.25, 0.75]), torch.tensor([[-1.0, 1.0]]), torch.tensor([0.5, 0.5]))
THREE_ATOMS = Categorical(torch.tensor([0.0, 1.0, 5.0]), torch.tensor([[0.25, 0.5, 0.25]]))


def line(*values: float) -> PiecewiseLinear:
    """Return a line between 1/4 and 3/4."""
    return PiecewiseLinear(torch.tensor([0.25, 0.75]), torch.tensor([values], dtype=torch.float32))


def equal_diracs(*values: float) -> Diracs:
    count = len(values)
    taus = (torch.arange(count) + 0.5) / count
    return Diracs(taus, torch.tensor([values], dtype=torch.float32), torch.full((count,), 1 / count))


def test_mean_of_three_knots_is_two_tails_and_two_trapezoids() -> None:
    # 1/4 * -1  +  1/4 * (-1 + 1)/2  +  3/8 * (1 + 4)/2  +  1/8 * 4
    assert CURVE.mean().tolist() == [1.1875]


def test_a_small_batch_shows_its_means_and_spread_and_a_large_one_its_shape() -> None:
    assert repr(CURVE) == "<PiecewiseLinear of shape [1]: mean [1.188], 5 % [-1], 95 % [4]>"
    assert repr(COIN) == "<Diracs of shape [1]: mean [0], 5 % [-1], 95 % [1]>"
    pair = Point(torch.tensor([[1.0, 2000.5]]))
    assert repr(pair) == "<Point of shape [1, 2]: mean [[1, 2000]], 5 % [[1, 2000]], 95 % [[1, 2000]]>"
    assert repr(Point(torch.zeros(3, 7))) == "<Point of shape [3, 7]>"


def test_magnitude_takes_losses_and_gains_alike() -> None:
    # 1/4 * 1  +  1/4 * 1/2 (from -1 to 1)  +  3/8 * 5/2  +  1/8 * 4
    assert CURVE.magnitude().tolist() == [1.8125]
    assert COIN.magnitude().tolist() == [1.0]
    assert THREE_ATOMS.magnitude().tolist() == [1.75]
    assert Point(torch.tensor([-3.0, 2.0])).magnitude().tolist() == [3.0, 2.0]


def test_mass_outside_of_bounds_that_are_themselves_inside() -> None:
    bounds = {(0.0, 5.0): 0.0, (0.5, 5.0): 0.25, (0.0, 4.5): 0.25, (0.5, 0.75): 1.0, (1.0, 1.0): 0.5}
    assert {each: THREE_ATOMS.outside(*each).item() for each in bounds} == bounds
    assert equal_diracs(3.0, -1.0, 1.0, 2.0).outside(0.0, 2.0).tolist() == [0.5]  # it crosses


def test_mean_of_increments_weighs_each_by_the_mass_above_its_middle() -> None:
    knots = uniform_support(32)
    increments = [-3.0, *(0.1 * (i % 5) for i in range(1, 32))]
    values = torch.tensor([increments], dtype=torch.float64).cumsum(-1)
    curve = PiecewiseLinear(torch.tensor(knots, dtype=torch.float64), values)
    expected = increments[0] + sum(
        (1 - (p + q) / 2) * delta for (p, q), delta in zip(pairwise(knots), increments[1:], strict=True)
    )
    assert curve.mean().item() == pytest.approx(expected, rel=1e-12)


def test_mean_of_a_constant_curve_counts_the_whole_mass_and_not_only_that_between_the_ends() -> None:
    curve = PiecewiseLinear(torch.tensor(uniform_support(32)), torch.full((1, 32), 1000.0))
    assert curve.mean().item() == pytest.approx(1000.0, abs=0.01)


@pytest.mark.parametrize(
    ("tau", "expected"),
    [(0.0, -1.0), (0.1, -1.0), (0.25, -1.0), (0.375, 0.0), (0.5, 1.0), (0.6875, 2.5), (0.875, 4.0), (0.9, 4.0), (1, 4)],
)
def test_quantiles_of_three_knots(tau: float, expected: float) -> None:
    assert CURVE.quantile(torch.tensor([tau], dtype=torch.float32)).tolist() == [[expected]]


def test_the_highest_fraction_gives_the_highest_quantile() -> None:
    curve = PiecewiseLinear(torch.tensor(uniform_support(32)), torch.arange(32.0)[None])
    assert curve.quantile(torch.tensor([0.0, 0.0005, 0.9995, 1.0])).tolist() == [[0.0, 0.0, 31.0, 31.0]]


@pytest.mark.parametrize(("tau", "expected"), [(0.0, -1), (0.3, -1), (0.5, -1), (0.5 + 2**-24, 1), (0.7, 1), (1.0, 1)])
def test_the_median_of_a_coin_is_its_lower_side(tau: float, expected: float) -> None:
    assert COIN.quantile(torch.tensor([tau], dtype=torch.float32)).tolist() == [[expected]]


def test_an_atom_without_mass_is_never_a_quantile() -> None:
    gap = Categorical(torch.tensor([0.0, 1.0, 2.0, 3.0]), torch.tensor([[0.5, 0.0, 0.5, 0.0]]))
    assert gap.quantile(torch.tensor([0.5, 0.5 + 2**-24, 1.0])).tolist() == [[0.0, 2.0, 2.0]]


def test_a_point_has_one_value_for_every_fraction() -> None:
    assert Point(torch.tensor([[3.0, -2.0]])).quantile(torch.tensor([0.0, 0.4, 1.0])).tolist() == [
        [[3.0] * 3, [-2] * 3]
    ]


@pytest.mark.parametrize(
    "zero", [line(0, 0), Point(torch.zeros(1)), equal_diracs(0, 0, 0)], ids=["lines", "point", "diracs"]
)
def test_w1_sees_a_change_of_sign_inside_a_segment(zero: Distribution) -> None:
    # A tail of 1/4 * 1, triangles of 1/8 * 1/2 and 3/8 * 3/2, a tail of 1/4 * 3; the means differ by 1 only.
    assert line(-1, 3).w1(zero).item() == pytest.approx(1.625)
    assert line(-1, 3).mean().tolist() == [1.0]


def test_w1_of_a_coin_and_its_mean_is_one() -> None:
    assert COIN.w1(Point(torch.zeros(1))).tolist() == [1.0]


def test_w1_of_categoricals_is_the_cdf_difference_times_the_gaps() -> None:
    atoms = torch.tensor([-1.0, 0.0, 3.0])
    ends, middle = (
        Categorical(atoms, torch.tensor([[0.5, 0.0, 0.5]])),
        Categorical(atoms, torch.tensor([[0.0, 1.0, 0.0]])),
    )
    assert ends.w1(middle).tolist() == [2.0]
    assert ends.w1(Categorical(atoms.clone(), middle.probs)).tolist() == [2.0]


def test_w1_of_diracs_compares_equal_fractions_even_where_quantiles_cross() -> None:
    taus, weights = torch.tensor([0.9, 0.1]), torch.tensor([0.5, 0.5])
    crossed, sorted_ = (Diracs(taus, torch.tensor([values]), weights) for values in ([-1.0, 1.0], [1.0, -1.0]))
    assert crossed.w1(sorted_).tolist() == [2.0]
    assert crossed.w1(Diracs(taus.clone(), sorted_.values, weights.clone())).tolist() == [2.0]


@pytest.mark.parametrize(
    ("distribution", "expected"),
    [
        pytest.param(
            PiecewiseLinear(torch.tensor([0.375, 0.875]), torch.tensor([[0.0, 4.0]])),  # the median is 1
            3 / 8 * 9 / 3 + 1 / 8 * 9,
            id="1/2 inside a segment, which is split",
        ),
        pytest.param(CURVE, 3 / 8 * 9 / 3 + 1 / 8 * 9, id="1/2 on a knot"),
        pytest.param(
            PiecewiseLinear(torch.tensor([0.625, 0.875]), torch.tensor([[1.0, 3.0]])),
            1 / 4 * 4 / 3 + 1 / 8 * 4,
            id="1/2 before the first knot",
        ),
        pytest.param(
            PiecewiseLinear(torch.tensor([0.125, 0.375]), torch.tensor([[1.0, 3.0]])), 0.0, id="1/2 after the last"
        ),
        pytest.param(COIN, 1 / 2 * 4, id="1/2 between two Diracs"),
        pytest.param(THREE_ATOMS, 1 / 4 * 16, id="1/2 inside an atom"),
        pytest.param(Point(torch.tensor([7.0])), 0.0, id="a point"),
    ],
)
def test_upper_variance(distribution: Distribution, expected: float) -> None:
    assert distribution.upper_variance().item() == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize(
    ("distribution", "alpha", "expected"),
    [
        pytest.param(line(0, 2), 0.125, 0.0, id="inside the lower tail"),
        pytest.param(line(0, 2), 0.5, 0.25, id="inside a line"),
        pytest.param(line(0, 2), 0.75, 2 / 3, id="on a knot"),
        pytest.param(line(0, 2), 1.0, 1.0, id="all of the lines"),
        pytest.param(equal_diracs(0, 1, 2, 3), 0.5, 0.5, id="on an edge of Diracs"),
        pytest.param(equal_diracs(0, 1, 2, 3), 0.375, 1 / 3, id="inside a Dirac"),
        pytest.param(THREE_ATOMS, 0.5, 0.5, id="inside an atom"),
        pytest.param(THREE_ATOMS, 1.0, 1.75, id="all atoms"),
        pytest.param(Point(torch.tensor([7.0])), 0.01, 7.0, id="a point"),
    ],
)
def test_cvar(distribution: Distribution, alpha: float, expected: float) -> None:
    assert distribution.cvar(alpha).item() == pytest.approx(expected, rel=1e-6)


def test_cvar_of_a_small_share_is_the_lowest_return() -> None:
    assert COIN.cvar(1e-6).item() == pytest.approx(-1.0)


@pytest.mark.parametrize(
    ("distribution", "expected"),
    [
        pytest.param(line(0, 2), 0.0, id="a rising line"),
        pytest.param(line(2, 0), 1.0, id="a falling line"),
        pytest.param(line(2, 2), 0.0, id="a level line"),
        pytest.param(equal_diracs(0, 2, 1, 1, 3), 1 / 4, id="one fall of four"),
        pytest.param(equal_diracs(0, 1, float("nan"), 3, 4), 1 / 2, id="what is not a number does not rise"),
        pytest.param(
            Diracs(torch.tensor([0.9, 0.1, 0.5]), torch.tensor([[3.0, 1.0, 2.0]]), torch.full((3,), 1 / 3)),
            0.0,
            id="in the order of the fractions, not of storage",
        ),
        pytest.param(
            Diracs(torch.tensor([0.9, 0.1, 0.5]), torch.tensor([[1.0, 2.0, 3.0]]), torch.full((3,), 1 / 3)),
            1 / 2,
            id="falls in the order of the fractions",
        ),
        pytest.param(THREE_ATOMS, 0.0, id="atoms cannot cross"),
        pytest.param(Point(torch.tensor([7.0])), 0.0, id="a point cannot cross"),
    ],
)
def test_crossing(distribution: Distribution, expected: float) -> None:
    assert distribution.crossing().tolist() == [expected]


@pytest.mark.parametrize(
    ("distribution", "expected"),
    [
        (CURVE, [-1.0, 1.0, 4.0]),
        (
            Diracs(torch.tensor([0.9, 0.1, 0.5]), torch.tensor([[3.0, 1.0, 2.0]]), torch.full((3,), 1 / 3)),
            [1.0, 2.0, 3.0],
        ),
        (THREE_ATOMS, [0.0, 1.0, 5.0]),
        (Point(torch.tensor([7.0])), [7.0]),
    ],
    ids=["lines", "diracs", "categorical", "point"],
)
def test_curve_holds_the_estimates_in_the_order_of_their_fractions(
    distribution: Distribution, expected: list[float]
) -> None:
    assert distribution.curve().tolist() == [expected]


def test_take_picks_the_column_of_each_row() -> None:
    values = torch.arange(12.0).reshape(3, 2, 2)
    taken = PiecewiseLinear(torch.tensor([0.25, 0.75]), values).take(torch.tensor([1, 0, 1]))
    assert taken.curve().tolist() == [[2.0, 3.0], [4.0, 5.0], [10.0, 11.0]]


def test_a_coin_becomes_the_bellman_target_of_a_coin() -> None:
    target = COIN.affine(torch.tensor([0.5]), torch.tensor([3.0]))
    assert target.curve().tolist() == [[2.5, 3.5]]


def test_the_support_of_the_paper_has_32_points() -> None:
    support = uniform_support(32)
    assert len(support) == 32
    assert (support[0], support[-1]) == (0.001, 0.999)
    assert support[1:-1] == tuple(i / 31 for i in range(1, 31))
    assert all(before < after for before, after in pairwise(support))
    assert (torch.tensor(support).diff() > 0).all()


@pytest.mark.parametrize("count", [2, 3, 32, 1000])
def test_a_support_of_any_allowed_size_increases_strictly_in_single_precision(count: int) -> None:
    support = torch.tensor(uniform_support(count))
    assert len(support) == count
    assert (support.diff() > 0).all()


def test_one_fraction_and_a_list_of_them_need_no_tensor() -> None:
    curves = PiecewiseLinear(torch.tensor([0.25, 0.75]), torch.tensor([[1.0, 3.0], [0.0, 8.0], [2.0, 2.0]]))
    assert curves.quantile(0.5).tolist() == [2.0, 4.0, 2.0]
    assert curves.quantile(torch.tensor(0.5)).tolist() == [2.0, 4.0, 2.0]
    assert curves.quantile([0.25, 0.5]).tolist() == [[1.0, 2.0], [0.0, 4.0], [2.0, 2.0]]


@pytest.mark.parametrize("taus", [1.5, -0.1, [0.5, 2.0], float("nan")])
def test_fractions_outside_0_and_1_are_refused(taus):
    view = PiecewiseLinear(torch.tensor([0.25, 0.75]), torch.tensor([[1.0, 3.0]]))
    with pytest.raises(ConfigError, match=r"taus is .*, but fractions must be from 0 to 1"):
        view.quantile(taus)
