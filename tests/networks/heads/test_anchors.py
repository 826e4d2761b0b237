"""Curves made of an anchor and steps: the anchor, monotonicity, and how curves follow a moving target."""

import math
from itertools import product
from statistics import NormalDist

import pytest
import torch

from monotau.distributions import Stepped
from monotau.networks import Estimate, Role
from monotau.networks.heads.base import Head, draw_fractions
from monotau.networks.heads.implicit import FIRST_SPREAD, normal_steps, shares
from monotau.networks.heads.incremental_iqn import IncrementalIqn
from monotau.networks.heads.ndqfn import Ndqfn
from monotau.networks.heads.ndqfn_fqf import NdqfnFqf
from monotau.networks.layers import Layers

FEATURES, ACTIONS, BATCH = 6, 4, 5
SIZES = {"hidden": 9, "cosines": 5}
HEADS = {"ndqfn": Ndqfn, "ndqfn-fqf": NdqfnFqf, "incremental-iqn": IncrementalIqn}
SHAPES = [
    dict(zip(("anchor", "increment", "baseline"), names, strict=True))
    for names in product(("mean", "median", "lowest"), ("scaled", "relu", "softplus", "elu1"), ("relu", "sigmoid"))
]
EVERY_HEAD = pytest.mark.parametrize("name", HEADS)
EVERY_SHAPE = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(shape.values()))


def make(name: str, seed: int = 0, factor: float = 3.0, **settings) -> Head:
    """Return a head whose weights are multiplied by a factor, so that its actions differ."""
    torch.manual_seed(seed)
    head = HEADS[name](**(SIZES | settings)).build(FEATURES, ACTIONS, Layers())
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.mul_(factor)
    return head


def features(seed: int = 1) -> torch.Tensor:
    return torch.randn(BATCH, FEATURES, generator=torch.Generator().manual_seed(seed)).relu()


def view(head: Head, psi: torch.Tensor):
    return head(psi, head.fractions(Role.ACT, len(psi), None), head.constants())


def values(head: Head, psi: torch.Tensor) -> torch.Tensor:
    return head.values(psi, head.fractions(Role.ACT, len(psi), None), head.constants())


@torch.no_grad()
@EVERY_HEAD
@EVERY_SHAPE
def test_no_curve_falls_anywhere_whatever_the_weights(name, shape):
    taus = torch.linspace(0, 1, 10_001)
    for seed, factor in enumerate((0.1, 1.0, 10.0, 100.0)):
        head = make(name, seed, factor, **shape)
        curves = head.quantiles(features()[:2], taus, head.fractions(Role.ACT, 2, None), head.constants())
        assert curves.isfinite().all()
        assert int((curves.diff(dim=-1) < 0).sum()) == 0


@torch.no_grad()
@pytest.mark.parametrize("name", ["ndqfn", "ndqfn-fqf"])
@EVERY_SHAPE
def test_values_are_the_mean_of_the_distribution_bit_for_bit(name, shape):
    head = make(name, **shape)
    assert torch.equal(values(head, features()), view(head, features()).mean())


@torch.no_grad()
@EVERY_HEAD
@EVERY_SHAPE
def test_the_anchor_is_the_output_of_f(name, shape):
    head = make(name, **shape)
    anchors, distribution = head.curve.anchors(features()), view(head, features())
    assert anchors.std() > 0.1
    if shape["anchor"] == "mean":
        if isinstance(distribution, Stepped):
            assert torch.equal(distribution.mean(), anchors)
            distribution = distribution.lines()  # has to integrate
        torch.testing.assert_close(distribution.mean(), anchors, rtol=1e-5, atol=1e-5)
    elif shape["anchor"] == "median":
        torch.testing.assert_close(distribution.quantile(torch.tensor([0.5]))[..., 0], anchors, rtol=1e-5, atol=1e-5)
    elif isinstance(distribution, Stepped):
        assert torch.equal(distribution.values[..., 0], anchors)
    else:  # its lowest quantile is that of fraction 0, from which the first step leads to the first fraction
        assert (distribution.values[..., 0] >= anchors).all()
        above = head(features(), torch.full((BATCH, 1), 1e-6), ()).values[..., 0]
        assert (above >= anchors).all()


