"""The contract that every head fulfils, with and without dueling and noise."""

import math

import pytest
import torch

from monotau.distributions import Distribution, Point
from monotau.networks import HEADS, Estimate, Role
from monotau.networks.heads.base import Head
from monotau.networks.layers import Layers
from tests.support.networks import SMALL_HEADS

FEATURES, ACTIONS, BATCH = 6, 4, 5
STYLES = {
    "plain": Layers(),
    "dueling": Layers(dueling=True),
    "noisy": Layers(noisy=True),
    "dueling and noisy": Layers(noisy=True, dueling=True),
}
EVERY_HEAD = pytest.mark.parametrize("name", HEADS)
EVERY_STYLE = pytest.mark.parametrize("style", STYLES)
MONOTONE = ("ndqfn", "nc-qr", "ndqfn-fqf", "implicit-sorted", "nq", "spline", "c51", "hl-gauss", "dqn")
CROSSING = ("iqn", "qr", "fqf")


def make(name: str, style: str = "plain", seed: int = 0) -> Head:
    torch.manual_seed(seed)
    head = SMALL_HEADS[name].build(FEATURES, ACTIONS, STYLES[style])
    for layer in head.modules():
        if getattr(layer, "noisy", False):
            layer.resample_noise(torch.Generator().manual_seed(seed))
    return head


def features(rows: int = BATCH, seed: int = 1) -> torch.Tensor:
    return torch.rand(rows, FEATURES, generator=torch.Generator().manual_seed(seed))


def view(head: Head, psi: torch.Tensor, role: Role = Role.ACT, actions=None, seed: int = 2) -> Estimate:
    fractions = head.fractions(role, len(psi), torch.Generator().manual_seed(seed))
    return Estimate(head(psi, fractions, head.constants(), actions), fractions)


def quantiles(head: Head, psi: torch.Tensor, taus: torch.Tensor) -> torch.Tensor:
    return head.quantiles(psi, taus, head.fractions(Role.ACT, len(psi), None), head.constants())


def test_every_head_is_listed_as_monotone_or_not():
    assert {*MONOTONE, *CROSSING, "incremental-iqn"} == set(HEADS)


@EVERY_HEAD
@EVERY_STYLE
def test_predictions_have_one_entry_for_each_state_action_and_fraction(name, style):
    head, actions = make(name, style), torch.tensor([3, 0, 1, 3, 2])
    for role in Role:
        everything, chosen = view(head, features(), role), view(head, features(), role, actions)
        assert everything.distribution.batch_shape == (BATCH, ACTIONS)
        assert chosen.distribution.batch_shape == (BATCH,)
        assert everything.distribution.mean().shape == (BATCH, ACTIONS)
        assert everything.fractions.shape[0] == BATCH
    assert quantiles(head, features(), torch.tensor([0.1, 0.5, 0.9])).shape == (BATCH, ACTIONS, 3)


