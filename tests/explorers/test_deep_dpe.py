"""Deep DPE: local novelty, future novelty, and how it is propagated backwards."""

from dataclasses import replace

import pytest
import torch

from monotau.errors import ConfigError
from monotau.explorers.deep_dpe import DeepDpe, DeepDpeExplorer
from monotau.networks import Role
from monotau.networks.layers import Layers
from tests.support.networks import SMALL_HEADS, SMALL_NDQFN, random_batch, small_factory, stop_training, taught, teach

HEADS = pytest.mark.parametrize("name", SMALL_HEADS)


def make(name: str = "ndqfn", learning_rate: float = 1e-3, **settings) -> DeepDpeExplorer:
    factory = small_factory(SMALL_HEADS[name], learning_rate=learning_rate)
    online, target = factory.make("online"), factory.make("online")
    return taught(DeepDpe(**({"views": 3} | settings)), factory, online, target)


QUICK = ("ndqfn", "qr", "c51")
"""Heads of the longest test in every run of the tests; the others are slow."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in SMALL_HEADS])
def test_novelty_starts_at_one_and_falls_for_replayed_states(name):
    explorer, batch = make(name, learning_rate=5e-3), random_batch()
    assert torch.equal(explorer.novelty(batch.observations, None), torch.ones(9, 3))
    rows = torch.arange(9), batch.actions
    generator = torch.Generator().manual_seed(0)
    for _ in range(300):
        teach(explorer, batch, None, generator)
    novelty = explorer.novelty(batch.observations, None)
    tried = torch.zeros(9, 3, dtype=torch.bool)
    tried[rows] = True
    assert novelty[tried].mean() < 0.5
    assert novelty[tried].mean() < novelty[~tried].mean()


def test_novelty_is_the_mean_distance_of_the_views_in_units_of_the_first():
    explorer, batch = make(), random_batch()
    teach(explorer, batch, None, torch.Generator().manual_seed(0))
    views = [
        network.predict(batch.observations, torch.empty(9, 0))
        for network in (explorer.distillation.target, explorer.distillation.predictor)
    ]
    distances = views[0].w1(views[1])  # B, actions times views
    expected = (
        torch.stack([distances[:, 3 * a : 3 * a + 3].mean(dim=1) for a in range(3)], dim=1) / explorer.distillation.unit
    )
    torch.testing.assert_close(explorer.novelty(batch.observations, None), expected)
    assert expected.mean().item() == pytest.approx(1.0, rel=0.2)  # after one small step


def test_the_scores_add_local_and_future_novelty():
    explorer, batch = make(c=2.5), random_batch()
    for _ in range(5):
        teach(explorer, batch, None, torch.Generator().manual_seed(0))
    view = small_factory().make("online").predict(batch.observations, torch.empty(9, 0))
    here = explorer.novelty(batch.observations, None)
    further = explorer.future.network.predict(batch.observations, torch.empty(9, 0)).mean()
    assert further.abs().sum() > 0
    torch.testing.assert_close(explorer.bonus(batch.observations, None), here + further)
    torch.testing.assert_close(explorer.scores(batch.observations, view, None), view.mean() + 2.5 * (here + further))


def test_a_weight_of_zero_runs_no_network(monkeypatch):
    explorer, batch = make(c=0.0), random_batch()
    monkeypatch.setattr(explorer, "bonus", lambda *_: pytest.fail("the bonus was computed"))
    view = small_factory().make("online").predict(batch.observations, torch.empty(9, 0))
    assert torch.equal(explorer.scores(batch.observations, view, None), view.mean())


def test_future_novelty_is_learned_as_the_discounted_best_novelty_ahead():
    """On a chain x -> y -> end with a fixed predictor, U(x) = d * max(i + U)(y) and U(y) = 0."""
    explorer = make(learning_rate=1e-2, future_rate=0.2)
    x, y = torch.randn(2, 1, 1, 5, generator=torch.Generator().manual_seed(3)).unbind()
    batch = random_batch(2)
    batch = replace(
        batch,
        observations=torch.cat([x, y]),
        next_observations=torch.cat([y, x]),
        actions=torch.tensor([1, 2]),
        discounts=torch.tensor([0.9, 0.0]),
    )
    teach(explorer, batch, None, torch.Generator())
    stop_training(explorer)
    for _ in range(600):
        teach(explorer, batch, None, torch.Generator().manual_seed(0))
    future = explorer.future.network.predict(batch.observations, torch.empty(2, 0)).mean()
    ahead = explorer.bonus(y, None).max()
    assert future[1, 2].item() == pytest.approx(0.0, abs=0.02)
    assert future[0, 1].item() == pytest.approx(0.9 * ahead.item(), abs=0.05)
    assert ahead > 0.3


def test_future_novelty_is_that_of_the_allowed_actions():
    """One update of U with a learning rate of zero: its loss is that of targets worked out action by action."""
    explorer, batch = make(), random_batch(7, masked=True)
    for _ in range(3):
        teach(explorer, batch, None, torch.Generator().manual_seed(0))
    losses = []
    explorer.future.optimiser.step = losses.append
    novelty = explorer.novelty(batch.next_observations, None)
    bonus = novelty + explorer.future.target.predict(batch.next_observations, torch.empty(7, 0)).mean()
    predicted = explorer.future.network.predict(batch.observations, torch.empty(7, 0)).mean().tolist()
    squares = []
    for row, discount, values, mask, action in zip(
        predicted, batch.discounts, bonus.tolist(), batch.next_masks, batch.actions, strict=True
    ):
        best = max(value for value, allowed in zip(values, mask, strict=True) if allowed)
        squares.append((row[action] - float(discount) * best) ** 2)
    explorer.learn(batch, torch.Generator().manual_seed(0))
    assert losses[0].item() == pytest.approx(sum(squares) / 7, rel=1e-4)
    assert (bonus.argmax(dim=1) != bonus.masked_fill(~batch.next_masks, -9.0).argmax(dim=1)).any()


def test_the_mean_bonus_is_that_of_the_allowed_actions():
    explorer, batch = make(), random_batch(masked=True)
    teach(explorer, batch, None, torch.Generator())
    view = small_factory().make("online").predict(batch.observations, torch.empty(9, 0))
    explorer.scores(batch.observations, view, None, batch.masks)
    bonus = explorer.bonus(batch.observations, None)
    assert explorer.metrics()["bonus_mean"] == pytest.approx(bonus[batch.masks].mean().item(), rel=1e-5)


def test_learning_leaves_the_random_target_alone():
    explorer, batch = make(), random_batch()
    teach(explorer, batch, None, torch.Generator())
    before = [p.clone() for p in explorer.distillation.target.parameters()]
    for _ in range(3):
        teach(explorer, batch, None, torch.Generator())
    assert all(torch.equal(p, q) for p, q in zip(before, explorer.distillation.target.parameters(), strict=True))
    assert not explorer.wants_target


def test_inputs_are_brought_to_a_unit_root_mean_square_on_the_first_batch():
    explorer, batch = make(), random_batch()
    large = replace(batch, observations=50 * batch.observations)
    teach(explorer, large, None, torch.Generator())
    inputs = large.observations * explorer.distillation.input_scale.factor
    assert inputs.square().mean().item() == pytest.approx(1.0, rel=1e-4)
    factor = explorer.distillation.input_scale.factor.clone()
    teach(explorer, batch, None, torch.Generator())
    assert torch.equal(explorer.distillation.input_scale.factor, factor)
    empty = make()
    teach(empty, replace(batch, observations=torch.zeros_like(batch.observations)), None, torch.Generator())
    assert empty.distillation.input_scale.factor == 1


def test_its_networks_tell_states_apart_from_the_start():
    states = random_batch(50).observations
    explorer = make()
    for network in (explorer.distillation.target, explorer.distillation.predictor):
        values = network.predict(states, network.fractions(Role.ACT, 50, None)).mean()
        assert values.std(dim=0).mean() > 0.5 * values.abs().mean()
        assert values.square().mean() > 0.1  # the last layers have their own gain, which does not make actions alike


@HEADS
def test_the_state_carries_over_to_another_explorer(name):
    explorer, batch = make(name), random_batch()
    for _ in range(3):
        teach(explorer, batch, None, torch.Generator().manual_seed(0))
    factory = replace(small_factory(SMALL_HEADS[name]), seed=9)
    other = DeepDpe(views=3).build(factory, factory.make("online"), factory.make("online"))
    other.load_state(explorer.state())
    assert torch.equal(other.bonus(batch.observations, None), explorer.bonus(batch.observations, None))


def test_metrics_are_means_since_the_last_call():
    explorer, batch = make(), random_batch()
    teach(explorer, batch, None, torch.Generator())
    view = small_factory().make("online").predict(batch.observations, torch.empty(9, 0))
    explorer.scores(batch.observations, view, None)
    assert set(explorer.metrics()) == {"bonus_mean", "predictor_loss"}
    assert explorer.metrics() == {}


def test_its_networks_have_neither_noise_nor_dueling():
    factory = small_factory(SMALL_NDQFN, layers=Layers(noisy=True, dueling=True))
    explorer = DeepDpe().build(factory, factory.make("online"), factory.make("online"))
    assert not any("noise" in name or ".value." in name for name in explorer.state())


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"c": -1.0}, "explorer.c is -1.0, but must be finite and not negative"),
        ({"views": 0}, "explorer.views is 0, but must be at least 1"),
        ({"future_rate": 0.0}, "explorer.future_rate is 0.0, but must be above 0 and at most 1"),
        ({"future_rate": 1.5}, "explorer.future_rate is 1.5"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, match):
    with pytest.raises(ConfigError, match=match):
        DeepDpe(**settings)
