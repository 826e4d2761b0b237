"""Bootstrapped DQN: its members, their priors, the transitions that train them, and the member of an episode."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from monotau.distributions import Point
from monotau.errors import ConfigError
from monotau.explorers.bootstrapped import Bootstrapped, BootstrappedExplorer, hashed, included
from monotau.networks.layers import Layers
from tests.support.networks import SMALL_HEADS, SMALL_NDQFN, random_batch, small_factory, taught, teach

VIEW = Point(torch.zeros(6, 3))
"""The agent's own prediction, which the ensemble does not use."""


def make(name: str = "ndqfn", learning_rate: float = 1e-3, seed: int = 0, **settings) -> BootstrappedExplorer:
    factory = replace(small_factory(SMALL_HEADS[name], learning_rate=learning_rate), seed=seed)
    online, target = factory.make("online"), factory.make("online")
    return taught(Bootstrapped(**({"members": 4} | settings)), factory, online, target)


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def outputs(network, observations: torch.Tensor) -> torch.Tensor:
    return network.predict(observations, torch.empty(len(observations), 0)).mean().reshape(-1, 3, 4)


def test_a_member_s_values_are_what_it_learned_plus_its_scaled_prior():
    explorer, batch = make(prior_scale=2.5), random_batch()
    teach(explorer, batch, None, seeded())
    learned, fixed = (outputs(network, batch.observations) for network in (explorer.ensemble, explorer.priors))
    torch.testing.assert_close(explorer.values(batch.observations), learned + 2.5 * fixed)
    assert fixed.square().mean().sqrt().item() == pytest.approx(1.0, rel=0.5)
    assert learned.abs().mean() < 0.3 * fixed.abs().mean()  # before it has learned much
    assert torch.corrcoef(fixed.reshape(-1, 4).T).fill_diagonal_(0).abs().max() < 0.8


def test_the_loss_has_a_target_for_each_member_and_leaves_out_transitions_that_do_not_train_it():
    explorer, batch = make(prior_scale=1.5, inclusion=0.6), random_batch(7, masked=True)
    for _ in range(3):
        teach(explorer, batch, None, seeded())
    learned, now, later, ahead = (
        outputs(network, observations).tolist()
        for network, observations in (
            (explorer.ensemble, batch.observations),
            (explorer.priors, batch.observations),
            (explorer.priors, batch.next_observations),
            (explorer.target, batch.next_observations),
        )
    )
    chosen = included(batch.index, 4, 0.6)
    total = 0.0
    for row, action in enumerate(batch.actions.tolist()):
        allowed = [other for other in range(3) if batch.next_masks[row, other]]
        for member in range(4):
            best = max(ahead[row][other][member] + 1.5 * later[row][other][member] for other in allowed)
            target = float(batch.rewards[row]) + float(batch.discounts[row]) * best
            error = learned[row][action][member] + 1.5 * now[row][action][member] - target
            total += error**2 * chosen[row, member] / (7 * 4)
    assert 0 < chosen.sum() < chosen.size
    assert explorer.loss(batch, None, explorer.prepare(batch, seeded())).item() == pytest.approx(total, rel=1e-4)


@pytest.mark.slow
def test_members_disagree_where_they_were_not_trained():
    explorer, batch = make(learning_rate=1e-2, inclusion=1.0), random_batch()
    batch = replace(batch, discounts=torch.zeros(9))
    for _ in range(100):
        teach(explorer, batch, None, seeded())
    tried = torch.zeros(9, 3, dtype=torch.bool)
    tried[torch.arange(9), batch.actions] = True
    disagreement = explorer.bonus(batch.observations, None)
    assert disagreement[tried].median() < 0.3 * disagreement[~tried].median()


def test_the_scores_in_an_episode_are_those_of_its_member():
    explorer, batch = make(), random_batch(6)
    values = explorer.values(batch.observations)
    numbers = torch.tensor([3, 0, 0, 1, 2, 3])
    scores = explorer.scores_in_episodes(batch.observations, VIEW, None, None, numbers)
    assert scores.tolist() == [[values[row, a, member].item() for a in range(3)] for row, member in enumerate(numbers)]
    members = explorer.draw_episodes(6, seeded())
    expected = explorer.scores_in_episodes(batch.observations, VIEW, None, None, members)
    assert torch.equal(explorer.scores(batch.observations, VIEW, seeded()), expected)
    torch.testing.assert_close(explorer.scores(batch.observations, VIEW, None), values.mean(dim=2))


