"""Random network distillation: its novelty, the values of later novelty across episodes, and its local form."""

from dataclasses import replace

import pytest
import torch

from monotau.errors import ConfigError
from monotau.explorers.rnd import Rnd, RndExplorer
from tests.support.networks import SMALL_HEADS, random_batch, small_factory, stop_training, taught, teach

FORMS = pytest.mark.parametrize("form", ["backed-up", "local"])


def make(name: str = "ndqfn", learning_rate: float = 1e-3, **settings) -> RndExplorer:
    factory = small_factory(SMALL_HEADS[name], learning_rate=learning_rate)
    online, target = factory.make("online"), factory.make("online")
    return taught(Rnd(**({"features": 4} | settings)), factory, online, target)


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def features(explorer: RndExplorer, observations: torch.Tensor) -> tuple[list, list]:
    """Return the outputs of the random network and of the predictor, row by row."""
    nothing = torch.empty(len(observations), 0)
    networks = explorer.distillation.target, explorer.distillation.predictor
    return tuple(network.predict(observations, nothing).mean().tolist() for network in networks)


@pytest.mark.parametrize(("form", "items"), [("backed-up", 1), ("local", 3)])
def test_novelty_is_the_mean_squared_error_of_the_features_in_units_of_the_first(form, items):
    explorer, batch = make(form=form), random_batch()
    seen = batch.observations if form == "local" else batch.next_observations
    assert torch.equal(explorer.distillation.novelty(seen, None), torch.ones(9, items))
    explorer.prepare(batch, seeded())
    errors = [
        [sum((a - b) ** 2 for a, b in zip(wanted[4 * i : 4 * i + 4], got[4 * i : 4 * i + 4], strict=True)) / 4
         for i in range(items)]
        for wanted, got in zip(*features(explorer, seen), strict=True)
    ]  # fmt: skip
    first = sum(map(sum, errors)) / (9 * items)
    expected = torch.tensor(errors) / first
    torch.testing.assert_close(explorer.distillation.novelty(seen, None), expected, rtol=1e-4, atol=1e-6)
    assert expected.std() > 0.01


@FORMS
def test_the_predictor_learns_the_next_observations_or_the_sampled_actions(form):
    explorer, batch = make(form=form), random_batch(7)
    prepared = explorer.prepare(batch, seeded())
    seen = batch.observations if form == "local" else batch.next_observations
    total = 0.0
    for wanted, got, action in zip(*features(explorer, seen), batch.actions.tolist(), strict=True):
        chosen = slice(4 * action, 4 * action + 4) if form == "local" else slice(None)
        total += sum((a - b) ** 2 for a, b in zip(wanted[chosen], got[chosen], strict=True)) / 4
    assert explorer.loss(batch, None, prepared).item() == pytest.approx(total / 7, rel=1e-4)


@FORMS
def test_novelty_falls_for_replayed_transitions(form):
    explorer, batch = make(form=form, learning_rate=1e-2), random_batch()
    for _ in range(100):
        teach(explorer, batch, None, seeded())
    if form == "backed-up":
        known, other = batch.next_observations, random_batch(seed=5).observations
        assert explorer.distillation.novelty(known, None).mean() < 0.3
        assert explorer.distillation.novelty(known, None).mean() < explorer.distillation.novelty(other, None).mean()
    else:
        tried = torch.zeros(9, 3, dtype=torch.bool)
        tried[torch.arange(9), batch.actions] = True
        novelty = explorer.bonus(batch.observations, None)
        assert novelty[tried].mean() < 0.3
        assert novelty[tried].mean() < novelty[~tried].mean()


@pytest.mark.slow
def test_later_novelty_is_summed_across_the_ends_of_episodes():
    """On a cycle x -> y -> x whose second step ends an episode: U(x) = e(y) + d U(y), U(y) = e(x) + d U(x)."""
    explorer = make(learning_rate=1e-2, future_rate=0.2, discount=0.5)
    x, y = torch.randn(2, 1, 1, 5, generator=torch.Generator().manual_seed(3)).unbind()
    batch = replace(
        random_batch(2),
        observations=torch.cat([x, y]),
        next_observations=torch.cat([y, x]),
        actions=torch.tensor([1, 2]),
        discounts=torch.tensor([0.9, 0.0]),
        next_masks=torch.tensor([[False, False, True], [False, True, False]]),
    )
    teach(explorer, batch, None, seeded())
    stop_training(explorer)
    for _ in range(600):
        teach(explorer, batch, None, seeded())
    of_y, of_x = explorer.distillation.novelty(batch.next_observations, None)[:, 0].tolist()
    assert abs(of_x - of_y) > 0.1
    bonus = explorer.bonus(batch.observations, None)
    assert bonus[0, 1].item() == pytest.approx((of_y + 0.5 * of_x) / 0.75, abs=0.05)
    assert bonus[1, 2].item() == pytest.approx((of_x + 0.5 * of_y) / 0.75, abs=0.05)


