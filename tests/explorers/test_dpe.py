"""DPE: its bonus, the training of its predictor, and the weights that it must not change."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from monotau.errors import ConfigError
from monotau.explorers.dpe import Dpe, DpeExplorer
from monotau.explorers.epsilon_greedy import EpsilonGreedy
from monotau.learning.learner import Learner
from monotau.networks import Estimate, Role
from monotau.networks.heads.implicit_sorted import ImplicitSorted
from monotau.networks.heads.incremental_iqn import IncrementalIqn
from tests.support.networks import SMALL_HEADS, SMALL_NDQFN, Watching, random_batch, small_factory, taught, teach

HEADS = pytest.mark.parametrize("head", SMALL_HEADS.values(), ids=SMALL_HEADS)


def make(head=SMALL_NDQFN, learning_rate=1e-3, **settings) -> tuple[Learner, DpeExplorer]:
    factory = small_factory(head, learning_rate=learning_rate)
    learner = Learner(factory, double_q=True)
    return learner, taught(Dpe(**settings), factory, learner.online, learner.target)


def weights(network) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in network.parameters()]


@HEADS
def test_the_bonus_is_the_distance_of_target_and_predictor_on_the_same_fractions(head):
    learner, explorer = make(head)
    observations = random_batch().observations
    taus = torch.linspace(0.0005, 0.9995, 1000)
    fractions = explorer.predictor.fractions(Role.ACT, len(observations), None)
    gap = learner.target.predict(observations, fractions).quantile(taus)
    gap = gap - explorer.predictor.predict(observations, fractions).quantile(taus)
    torch.testing.assert_close(explorer.bonus(observations, None), gap.abs().mean(dim=-1), rtol=1e-2, atol=0.03)


@HEADS
def test_the_value_based_error_is_the_gap_of_the_means_and_never_more_than_dpe(head):
    observations = random_batch(50).observations
    (learner, dpe), (_, vpe) = make(head), make(head, error="value")
    fractions = learner.target.head.fractions(Role.ACT, 50, None)
    means = (
        learner.target.predict(observations, fractions).mean() - vpe.predictor.predict(observations, fractions).mean()
    )
    torch.testing.assert_close(vpe.bonus(observations, None), means.abs())
    # The means of splines are exact, but their W1 comes from chords.
    assert (vpe.bonus(observations, None) <= dpe.bonus(observations, None) + 1e-4).all()


def test_the_predictor_has_its_own_initial_weights():
    learner, explorer = make()
    pairs = zip(weights(explorer.predictor), weights(learner.target), strict=True)
    assert not any(torch.equal(p, q) for p, q in pairs if p.ndim > 1)  # biases are all zero at first


@pytest.mark.parametrize("name", [name for name, head in SMALL_HEADS.items() if hasattr(head, "kappa")])
def test_the_predictor_learns_with_its_own_kappa(name):
    """Covers all heads except C51, which is trained by cross-entropy."""
    head = SMALL_HEADS[name]
    learner, explorer = make(head, kappa=0.0625)
    assert (explorer.predictor.head.config.kappa, learner.online.head.config.kappa) == (0.0625, head.kappa)
    assert replace(explorer.predictor.head.config, kappa=head.kappa) == head
    batch, taus = random_batch(), learner.target.head.fractions(Role.TARGET, 9, None)
    current = Estimate(learner.target.predict(batch.observations, taus, batch.actions), taus)
    prediction = Estimate(explorer.predictor.predict(batch.observations, taus, batch.actions), taus)
    narrow, wide = (net.head.loss(prediction, current) for net in (explorer.predictor, learner.online))
    constants = explorer.predictor.head.constants()
    losses, side, _ = explorer.predictor.losses(batch.observations, batch.actions, taus, constants, current)
    torch.testing.assert_close(losses, narrow)
    assert not torch.allclose(narrow, wide)
    torch.testing.assert_close(explorer.loss(batch, current, (taus,)), narrow.mean() + (0 if side is None else side))


@pytest.mark.parametrize("target", ["shared", "frozen"])
def test_the_predictor_tells_actions_apart_from_the_start_and_the_online_network_does_not(target):
    learner, explorer = make(target=target)
    observations = random_batch(50).observations

    def gap(network) -> float:
        return network.predict(observations, torch.empty(50, 0)).mean().std(dim=1).mean().item()

    assert gap(learner.online) < 0.1
    assert gap(explorer.predictor) > 4 * gap(learner.online)
    if target == "frozen":
        assert gap(explorer.target) > 4 * gap(learner.online)


def test_a_diagnosis_tells_the_bonus_of_replayed_actions_from_that_of_the_others():
    _, explorer = make()
    batch = random_batch()
    bonus = explorer.bonus(batch.observations, None).tolist()
    taken = [row[action] for row, action in zip(bonus, batch.actions.tolist(), strict=True)]
    others = [
        number
        for row, action in zip(bonus, batch.actions.tolist(), strict=True)
        for place, number in enumerate(row)
        if place != action
    ]
    expected = {"bonus_taken": np.mean(taken), "bonus_other": np.mean(others)}
    assert explorer.diagnose(batch, torch.Generator()) == pytest.approx(expected, rel=1e-5)


def test_with_a_single_action_no_bonus_of_other_actions_is_reported():
    factory = small_factory(actions=1)
    learner = Learner(factory, double_q=True)
    explorer = Dpe().build(factory, learner.online, learner.target)
    assert set(explorer.diagnose(random_batch(actions=1), torch.Generator())) == {"bonus_taken"}


def gap_of_means(explorer: DpeExplorer, batch) -> torch.Tensor:
    fractions = explorer.predictor.fractions(Role.ACT, 9, None)
    views = (net.predict(batch.observations, fractions, batch.actions) for net in (explorer.target, explorer.predictor))
    one, other = (view.mean() for view in views)
    return (one - other).abs().mean()


def test_a_target_whose_quantiles_cross_leaves_a_bonus_that_cannot_be_learned_away():
    """The loss ignores the order of quantiles, but the bonus compares them by fraction; NDQFN is not affected."""
    rests = {}
    for name in ("qr", "nc-qr"):
        _, explorer = make(replace(SMALL_HEADS[name], kappa=0.01), target="frozen")
        batch, generator = random_batch(), torch.Generator().manual_seed(0)
        rows = torch.arange(9), batch.actions
        first = explorer.bonus(batch.observations, None)[rows].mean()
        for _ in range(300):
            teach(explorer, batch, None, generator)
        rests[name] = float(explorer.bonus(batch.observations, None)[rows].mean() / first)
    assert rests["qr"] > 0.5
    assert rests["nc-qr"] < 0.1


@pytest.mark.parametrize(
    "head",
    [pytest.param(SMALL_HEADS[n], marks=() if n in ("ndqfn", "iqn", "c51") else pytest.mark.slow) for n in SMALL_HEADS],
    ids=SMALL_HEADS,
)
@pytest.mark.parametrize("target", ["shared", pytest.param("frozen", marks=pytest.mark.slow)])
def test_learning_moves_the_predictor_alone_towards_its_target(head, target):
    learner, explorer = make(head, learning_rate=1e-2, target=target)
    batch, generator = random_batch(), torch.Generator().manual_seed(0)
    others = (learner.online, learner.target, explorer.target)
    before = [weights(network) for network in others]
    first = gap_of_means(explorer, batch)
    for _ in range(400):
        fractions = learner.target.head.fractions(Role.TARGET, 9, generator)
        current = Estimate(learner.target.predict(batch.observations, fractions, batch.actions), fractions)
        teach(explorer, batch, current if explorer.wants_target else None, generator)
    # Predictions of incremental IQN depend on the number of fractions, which is larger for learning than for acting;
    # those of implicit-sorted depend on a few fixed samples of its noise.
    most = {IncrementalIqn: 0.9, ImplicitSorted: 0.6}.get(type(head), 0.4)
    assert gap_of_means(explorer, batch) < most * first
    for network, old in zip(others, before, strict=True):
        assert all(torch.equal(p, q) for p, q in zip(weights(network), old, strict=True))
    assert explorer.wants_target == (target == "shared")


def test_a_frozen_target_is_neither_the_target_network_nor_synced():
    learner, explorer = make(target="frozen")
    assert explorer.target is not learner.target
    observations = random_batch().observations
    before = explorer.bonus(observations, None)
    learner.update(random_batch(), torch.Generator())
    learner.sync()
    assert torch.equal(explorer.bonus(observations, None), before)


def test_the_predictor_trains_on_its_fraction_of_the_batch():
    batch = random_batch(9)
    results = []
    for fraction, rows in ((0.5, 9), (1.0, 5)):
        learner, explorer = make(predictor_fraction=fraction)
        part = type(batch)(**{name: value[:rows] for name, value in vars(batch).items() if value is not None})
        taus = torch.full((rows, 5), 0.5)
        current = Estimate(learner.target.predict(part.observations, taus, part.actions), taus)
        teach(explorer, part, current, torch.Generator().manual_seed(0))
        results.append(weights(explorer.predictor))
    assert all(torch.equal(p, q) for p, q in zip(*results, strict=True))  # half of 9 is the first 5


def test_scores_are_the_mean_plus_c_times_the_bonus():
    learner, explorer = make(c=2.5)
    observations = random_batch().observations
    view = learner.online.predict(observations, torch.empty(9, 0))
    expected = view.mean() + 2.5 * explorer.bonus(observations, None)
    torch.testing.assert_close(explorer.scores(observations, view, None), expected)


def test_a_weight_of_zero_runs_no_network(monkeypatch):
    learner, explorer = make(c=0.0)
    observations = random_batch().observations
    view = learner.online.predict(observations, torch.empty(9, 0))
    monkeypatch.setattr(explorer, "bonus", lambda *_: pytest.fail("the bonus was computed"))
    assert torch.equal(explorer.scores(observations, view, None), view.mean())


def test_normalisation_divides_by_the_standard_deviation_of_all_bonuses_so_far():
    learner, explorer = make(normalise=True)
    seen = []
    for seed in range(4):
        observations = random_batch(3 + seed, seed=seed).observations
        view = learner.online.predict(observations, torch.empty(len(observations), 0))
        bonus = explorer.bonus(observations, None)
        seen += bonus.flatten().tolist()
        scores = explorer.scores(observations, view, None)
        torch.testing.assert_close(scores, view.mean() + bonus / float(np.std(seen)))


def test_statistics_of_bonuses_leave_out_actions_that_are_not_allowed():
    learner, explorer = make(normalise=True)
    seen = []
    for seed in range(3):
        batch = random_batch(4 + seed, seed=seed, masked=True)
        view = learner.online.predict(batch.observations, torch.empty(len(batch.actions), 0))
        bonus = explorer.bonus(batch.observations, None)
        new = [
            b
            for row, mask in zip(bonus.tolist(), batch.masks.tolist(), strict=True)
            for b, m in zip(row, mask, strict=True)
            if m
        ]
        seen += new
        scores = explorer.scores(batch.observations, view, None, batch.masks)
        torch.testing.assert_close(scores, view.mean() + bonus / float(np.std(seen)))
        assert explorer.metrics()["bonus_mean"] == pytest.approx(np.mean(new), rel=1e-5)
    assert len(seen) < 3 * (4 + 5 + 6)


def test_the_diagnosis_compares_the_taken_action_with_the_other_allowed_ones():
    _, explorer = make()
    batch = random_batch(5, masked=True)
    bonus = explorer.bonus(batch.observations, None).tolist()
    rows = list(zip(bonus, batch.actions.tolist(), batch.masks.tolist(), strict=True))
    others = [b for row, taken, mask in rows for action, b in enumerate(row) if mask[action] and action != taken]
    numbers = explorer.diagnose(batch, torch.Generator())
    assert numbers["bonus_taken"] == pytest.approx(np.mean([row[taken] for row, taken, _ in rows]), rel=1e-5)
    assert numbers["bonus_other"] == pytest.approx(np.mean(others), rel=1e-5)
    only = torch.nn.functional.one_hot(batch.actions, 3).bool()
    assert explorer.diagnose(replace(batch, masks=only), torch.Generator()).keys() == {"bonus_taken"}


def test_bonuses_are_not_scaled_until_two_of_them_differ():
    _, explorer = make(normalise=True)
    assert explorer.deviation == 1.0


def test_metrics_are_means_since_the_last_call():
    learner, explorer = make()
    observations = random_batch().observations
    view = learner.online.predict(observations, torch.empty(9, 0))
    explorer.scores(observations, view, None)
    assert explorer.metrics() == {"bonus_mean": pytest.approx(explorer.bonus(observations, None).mean().item())}
    assert explorer.metrics() == {}


@pytest.mark.parametrize("target", ["shared", "frozen"])
def test_the_state_carries_over_to_another_explorer(target):
    learner, explorer = make(target=target, normalise=True)
    batch = random_batch()
    view = learner.online.predict(batch.observations, torch.empty(9, 0))
    explorer.scores(batch.observations, view, None)
    taus = torch.full((9, 5), 0.5)
    current = Estimate(learner.target.predict(batch.observations, taus, batch.actions), taus)
    teach(explorer, batch, current, torch.Generator().manual_seed(0))
    factory = small_factory()
    other = Dpe(target=target, normalise=True).build(
        type(factory)(**(vars(factory) | {"seed": 9})), learner.online, learner.target
    )
    assert not torch.equal(other.bonus(batch.observations, None), explorer.bonus(batch.observations, None))
    other.load_state(explorer.state())
    assert torch.equal(other.bonus(batch.observations, None), explorer.bonus(batch.observations, None))
    assert other.deviation == explorer.deviation


def test_a_shared_target_must_be_passed_in():
    (_, explorer), batch = make(), random_batch()
    with pytest.raises(TypeError, match="learns from the target network's distributions, but got none"):
        explorer.loss(batch, None, explorer.prepare(batch, torch.Generator()))


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"c": -1.0}, "explorer.c is -1.0, but must be finite and not negative"),
        ({"c": float("nan")}, "explorer.c is nan"),
        ({"kappa": 0.0}, "explorer.kappa is 0.0, but must be a positive number"),
        ({"kappa": float("nan")}, "explorer.kappa is nan"),
        ({"predictor_fraction": 0.0}, "explorer.predictor_fraction is 0.0, but must be above 0"),
        ({"predictor_fraction": 1.5}, "explorer.predictor_fraction is 1.5"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, match):
    with pytest.raises(ConfigError, match=match):
        Dpe(**settings)


def test_epsilon_greedy_scores_by_the_mean_and_has_no_bonus():
    factory = small_factory()
    learner = Learner(factory, double_q=True)
    explorer = EpsilonGreedy().build(factory, learner.online, learner.target)
    observations = random_batch().observations
    view = learner.online.predict(observations, torch.empty(9, 0))
    assert torch.equal(explorer.scores(observations, view, None), view.mean())
    with pytest.raises(ConfigError, match="no exploration bonus: its explorer is epsilon-greedy"):
        explorer.bonus(observations, None)


@HEADS
def test_one_step_trains_online_network_and_predictor_as_two_separate_steps_would(head):
    """Their weights are apart, so that the gradient of a sum of losses is that of each loss."""
    factory, batch = small_factory(head), random_batch()
    joint = Learner(factory, double_q=True, explorer=Dpe())
    apart = Learner(factory, double_q=True, explorer=Watching())
    explorer = taught(Dpe(), factory, apart.online, apart.target)
    one, other = (torch.Generator().manual_seed(4) for _ in range(2))
    for number in range(3):
        joint.update(batch, one)
        apart.update(batch, other)
        teach(explorer, batch, apart.explorer.seen[number], other)
    for network, alone in ((joint.online, apart.online), (joint.explorer.predictor, explorer.predictor)):
        torch.testing.assert_close(weights(network), weights(alone), rtol=1e-5, atol=1e-7)