@EVERY_HEAD
@EVERY_STYLE
def test_the_chosen_columns_equal_taking_them_from_all_actions(name, style):
    head, actions = make(name, style), torch.tensor([3, 0, 1, 3, 2])
    chosen = view(head, features(), Role.LEARN, actions).distribution
    taken = view(head, features(), Role.LEARN).distribution.take(actions)
    torch.testing.assert_close(chosen.curve(), taken.curve(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(chosen.segments().edges, taken.segments().edges.expand_as(chosen.segments().edges))
    gradients = []
    for distribution in (chosen, taken):
        head.zero_grad()
        distribution.mean().square().sum().backward()
        gradients.append([p.grad.clone() if p.grad is not None else None for p in head.parameters()])
    for quick, slow in zip(*gradients, strict=True):
        torch.testing.assert_close(quick, slow, rtol=1e-4, atol=1e-5)


@EVERY_HEAD
@EVERY_STYLE
def test_the_loss_gives_every_weight_a_finite_gradient_and_the_target_none(name, style):
    head, other, actions = make(name, style), make(name, style, seed=1), torch.tensor([3, 0, 1, 3, 2])
    psi = features()
    prediction, target = view(head, psi, Role.LEARN, actions), view(other, psi, Role.TARGET, actions, seed=3)
    scale, shift = torch.full((BATCH,), 0.9), torch.linspace(-2, 2, BATCH)
    losses = head.loss(prediction, Estimate(target.distribution.affine(scale, shift), target.fractions))
    assert losses.shape == (BATCH,)
    assert (losses > 0).all()
    side = head.side_loss(psi, prediction, head.constants(), actions)
    (losses.mean() + (0 if side is None else side)).backward()
    for parameter_name, parameter in head.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.abs().sum() > 0, parameter_name
    assert all(parameter.grad is None for parameter in other.parameters())


@EVERY_HEAD
def test_the_mean_is_the_integral_of_the_quantile_function(name):
    head = make(name)
    distribution = view(head, features()).distribution
    taus = (torch.arange(20_000) + 0.5) / 20_000
    torch.testing.assert_close(distribution.quantile(taus).mean(dim=-1), distribution.mean(), rtol=1e-3, atol=1e-3)


@EVERY_HEAD
def test_w1_is_a_metric_between_heads_of_one_kind(name):
    psi = features()
    one, two, three = (view(make(name, seed=seed), psi).distribution for seed in range(3))
    zero = torch.zeros(BATCH, ACTIONS)
    torch.testing.assert_close(one.w1(one), zero)
    torch.testing.assert_close(one.w1(two), two.w1(one), rtol=1e-4, atol=1e-5)
    assert (one.w1(two) > 0).all()
    assert (one.w1(three) <= one.w1(two) + two.w1(three) + 1e-4).all()
    assert (one.w1(two) + 1e-4 >= (one.mean() - two.mean()).abs()).all()


def curves(name: str, style: str, networks: int = 20) -> torch.Tensor:
    """Return quantile functions of random networks on a fine grid, with outputs of very different sizes."""
    taus, found = torch.linspace(0, 1, 1001), []
    for seed in range(networks):
        head = make(name, style, seed)
        with torch.no_grad():
            for parameter in head.parameters():
                parameter.mul_(10.0 ** (seed % 5 - 2))
            found.append(quantiles(head, features(), taus))
    return torch.cat(found)


@pytest.mark.parametrize("name", [*MONOTONE, "incremental-iqn"])
@EVERY_STYLE
def test_monotone_heads_never_cross(name, style):
    """Neither dueling, which subtracts means, nor noise, which may flip weights, can make increments negative."""
    found = curves(name, style)
    assert (found.diff(dim=-1) >= 0).all()
    assert not SMALL_HEADS[name].has_spread or (found[..., -1] > found[..., 0]).any()


@pytest.mark.parametrize("name", CROSSING)
def test_other_heads_cross_and_the_crossing_is_measured(name):
    assert (curves(name, "plain").diff(dim=-1) < 0).any(dim=-1).float().mean() > 0.5
    crossing = [view(make(name, seed=seed), features()).distribution.crossing().mean() for seed in range(20)]
    assert torch.stack(crossing).mean() > 0.05


def test_incremental_iqn_is_monotone_within_a_set_of_fractions_and_not_across_sets():
    """As in the paper's Fig. 1b, the quantile at one fraction depends on the other fractions of the set."""
    head, psi = make("incremental-iqn"), features()
    sparse, dense = torch.tensor([0.3, 0.9]), torch.linspace(0.02, 0.9, 45)
    asked = {name: quantiles(head, psi, taus) for name, taus in (("sparse", sparse), ("dense", dense))}
    assert all((values.diff(dim=-1) >= 0).all() for values in asked.values())
    assert ((asked["sparse"][..., 1] - asked["dense"][..., -1]).abs() > 1e-4).any()  # both at 0.9
    taus = torch.cat([sparse, dense])
    mixed = torch.cat([asked["sparse"], asked["dense"]], dim=-1)[..., taus.argsort(stable=True)]
    assert (mixed.diff(dim=-1) < 0).any()


def test_incremental_iqn_returns_quantiles_in_the_order_they_are_asked():
    head, psi = make("incremental-iqn"), features()
    taus = torch.tensor([0.7, 0.2, 0.5])
    ordered = quantiles(head, psi, taus.sort().values)
    torch.testing.assert_close(quantiles(head, psi, taus), ordered[..., [2, 0, 1]])


@EVERY_HEAD
def test_a_loss_refuses_distributions_of_another_kind(name):
    head = make(name)
    mine = view(head, features(), Role.LEARN, torch.zeros(BATCH, dtype=torch.int64))
    other = _Strange(mine.distribution)
    with pytest.raises(TypeError, match=f"needs two distributions of kind {type(mine.distribution).__name__}, but got"):
        head.loss(mine, Estimate(other, mine.fractions))


class _Strange(Distribution):
    """A distribution that no head produces."""

    def __init__(self, inner: Distribution) -> None:
        self.inner = inner

    @property
    def batch_shape(self):
        return self.inner.batch_shape

    def segments(self):
        return self.inner.segments()

    def curve(self):
        return self.inner.curve()

    def affine(self, scale, shift):
        return self.inner.affine(scale, shift)

    def average(self, weights):
        return self.inner.average(weights)

    def map(self, function):
        return self.inner.map(function)


@EVERY_HEAD
def test_fractions_follow_the_generator_and_are_fixed_without_one(name):
    head = make(name)
    for role in Role:
        drawn = [head.fractions(role, BATCH, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
        assert torch.equal(drawn[0], drawn[1])
        assert not drawn[0].numel() or not torch.equal(drawn[0], drawn[2])
        assert torch.equal(head.fractions(role, BATCH, None), head.fractions(role, BATCH, None))
    assert head.samples == bool(head.fractions(Role.ACT, 1, None).numel())


@EVERY_HEAD
def test_statistics_are_numbers(name):
    head = make(name)
    numbers = head.statistics(view(head, features()).distribution)
    assert all(math.isfinite(number) for number in numbers.values())
    assert ("fraction_entropy" in numbers) == (name in ("fqf", "ndqfn-fqf"))
    assert ("dead_increments" in numbers) == (name in ("ndqfn", "ndqfn-fqf"))


def test_only_heads_with_atoms_have_bounds():
    bounds = {name: make(name).reach for name in SMALL_HEADS if make(name).reach}
    assert bounds == dict.fromkeys(("c51", "hl-gauss"), (-10.0, 10.0))


def test_only_heads_that_learn_a_mean_have_no_spread():
    assert [name for name, config in SMALL_HEADS.items() if not config.has_spread] == ["hl-gauss", "dqn"]
    assert isinstance(view(make("dqn"), features()).distribution, Point)


@EVERY_HEAD
def test_without_a_generator_a_prediction_does_not_depend_on_its_row(name):
    head, psi = make(name), features()[:1].expand(BATCH, -1)
    with torch.no_grad():
        curves = head(psi, head.fractions(Role.ACT, BATCH, None), head.constants()).curve()
    torch.testing.assert_close(curves, curves[:1].expand(curves.shape))
