"""SPL-DQN's head: how its outputs become a spline."""

import pytest
import torch

from monotau.errors import ConfigError
from monotau.networks.heads.implicit import FIRST_SPREAD
from monotau.networks.heads.spline import LEAST, MOST_BINS, Spl, ladder
from monotau.networks.layers import Layers

FEATURES, ACTIONS, BATCH, BINS = 6, 4, 5, 7


def make(seed: int = 0, factor: float = 1.0, bins: int = BINS, layers: Layers = Layers()):  # noqa: B008
    torch.manual_seed(seed)
    head = Spl(bins=bins, hidden=9).build(FEATURES, ACTIONS, layers)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.mul_(factor)
    return head


def features() -> torch.Tensor:
    return torch.randn(BATCH, FEATURES, generator=torch.Generator().manual_seed(1)).relu()


def view(head):
    return head(features(), torch.empty(BATCH, 0), ())


def test_the_spline_starts_near_a_straight_line():
    spline, taus = view(make()), torch.linspace(0, 1, 11)
    straight = spline.lowest[..., None] + spline.spread[..., None] * taus
    assert (spline.quantile(taus) - straight).abs().max() < 0.2 * FIRST_SPREAD
    assert spline.spread.mean().item() == pytest.approx(FIRST_SPREAD, rel=0.2)
    assert spline.slopes.mean().item() == pytest.approx(1.0, rel=0.1)


def test_points_rise_from_zero_to_one_by_the_shares_of_their_numbers():
    """Worked by hand: z + sqrt(z^2 + 4) is 2 for 0 and 4 for 3/2, so the shares are 1/4, 1/2 and 1/4."""
    points = ladder(torch.tensor([0.0, 1.5, 0.0]))
    shares = [LEAST + (1 - 3 * LEAST) * share for share in (0.25, 0.5, 0.25)]
    assert points.tolist() == pytest.approx([0.0, shares[0], shares[0] + shares[1], 1.0])


@pytest.mark.parametrize("bins", [2, 32, MOST_BINS])
def test_no_bin_is_lost_however_far_the_numbers_are_apart(bins):
    numbers = 1e4 * torch.randn(50, bins, generator=torch.Generator().manual_seed(0))
    points = ladder(numbers)
    assert (points[:, 0] == 0).all()
    assert (points[:, -1] == 1).all()
    assert points.diff(dim=-1).min() > 0.5 * LEAST


@torch.no_grad()
@pytest.mark.parametrize("layers", [Layers(), Layers(dueling=True)], ids=["plain", "dueling"])
@pytest.mark.parametrize("factor", [0.1, 1.0, 10.0, 100.0])
def test_no_quantile_is_below_the_one_before_whatever_the_weights(factor, layers):
    taus = torch.linspace(0, 1, 10_001)
    for seed in range(5):
        spline = view(make(seed, factor, layers=layers))
        quantiles = spline.quantile(taus)
        assert quantiles.isfinite().all()
        assert int((quantiles.diff(dim=-1) < 0).sum()) == 0
        area = torch.trapezoid(quantiles.double(), taus.double()).float()
        torch.testing.assert_close(spline.mean(), area, rtol=1e-3, atol=1e-3)


def test_the_lowest_value_follows_a_new_unit_exactly_and_a_wide_spread_nearly():
    head = make()
    head.last.shift(20.0, output=-1)
    before = view(head)
    head.rescale(0.5)
    after = view(head)
    torch.testing.assert_close(after.lowest, before.lowest / 2)
    torch.testing.assert_close(after.spread, before.spread / 2, rtol=1e-3, atol=0)
    assert torch.equal(after.heights, before.heights)


def test_too_many_bins_are_refused():
    with pytest.raises(ConfigError, match=r"^head\.bins is 501, but must be at most 500: each bin is at least 0\.001"):
        Spl(bins=501)
