"""PE-DQN: its two members and their priors, their disagreement, their losses, and the value of later disagreement."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from monotau.distributions import Categorical, Diracs, Point
from monotau.errors import ConfigError
from monotau.explorers.pe_dqn import PeDqn, PeDqnExplorer, Views, weighted_quantile_huber
from monotau.losses import quantile_huber
from monotau.networks.layers import Layers
from tests.support.networks import SMALL_HEADS, SMALL_NDQFN, random_batch, small_factory, taught, teach


def make(name: str = "ndqfn", learning_rate: float = 1e-3, seed: int = 0, **settings) -> PeDqnExplorer:
    factory = replace(small_factory(SMALL_HEADS[name], learning_rate=learning_rate), seed=seed)
    online, target = factory.make("online"), factory.make("online")
    return taught(
        PeDqn(**({"outputs": 5, "low": -2.0, "prior_scale": 1.0, "high": 2.0} | settings)), factory, online, target
    )


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_priors_are_added_to_the_quantiles_and_to_the_logits_before_the_softmax():
    explorer, batch = make(prior_scale=2.5), random_batch()
    views = explorer.views("member", batch.observations)
    raw = {name: network.predict(batch.observations, torch.empty(9, 0)) for name, network in explorer.networks.items()}
    quantiles = raw["member_quantile"].curve() + 2.5 * raw["prior_quantile"].curve()
    torch.testing.assert_close(views.quantiles, quantiles)
    logits = raw["member_categorical"].logs + 2.5 * (raw["prior_categorical"].logs + 3.0)
    torch.testing.assert_close(views.logs.exp(), logits.softmax(dim=-1))
    assert raw["prior_quantile"].curve().square().mean().sqrt().item() == pytest.approx(1.0, rel=0.5)


def test_disagreement_by_hand():
    """Returns 0.5 and 2 on atoms -2 -1 0 1 2 against a certain 1: half of the mass of 0.5 is left of 1."""
    explorer = make()
    views = Views(torch.tensor([[[0.5, 2.0]]]), torch.tensor([[[0.0, 0.0, 0.0, 1.0, 0.0]]]).log())
    # The projection is 1/4 on 0, 1/4 on 1, 1/2 on 2: 1/4 moves by one, 1/2 by one.
    assert explorer.disagreement(views).item() == pytest.approx(0.75)
    assert explorer.values(views).item() == pytest.approx((1.25 + 1.0) / 2)


def test_disagreement_is_w1_where_the_quantiles_lie_on_the_atoms():
    explorer, generator = make(), seeded()
    quantiles = torch.randint(-2, 3, (4, 3, 5), generator=generator).float()
    logs = torch.randn(4, 3, 5, generator=generator).log_softmax(dim=-1)
    sorted_ = Diracs((torch.arange(5) + 0.5) / 5, quantiles.sort(dim=-1).values, torch.full((5,), 0.2))
    expected = sorted_.w1(Categorical(torch.linspace(-2, 2, 5), logs.exp()))
    torch.testing.assert_close(explorer.disagreement(Views(quantiles, logs)), expected, rtol=1e-4, atol=1e-5)


def test_the_weighted_loss_is_that_of_a_naive_twin_and_with_equal_weights_the_usual_one():
    generator = seeded()
    values, targets = torch.randn(4, 3, generator=generator), torch.randn(4, 7, generator=generator)
    probs = torch.rand(4, 7, generator=generator)
    expected = []
    for row in range(4):
        total = 0.0
        for i, value in enumerate(values[row].tolist()):
            for target, prob in zip(targets[row].tolist(), probs[row].tolist(), strict=True):
                u = target - value
                size = 0.5 * u**2 if abs(u) <= 0.5 else 0.5 * (abs(u) - 0.25)
                total += abs((i + 0.5) / 3 - (u < 0)) * size / 0.5 * prob
        expected.append(total)
    torch.testing.assert_close(weighted_quantile_huber(values, targets, probs, 0.5), torch.tensor(expected))
    taus = ((torch.arange(3) + 0.5) / 3).expand(4, 3)
    equal = weighted_quantile_huber(values, targets, torch.full((4, 7), 1 / 7))
    torch.testing.assert_close(equal, quantile_huber(values, taus, targets))


def test_both_members_learn_the_mixture_of_their_targets_at_the_allowed_action_with_the_highest_mean():
    explorer, batch = make(), random_batch(7, masked=True)
    for _ in range(3):
        teach(explorer, batch, None, seeded())
    atoms = np.linspace(-2, 2, 5)
    choice = explorer.values(explorer.views("member", batch.next_observations))
    later, mine = (
        explorer.views("target", batch.next_observations),
        explorer.views("member", batch.observations),
    )
    total, masked = 0.0, 0
    for row, action in enumerate(batch.actions.tolist()):
        allowed = [a for a in range(3) if batch.next_masks[row, a]]
        best = max(allowed, key=lambda a: choice[row, a].item())
        masked += best != int(choice[row].argmax())
        reward, discount = float(batch.rewards[row]), float(batch.discounts[row])
        places = [reward + discount * z for z in [*later.quantiles[row, best].tolist(), *atoms]]
        probs = [0.1] * 5 + [p / 2 for p in later.logs[row, best].exp().tolist()]
        on_atoms = np.zeros(5)
        for place, prob in zip(places, probs, strict=True):
            b = (min(max(place, -2.0), 2.0) + 2) / 1.0
            low = min(int(b), 3)
            on_atoms[low] += prob * (low + 1 - b)
            on_atoms[low + 1] += prob * (b - low)
        total += -sum(p * log for p, log in zip(on_atoms, mine.logs[row, action].tolist(), strict=True))
        for i, value in enumerate(mine.quantiles[row, action].tolist()):
            for place, prob in zip(places, probs, strict=True):
                u = place - value
                total += abs((i + 0.5) / 5 - (u < 0)) * (0.5 * u**2 if abs(u) <= 1 else abs(u) - 0.5) * prob
    assert masked
    assert explorer.loss(batch, None, ()).item() == pytest.approx(total / 7, rel=1e-4)


def test_later_disagreement_follows_the_exploring_action_among_those_allowed():
    explorer, batch = make(c=0.7), random_batch(7, masked=True)
    for _ in range(3):
        teach(explorer, batch, None, seeded())
    losses = []
    explorer.future.optimiser.step = losses.append
    views = explorer.views("member", batch.next_observations)
    local, values = explorer.disagreement(views), explorer.values(views)
    now, later = explorer.future.values(batch.observations), explorer.future.target_values(batch.next_observations)
    online = explorer.future.values(batch.next_observations)
    squares = []
    for row in range(7):
        allowed = [a for a in range(3) if batch.next_masks[row, a]]
        scores = {a: (values + 0.7 * (local + online))[row, a].item() for a in allowed}
        best = max(scores, key=scores.get)
        target = float(batch.discounts[row]) * (local + later)[row, best].item()
        squares.append((now[row, batch.actions[row]].item() - target) ** 2)
    explorer.learn(batch, seeded())
    assert losses[0].item() == pytest.approx(sum(squares) / 7, rel=1e-4)


@pytest.mark.slow
def test_disagreement_falls_where_the_members_were_trained():
    explorer, batch = make(learning_rate=1e-2), random_batch()
    batch = replace(batch, discounts=torch.zeros(9), rewards=batch.rewards.clamp(-1, 1))
    for _ in range(100):
        teach(explorer, batch, None, seeded())
    tried = torch.zeros(9, 3, dtype=torch.bool)
    tried[torch.arange(9), batch.actions] = True
    disagreement = explorer.disagreement(explorer.views("member", batch.observations))
    assert disagreement[tried].mean() < 0.5 * disagreement[~tried].mean()


def test_the_scores_add_the_weighted_bonus_and_its_mean_is_that_of_the_allowed_actions():
    explorer, batch = make(c=0.5), random_batch(masked=True)
    teach(explorer, batch, None, seeded())
    explorer.metrics()
    values = explorer.values(explorer.views("member", batch.observations))
    bonus = explorer.bonus(batch.observations, None)
    scores = explorer.scores(batch.observations, Point(torch.zeros(9, 3)), None, batch.masks)
    torch.testing.assert_close(scores, values + 0.5 * bonus)
    assert explorer.metrics() == {"bonus_mean": pytest.approx(bonus[batch.masks].mean().item(), rel=1e-5)}
    assert not explorer.wants_target


def test_rescaling_multiplies_the_quantiles_and_the_values_of_later_disagreement():
    explorer, batch = make(), random_batch()
    teach(explorer, batch, None, seeded())
    before, later = explorer.views("member", batch.observations), explorer.future.values(batch.observations)
    explorer.rescale(0.25)
    after = explorer.views("member", batch.observations)
    torch.testing.assert_close(after.quantiles, 0.25 * before.quantiles)
    torch.testing.assert_close(after.logs, before.logs)  # the fixed returns are in the unit of returns
    torch.testing.assert_close(explorer.future.values(batch.observations), 0.25 * later)


def test_learning_moves_targets_by_their_rate_and_leaves_priors_alone():
    explorer, batch = make(target_rate=0.25), random_batch()
    teach(explorer, batch, None, seeded())
    old = {name: [w.clone() for w in network.parameters()] for name, network in explorer.networks.items()}
    teach(explorer, batch, None, seeded())
    for kind in ("quantile", "categorical"):
        new = {role: list(explorer.networks[f"{role}_{kind}"].parameters()) for role in ("member", "target", "prior")}
        assert all(torch.equal(p, q) for p, q in zip(old[f"prior_{kind}"], new["prior"], strict=True))
        for before, target, member in zip(old[f"target_{kind}"], new["target"], new["member"], strict=True):
            torch.testing.assert_close(target, 0.75 * before + 0.25 * member)


@pytest.mark.parametrize("name", ["ndqfn", "iqn", "dqn"])
def test_the_state_carries_over_to_another_explorer(name):
    explorer, other, batch = make(name), make(name, seed=9), random_batch()
    other.load_state(explorer.state())
    assert not other.measured
    large = replace(batch, observations=50 * batch.observations)
    for _ in range(3):
        teach(explorer, large, None, seeded())
    other.load_state(explorer.state())
    assert torch.equal(other.bonus(large.observations, None), explorer.bonus(large.observations, None))
    for each in (explorer, other):  # neither measures the scale again
        each.prepare(batch, seeded())
    assert other.input_scale.factor == explorer.input_scale.factor < 0.1


def test_its_networks_have_neither_noise_nor_dueling():
    factory = small_factory(SMALL_NDQFN, layers=Layers(noisy=True, dueling=True))
    explorer = PeDqn(outputs=3).build(factory, factory.make("online"), factory.make("online"))
    assert not any("noise" in name or ".value." in name for name in explorer.state())


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"c": -1.0}, "explorer.c is -1.0, but must be finite and not negative"),
        ({"prior_scale": float("nan")}, "explorer.prior_scale is nan, but must be finite and not negative"),
        ({"outputs": 1}, "explorer.outputs is 1, but must be at least 2"),
        ({"target_rate": 0.0}, "explorer.target_rate is 0.0, but must be above 0 and at most 1"),
        ({"low": 1.0, "high": 1.0}, "explorer.low and explorer.high are 1.0 and 1.0, but must be finite numbers, low"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, match):
    with pytest.raises(ConfigError, match=match):
        PeDqn(**settings)
