"""HL-Gauss: a mean learned through a histogram."""

import pytest
import torch

from monotau.distributions import Binned
from monotau.errors import ConfigError
from monotau.losses import gaussian_histogram
from monotau.networks import Estimate
from monotau.networks.heads.hl_gauss import HlGauss
from monotau.networks.layers import Layers

EMPTY = torch.empty(2, 0)


def make():
    torch.manual_seed(0)
    return HlGauss(bins=5, low=-1.0, high=4.0, hidden=7).build(6, 3, Layers())


def test_the_atoms_are_the_centres_of_the_bins():
    head = make()
    assert head.centres.tolist() == pytest.approx([-0.5, 0.5, 1.5, 2.5, 3.5])
    assert head.deviation == pytest.approx(0.75)
    assert head.reach == (-1.0, 4.0)


def test_only_the_mean_of_the_target_counts():
    head = make()
    probs = torch.tensor([[0.1, 0.2, 0.4, 0.2, 0.1], [0.5, 0.0, 0.0, 0.0, 0.5]])  # both have the mean 3/2
    prediction = Estimate(Binned(head.centres, torch.tensor([[0.3, 0.1, 0.2, 0.3, 0.1]]).expand(2, 5).log()), EMPTY)
    losses = head.loss(prediction, Estimate(Binned(head.centres, probs.log()), EMPTY))
    target = gaussian_histogram(torch.tensor([1.5]), head.edges, 0.75)[0].tolist()
    expected = -sum(p * torch.tensor(q).log().item() for p, q in zip(target, [0.3, 0.1, 0.2, 0.3, 0.1], strict=True))
    assert losses.tolist() == pytest.approx([expected, expected])


def test_a_target_is_shifted_and_scaled_before_its_mean_is_taken():
    head = make()
    probs = torch.tensor([[0.0, 0.0, 1.0, 0.0, 0.0]]).expand(2, 5)
    prediction = Estimate(Binned(head.centres, torch.full((2, 5), 0.2).log()), EMPTY)
    moved = Binned(head.centres, probs.log()).affine(torch.tensor([0.5, 0.0]), torch.tensor([1.0, 3.5]))
    found = head.loss(prediction, Estimate(moved, EMPTY))
    assert found.tolist() == pytest.approx([torch.tensor(5.0).log().item()] * 2)
    torch.testing.assert_close(moved.mean(), torch.tensor([1.75, 3.5]))


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (2.0, -2.0), (float("-inf"), 0.0), (0.0, float("nan"))])
def test_an_invalid_support_is_refused(low, high):
    with pytest.raises(ConfigError, match=r"^head\.low and head\.high are .*, but must be finite numbers, low below"):
        HlGauss(low=low, high=high)


def test_the_distribution_is_a_point_mass_at_the_mean_whatever_the_width_of_the_histogram():
    wide = Binned(torch.tensor([-4.0, 0.0, 2.0]), torch.tensor([[0.5, 0.25, 0.25]]).log())
    assert wide.quantile(torch.tensor([0.0, 0.3, 1.0])).tolist() == [[-1.5, -1.5, -1.5]]
    assert wide.cvar(0.1).tolist() == wide.mean().tolist() == [-1.5]
    other = Binned(torch.tensor([-4.0, 0.0, 2.0]), torch.tensor([[0.0, 1.0, 0.0]]).log())
    assert wide.w1(other).tolist() == [1.5]
    assert wide.upper_variance().tolist() == [0.0]
    assert wide.outside(-2.0, 1.0).tolist() == [0.0]


def test_an_invalid_deviation_is_refused():
    with pytest.raises(ConfigError, match=r"^head\.deviation is 0\.0, but must be a positive number"):
        HlGauss(deviation=0.0)
