"""NDQFN's head against a naive twin, which evaluates the paper's formulas for one sample and action at a time."""

import math

import pytest
import torch

from monotau.distributions import cumulate
from monotau.errors import ConfigError
from monotau.networks.heads.base import Estimate, Head, Role
from monotau.networks.heads.implicit import FIRST_SPREAD
from monotau.networks.heads.ndqfn import Ndqfn, NdqfnHead
from monotau.networks.layers import Layers

FEATURES, ACTIONS, BATCH = 6, 4, 5
ACTIVATIONS = {
    "relu": lambda z: torch.where(z > 0, z, 0.0),
    "softplus": lambda z: torch.log1p(z.exp()),
    "elu1": lambda z: torch.where(z > 0, z + 1, z.exp()),
}
STEPS = [(increment, scale) for increment in ACTIVATIONS for scale in ("1", "1/N")] + [("scaled", "1/N")]


def make_head(**settings) -> NdqfnHead:
    torch.manual_seed(3)
    head = Ndqfn(**({"knots": 7, "hidden": 9, "cosines": 5} | settings)).build(FEATURES, ACTIONS, Layers())
    with torch.no_grad():  # makes actions differ, so that every unit matters
        for layer in (head.curve.location.last, head.curve.increments.last):
            layer.advantages.weight.mul_(10)
    return head


def plain_quantiles(head: NdqfnHead, psi: torch.Tensor) -> torch.Tensor:
    """Return the quantiles at the support exactly as the paper writes them, without any optimisation."""
    config = head.config
    p = [float(x) for x in head.knots]
    location, steps = head.curve.location, head.curve.increments
    embed, last, located = steps.embedding.linear, steps.last.advantages, location.last.advantages

    def phi(tau):
        cosines = torch.tensor([math.cos(math.pi * i * tau) for i in range(1, config.cosines + 1)])
        return torch.relu(embed.weight @ cosines + embed.bias)

    rows = []
    for x in psi:
        hidden = location.hidden.weight @ x + location.hidden.bias
        hidden = torch.relu(hidden) if config.baseline == "relu" else 1 / (1 + (-hidden).exp())
        outputs = (located.weight @ hidden + located.bias).view(ACTIONS, -1)
        steps_of = []
        for i in range(1, len(p)):
            if config.input_form == "concat":
                whole, bias = torch.cat([steps.mixed.weight, steps.shift.weight], dim=1), steps.shift.bias
                inputs = torch.cat([x * phi(p[i]), phi(p[i]) - phi(p[i - 1])])
            else:
                whole, bias, inputs = steps.mixed.weight, steps.bias, x * phi(p[i]) * phi(p[i - 1])
            z = last.weight @ torch.relu(whole @ inputs + bias) + last.bias
            steps_of.append(z)
        if config.increment == "scaled":
            tukey = [(tau**0.135 - (1 - tau) ** 0.135) for tau in p]
            parts = [(b - a) * (z + (z**2 + 4).sqrt()) for a, b, z in zip(tukey, tukey[1:], steps_of, strict=False)]
            increments = [torch.log1p(outputs[:, 1].exp()) * part / sum(parts) for part in parts]
        else:
            factor = 1 / (len(p) - 1) if config.increment_scale == "1/N" else 1
            increments = [ACTIVATIONS[config.increment](z) * factor for z in steps_of]
        quantiles = [torch.zeros(ACTIONS)]
        for increment in increments:
            quantiles.append(quantiles[-1] + increment)
        centre = plain_centre(config.anchor, p, quantiles)
        rows.append(torch.stack([outputs[:, 0] + quantile - centre for quantile in quantiles], dim=-1))
    return torch.stack(rows)


def plain_centre(anchor: str, p: list[float], quantiles: list[torch.Tensor]) -> torch.Tensor:
    """Return the number of a curve that the output of f stands for."""
    if anchor == "lowest":
        return quantiles[0]
    if anchor == "median":
        after = next(i for i in range(len(p)) if p[i] >= 0.5)
        share = (0.5 - p[after - 1]) / (p[after] - p[after - 1])
        return (1 - share) * quantiles[after - 1] + share * quantiles[after]
    trapezoids = sum((p[i] - p[i - 1]) * (quantiles[i] + quantiles[i - 1]) / 2 for i in range(1, len(p)))
    return p[0] * quantiles[0] + trapezoids + (1 - p[-1]) * quantiles[-1]


def gradients(head: Head, scalar: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad(scalar, list(head.parameters()), retain_graph=True))


