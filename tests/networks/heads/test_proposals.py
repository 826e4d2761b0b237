"""Proposed fractions: FQF's loss against the gradient of the error it minimises, and its separate optimiser."""

import math

import numpy as np
import pytest
import torch

from monotau.errors import ConfigError
from monotau.learning.learner import Learner
from monotau.networks import Estimate, Role
from monotau.networks.heads.fqf import Fqf
from monotau.networks.heads.ndqfn_fqf import NdqfnFqf
from monotau.networks.heads.proposals import LEAST_SHARE, Proposals, fraction_entropy
from monotau.networks.layers import Layers
from tests.support.networks import SMALL_HEADS, random_batch, small_factory


def test_edges_divide_zero_to_one_strictly_whatever_the_features():
    torch.manual_seed(0)
    proposals = Proposals(4, 6)
    features = 10.0 ** torch.arange(-3, 5)[:, None] * torch.randn(8, 4)
    with torch.no_grad():
        proposals.linear.weight.mul_(100)
        edges = proposals.edges(features)
    assert edges.shape == (8, 7)
    assert (edges[:, 0] == 0).all()
    assert (edges[:, -1] == 1).all()
    assert (edges.diff(dim=-1) > 0.5 * LEAST_SHARE / 6).all()


def test_the_first_proposal_is_nearly_even():
    torch.manual_seed(0)
    edges = Proposals(64, 8).edges(torch.rand(5, 64))
    torch.testing.assert_close(edges, torch.linspace(0, 1, 9).expand(5, 9), rtol=0, atol=0.02)


def test_the_entropy_of_even_widths_is_the_logarithm_of_their_number():
    even = torch.linspace(0, 1, 6)
    assert fraction_entropy(even).item() == pytest.approx(math.log(5))
    assert fraction_entropy(torch.tensor([0.0, 0.9, 1.0])).item() == pytest.approx(
        -0.9 * math.log(0.9) - 0.1 * math.log(0.1)
    )


def step_error(edges: np.ndarray, curve) -> float:
    """Return, by brute force, W1 between a curve and its step function with values at the interval middles."""
    taus = (np.arange(200_000) + 0.5) / 200_000
    index = np.clip(np.searchsorted(edges, taus) - 1, 0, len(edges) - 2)
    middles = (edges[index] + edges[index + 1]) / 2
    return float(np.abs(curve(taus) - curve(middles)).mean())


def test_the_slopes_are_those_of_the_step_error_in_each_fraction():
    """Checks FQF's Eq. 7 with a rising curve, for which it was derived, in place of the network."""

    def curve(tau):
        return tau**3 + 0.5 * tau

    edges = np.array([0.0, 0.2, 0.45, 0.8, 1.0])
    middles = (edges[1:] + edges[:-1]) / 2
    by_formula = 2 * curve(edges[1:-1]) - curve(middles[1:]) - curve(middles[:-1])
    for i, slope in enumerate(by_formula, start=1):
        moved = [edges.copy(), edges.copy()]
        moved[0][i] -= 0.01
        moved[1][i] += 0.01
        measured = (step_error(moved[1], curve) - step_error(moved[0], curve)) / 0.02
        assert slope == pytest.approx(measured, abs=2e-3)
    leaf = torch.tensor(edges[None], dtype=torch.float32, requires_grad=True)
    Fqf().fraction_loss(leaf, torch.tensor(by_formula[None], dtype=torch.float32)).backward()
    torch.testing.assert_close(leaf.grad[0, 1:-1], torch.tensor(by_formula, dtype=torch.float32))


def parts(name: str):
    torch.manual_seed(0)
    head = SMALL_HEADS[name].build(6, 4, Layers())
    psi = torch.rand(5, 6, requires_grad=True)
    actions = torch.tensor([3, 0, 1, 3, 2])
    fractions = head.fractions(Role.LEARN, 5, torch.Generator().manual_seed(0))
    return head, psi, actions, Estimate(head(psi, fractions, (), actions), fractions)


def test_fqf_takes_its_slopes_from_the_network_at_edges_and_middles():
    head, psi, actions, prediction = parts("fqf")
    loss = head.side_loss(psi, prediction, (), actions)
    edges = head.proposals.edges(psi)
    total = 0.0
    with torch.no_grad():
        for row in range(5):
            taus = edges[row]
            at = head.network(psi[row][None], taus[None], actions[row][None])[0]
            middles = ((taus[1:] + taus[:-1]) / 2)[None]
            middle = head.network(psi[row][None], middles, actions[row][None])[0]
            for i in range(1, len(taus) - 1):
                total += float((2 * at[i] - middle[i] - middle[i - 1]) * taus[i])
    assert loss.item() == pytest.approx(total / 5, rel=1e-4)


