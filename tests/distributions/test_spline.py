"""Splines as quantile functions: against the published formula one fraction at a time, and against fine sums."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck

from monotau.distributions import PiecewiseLinear, Point, Spline
from monotau.distributions.spline import bump, climb, climb_rate, mean_climb

BATCH, KNOTS, M = (3, 2), 6, 7
FINE = (torch.arange(100_000, dtype=torch.float64) + 0.5) / 100_000


def rungs(seed: int, *shape: int) -> torch.Tensor:
    """Return points that increase from 0 to 1, with gaps of very different sizes."""
    gaps = torch.rand(*shape[:-1], shape[-1] - 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    inner = (gaps**2 + 0.01).cumsum(dim=-1)
    return torch.cat([torch.zeros_like(inner[..., :1]), inner / inner[..., -1:]], dim=-1)


def make(seed: int, batch: tuple[int, ...] = BATCH, knots: int = KNOTS) -> Spline:
    generator = torch.Generator().manual_seed(seed)
    slopes = (2 * torch.randn(*batch, knots, generator=generator, dtype=torch.float64)).exp()
    lowest, spread = torch.rand(2, *batch, generator=generator, dtype=torch.float64)
    parts = rungs(seed + 100, *batch, knots), rungs(seed + 200, *batch, knots), slopes
    return Spline(*parts, 10 * lowest - 5, 4 * spread + 1)


def naive_climb(x: float, s: float, a: float, b: float) -> float:
    """Durkan et al., Eq. 4, as printed."""
    return (s * x**2 + a * x * (1 - x)) / (s + (a + b - 2 * s) * x * (1 - x))


def naive_quantile(spline: Spline, index: tuple[int, ...], tau: float) -> float:
    knots, heights, slopes = (part[index].tolist() for part in (spline.knots, spline.heights, spline.slopes))
    for i in range(len(knots) - 1):
        if tau <= knots[i + 1]:
            width, rise = knots[i + 1] - knots[i], heights[i + 1] - heights[i]
            height = heights[i] + rise * naive_climb((tau - knots[i]) / width, rise / width, slopes[i], slopes[i + 1])
            return spline.lowest[index].item() + spline.spread[index].item() * height
    raise AssertionError(tau)


def test_quantiles_are_those_of_the_published_formula():
    spline = make(0)
    taus = torch.rand(*BATCH, M, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = spline.quantile(taus)
    for row in range(BATCH[0]):
        for column in range(BATCH[1]):
            for m in range(M):
                expected = naive_quantile(spline, (row, column), taus[row, column, m].item())
                assert found[row, column, m].item() == pytest.approx(expected, rel=1e-12)


def test_the_spline_passes_through_its_knots_and_has_its_slopes_there():
    spline = make(2)
    torch.testing.assert_close(spline.quantile(spline.knots), spline.curve(), rtol=0, atol=1e-12)
    step = 1e-7
    inner = spline.knots[..., 1:-1]
    steepness = (spline.quantile(inner + step) - spline.quantile(inner - step)) / (2 * step)
    expected = spline.spread[..., None] * spline.slopes[..., 1:-1]
    torch.testing.assert_close(steepness, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("steepness", "before", "after"), [(0.5, 3.0, 0.2), (2.0, 0.1, 0.3), (1.0, 1.0, 1.0)])
def test_the_rate_of_a_bin_is_the_derivative_of_its_climb(steepness, before, after):
    parts = [torch.tensor([number], dtype=torch.float64) for number in (steepness, before, after)]
    place = torch.linspace(0.05, 0.95, 19, dtype=torch.float64).requires_grad_()
    (slope,) = torch.autograd.grad(climb(place, *parts).sum(), place)
    torch.testing.assert_close(steepness * slope, climb_rate(place.detach(), *parts))


def test_the_mean_of_a_bin_worked_by_hand():
    """With slopes 3/2 and 1/2 around a chord of 1, Eq. 4 is the polynomial 1.5 x - 0.5 x^2, whose integral is 7/12."""
    one, before, after = torch.tensor([1.0, 1.5, 0.5]).double()
    assert mean_climb(one, before, after).item() == pytest.approx(7 / 12)
    assert mean_climb(one, after, before).item() == pytest.approx(5 / 12)


def test_bump_is_its_integral_on_both_sides_of_the_series():
    k = torch.tensor([-2, -1.5, -0.2501, -0.2499, -1e-9, 0, 1e-9, 0.2499, 0.2501, 1, 30, 1e4], dtype=torch.float64)
    u = FINE * (1 - FINE)
    expected = torch.stack([(u / (1 + one * u)).mean() for one in k])
    torch.testing.assert_close(bump(k), expected, rtol=1e-7, atol=0)
    torch.testing.assert_close(bump(k.float()).double(), expected, rtol=5e-6, atol=0)
    assert bump(torch.zeros(1)).item() == pytest.approx(1 / 6)


def test_the_mean_is_the_integral_of_the_quantile_function():
    spline = make(3)
    torch.testing.assert_close(spline.mean(), spline.quantile(FINE).mean(dim=-1), rtol=1e-7, atol=1e-6)


def test_other_integrals_are_those_of_the_curve_up_to_the_error_of_its_chords():
    one, two = make(4), make(5)
    size = (one.spread + two.spread)[..., None]
    fine, other = one.quantile(FINE), two.quantile(FINE)
    lines = PiecewiseLinear(torch.tensor([0.1, 0.4, 0.95]).double(), torch.randn(*BATCH, 3).double())
    point = Point(torch.zeros(BATCH).double())
    upper = fine[..., 50_000:] - one.quantile(0.5)[..., None]
    pairs = [
        (one.w1(two), (fine - other).abs().mean(dim=-1)),
        (one.w1(lines), (fine - lines.quantile(FINE)).abs().mean(dim=-1)),
        (one.w1(point), fine.abs().mean(dim=-1)),
        (one.magnitude(), fine.abs().mean(dim=-1)),
        (one.cvar(0.3), fine[..., :30_000].mean(dim=-1)),
        (one.cvar(1.0), one.mean()),
        (one.upper_variance().sqrt(), (upper.square().sum(dim=-1) / 100_000).sqrt()),
    ]
    for found, expected in pairs:
        assert ((found - expected).abs() < 5e-3 * size[..., 0]).all()
    torch.testing.assert_close(one.w1(one), torch.zeros(BATCH).double())
    assert one.crossing().tolist() == torch.zeros(BATCH).tolist()


def fractions_beside(knots: torch.Tensor) -> torch.Tensor:
    """Return 10,001 even fractions, and knots with their neighbours in floating point."""
    beside = [torch.nextafter(knots, torch.tensor(side)) for side in (-1.0, 2.0)]
    return torch.cat([torch.linspace(0, 1, 10_001), knots, *beside]).clamp(0, 1).sort().values


sizes = st.builds(lambda digits, exponent: digits * 10.0**exponent, st.floats(1, 9), st.integers(-4, 4))


@settings(deadline=None, max_examples=60)
@given(
    widths=st.lists(sizes, min_size=4, max_size=4),
    rises=st.lists(sizes, min_size=4, max_size=4),
    slopes=st.lists(sizes, min_size=5, max_size=5),
    lowest=st.floats(-1e4, 1e4, width=32),
    spread=st.one_of(st.just(0.0), sizes),
)
def test_quantiles_never_decrease_in_floating_point(widths, rises, slopes, lowest, spread):
    rungs = (torch.tensor([0.0, *gaps]).cumsum(0) for gaps in (widths, rises))
    knots, heights = (sums / sums[-1] for sums in rungs)
    spline = Spline(knots[None], heights[None], torch.tensor([slopes]), torch.tensor([lowest]), torch.tensor([spread]))
    taus = fractions_beside(knots)
    quantiles = spline.quantile(taus)
    assert quantiles.isfinite().all()
    assert int((quantiles.diff(dim=-1) < 0).sum()) == 0
    ends = spline.curve()[:, [0, -1]]
    assert (ends[:, :1] <= quantiles).all()
    assert (quantiles <= ends[:, 1:]).all()
    assert torch.equal(spline.quantile(taus[::37]), quantiles[:, ::37])  # other fractions change nothing
    slack = 1e-5 * (abs(lowest) + spread) + 1e-3 * spread
    assert spline.mean().item() == pytest.approx(
        torch.trapezoid(quantiles[0].double(), taus.double()).item(), abs=slack
    )


def test_an_affine_map_moves_every_quantile():
    spline, taus = make(6), torch.linspace(0, 1, 13).double()
    scale, shift = torch.rand(2, *BATCH, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    moved = spline.affine(scale, shift)
    torch.testing.assert_close(moved.quantile(taus), shift[..., None] + scale[..., None] * spline.quantile(taus))
    torch.testing.assert_close(moved.mean(), shift + scale * spline.mean())
    certain = spline.affine(torch.zeros(BATCH).double(), shift)  # after a termination
    assert torch.equal(certain.quantile(taus), shift[..., None].expand(*BATCH, 13))
    assert torch.equal(certain.mean(), shift)


def test_actions_and_rows_are_selected():
    spline, taus = make(7), torch.linspace(0, 1, 5).double()
    taken = spline.take(torch.tensor([1, 0, 1]))
    assert taken.batch_shape == (3,)
    assert torch.equal(taken.quantile(taus), spline.quantile(taus)[[0, 1, 2], [1, 0, 1]])
    assert torch.equal(spline.rows(1, 3).mean(), spline.mean()[1:])


def test_the_average_over_actions_is_exact_at_its_knots_and_close_between_them():
    spline, weights = make(8), torch.tensor([[0.25, 0.75], [0.5, 0.5], [0.9, 0.1]]).double()
    average = spline.average(weights)
    knots = (weights[..., None] * spline.knots).sum(dim=1)
    torch.testing.assert_close(average.knots, knots)
    there = spline.quantile(knots[:, None, :].expand(*BATCH, KNOTS))
    torch.testing.assert_close(average.curve(), (weights[..., None] * there).sum(dim=1), rtol=0, atol=1e-9)
    inner = knots[:, 1:-1]
    step = 1e-7
    slopes = (average.quantile(inner + step) - average.quantile(inner - step)) / (2 * step)
    taus = inner[:, None, :].expand(*BATCH, KNOTS - 2)
    exact = ((spline.quantile(taus + step) - spline.quantile(taus - step)) / (2 * step) * weights[..., None]).sum(dim=1)
    torch.testing.assert_close(slopes, exact, rtol=1e-3, atol=1e-3)
    off = (average.mean() - (weights * spline.mean()).sum(dim=1)).abs() / spline.spread.amax(dim=1)
    assert (off < 0.05).all()


def test_a_certain_action_is_its_own_average():
    spline, taus = make(9), torch.linspace(0, 1, 101).double()
    average = spline.average(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]).double())
    torch.testing.assert_close(average.quantile(taus), spline.take(torch.tensor([0, 1, 0])).quantile(taus))


def test_the_gradients_of_quantiles_and_mean_agree_with_finite_differences():
    spline = make(10, (2,), 4)
    parts = [
        part.clone().requires_grad_()
        for part in (spline.knots, spline.heights, spline.slopes, spline.lowest, spline.spread)
    ]
    taus = torch.tensor([0.013, 0.21, 0.5, 0.77, 0.99]).double()
    assert gradcheck(lambda *parts: Spline(*parts).quantile(taus), parts)
    assert gradcheck(lambda *parts: Spline(*parts).mean(), parts)


def test_the_gradient_is_finite_at_the_ends_and_at_the_knots():
    parts = [part.float().requires_grad_() for part in vars(make(11, (2,), 4)).values()]
    spline = Spline(*parts)
    taus = torch.cat([torch.tensor([0.0, 1.0]), spline.knots[0].detach()])
    (spline.quantile(taus).sum() + spline.mean().sum()).backward()
    assert all(part.grad.isfinite().all() for part in parts)
    assert math.isfinite(spline.quantile(taus).sum().item())
