"""The Gaussian histogram of HL-Gauss, against the error function bin by bin, and by its mean."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from monotau.losses import cross_entropy, gaussian_histogram


def naive_histogram(value: float, edges: list[float], deviation: float) -> list[float]:
    """Return the mass of a normal distribution in each bin, divided by its mass in all bins."""
    value = min(max(value, edges[0]), edges[-1])
    below = [0.5 * (1 + math.erf((edge - value) / (deviation * math.sqrt(2)))) for edge in edges]
    masses = [high - low for low, high in pairwise(below)]
    return [mass / sum(masses) for mass in masses]


@settings(deadline=None)
@given(
    values=st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=4),
    bins=st.integers(2, 9),
    low=st.floats(-20, 5),
    width=st.floats(0.5, 20),
    deviation=st.floats(0.3, 3),
)
def test_each_bin_holds_its_share_of_the_normal_distribution(values, bins, low, width, deviation):
    edges = torch.linspace(low, low + width, bins + 1)
    found = gaussian_histogram(torch.tensor(values), edges, deviation)
    expected = [naive_histogram(value, edges.tolist(), deviation) for value in values]
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(found.sum(dim=1), torch.ones(len(values)))


@pytest.mark.parametrize("value", [-2.0, -0.31, 0.0, 0.5, 1.7])
def test_the_mean_of_the_histogram_is_the_value_wherever_it_lies_in_a_bin(value):
    """With 3/4 of a bin as the deviation, the error far from the ends is below a thousandth of a bin."""
    edges = torch.linspace(-10, 10, 21)
    histogram = gaussian_histogram(torch.tensor([value]), edges, 0.75)
    assert (histogram[0] * (edges[1:] + edges[:-1]) / 2).sum().item() == pytest.approx(value, abs=1e-3)


def test_a_value_beyond_the_bins_is_clipped_to_them_and_gets_no_gradient():
    edges, values = torch.linspace(-1, 1, 5), torch.tensor([50.0, 1.0], requires_grad=True)
    found = gaussian_histogram(values, edges, 0.3)
    assert not found.requires_grad
    assert torch.equal(found[0], found[1])
    assert found[0].argmax().item() == 3


def test_the_loss_is_least_at_the_smoothed_target():
    edges = torch.linspace(-3, 3, 7)
    target = gaussian_histogram(torch.tensor([0.4]), edges, 0.75)
    least = cross_entropy(target.log(), target)
    for other in (0.2, 0.6, -1.0):
        assert cross_entropy(gaussian_histogram(torch.tensor([other]), edges, 0.75).log(), target) > least