def test_targets_worked_out_action_by_action_allow_only_the_masked_actions():
    explorer, batch = make(discount=0.8), random_batch(7, masked=True)
    for _ in range(3):
        teach(explorer, batch, None, seeded())
    losses = []
    explorer.future.optimiser.step = losses.append
    novelty = explorer.distillation.novelty(batch.next_observations, None)[:, 0].tolist()
    later = explorer.future.target_values(batch.next_observations).tolist()
    now = explorer.future.values(batch.observations).tolist()
    squares = []
    for row in range(7):
        best = max(value for value, ok in zip(later[row], batch.next_masks[row], strict=True) if ok)
        squares.append((now[row][batch.actions[row]] - novelty[row] - 0.8 * best) ** 2)
    explorer.learn(batch, seeded())
    assert losses[0].item() == pytest.approx(sum(squares) / 7, rel=1e-4)
    assert (batch.discounts == 0).any()  # they do not count


@FORMS
def test_the_scores_add_the_weighted_bonus_and_its_mean_is_that_of_the_allowed_actions(form):
    explorer, batch = make(form=form, c=2.5), random_batch(masked=True)
    for _ in range(5):
        teach(explorer, batch, None, seeded())
    explorer.metrics()
    view = small_factory().make("online").predict(batch.observations, torch.empty(9, 0))
    bonus = explorer.bonus(batch.observations, None)
    assert bonus.abs().min() > 0
    scores = explorer.scores(batch.observations, view, None, batch.masks)
    torch.testing.assert_close(scores, view.mean() + 2.5 * bonus)
    assert explorer.metrics() == {"bonus_mean": pytest.approx(bonus[batch.masks].mean().item(), rel=1e-5)}
    before = bonus.clone()
    explorer.rescale(4.0)  # novelty has no unit, and c counts in the unit of returns
    assert torch.equal(explorer.bonus(batch.observations, None), before)


def test_a_weight_of_zero_runs_no_network(monkeypatch):
    explorer, batch = make(c=0.0), random_batch()
    monkeypatch.setattr(explorer, "bonus", lambda *_: pytest.fail("the bonus was computed"))
    view = small_factory().make("online").predict(batch.observations, torch.empty(9, 0))
    assert torch.equal(explorer.scores(batch.observations, view, None), view.mean())


@FORMS
@pytest.mark.parametrize("name", ["ndqfn", "iqn", "dqn"])
def test_the_state_carries_over_to_another_explorer(form, name):
    explorer, batch = make(name, form=form), random_batch()
    for _ in range(3):
        teach(explorer, batch, None, seeded())
    factory = replace(small_factory(SMALL_HEADS[name]), seed=9)
    other = taught(Rnd(features=4, form=form), factory, factory.make("online"), factory.make("online"))
    other.load_state(explorer.state())
    assert torch.equal(other.bonus(batch.observations, None), explorer.bonus(batch.observations, None))
    assert [optimiser.networks.keys() for optimiser in other.optimisers()] == [{"future"}] * (form == "backed-up")
    for each in (explorer, other):  # the restored scales are not measured again
        each.prepare(random_batch(seed=4), seeded())
    assert torch.equal(other.state()["unit"], explorer.state()["unit"])


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"c": -1.0}, "explorer.c is -1.0, but must be finite and not negative"),
        ({"features": 0}, "explorer.features is 0, but must be at least 1"),
        ({"discount": 1.0}, "explorer.discount is 1.0, but must be at least 0 and below 1: novelty is summed across"),
        ({"discount": -0.1}, "explorer.discount is -0.1"),
        ({"future_rate": 0.0}, "explorer.future_rate is 0.0, but must be above 0 and at most 1"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, match):
    with pytest.raises(ConfigError, match=match):
        Rnd(**settings)
