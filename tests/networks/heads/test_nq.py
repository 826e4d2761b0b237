"""NQ-Net: a mean and gaps, against sums written out."""

from itertools import pairwise

import pytest
import torch

from monotau.networks.heads.nq import Nq, centred_rises
from monotau.networks.layers import Layers

FEATURES, ACTIONS, BATCH = 6, 4, 5


def make(quantiles: int = 7, seed: int = 0, factor: float = 1.0, layers: Layers = Layers()):  # noqa: B008
    torch.manual_seed(seed)
    head = Nq(quantiles=quantiles, hidden=9).build(FEATURES, ACTIONS, layers)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.mul_(factor)
    return head


def features() -> torch.Tensor:
    return torch.randn(BATCH, FEATURES, generator=torch.Generator().manual_seed(1)).relu()


def view(head):
    return head(features(), torch.empty(BATCH, 0), ())


def naive_quantiles(mean: float, numbers: list[float]) -> list[float]:
    """Add up the gaps from zero, then move the quantiles until their average is the mean."""
    count, sums = len(numbers) + 1, [0.0]
    for number in numbers:
        gap = number + 1 if number > 0 else float(torch.tensor(number).exp())
        sums.append(sums[-1] + gap / count)
    return [mean + one - sum(sums) / count for one in sums]


def test_quantiles_are_the_mean_and_centred_sums_of_the_gaps():
    head = make(factor=3.0)
    outputs = head.last.table(head.hidden(features()).relu(), None).tolist()
    expected = [[naive_quantiles(numbers[0], numbers[1:]) for numbers in row] for row in outputs]
    distribution = view(head)
    torch.testing.assert_close(distribution.values, torch.tensor(expected))
    torch.testing.assert_close(distribution.mean(), torch.tensor(outputs)[..., 0])
    assert distribution.taus.tolist() == pytest.approx([(i + 0.5) / 7 for i in range(7)])


def test_rises_worked_by_hand():
    assert centred_rises(torch.tensor([1.0, 4.0])).tolist() == [-2.0, -1.0, 3.0]
    assert centred_rises(torch.empty(2, 0)).tolist() == [[0.0], [0.0]]


@pytest.mark.parametrize("layers", [Layers(), Layers(dueling=True)], ids=["plain", "dueling"])
@pytest.mark.parametrize("factor", [0.1, 1.0, 30.0, 1000.0])
def test_no_quantile_is_below_the_one_before_whatever_the_weights(factor, layers):
    for seed in range(5):
        quantiles = view(make(50, seed, factor, layers)).quantile(torch.linspace(0, 1, 10_001))
        assert quantiles.isfinite().all()
        assert int((quantiles.diff(dim=-1) < 0).sum()) == 0


def test_gaps_follow_a_new_unit_where_they_are_linear():
    head = make(factor=1.0)
    with torch.no_grad():
        head.last.advantages.bias.add_(10.0)  # all gaps far above 1
    before = view(head)
    head.rescale(0.5)
    torch.testing.assert_close(view(head).values, before.values / 2)
    assert all(low < high for low, high in pairwise(view(head).values[0, 0].tolist()))


def test_a_single_quantile_is_the_mean():
    assert not Nq(quantiles=1).has_spread
    head = make(1)
    assert torch.equal(view(head).values[..., 0], head.last.table(head.hidden(features()).relu(), None)[..., 0])
