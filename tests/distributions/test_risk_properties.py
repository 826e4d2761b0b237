"""What must hold for every risk measure: its bounds and limits, in float32 too, and its gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

from monotau.distributions import RISKS, Categorical, Diracs, Distribution, PiecewiseLinear, Point, Risk
from tests.distributions.test_properties import distributions
from tests.distributions.test_risk import every_layout, every_measure
from tests.support.naive_distributions import BATCH, make

MANY = settings(deadline=None, max_examples=150)


@st.composite
def measures(draw: st.DrawFn) -> Risk:
    kind = draw(st.sampled_from(list(RISKS)))
    if kind == "mean":
        return Risk()
    return Risk(kind, draw(st.floats(1e-3, 1))) if "cvar" in kind else Risk(kind, eta=draw(st.floats(-6, 6)))


def rising(one: Distribution) -> Distribution:
    if isinstance(one, Diracs):
        return Diracs(one.taus.sort().values, one.values.sort().values, one.weights)
    return PiecewiseLinear(one.knots, one.values.sort().values) if isinstance(one, PiecewiseLinear) else one


@MANY
@given(one=distributions(), risk=measures())
def test_a_measure_lies_between_the_lowest_and_the_highest_quantile(one: Distribution, risk: Risk) -> None:
    low, high = one.curve().aminmax()
    assert low.item() - 1e-9 <= risk.of(one).item() <= high.item() + 1e-9


@MANY
@given(one=distributions(), risk=measures(), shift=st.floats(-10, 10), scale=st.floats(0, 4))
def test_a_measure_moves_and_scales_with_the_returns(one: Distribution, risk: Risk, shift: float, scale: float) -> None:
    moved = one.affine(torch.tensor([scale], dtype=torch.float64), torch.tensor([shift], dtype=torch.float64))
    assert risk.of(moved).item() == pytest.approx(shift + scale * risk.of(one).item(), abs=1e-9)


@MANY
@given(
    one=distributions().map(rising),
    alphas=st.tuples(*[st.floats(1e-3, 1)] * 2),
    etas=st.tuples(*[st.floats(-6, 6)] * 2),
)
def test_the_parameter_goes_from_avoiding_risk_over_the_mean_to_seeking_it(
    one: Distribution, alphas: tuple[float, float], etas: tuple[float, float]
) -> None:
    (little, much), (low, high), mean = sorted(alphas), sorted(etas), one.mean().item()
    worst, bad, good, best = (
        Risk(kind, alpha).of(one).item()
        for kind, alpha in (("cvar", little), ("cvar", much), ("upper-cvar", much), ("upper-cvar", little))
    )
    assert worst - 1e-9 <= bad <= mean + 1e-9
    assert mean - 1e-9 <= good <= best + 1e-9
    for kind in ("wang", "power"):
        below, above = (Risk(kind, eta=eta).of(one).item() for eta in (low, high))
        assert below <= above + 1e-9
        assert Risk(kind, eta=-abs(low)).of(one).item() - 1e-9 <= mean <= Risk(kind, eta=abs(low)).of(one).item() + 1e-9


@MANY
@given(one=distributions())
def test_risk_neutral_measures_are_the_mean(one: Distribution) -> None:
    neutral = [Risk(), Risk("cvar", 1.0), Risk("upper-cvar", 1.0), Risk("wang", eta=0.0), Risk("power", eta=-0.0)]
    for risk in neutral:
        assert risk.of(one).item() == pytest.approx(one.mean().item(), abs=1e-9)


@every_measure
@every_layout
def test_a_batch_entry_does_not_depend_on_the_others(layout: str, risk: Risk) -> None:
    distribution = make(layout, seed=33)
    together = risk.of(distribution)
    assert (together.shape, together.dtype) == (BATCH, torch.float64)
    for row in range(BATCH[0]):
        torch.testing.assert_close(risk.of(distribution.rows(row, row + 1))[0], together[row], rtol=0, atol=1e-15)


def in_float32(distribution: Distribution) -> Distribution:
    match distribution:
        case PiecewiseLinear(knots, values):
            return PiecewiseLinear(knots.float(), values.float())
        case Diracs(taus, values, weights):
            return Diracs(taus.float(), values.float(), weights.float())
        case Categorical(atoms, probs):
            return Categorical(atoms.float(), probs.float())
        case Point(value):
            return Point(value.float())
    raise TypeError(type(distribution))


@pytest.mark.parametrize("alpha", [1e-3, 1e-6, 1e-9])
@every_layout
def test_float32_keeps_the_mass_of_a_thin_tail(layout: str, alpha: float) -> None:
    """1 - 1e-9 is 1 in float32, and 1 - 1e-6 is wrong by three per cent of what is left: neither may be computed."""
    distribution = in_float32(make(layout, seed=34))  # whose ends are level
    ends = distribution.ordered().quantile(torch.tensor([2**-20, 1 - 2**-20])).unbind(-1)
    for kind, end in zip(("cvar", "upper-cvar"), ends, strict=True):
        torch.testing.assert_close(Risk(kind, alpha).of(distribution), end, rtol=1e-5, atol=0)


@every_measure
def test_float32_agrees_with_float64_on_the_narrowest_of_lines(risk: Risk) -> None:
    generator = torch.Generator().manual_seed(0)
    knots = torch.tensor([2**-10, *(0.5 + i * 2**-16 for i in range(9)), 1 - 2**-10], dtype=torch.float64)
    wide = PiecewiseLinear(knots, torch.randn(50, 11, generator=generator).double())
    found = risk.of(in_float32(wide))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), risk.of(wide), rtol=0, atol=2e-6)


WORST = [Risk("cvar", 1e-30), *(Risk(kind, eta=-eta) for kind in ("wang", "power") for eta in (1e3, 1e30, 1e300))]
BEST = [Risk("upper-cvar", 1e-30), *(Risk(kind, eta=eta) for kind in ("wang", "power") for eta in (1e3, 1e30, 1e300))]


@every_layout
def test_extreme_parameters_leave_the_two_ends_of_a_curve(layout: str) -> None:
    distribution = in_float32(make(layout, seed=35))
    taus = torch.tensor([1e-9, 1.0])
    if isinstance(distribution, Categorical):  # its last atoms may have no mass
        taus[1] = 1 - 2**-20
    first, last = distribution.ordered().quantile(taus).unbind(-1)
    for risk in WORST:
        torch.testing.assert_close(risk.of(distribution), first, rtol=1e-5, atol=1e-6)
    for risk in BEST:
        torch.testing.assert_close(risk.of(distribution), last, rtol=1e-5, atol=1e-6)


@every_measure
def test_measures_do_not_overflow_near_the_largest_float(risk: Risk) -> None:
    huge = 1.6e38 if risk.kind == "cvar" else 3.2e38  # cvar adds the two ends of a line
    values = torch.tensor([[-huge, -huge, huge, huge]])
    for one in (
        PiecewiseLinear(torch.tensor([0.001, 0.3, 0.6, 0.999]), values),
        Categorical(values[0], values * 0 + 0.25),
    ):
        assert abs(risk.of(one).item()) <= huge * 1.00001


@every_measure
def test_the_gradients_agree_with_finite_differences(risk: Risk) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(3, 2, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    knots = torch.tensor([0.1, 0.35, 0.6, 0.95], dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda knots, values: risk.of(PiecewiseLinear(knots, values)), (knots, values))
    logits = torch.randn(3, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    atoms = torch.tensor([-1.0, 0.0, 2.0, 3.0], dtype=torch.float64)
    assert gradcheck(lambda logits: risk.of(Categorical(atoms, logits.softmax(-1))), logits)


@every_measure
@pytest.mark.parametrize("empty", [0, 1, 2], ids=["first", "middle", "last"])
def test_an_atom_without_mass_does_not_spoil_the_gradient(empty: int, risk: Risk) -> None:
    logits = torch.zeros(1, 3)
    logits[0, empty] = -1e4
    logits.requires_grad_()
    probs = logits.softmax(-1)
    assert probs[0, empty] == 0
    (gradient,) = torch.autograd.grad(risk.of(Categorical(torch.tensor([-1.0, 0.0, 2.0]), probs)).sum(), logits)
    assert gradient.isfinite().all()
    if risk.eta is not None:  # a share may lie within one atom
        assert (gradient != 0).any()
