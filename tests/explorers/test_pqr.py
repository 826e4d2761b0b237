"""Perturbed quantile regression: its random weights, their decay, and the heads that it refuses."""

import math

import pytest
import torch

from monotau.config.schema import Config
from monotau.distributions import Diracs, PiecewiseLinear
from monotau.errors import ConfigError
from monotau.explorers.pqr import Pqr, PqrExplorer, perturbed_weights, weighted_mean
from monotau.networks import Role
from monotau.networks.torsos.mlp import Mlp
from tests.support.networks import SMALL_HEADS, random_batch, small_factory

HEADS = pytest.mark.parametrize("name", [name for name in SMALL_HEADS if name != "dqn"])


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def predicted(name: str = "ndqfn", rows: int = 5):
    network, observations = small_factory(SMALL_HEADS[name]).make("online"), random_batch(rows).observations
    return observations, network.predict(observations, network.fractions(Role.ACT, rows, seeded()))


def test_weights_by_hand():
    drawn = torch.tensor([[0.5, 0.3, 0.2, 0.0], [0.25, 0.25, 0.25, 0.25]])
    # 1 + 2 (4 x - 1) is 3, 1.4, 0.6 and -1, cut to 0; their mean is 1.25.
    torch.testing.assert_close(perturbed_weights(drawn, 2.0), torch.tensor([[2.4, 1.12, 0.48, 0.0], [1.0] * 4]))
    assert torch.equal(perturbed_weights(drawn, 0.0), torch.ones(2, 4))


def test_a_weighted_mean_by_hand():
    """A line from 0 to 4 between fractions 1/4 and 3/4, flat outside of them, and weights on three intervals."""
    line = PiecewiseLinear(torch.tensor([0.25, 0.75]), torch.tensor([[[0.0, 4.0]]]))
    below = 8 * (1 / 3 - 1 / 4) ** 2 / 2
    middle = 2.0 / 3
    above = 2.0 - below - middle  # the mean is 2
    found = weighted_mean(line, torch.tensor([[1.5, 0.5, 1.0]]))
    assert found.item() == pytest.approx(1.5 * below + 0.5 * middle + above)


def test_on_as_many_intervals_as_quantiles_it_is_the_paper_s_weighted_sum_even_if_they_cross():
    values, weights = torch.randn(2, 3, 6, generator=seeded()), torch.rand(2, 6, generator=seeded(1))
    diracs = Diracs((torch.arange(6) + 0.5) / 6, values, torch.full((6,), 1 / 6))
    expected = [
        [sum(w * v for w, v in zip(weights[b].tolist(), values[b, a].tolist(), strict=True)) / 6 for a in range(3)]
        for b in range(2)
    ]
    torch.testing.assert_close(weighted_mean(diracs, weights), torch.tensor(expected))


@HEADS
def test_the_weighted_mean_is_an_average_over_fractions_for_every_head(name):
    _, view = predicted(name)
    weights = torch.rand(5, 7, generator=seeded())
    taus = (torch.arange(14_000) + 0.5) / 14_000
    expected = (view.quantile(taus) * weights[:, None, (taus * 7).long()]).mean(dim=-1)
    torch.testing.assert_close(weighted_mean(view, weights), expected, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(weighted_mean(view, torch.ones(5, 7)), view.mean(), rtol=1e-4, atol=1e-5)


def test_drawn_weights_have_mean_one_and_those_of_a_dirichlet_distribution_before_they_are_cut():
    explorer = PqrExplorer(Pqr(delta=1.0, intervals=8, concentration=0.5))
    weights = explorer.weights(4_000, seeded())  # with a size of 1 they are 8 times the drawn shares
    torch.testing.assert_close(weights.mean(dim=1), torch.ones(4_000, dtype=torch.float64))
    torch.testing.assert_close(weights.mean(dim=0), torch.ones(8, dtype=torch.float64), rtol=0.1, atol=0)
    variance = 64 * (1 / 8) * (7 / 8) / (8 * 0.5 + 1)
    assert weights.var().item() == pytest.approx(variance, rel=0.1)


def test_the_perturbation_decays_with_the_number_of_decisions():
    explorer = PqrExplorer(Pqr(delta=6.0, decay=0.5, intervals=5))
    observations, view = predicted()
    sizes = []
    for _ in range(3):
        sizes.append(explorer.size)
        explorer.scores(observations, view, seeded())
    assert sizes == [pytest.approx(6.0 * t**-1.5) for t in (1, 6, 11)]
    assert math.isfinite(explorer.metrics()["perturbation"])
    assert explorer.metrics() == {}


def test_scores_use_the_same_weights_for_all_actions_of_a_state_and_others_for_each_state():
    explorer = PqrExplorer(Pqr(delta=3.0, intervals=5, concentration=1.0))
    observations, view = predicted()
    weights = explorer.weights(5, seeded()).float()
    assert len(weights.unique(dim=0)) == 5
    scores = explorer.scores(observations, view, seeded())
    torch.testing.assert_close(scores, weighted_mean(view, weights))
    assert not torch.allclose(scores, view.mean())


def test_without_a_generator_or_after_a_long_time_the_scores_are_the_means():
    explorer = PqrExplorer(Pqr())
    observations, view = predicted()
    assert torch.equal(explorer.scores(observations, view, None), view.mean())
    assert explorer.decisions.total == 0
    explorer.decisions.add(10**12)
    torch.testing.assert_close(explorer.scores(observations, view, seeded()), view.mean(), rtol=1e-4, atol=1e-5)


def test_the_draws_follow_the_generator():
    explorer = PqrExplorer(Pqr(intervals=6))
    assert torch.equal(explorer.weights(3, seeded()), explorer.weights(3, seeded()))
    assert not torch.equal(explorer.weights(3, seeded()), explorer.weights(3, seeded(1)))


def test_the_count_of_decisions_carries_over_and_is_merged_once():
    one, other = PqrExplorer(Pqr()), PqrExplorer(Pqr())
    one.decisions.add(9)
    other.load_state(one.state())
    assert (other.decisions.total, other.size) == (9, one.size)
    other.decisions.add(4)
    one.merge_stats(other.drain_stats())
    assert one.decisions.total == 13
    assert [int(each.drain_stats()["decisions"]) for each in (one, other)] == [9, 0]


def test_it_has_no_bonus_and_needs_no_target():
    explorer = PqrExplorer(Pqr())
    assert not explorer.wants_target
    assert explorer.wants_spread
    with pytest.raises(ConfigError, match="this agent has no exploration bonus: its explorer is pqr"):
        explorer.bonus(random_batch().observations, None)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"delta": -1.0}, "explorer.delta is -1.0, but must be finite and not negative"),
        ({"decay": 0.0}, "explorer.decay is 0.0, but must be a positive number"),
        ({"concentration": 0.0}, "explorer.concentration is 0.0, but must be a positive number"),
        ({"intervals": 1}, "explorer.intervals is 1, but must be at least 2"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, match):
    with pytest.raises(ConfigError, match=match):
        Pqr(**settings)


def test_a_head_without_spread_is_refused():
    with pytest.raises(ConfigError, match=r"explorer 'pqr' needs the spread of returns.* criterion would be its mean"):
        Config(preset="dqn", profile="classic", torso=Mlp(), head=SMALL_HEADS["dqn"], explorer=Pqr())
