"""Curves whose mean is known beforehand: it is carried along, and all else comes from the curve."""

from fractions import Fraction

import pytest
import torch
from naive_twins import BATCH, for_each_entry, make, naive_integral, naive_upper_variance, naive_w1, twin

from monotau.distributions import PiecewiseLinear

LINES = pytest.mark.parametrize("layout", ["lines", "lines with batched knots"])


def centred(layout: str, seed: int) -> PiecewiseLinear:
    """A curve that is told its mean."""
    plain = make(layout, seed)
    assert isinstance(plain, PiecewiseLinear)
    return PiecewiseLinear(plain.knots, plain.values, plain.mean())


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-13)


def test_the_mean_is_the_number_told_not_another_sum():
    told = PiecewiseLinear(torch.tensor([0.25, 0.75]), torch.tensor([[1.0, 2.0]]), torch.tensor([1.5000001]))
    assert told.mean().tolist() == told.centre.tolist()
    assert told.centre is told.mean()


@LINES
def test_distances_shares_and_variances_are_those_of_the_curve(layout):
    one, two = centred(layout, 1), centred("lines", 2)
    close(one.mean(), for_each_entry(lambda index: naive_integral(twin(one, index))))
    close(one.w1(two), for_each_entry(lambda index: naive_w1(twin(one, index), twin(two, index))))
    close(one.upper_variance(), for_each_entry(lambda index: naive_upper_variance(twin(one, index))))
    for alpha in (0.1, 0.25, 0.9):
        share, ordered = Fraction(alpha), make(layout, 1).ordered()
        expected = for_each_entry(lambda index, o=ordered, s=share: naive_integral(twin(o, index), stop=s) / s)
        close(one.cvar(alpha), expected)


@LINES
def test_the_centre_is_carried_along(layout):
    """A centre that the curve does not have tells a carried number from one worked out anew."""
    curve = make(layout, 3)
    told = PiecewiseLinear(curve.knots, curve.values, torch.arange(6.0, dtype=torch.float64).reshape(BATCH))
    scale, shift = torch.full(BATCH, 0.5).double(), torch.full(BATCH, 10.0).double()
    assert told.affine(scale, shift).mean().tolist() == [[10.0, 10.5], [11.0, 11.5], [12.0, 12.5]]
    assert told.take(torch.tensor([1, 0, 1])).mean().tolist() == [1.0, 2.0, 5.0]
    assert told.rows(1, 3).mean().tolist() == [[2.0, 3.0], [4.0, 5.0]]
    assert told.map(lambda tensor: tensor[2]).mean().tolist() == [4.0, 5.0]
    for unknown in (curve.affine(scale, shift), curve.rows(1, 3), curve.map(lambda tensor: tensor[2])):
        assert unknown.centre is None