@pytest.mark.parametrize("anchor", ["mean", "median", "lowest"])
@pytest.mark.parametrize(("increment", "increment_scale"), STEPS)
@pytest.mark.parametrize("input_form", ["concat", "triple"])
@pytest.mark.parametrize("baseline", ["relu", "sigmoid"])
def test_the_split_and_shared_form_equals_the_formula(anchor, increment, increment_scale, input_form, baseline):
    settings = {"anchor": anchor, "increment": increment, "increment_scale": increment_scale, "baseline": baseline}
    head = make_head(input_form=input_form, **settings)
    psi = torch.rand(BATCH, FEATURES, generator=torch.Generator().manual_seed(1))
    fast = head(psi, torch.empty(BATCH, 0), head.constants()).values
    plain = plain_quantiles(head, psi)
    torch.testing.assert_close(fast, plain, rtol=1e-5, atol=1e-5)
    mixture = torch.randn(fast.shape, generator=torch.Generator().manual_seed(2))
    for quick, slow in zip(
        gradients(head, (fast * mixture).sum()), gradients(head, (plain * mixture).sum()), strict=True
    ):
        torch.testing.assert_close(quick, slow, rtol=1e-4, atol=1e-5)


def test_the_chosen_columns_equal_taking_them_from_all_actions():
    head, actions = make_head(), torch.tensor([3, 0, 1, 3, 2])
    psi = torch.rand(BATCH, FEATURES, generator=torch.Generator().manual_seed(4))
    chosen = head(psi, torch.empty(BATCH, 0), head.constants(), actions).values
    taken = head(psi, torch.empty(BATCH, 0), head.constants()).take(actions).values
    torch.testing.assert_close(chosen, taken, rtol=1e-5, atol=1e-6)
    for quick, slow in zip(gradients(head, chosen.square().sum()), gradients(head, taken.square().sum()), strict=True):
        torch.testing.assert_close(quick, slow, rtol=1e-4, atol=1e-5)


