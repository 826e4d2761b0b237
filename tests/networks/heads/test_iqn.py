"""IQN's head against a naive twin, and its known weakness: quantiles may cross."""

import math

import pytest
import torch

from monotau.distributions import Point
from monotau.errors import ConfigError
from monotau.networks.heads.base import Estimate, Role
from monotau.networks.heads.iqn import Iqn
from monotau.networks.layers import Layers

FEATURES, ACTIONS, BATCH = 6, 4, 5


def make_head(**settings):
    torch.manual_seed(3)
    sizes = {"hidden": 9, "cosines": 5, "online_fractions": 3, "target_fractions": 7, "action_fractions": 2}
    return Iqn(**(sizes | settings)).build(FEATURES, ACTIONS, Layers())


def test_the_head_equals_its_formula():
    head, generator = make_head(), torch.Generator().manual_seed(0)
    psi, taus = torch.rand(BATCH, FEATURES, generator=generator), torch.rand(BATCH, 3, generator=generator)
    view = head(psi, taus, ())
    for b in range(BATCH):
        for n in range(3):
            cosines = torch.tensor([math.cos(math.pi * i * taus[b, n]) for i in range(1, 6)])
            phi = torch.relu(head.network.embedding.linear.weight @ cosines + head.network.embedding.linear.bias)
            hidden = torch.relu(head.network.hidden.weight @ (psi[b] * phi) + head.network.hidden.bias)
            expected = head.network.last.advantages.weight @ hidden + head.network.last.advantages.bias
            torch.testing.assert_close(view.values[b, :, n], expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(view.taus[:, 0], taus)
    torch.testing.assert_close(view.mean(), view.values.mean(dim=-1))


def test_the_chosen_columns_equal_taking_them_from_all_actions():
    head, generator = make_head(), torch.Generator().manual_seed(0)
    psi, taus = torch.rand(BATCH, FEATURES, generator=generator), torch.rand(BATCH, 3, generator=generator)
    actions = torch.tensor([3, 0, 1, 3, 2])
    chosen, taken = head(psi, taus, (), actions), head(psi, taus, ()).take(actions)
    torch.testing.assert_close(chosen.values, taken.values, rtol=1e-5, atol=1e-6)
    assert torch.equal(chosen.taus, taken.taus)
    parameters = list(head.parameters())
    for quick, slow in zip(
        torch.autograd.grad(chosen.values.square().sum(), parameters, retain_graph=True),
        torch.autograd.grad(taken.values.square().sum(), parameters),
        strict=True,
    ):
        torch.testing.assert_close(quick, slow, rtol=1e-4, atol=1e-5)


def test_each_role_draws_its_own_number_of_fractions():
    head, generator = make_head(), torch.Generator().manual_seed(0)
    counts = {role: head.fractions(role, BATCH, generator).shape for role in Role}
    assert counts == {Role.LEARN: (BATCH, 3), Role.TARGET: (BATCH, 7), Role.ACT: (BATCH, 2)}
    assert head.fractions(Role.ACT, 2, None).tolist() == [[0.25, 0.75], [0.25, 0.75]]


def test_random_networks_do_cross():
    head = make_head(hidden=64, cosines=64)
    taus = torch.linspace(0.01, 0.99, 50).expand(BATCH, 50)
    assert head(torch.rand(BATCH, FEATURES), taus, ()).crossing().mean() > 0.05


def test_the_loss_refuses_distributions_without_fractions():
    head = make_head()
    with pytest.raises(TypeError, match="needs two distributions of kind Diracs, but got Point and Point"):
        head.loss(*[Estimate(Point(torch.zeros(2)), torch.empty(2, 0))] * 2)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"action_fractions": 0}, "head.action_fractions is 0, but must be at least 1"),
        ({"kappa": -1.0}, "head.kappa is -1.0, but must be a positive number"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, match):
    with pytest.raises(ConfigError, match=match):
        Iqn(**settings)