def spread_after(shift: float, **settings) -> tuple[float, float]:
    """Return the spread before and after twenty Adam steps towards the current curve moved by `shift`."""
    torch.manual_seed(0)
    head = Ndqfn(hidden=64, cosines=16, **settings).build(32, 2, Layers())
    if head.config.increment == "scaled":  # the first deviation of the other steps, which are equal and sum to 1
        first = 1.8
        head.curve.location.last.shift(math.log(math.expm1(first)) - math.log(math.expm1(FIRST_SPREAD)), output=1)
    psi, actions = torch.randn(64, 32).relu(), torch.arange(64) % 2
    with torch.no_grad():
        start = head(psi, torch.empty(64, 0), head.constants(), actions)
        target = start.affine(torch.ones(64), torch.full((64,), shift))
    optimiser = torch.optim.Adam(head.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        taus, others = (head.fractions(role, 64, generator) for role in (Role.LEARN, Role.TARGET))
        prediction = head(psi, taus, head.constants(), actions)
        optimiser.zero_grad()
        head.loss(Estimate(prediction, taus), Estimate(target, others)).mean().backward()
        optimiser.step()
    with torch.no_grad():
        end = head(psi, torch.empty(64, 0), head.constants(), actions)
    moved = (end.mean() - start.mean()).mean().item() / shift
    assert moved == pytest.approx(1, abs=0.2)  # it has followed the target
    return tuple((curve.values[:, -1] - curve.values[:, 0]).mean().item() for curve in (start, end))


@pytest.mark.parametrize("shift", [-1.0, 1.0])
def test_a_target_that_moves_leaves_the_spread_of_a_curve_anchored_at_its_mean_alone(shift):
    before, after = spread_after(shift, anchor="mean", increment="scaled")
    assert after == pytest.approx(before, rel=0.25)


def test_a_curve_anchored_at_its_lowest_quantile_loses_its_spread_to_a_falling_target_and_invents_one_for_a_rising():
    """Shows a weakness of the paper's anchor: the mean moves through the steps, which shrink or grow with it."""
    before, fallen = spread_after(-1.0, anchor="lowest", increment="relu")
    _, risen = spread_after(1.0, anchor="lowest", increment="relu")
    assert fallen < 0.5 * before
    assert risen > 1.5 * before


@pytest.mark.parametrize("rows", [1, 3])
def test_shares_are_those_of_a_loop(rows):
    numbers = 8 * torch.randn(rows, 5, generator=torch.Generator().manual_seed(2))
    normal = torch.tensor([3.0, 1.0, 0.5, 1.0, 2.0])
    expected = []
    for row in numbers.double().tolist():
        parts = [
            width * (number + math.sqrt(number**2 + 4)) for width, number in zip(normal.tolist(), row, strict=True)
        ]
        expected.append([part / sum(parts) for part in parts])
    torch.testing.assert_close(shares(numbers, normal), torch.tensor(expected), rtol=1e-4, atol=1e-7)


def test_steps_of_a_normal_distribution_are_nearly_those_of_its_quantile_function():
    taus = [0.001, 0.03, 0.25, 0.5, 0.6, 0.97, 0.999]
    exact = torch.tensor([NormalDist().inv_cdf(tau) for tau in taus]).diff()
    found = normal_steps(torch.tensor(taus))
    torch.testing.assert_close(found / found.sum(), exact / exact.sum(), rtol=0.02, atol=0)
    assert normal_steps(torch.tensor([[0.0, 1.0]])).tolist() == [[2.0]]


def test_shares_of_any_numbers_are_positive_and_have_a_gradient():
    numbers = torch.tensor([[-1e6, -30.0, 0.0, 30.0, 1e6], [0.0] * 5], requires_grad=True)
    found = shares(numbers, torch.ones(5))
    assert (found > 0).all()
    assert found.detach().sum(dim=1).tolist() == pytest.approx([1, 1])
    found[:, 2].log().sum().backward()
    assert numbers.grad.isfinite().all()
    assert numbers.grad[0, 2] == pytest.approx(0.5, rel=1e-4)  # d log(z + sqrt(z^2 + 4)) / dz at 0
    assert numbers.grad[1, 2] == pytest.approx(0.5 * (1 - 1 / 5))


def distance_after_learning(shape) -> float:
    """Return the distance of shares from equal ones after learning that starts where one share has everything."""
    numbers = torch.tensor([20.0] + [-20.0] * 7, requires_grad=True)
    optimiser = torch.optim.Adam([numbers], lr=0.05, eps=0.01 / 32)
    for _ in range(1_500):
        optimiser.zero_grad()
        (shape(numbers) - 1 / 8).square().sum().backward()
        optimiser.step()
    return float((shape(numbers) - 1 / 8).abs().sum().detach())


def test_shares_recover_from_extreme_numbers_and_those_of_a_softmax_do_not():
    assert distance_after_learning(lambda numbers: shares(numbers, torch.ones(8))) < 0.01
    assert distance_after_learning(lambda numbers: numbers.softmax(dim=-1)) > 1


def test_stratified_fractions_are_one_in_each_part_and_unbiased():
    drawn = draw_fractions(8, 20_000, torch.Generator().manual_seed(0), stratified=True)
    parts = torch.arange(8).expand(20_000, 8)
    assert torch.equal((drawn * 8).floor().long(), parts)
    inside = drawn * 8 - parts
    assert inside.mean(dim=0).tolist() == pytest.approx([0.5] * 8, abs=0.01)
    assert inside.std(dim=0).tolist() == pytest.approx([12**-0.5] * 8, abs=0.01)
    assert drawn.mean(dim=1).std() < 0.25 * torch.rand(20_000, 8).mean(dim=1).std()  # the point of it


def test_plain_fractions_are_uniform_and_independent():
    drawn = draw_fractions(8, 20_000, torch.Generator().manual_seed(0))
    assert drawn.mean(dim=0).tolist() == pytest.approx([0.5] * 8, abs=0.02)
    alike = ((drawn * 8).floor() == torch.arange(8)).all(dim=1)
    assert alike.float().mean() < 0.01


@pytest.mark.parametrize("stratified", [True, False])
def test_a_curve_draws_stratified_or_plain_fractions_as_configured(stratified):
    head = make("ndqfn", stratified=stratified, online_fractions=8, target_fractions=6)
    for role, count in ((Role.LEARN, 8), (Role.TARGET, 6)):
        drawn = head.fractions(role, 500, torch.Generator().manual_seed(0))
        assert torch.equal((drawn * count).floor(), torch.arange(count).expand(500, count).float()) == stratified