def test_one_table_serves_two_passes_with_the_gradients_of_two_tables():
    head = make_head()
    here, there = torch.rand(2, BATCH, FEATURES, generator=torch.Generator().manual_seed(5))
    none = torch.empty(BATCH, 0)
    table = head.constants()
    shared = head(here, none, table).values.sum() + head(there, none, table).values.square().sum()
    apart = head(here, none, head.constants()).values.sum() + head(there, none, head.constants()).values.square().sum()
    torch.testing.assert_close(shared, apart)
    for quick, slow in zip(gradients(head, shared), gradients(head, apart), strict=True):
        torch.testing.assert_close(quick, slow, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("anchor", ["mean", "median", "lowest"])
@pytest.mark.parametrize("increment", ["scaled", "relu", "softplus", "elu1"])
@pytest.mark.parametrize("baseline", ["relu", "sigmoid"])
def test_a_thousand_random_networks_never_cross_at_ten_thousand_fractions(anchor, increment, baseline):
    """Scales span twelve decades, and each network sees one state; a decrease by one ulp would fail."""
    taus = torch.linspace(0, 1, 10_001)
    generator = torch.Generator().manual_seed(6)
    violations, moved = 0, 0
    for number in range(42):  # all combinations together make a thousand networks
        torch.manual_seed(1000 + number)
        settings = {"anchor": anchor, "increment": increment, "baseline": baseline}
        head = Ndqfn(hidden=6, cosines=4, **settings).build(3, 2, Layers())
        with torch.no_grad():
            scale = 10.0 ** float(torch.empty(1).uniform_(-6, 6, generator=generator))
            head.curve.increments.last.advantages.weight.mul_(310 * scale)
            scale = 10.0 ** float(torch.empty(1).uniform_(-3, 6, generator=generator))
            head.curve.location.last.advantages.weight.mul_(10 * scale)
            psi = torch.rand(1, 3, generator=generator)
            curve = head(psi, torch.empty(1, 0), head.constants()).quantile(taus)
        violations += int((curve.diff(dim=-1) < 0).sum())
        moved += int((curve[..., -1] > curve[..., 0]).any())
    assert violations == 0
    assert moved > 25  # the curves are not degenerate points


@pytest.mark.parametrize("knots", [5, 32, 200])
@pytest.mark.parametrize(
    ("increment", "first"), [("relu", 1.0), ("softplus", 1.0), ("elu1", 1.0), ("scaled", FIRST_SPREAD)]
)
def test_the_first_spread_does_not_depend_on_the_activation_or_the_number_of_knots(increment, first, knots):
    torch.manual_seed(0)
    head = Ndqfn(increment=increment, knots=knots).build(64, 3, Layers())
    with torch.no_grad():
        values = head(torch.rand(8, 64), torch.empty(8, 0), head.constants()).values
    spread = (values[..., -1] - values[..., 0]).mean().item()
    assert spread == pytest.approx(first, rel=0.3)


def test_the_baseline_is_not_confined_to_the_range_of_a_sigmoid():
    head = make_head(anchor="lowest", baseline="sigmoid", increment="relu")
    with torch.no_grad():
        head.curve.location.last.advantages.bias.fill_(-40.0)
        values = head(torch.rand(2, FEATURES), torch.empty(2, 0), head.constants()).values
    assert (values[..., 0] < -30).all()


def test_dead_increments_are_those_that_are_zero_in_every_state():
    head = make_head(knots=4, increment="relu")
    with torch.no_grad():
        head.curve.increments.last.advantages.weight.zero_()
        head.curve.increments.last.advantages.bias.copy_(torch.tensor([1.0, -1.0, 1.0, -2.0]))
        view = head(torch.rand(3, FEATURES), torch.empty(3, 0), head.constants())
    assert head.statistics(view) == {"dead_increments": 0.5}


def test_a_parallel_scan_that_falls_is_mended_by_its_running_maximum():
    """Covers devices whose parallel sums may round to decreasing numbers."""
    fallen = torch.tensor([1.0, 3.0, 2.9999998, 4.0])
    assert (fallen.cummax(dim=-1).values.diff() >= 0).all()
    assert torch.equal(cumulate(torch.tensor([-2.0, 0.5, 0.0, 3.0])), torch.tensor([-2.0, -1.5, -1.5, 1.5]))


def test_the_loss_draws_its_numbers_of_fractions_and_gives_the_target_no_gradient():
    head = make_head(online_fractions=3, target_fractions=8)
    psi = torch.rand(BATCH, FEATURES)
    actions = torch.zeros(BATCH, dtype=torch.int64)
    prediction = head(psi, torch.empty(BATCH, 0), head.constants(), actions)
    target = head(psi.flip(0), torch.empty(BATCH, 0), head.constants(), actions)
    target.steps.retain_grad()
    prediction.steps.retain_grad()
    generator = torch.Generator().manual_seed(0)
    fractions = {role: head.fractions(role, BATCH, generator) for role in Role}
    assert [fractions[role].shape[1] for role in (Role.LEARN, Role.TARGET, Role.ACT)] == [3, 8, 0]
    losses = head.loss(Estimate(prediction, fractions[Role.LEARN]), Estimate(target, fractions[Role.TARGET]))
    losses.sum().backward()
    assert losses.shape == (BATCH,)
    assert prediction.steps.grad.abs().sum() > 0
    assert target.steps.grad is None


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"support": (0.1, 0.1, 0.9)}, r"head.support is \(0.1, 0.1, 0.9\).*increase strictly inside"),
        ({"support": (0.0, 0.5)}, "head.support"),
        ({"support": (0.5,)}, "at least two points"),
        ({"support": (0.25, 0.5, 0.5 + 1e-9)}, "head.support"),  # one point in float32
        ({"support": (0.2, float("nan"))}, "head.support"),
        ({"knots": 1}, "head.knots is 1, but must be between 2 and 1000"),
        ({"knots": 1001}, "head.knots is 1001"),
        ({"hidden": 0}, "head.hidden is 0, but must be at least 1"),
        ({"kappa": 0.0}, "head.kappa is 0.0, but must be a positive number"),
        ({"kappa": float("inf")}, "head.kappa is inf"),
        ({"increment_scale": "1"}, r"head.increment_scale is '1', but head.increment 'scaled' has a learned scale"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, match):
    with pytest.raises(ConfigError, match=match):
        Ndqfn(**settings)


def test_a_custom_support_is_used():
    head = Ndqfn(support=(0.05, 0.5, 0.95), hidden=4, cosines=3).build(4, 2, Layers())
    assert head.knots.tolist() == pytest.approx([0.05, 0.5, 0.95])
    assert head(torch.rand(1, 4), torch.empty(1, 0), head.constants()).values.shape == (1, 2, 3)


@pytest.mark.parametrize("config", [Ndqfn(cosines=5, knots=7), Ndqfn(cosines=5, support=(0.1, 0.35, 0.9))])
def test_the_table_of_cosines_is_that_of_the_support(config):
    head = config.build(4, 3, Layers())
    torch.testing.assert_close(head.cosines, head.curve.increments.embedding.cosines(head.knots), rtol=0, atol=1e-5)
    assert "cosines" not in head.state_dict()
