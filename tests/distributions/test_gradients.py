"""Gradients of the closed forms, against finite differences and by hand."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck

from monotau.distributions import PiecewiseLinear, Point, uniform_support

KNOTS = torch.tensor([0.1, 0.35, 0.6, 0.95], dtype=torch.float64)
TAUS = torch.tensor([0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.6, 0.61, 0.94, 0.95, 0.99, 1.0], dtype=torch.float64)
BETWEEN_KNOTS = torch.tensor([0.05, 0.2, 0.5, 0.61, 0.94, 0.99], dtype=torch.float64)


def curves(seed: int) -> Tensor:
    """Return values `[3, 2, 4]` of rising curves that want a gradient."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(3, 2, 4, generator=generator, dtype=torch.float64).sort(-1).values.requires_grad_()


def test_the_gradient_of_quantiles_agrees_with_finite_differences() -> None:
    assert gradcheck(lambda values: PiecewiseLinear(KNOTS, values).quantile(TAUS), curves(0))


def test_the_gradient_of_the_mean_agrees_with_finite_differences() -> None:
    assert gradcheck(lambda values: PiecewiseLinear(KNOTS, values).mean(), curves(1))


@pytest.mark.parametrize("shape", [(4,), (3, 2, 4)], ids=["shared", "batched"])
def test_the_gradient_into_the_knots_agrees_with_finite_differences(shape: tuple[int, ...]) -> None:
    knots = KNOTS.expand(shape).clone().requires_grad_()
    assert gradcheck(lambda knots, values: PiecewiseLinear(knots, values).mean(), (knots, curves(2)))
    assert gradcheck(lambda knots, values: PiecewiseLinear(knots, values).quantile(BETWEEN_KNOTS), (knots, curves(3)))


def test_the_gradients_of_w1_cvar_and_upper_variance_agree_with_finite_differences() -> None:
    zero = Point(torch.zeros(3, 2, dtype=torch.float64))
    for measure in (
        lambda curve: curve.w1(zero),
        lambda curve: curve.w1(PiecewiseLinear(KNOTS, curves(9).detach())),
        lambda curve: curve.cvar(0.3),
        lambda curve: curve.upper_variance(),
    ):
        assert gradcheck(lambda values, measure=measure: measure(PiecewiseLinear(KNOTS, values)), curves(4))


def test_the_gradient_of_w1_at_distance_zero_is_zero_and_not_nan() -> None:
    values = curves(5)
    for same in (PiecewiseLinear(KNOTS, values.detach()), PiecewiseLinear(KNOTS.expand(3, 2, 4), values.detach())):
        (gradient,) = torch.autograd.grad(PiecewiseLinear(KNOTS, values).w1(same).sum(), values)
        assert torch.equal(gradient, torch.zeros_like(gradient))


@settings(deadline=None, max_examples=100)
@given(
    segment=st.integers(0, 30),
    share=st.floats(0, 1),
    alive=st.lists(st.sampled_from([0.0, 0.0, 1e-30, 0.5]), min_size=31, max_size=31),
)
def test_a_dead_increment_still_passes_its_share_of_the_gradient(
    segment: int, share: float, alive: list[float]
) -> None:
    knots = torch.tensor(uniform_support(32))
    alive[segment] = 0.0
    values = torch.tensor([[-1.0, *alive]]).cumsum(-1).requires_grad_()
    low, high = list(pairwise(uniform_support(32)))[segment]
    tau = torch.tensor([low + share * (high - low)]).clamp(knots[segment], knots[segment + 1])
    (gradient,) = torch.autograd.grad(PiecewiseLinear(knots, values).quantile(tau).sum(), values)
    weight = ((tau.double() - knots[segment].double()) / (knots[segment + 1].double() - knots[segment].double())).item()
    expected = [0.0] * 32
    expected[segment], expected[segment + 1] = 1 - weight, weight
    assert gradient[0].tolist() == pytest.approx(expected, abs=1e-5)


def test_outside_the_support_the_end_gets_the_whole_gradient() -> None:
    values = torch.full((1, 32), 3.0, requires_grad=True)
    curve = PiecewiseLinear(torch.tensor(uniform_support(32)), values)
    for tau, end in ((0.0, 0), (0.0005, 0), (0.9995, 31), (1.0, 31)):
        (gradient,) = torch.autograd.grad(curve.quantile(torch.tensor([tau])).sum(), values)
        assert gradient[0].nonzero().tolist() == [[end]]
        assert gradient[0, end].item() == pytest.approx(1.0)