@pytest.mark.parametrize("name", ["fqf", "ndqfn-fqf"])
def test_each_loss_reaches_its_own_weights_alone(name):
    head, psi, actions, prediction = parts(name)
    head.side_loss(psi, prediction, (), actions).backward()
    reached = {name for name, p in head.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    assert reached == {"proposals.linear.weight", "proposals.linear.bias"}
    assert psi.grad is None
    head.zero_grad()
    prediction.distribution.mean().sum().backward()
    assert head.proposals.linear.weight.grad is None or not head.proposals.linear.weight.grad.any()
    assert psi.grad is not None


def test_ndqfn_on_proposals_reads_its_slopes_off_the_curve():
    head, psi, actions, prediction = parts("ndqfn-fqf")
    values = prediction.distribution.values.detach()
    edges = head.proposals.edges(psi)
    expected = ((values[:, 1:-1] - (values[:, 2:] + values[:, :-2]) / 2) * edges[:, 1:-1]).sum(dim=1).mean()
    torch.testing.assert_close(head.side_loss(psi, prediction, (), actions), expected)


@pytest.mark.parametrize("kind", [Fqf, NdqfnFqf])
def test_an_update_moves_the_proposals_by_their_own_optimiser(kind):
    moved = {}
    for rate in (2.5e-9, 1e-3):
        learner = Learner(small_factory(kind(hidden=7, cosines=4, fraction_learning_rate=rate)), double_q=True)
        before = learner.online.head.proposals.linear.bias.detach().clone()
        learner.update(random_batch(), torch.Generator().manual_seed(0))
        moved[rate] = (learner.online.head.proposals.linear.bias - before).abs().max().item()
    assert 0 < moved[2.5e-9] < 1e-7
    assert 1e-4 < moved[1e-3] < 1e-1


@pytest.mark.parametrize("kind", [Fqf, NdqfnFqf])
def test_the_optimiser_of_the_fractions_is_the_centred_one(kind):
    """Two steps by hand: v and m are moving averages with 0.95, the step is g / (sqrt(v - m^2) + 1e-5)."""
    factory = small_factory(kind(hidden=7, cosines=4, fraction_learning_rate=0.1))
    optimiser = factory.make_optimiser({"online": factory.make("online")})
    bias = optimiser.networks["online"].head.proposals.linear.bias
    value, square, mean = bias.detach()[0].item(), 0.0, 0.0
    for slope in (1.0, 3.0):
        optimiser.step(bias[0] * slope)
        square, mean = 0.95 * square + 0.05 * slope**2, 0.95 * mean + 0.05 * slope
        value -= 0.1 * slope / ((square - mean**2) ** 0.5 + 1e-5)
        assert bias.detach()[0].item() == pytest.approx(value, rel=1e-4)
    assert {name.split(".")[-1] for name in optimiser.state() if name.startswith("online.1.")} == {
        "step",
        "square_avg",
        "grad_avg",
    }


def test_the_entropy_weight_pulls_the_fractions_apart():
    uneven = torch.tensor([[0.0, 0.05, 0.2, 1.0]], requires_grad=True)
    Fqf(entropy_weight=1.0).fraction_loss(uneven, torch.zeros(1, 2)).backward()
    assert (uneven.grad[0, 1:-1] < 0).all()  # gradient descent moves both edges up, into the wider interval


@pytest.mark.parametrize("kind", [Fqf, NdqfnFqf])
@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"fraction_learning_rate": 0.0}, "head.fraction_learning_rate is 0.0, but must be a positive number"),
        ({"entropy_weight": -1.0}, "head.entropy_weight is -1.0, but must be finite and not negative"),
        ({"entropy_weight": float("nan")}, "head.entropy_weight is nan"),
        ({"hidden": 0}, "head.hidden is 0, but must be at least 1"),
        ({"kappa": 0.0}, "head.kappa is 0.0"),
    ],
)
def test_settings_that_cannot_work_are_refused(kind, settings, match):
    with pytest.raises(ConfigError, match=match):
        kind(**settings)


@pytest.mark.parametrize(("kind", "name"), [(Fqf, "quantiles"), (NdqfnFqf, "knots")])
def test_one_interval_leaves_nothing_to_propose(kind, name):
    with pytest.raises(ConfigError, match=f"head.{name} is 1, but must be at least"):
        kind(**{name: 1})
