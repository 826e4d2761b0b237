"""The quantile Huber loss against its naive twin, its scale, its gradient and its fixed point."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from monotau.losses import huber, quantile_huber

KAPPAS = (0.1, 0.5, 1.0, 2.0, 7.0)


def naive_huber(error: float, kappa: float) -> float:
    return 0.5 * error**2 if abs(error) <= kappa else kappa * (abs(error) - 0.5 * kappa)


def naive_quantile_huber(values: list[float], taus: list[float], targets: list[float], kappa: float) -> float:
    total = 0.0
    for value, tau in zip(values, taus, strict=True):
        for target in targets:
            error = target - value
            total += abs(tau - (error < 0)) * naive_huber(error, kappa) / kappa / len(targets)
    return total


def batch(seed: int, online: int = 5, target: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """Return values `[4, N]`, taus `[4, N]` and targets `[4, M]` in float64, with errors on both sides of 1."""
    generator = torch.Generator().manual_seed(seed)
    values = 2 * torch.randn(4, online, generator=generator, dtype=torch.float64)
    taus = torch.rand(4, online, generator=generator, dtype=torch.float64)
    return values, taus, 2 * torch.randn(4, target, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("kappa", KAPPAS)
@pytest.mark.parametrize(("online", "target"), [(5, 3), (3, 5), (1, 4), (4, 1)])
def test_quantile_huber_agrees_with_its_naive_twin(online: int, target: int, kappa: float) -> None:
    values, taus, targets = batch(0, online, target)
    expected = [
        naive_quantile_huber(*row, kappa) for row in zip(values.tolist(), taus.tolist(), targets.tolist(), strict=True)
    ]
    assert quantile_huber(values, taus, targets, kappa).tolist() == pytest.approx(expected, rel=1e-12)


numbers = st.floats(-100, 100, width=32)


@settings(deadline=None, max_examples=150)
@given(
    online=st.lists(st.tuples(numbers, st.floats(0, 1, width=32)), min_size=1, max_size=6),
    targets=st.lists(numbers, min_size=1, max_size=6),
    kappa=st.floats(0.01, 50),
)
def test_quantile_huber_agrees_with_its_naive_twin_on_any_numbers(
    online: list[tuple[float, float]], targets: list[float], kappa: float
) -> None:
    values, taus = ([pair[i] for pair in online] for i in (0, 1))
    tensors = (torch.tensor([numbers], dtype=torch.float64) for numbers in (values, taus, targets))
    expected = naive_quantile_huber(values, taus, targets, kappa)
    assert quantile_huber(*tensors, kappa).tolist() == pytest.approx([expected], rel=1e-9)


def test_quantile_huber_worked_by_hand() -> None:
    # Value 0 at tau 1/4: target 1/2 costs 1/4 * 1/8, target -3 costs 3/4 * 5/2; the mean of both is 61/64.
    # Value 1 at tau 1/2: target 1/2 costs 1/2 * 1/8, target -3 costs 1/2 * 7/2; the mean of both is 58/64.
    loss = quantile_huber(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.25, 0.5]]), torch.tensor([[0.5, -3.0]]))
    assert loss.tolist() == [61 / 64 + 58 / 64]


def test_kappa_is_one_unless_given() -> None:
    values, taus, targets = batch(1)
    assert torch.equal(quantile_huber(values, taus, targets), quantile_huber(values, taus, targets, 1.0))
    assert not torch.equal(quantile_huber(values, taus, targets), quantile_huber(values, taus, targets, 2.0))


def test_repeating_the_targets_leaves_the_loss_unchanged() -> None:
    values, taus, targets = batch(2)
    twice = quantile_huber(values, taus, torch.cat([targets, targets], dim=1))
    torch.testing.assert_close(twice, quantile_huber(values, taus, targets), rtol=1e-12, atol=0)


def test_repeating_the_online_fractions_doubles_the_loss() -> None:
    values, taus, targets = batch(3)
    twice = quantile_huber(torch.cat([values, values], dim=1), torch.cat([taus, taus], dim=1), targets)
    torch.testing.assert_close(twice, 2 * quantile_huber(values, taus, targets), rtol=1e-12, atol=0)


def test_each_transition_has_its_own_loss() -> None:
    values, taus, targets = batch(4)
    alone = [quantile_huber(values[i : i + 1], taus[i : i + 1], targets[i : i + 1]) for i in range(4)]
    torch.testing.assert_close(quantile_huber(values, taus, targets), torch.cat(alone), rtol=1e-12, atol=0)


@pytest.mark.parametrize("kappa", KAPPAS)
def test_huber_is_quadratic_up_to_kappa_and_linear_beyond(kappa: float) -> None:
    errors = [factor * kappa for factor in (-3, -1.001, -1, -0.999, -0.5, 0, 0.5, 0.999, 1, 1.001, 3)]
    found = huber(torch.tensor(errors, dtype=torch.float64), kappa).tolist()
    assert found == pytest.approx([naive_huber(error, kappa) for error in errors], rel=1e-12)


@pytest.mark.parametrize("kappa", KAPPAS)
def test_the_slope_of_huber_grows_to_kappa_and_stays_there(kappa: float) -> None:
    factors = [-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0]
    errors = (kappa * torch.tensor(factors, dtype=torch.float64)).requires_grad_()
    (slopes,) = torch.autograd.grad(huber(errors, kappa).sum(), errors)
    assert slopes.tolist() == pytest.approx([kappa * min(max(factor, -1), 1) for factor in factors], rel=1e-12)


def test_huber_of_huge_errors_stays_finite() -> None:
    errors = torch.tensor([-1e30, 1e30], requires_grad=True)
    sizes = huber(errors, 1.0)
    (slopes,) = torch.autograd.grad(sizes.sum(), errors)
    assert sizes.tolist() == pytest.approx([1e30, 1e30])
    assert slopes.tolist() == [-1.0, 1.0]


@pytest.mark.parametrize("kappa", KAPPAS)
def test_the_gradient_into_the_values_is_the_weighted_clipped_error(kappa: float) -> None:
    values, taus, targets = batch(5)
    values.requires_grad_()
    (gradient,) = torch.autograd.grad(quantile_huber(values, taus, targets, kappa).sum(), values)
    for row in range(4):
        for i in range(5):
            expected = 0.0
            for target in targets[row].tolist():
                error = target - values[row, i].item()
                clipped = min(max(error, -kappa), kappa) / kappa
                expected -= abs(taus[row, i].item() - (error < 0)) * clipped / 3
            assert gradient[row, i].item() == pytest.approx(expected, rel=1e-12)


def test_no_gradient_flows_into_the_targets() -> None:
    values, taus, targets = batch(6)
    values.requires_grad_()
    targets.requires_grad_()
    into_values, into_targets = torch.autograd.grad(
        quantile_huber(values, taus, targets).sum(), (values, targets), allow_unused=True
    )
    assert (into_values != 0).any()
    assert into_targets is None


def test_the_loss_is_zero_only_where_value_and_targets_meet() -> None:
    taus = torch.tensor([[0.2, 0.9]])
    met, missed = torch.full((1, 2), 3.0), torch.tensor([[3.0, 3.5]])
    assert quantile_huber(met, taus, torch.full((1, 4), 3.0)).tolist() == [0.0]
    assert quantile_huber(missed, taus, torch.full((1, 4), 3.0)).item() == pytest.approx(0.1 * 0.125)


def minimiser(taus: Tensor, targets: Tensor, kappa: float) -> Tensor:
    """Return for each fraction the value of least loss, by ternary search: the loss is convex."""
    low, high = torch.full_like(taus, -3), torch.full_like(taus, 3)

    def loss(values: Tensor) -> Tensor:
        return quantile_huber(values[:, None], taus[:, None], targets.expand(len(taus), -1), kappa)

    for _ in range(100):
        first, second = low + (high - low) / 3, high - (high - low) / 3
        rising = loss(first) < loss(second)
        low, high = torch.where(rising, low, first), torch.where(rising, second, high)
    return (low + high) / 2


COIN = torch.tensor([-1.0, 1.0], dtype=torch.float64)
COIN_TAUS = torch.tensor([0.001, 0.1, 0.25, 0.4, 0.499, 0.5, 0.501, 0.6, 0.75, 0.9, 0.999], dtype=torch.float64)


def coin_fixed_points(kappa: float) -> list[float]:
    return [-1 + kappa * tau / (1 - tau) if tau < 0.5 else 1 - kappa * (1 - tau) / tau for tau in COIN_TAUS.tolist()]


def test_the_fixed_point_of_a_coin_is_biased_towards_its_middle() -> None:
    assert minimiser(COIN_TAUS, COIN, 1.0).tolist() == pytest.approx(coin_fixed_points(1.0), abs=1e-6)


def test_the_gradient_vanishes_at_the_fixed_points_of_a_coin() -> None:
    values = torch.tensor(coin_fixed_points(1.0), dtype=torch.float64)[:, None].requires_grad_()
    loss = quantile_huber(values, COIN_TAUS[:, None], COIN.expand(len(COIN_TAUS), -1))
    (gradient,) = torch.autograd.grad(loss.sum(), values)
    assert gradient[:, 0].tolist() == pytest.approx([0.0] * len(COIN_TAUS), abs=1e-12)


def test_the_bias_shrinks_with_kappa() -> None:
    off_the_median = COIN_TAUS != 0.5  # there every value between the sides is as good
    found = minimiser(COIN_TAUS, COIN, 0.25)[off_the_median].tolist()
    expected = torch.tensor(coin_fixed_points(0.25), dtype=torch.float64)[off_the_median].tolist()
    assert found == pytest.approx(expected, abs=1e-6)


def test_the_fractions_get_no_gradient():
    values, taus = torch.zeros(1, 1, requires_grad=True), torch.full((1, 1), 0.3, requires_grad=True)
    quantile_huber(values, taus, torch.full((1, 1), 2.0)).sum().backward()
    assert taus.grad is None
    assert values.grad is not None