def test_every_member_is_drawn_about_equally_often():
    drawn = make().draw_episodes(4_000, seeded())
    np.testing.assert_allclose(np.bincount(drawn.numpy(), minlength=4), 1_000, rtol=0.1)


def test_a_transition_trains_the_same_members_whenever_it_is_sampled():
    index = np.arange(20_000)
    chosen = included(index, 3, 0.3)
    assert (included(index[::-7], 3, 0.3) == chosen[::-7]).all()
    assert chosen.mean(axis=0) == pytest.approx([0.3] * 3, abs=0.015)
    pairs = np.corrcoef(np.vstack([chosen.T, chosen[:, 0][np.r_[1:20_000, 0]]]))
    assert np.abs(pairs - np.eye(4)).max() < 0.03
    assert included(index, 2, 1.0).all()


def test_hashes_are_the_published_outputs_of_split_mix_64():
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [int(number) for number in hashed(np.arange(3))] == expected


def test_learning_leaves_the_priors_alone_and_moves_the_target_by_its_rate():
    explorer, batch = make(target_rate=0.25), random_batch()
    teach(explorer, batch, None, seeded())
    fixed = [weight.clone() for weight in explorer.priors.parameters()]
    before = [weight.clone() for weight in explorer.target.parameters()]
    teach(explorer, batch, None, seeded())
    assert all(torch.equal(p, q) for p, q in zip(fixed, explorer.priors.parameters(), strict=True))
    for old, new, weight in zip(before, explorer.target.parameters(), explorer.ensemble.parameters(), strict=True):
        torch.testing.assert_close(new, 0.75 * old + 0.25 * weight)
    assert not explorer.wants_target


def test_rescaling_multiplies_all_values():
    explorer, batch = make(), random_batch()
    teach(explorer, batch, None, seeded())
    values, ahead = explorer.values(batch.observations), outputs(explorer.target, batch.observations)
    explorer.rescale(0.25)
    torch.testing.assert_close(explorer.values(batch.observations), 0.25 * values)
    torch.testing.assert_close(outputs(explorer.target, batch.observations), 0.25 * ahead)


@pytest.mark.parametrize("name", ["ndqfn", "iqn", "dqn"])
def test_the_state_carries_over_to_another_explorer(name):
    explorer, other, batch = make(name), make(name, seed=9), random_batch()
    other.load_state(explorer.state())
    assert not other.measured
    assert torch.equal(other.values(batch.observations), explorer.values(batch.observations))
    large = replace(batch, observations=50 * batch.observations)
    for _ in range(3):
        teach(explorer, large, None, seeded())
    other.load_state(explorer.state())
    for each in (explorer, other):  # neither measures the scale again
        teach(each, batch, None, seeded())
    assert explorer.input_scale.factor < 0.1
    for here, there in zip(explorer.state().values(), other.state().values(), strict=True):
        assert here.shape == there.shape
    assert torch.equal(other.input_scale.factor, explorer.input_scale.factor)


def test_metrics_are_means_since_the_last_call():
    explorer = make()
    teach(explorer, random_batch(), None, seeded())
    assert set(explorer.metrics()) == {"ensemble_loss"}
    assert explorer.metrics() == {}


def test_its_networks_have_neither_noise_nor_dueling():
    factory = small_factory(SMALL_NDQFN, layers=Layers(noisy=True, dueling=True))
    explorer = Bootstrapped().build(factory, factory.make("online"), factory.make("online"))
    assert not any("noise" in name or ".value." in name for name in explorer.state())


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"members": 0}, "explorer.members is 0, but must be at least 1"),
        ({"prior_scale": -1.0}, "explorer.prior_scale is -1.0, but must be finite and not negative"),
        ({"inclusion": 0.0}, "explorer.inclusion is 0.0, but must be above 0 and at most 1"),
        ({"target_rate": 1.5}, "explorer.target_rate is 1.5, but must be above 0 and at most 1"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, match):
    with pytest.raises(ConfigError, match=match):
        Bootstrapped(**settings)
