"""The average of distributions over actions: of quantile functions, or of the probabilities of fixed atoms."""

import pytest
import torch

from monotau.distributions import Binned, Categorical, Diracs, PiecewiseLinear, Point, Stepped, Support

WEIGHTS = torch.tensor([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]], dtype=torch.float64)
BATCH, ACTIONS, K, M = 2, 3, 4, 11
TAUS = (torch.arange(M, dtype=torch.float64) + 0.5) / M


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def shared_by_actions(rows: torch.Tensor) -> torch.Tensor:
    return rows[:, None, :].expand(BATCH, ACTIONS, -1)


KNOTS = torch.tensor([0.1, 0.3, 0.6, 0.9], dtype=torch.float64)
ROWS = torch.stack([KNOTS, KNOTS - 0.05])
MASSES = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1]], dtype=torch.float64)
STEPS = numbers(BATCH, ACTIONS, K - 1).abs()
OF_QUANTILES = {
    "point": Point(numbers(BATCH, ACTIONS)),
    "lines": PiecewiseLinear(KNOTS, numbers(BATCH, ACTIONS, K)),
    "lines on knots of each state": PiecewiseLinear(shared_by_actions(ROWS), numbers(BATCH, ACTIONS, K)),
    "diracs": Diracs(KNOTS, numbers(BATCH, ACTIONS, K), MASSES[0]),
    "diracs at fractions of each state": Diracs(
        shared_by_actions(ROWS), numbers(BATCH, ACTIONS, K), shared_by_actions(MASSES)
    ),
    "steps": Stepped(Support.of(KNOTS, "lowest"), numbers(BATCH, ACTIONS), STEPS),
    "steps on knots of each state": Stepped(
        Support.of(shared_by_actions(ROWS), "mean"), numbers(BATCH, ACTIONS), STEPS
    ),
}


@pytest.mark.parametrize("name", OF_QUANTILES)
def test_quantile_functions_are_averaged_fraction_by_fraction(name):
    distribution = OF_QUANTILES[name]
    average = distribution.average(WEIGHTS)
    assert type(average) is type(distribution)
    assert average.batch_shape == (BATCH,)
    quantiles = distribution.quantile(TAUS).tolist()
    expected = [
        [sum(WEIGHTS[row, action].item() * quantiles[row][action][m] for action in range(ACTIONS)) for m in range(M)]
        for row in range(BATCH)
    ]
    torch.testing.assert_close(average.quantile(TAUS), torch.tensor(expected, dtype=torch.float64))
    torch.testing.assert_close(average.mean(), (WEIGHTS * distribution.mean()).sum(dim=1))


@pytest.mark.parametrize("shared", [True, False])
def test_histograms_are_mixed(shared):
    probs = numbers(BATCH, ACTIONS, K).softmax(dim=-1)
    average = Binned(KNOTS if shared else shared_by_actions(ROWS), probs.log()).average(WEIGHTS)
    torch.testing.assert_close(average.logs[0].exp(), probs[0, 0] / 2 + probs[0, 1] / 4 + probs[0, 2] / 4)
    assert average.centres.shape == ((K,) if shared else (BATCH, K))
    assert average.batch_shape == (BATCH,)


@pytest.mark.parametrize("shared", [True, False])
def test_probabilities_of_atoms_are_mixed_and_their_mass_is_kept(shared):
    probs = numbers(BATCH, ACTIONS, K).softmax(dim=-1)
    atoms = KNOTS if shared else shared_by_actions(ROWS)
    average = Categorical(atoms, probs).average(WEIGHTS)
    torch.testing.assert_close(average.probs[0], probs[0, 0] / 2 + probs[0, 1] / 4 + probs[0, 2] / 4)
    assert torch.equal(average.probs[1], probs[1, 1])
    torch.testing.assert_close(average.probs.sum(dim=-1), torch.ones(BATCH, dtype=torch.float64))
    torch.testing.assert_close(average.mean(), (WEIGHTS * Categorical(atoms, probs).mean()).sum(dim=1))
