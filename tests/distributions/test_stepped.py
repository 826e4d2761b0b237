"""Curves given by an anchor and steps, against the same curves summed up knot by knot."""

import pytest
import torch

from monotau.distributions import PiecewiseLinear, Stepped, Support

KNOTS = torch.tensor([0.02, 0.3, 0.45, 0.55, 0.8], dtype=torch.float64)
BATCH, M = (3, 2), 7
ANCHORS = pytest.mark.parametrize("anchor", ["mean", "median", "lowest"])
SHARED = pytest.mark.parametrize("shared", [True, False])


def given(seed: int, *, shared: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Knots, anchors and steps."""
    generator = torch.Generator().manual_seed(seed)
    knots = KNOTS if shared else KNOTS - 0.015 * torch.rand(*BATCH, 1, generator=generator).double()
    anchors = torch.randn(*BATCH, generator=generator).double().requires_grad_()
    steps = torch.rand(*BATCH, len(KNOTS) - 1, generator=generator).double().requires_grad_()
    return knots, anchors, steps


def naive(anchor: str, knots: torch.Tensor, anchors: torch.Tensor, steps: torch.Tensor) -> PiecewiseLinear:
    """Sum up the steps from zero, then move the curve until its mean, its median or its lowest point is the anchor."""
    rises = torch.cat([torch.zeros_like(steps[..., :1]), steps], dim=-1).cumsum(dim=-1)
    shape = PiecewiseLinear(knots, rises)
    place = {"mean": shape.mean(), "median": shape.quantile(torch.tensor([0.5]).double())[..., 0], "lowest": 0.0}
    return PiecewiseLinear(knots, rises + (anchors - place[anchor])[..., None])


def close(one, other) -> None:
    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@ANCHORS
@SHARED
def test_steps_make_the_same_curve_as_their_sums_and_the_same_gradients(anchor, shared):
    knots, anchors, steps = given(0, shared=shared)
    curve, expected = Stepped(Support.of(knots, anchor), anchors, steps), naive(anchor, knots, anchors, steps)
    taus = torch.rand(*BATCH, M, generator=torch.Generator().manual_seed(1)).double()
    pairs = {
        "values": (curve.values, expected.values),
        "quantile": (curve.quantile(taus), expected.quantile(taus)),
        "ramp_quantile": (curve.ramp_quantile(taus), expected.quantile(taus)),
        "mean": (curve.mean(), expected.mean()),
        "magnitude": (curve.magnitude(), expected.magnitude()),
    }
    for mine, theirs in pairs.values():
        close(mine, theirs)
        flowing = torch.randn(mine.shape, generator=torch.Generator().manual_seed(2)).double()
        gradients = (
            torch.autograd.grad(each, (anchors, steps), flowing, retain_graph=True, materialize_grads=True)
            for each in (mine, theirs)
        )
        close(*gradients)


@ANCHORS
@SHARED
def test_moved_scaled_and_taken_steps_are_those_of_the_sums(anchor, shared):
    knots, anchors, steps = given(3, shared=shared)
    curve, expected = Stepped(Support.of(knots, anchor), anchors, steps), naive(anchor, knots, anchors, steps)
    scale, shift = torch.rand(BATCH).double(), torch.randn(BATCH).double()
    close(curve.affine(scale, shift).values, expected.affine(scale, shift).values)
    close(curve.take(torch.tensor([1, 0, 1])).values, expected.take(torch.tensor([1, 0, 1])).values)
    close(curve.rows(1, 3).values, expected.rows(1, 3).values)


@ANCHORS
@SHARED
def test_distances_on_the_same_knots_and_on_others_are_those_of_the_sums(anchor, shared):
    one, two = given(4, shared=shared), given(5, shared=shared)
    for knots in (one[0], two[0] - 0.001):
        mine = Stepped(Support.of(one[0], anchor), *one[1:]), Stepped(Support.of(knots, anchor), *two[1:])
        theirs = naive(anchor, *one), naive(anchor, knots, *two[1:])
        close(mine[0].w1(mine[1]), theirs[0].w1(theirs[1]))
