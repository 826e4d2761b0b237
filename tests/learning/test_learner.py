"""Updates of the learner: against a plain implementation, and against targets worked out by hand."""

import copy
from dataclasses import replace

import pytest
import torch

from monotau.distributions import Diracs, Distribution
from monotau.explorers import EpsilonGreedy
from monotau.learning.learner import Learner
from monotau.networks import Estimate, Role
from monotau.networks.heads.c51 import C51
from monotau.networks.heads.iqn import IqnHead
from monotau.networks.heads.ndqfn import CurveHead
from monotau.networks.heads.qr import Qr, QrHead
from tests.support.networks import SMALL_HEADS, SMALL_IQN, SMALL_NDQFN, Watching, random_batch, small_factory


def make_learner(head, double_q=True, with_current=False) -> Learner:
    learner = Learner(small_factory(head), double_q=double_q, explorer=Watching() if with_current else EpsilonGreedy())
    with torch.no_grad():  # makes the online network differ from the target network
        for parameter in learner.online.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    learner.online.invalidate_cache()
    return learner


def plain_update(learner: Learner, batch, generator, with_current):
    """Compute the same update without batching, sharing, caching or restricting passes to the chosen action."""
    online, target, size = learner.online, learner.target, len(batch.actions)

    def everything(network, observations, fractions) -> Distribution:
        return network(observations, fractions, network.head.constants())

    with torch.no_grad():
        chooser = online if learner.double_q else target
        fractions = chooser.head.fractions(Role.ACT, size, generator)
        best = best_allowed(everything(chooser, batch.next_observations, fractions).mean(), batch.next_masks)
        rows = 2 * size if with_current else size
        fractions = target.head.fractions(Role.TARGET, rows, generator)
        current = None
        if with_current:
            current = everything(target, batch.observations, fractions[:size]).take(batch.actions)
        future = everything(target, batch.next_observations, fractions[rows - size :]).take(best)
    bellman = Estimate(future.affine(batch.discounts, batch.rewards), fractions[rows - size :])
    fractions = online.head.fractions(Role.LEARN, size, generator)
    prediction = everything(online, batch.observations, fractions).take(batch.actions)
    losses = online.head.loss(Estimate(prediction, fractions), bellman)
    errors = [
        abs(reward + discount * after - now)
        for reward, discount, after, now in zip(
            batch.rewards.tolist(), batch.discounts.tolist(), naive_means(future), naive_means(prediction), strict=True
        )
    ]
    online.zero_grad()
    (losses * batch.weights).mean().backward()
    return losses.detach(), errors, current, {name: p.grad for name, p in online.named_parameters()}


def best_allowed(values, masks):
    """Return the best action of each row, one by one."""
    allowed = [range(values.shape[1])] * len(values) if masks is None else [mask.nonzero()[:, 0] for mask in masks]
    rows = zip(values, allowed, strict=True)
    return torch.tensor([max((float(row[action]), -int(action)) for action in some)[1] * -1 for row, some in rows])


def naive_means(distribution: Distribution) -> list[float]:
    """Return the mean of each row, summed segment by segment."""
    segments = distribution.segments()
    edges = segments.edges.expand(len(segments.left), -1).tolist()
    return [
        sum(
            (right_edge - left_edge) * (low + high) / 2
            for left_edge, right_edge, low, high in zip(row, row[1:], lows, highs, strict=False)
        )
        for row, lows, highs in zip(edges, segments.left.tolist(), segments.right.tolist(), strict=True)
    ]


@pytest.mark.parametrize("head", SMALL_HEADS.values(), ids=SMALL_HEADS)
@pytest.mark.parametrize("double_q", [True, False])
@pytest.mark.parametrize(("with_current", "priority"), [(True, "td"), (False, "td"), (True, "loss"), (False, None)])
def test_the_optimised_update_equals_the_plain_one(head, double_q, with_current, priority):
    check_update(head, double_q, with_current, priority, random_batch())


@pytest.mark.parametrize("head", SMALL_HEADS.values(), ids=SMALL_HEADS)
@pytest.mark.parametrize("double_q", [True, False])
@pytest.mark.parametrize("with_current", [True, False])
def test_a_target_is_the_best_of_the_allowed_actions(head, double_q, with_current):
    check_update(head, double_q, with_current, "td", random_batch(size=13, masked=True))


def check_update(head, double_q, with_current, priority, batch):
    quick = make_learner(head, double_q, with_current)
    slow = copy.deepcopy(quick)
    update = quick.update(batch, torch.Generator().manual_seed(5), priority=priority)
    gradients = {name: p.grad for name, p in quick.online.named_parameters() if "proposals" not in name}
    losses, errors, current, plain_gradients = plain_update(slow, batch, torch.Generator().manual_seed(5), with_current)
    torch.testing.assert_close(update.losses, losses, rtol=1e-4, atol=1e-5)
    assert not update.priorities.requires_grad
    if priority == "td":
        assert update.priorities.tolist() == pytest.approx(errors, rel=1e-4, abs=1e-5)
    else:
        assert update.priorities is update.losses
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, plain_gradients[name], rtol=1e-4, atol=1e-5, msg=name)
    if with_current:
        (seen,) = quick.explorer.seen
        torch.testing.assert_close(seen.distribution.curve(), current.curve(), rtol=1e-5, atol=1e-6)


def predict_always(network, layer, values) -> None:
    """Make a network predict the same values in every state; `layer` is its last layer."""
    with torch.no_grad():
        layer.advantages.weight.zero_()
        layer.advantages.bias.copy_(torch.tensor(values).flatten())
    network.invalidate_cache()


@pytest.fixture
def targets(monkeypatch):
    """Bellman targets of all updates, as the heads' losses receive them."""
    seen = []
    for kind in (QrHead, IqnHead):
        loss = kind.loss

        def spy(self, prediction, target, loss=loss):
            seen.append(target.distribution)
            return loss(self, prediction, target)

        monkeypatch.setattr(kind, "loss", spy)
    return seen


def test_the_target_is_the_reward_plus_the_discounted_quantiles_of_the_target_network(targets):
    """Worked by hand: action 1 has the larger mean; a discount of 0 leaves the reward alone."""
    learner = Learner(small_factory(Qr(quantiles=3, hidden=7), actions=2), double_q=False)
    predict_always(learner.target, learner.target.head.last, [[0.0, 1.0, 2.0], [-4.0, 2.0, 8.0]])
    batch = replace(
        random_batch(size=3, actions=2),
        rewards=torch.tensor([10.0, -2.0, 0.5]),
        discounts=torch.tensor([0.5, 0.0, 0.25]),
    )
    learner.update(batch, torch.Generator())
    (target,) = targets
    assert target.values.tolist() == [[8.0, 11.0, 14.0], [-2.0, -2.0, -2.0], [-0.5, 1.0, 2.5]]


@pytest.mark.parametrize(("double_q", "expected"), [(True, 3.0), (False, 8.0)])
def test_double_q_lets_the_online_network_choose_and_the_target_network_value(double_q, expected, targets):
    """The online network prefers action 0, the target network action 1; the target network predicts 3 and 8."""
    learner = Learner(small_factory(SMALL_IQN, actions=2), double_q=double_q)
    for network, values in ((learner.online, [5.0, 1.0]), (learner.target, [3.0, 8.0])):
        predict_always(network, network.head.network.last, values)
    batch = random_batch(actions=2)
    learner.update(batch, torch.Generator())
    (target,) = targets
    assert isinstance(target, Diracs)
    torch.testing.assert_close(target.values[:, 0], batch.rewards + batch.discounts * expected)


def test_the_priority_of_dqn_is_the_absolute_temporal_difference():
    """The online network's best action is 0, which the target network values at 1; small errors have squared losses."""
    learner = Learner(small_factory(SMALL_HEADS["dqn"]), double_q=True)
    for network, values in ((learner.online, [0.5, -0.25, 0.0]), (learner.target, [1.0, 3.0, 2.0])):
        predict_always(network, network.head.last, values)
    batch = replace(
        random_batch(size=4),
        actions=torch.tensor([0, 1, 2, 0]),
        rewards=torch.tensor([0.25, -0.75, 0.125, 3.0]),
        discounts=torch.tensor([0.5, 0.25, 0.0, 0.5]),
    )
    update = learner.update(batch, torch.Generator(), priority="td")
    torch.testing.assert_close(update.priorities, torch.tensor([0.25, 0.25, 0.125, 3.0]))
    torch.testing.assert_close(update.losses, torch.tensor([0.03125, 0.03125, 0.0078125, 2.5]))


@pytest.mark.parametrize("head", SMALL_HEADS.values(), ids=SMALL_HEADS)
def test_td_priorities_need_no_extra_pass_and_change_nothing_that_is_learned(head):
    passes, states = [], []
    for priority in ("loss", "td"):
        learner, count = make_learner(head), []
        for network in (learner.online, learner.target):
            network.torso.register_forward_hook(lambda *_, count=count: count.append(1))
            network.head.register_forward_hook(lambda *_, count=count: count.append(1))
        learner.update(random_batch(), torch.Generator().manual_seed(5), priority=priority)
        passes.append(len(count))
        states.append(learner.state())
    # A curve anchored at its mean chooses the next action by f alone, without a pass through the whole head.
    assert passes == [5 if isinstance(learner.online.head, CurveHead) else 6] * 2
    assert all(torch.equal(tensor, states[1][name]) for name, tensor in states[0].items())


def test_the_target_network_starts_as_a_copy_changes_only_by_sync_and_gets_no_gradient():
    learner = Learner(small_factory(), double_q=True)
    start = {name: p.clone() for name, p in learner.target.state_dict().items()}
    assert all(torch.equal(start[name], p) for name, p in learner.online.state_dict().items())
    learner.update(random_batch(), torch.Generator().manual_seed(0))
    assert all(torch.equal(start[name], p) for name, p in learner.target.state_dict().items())
    assert all(p.grad is None for p in learner.target.parameters())
    assert any(not torch.equal(start[name], p) for name, p in learner.online.state_dict().items())
    learner.sync()
    assert all(torch.equal(p, q) for p, q in zip(learner.online.parameters(), learner.target.parameters(), strict=True))


def test_the_average_moves_by_its_share_of_the_way_and_is_part_of_the_state():
    learner = Learner(small_factory(), double_q=True, averaged=True)
    with torch.no_grad():
        for parameter in learner.online.parameters():
            parameter.add_(1.0)
    expected = [old + 0.25 for old in learner.average.parameters()]
    learner.update_average(0.25)
    for mean, wanted in zip(learner.average.parameters(), expected, strict=True):
        torch.testing.assert_close(mean, wanted)
    learner.rescale(2.0)
    other = Learner(small_factory(), double_q=True, averaged=True)
    other.load_state(learner.state())
    assert all(map(torch.equal, other.average.parameters(), learner.average.parameters()))
    assert all(not parameter.requires_grad for parameter in learner.average.parameters())
    learner.update_average(1.0)
    assert all(map(torch.equal, learner.average.parameters(), learner.online.parameters()))


def test_without_an_average_there_is_none_to_move():
    learner = Learner(small_factory(), double_q=True)
    learner.update_average(0.5)
    assert learner.average is None
    assert {name.split(".")[0] for name in learner.state()} == {"online", "target"}


def test_a_partial_sync_moves_the_target_by_that_share_of_the_way():
    learner = Learner(small_factory(), double_q=True)
    learner.update(random_batch(), torch.Generator().manual_seed(0))
    before = [p.clone() for p in learner.target.parameters()]
    learner.sync(0.25)
    for old, online, target in zip(before, learner.online.parameters(), learner.target.parameters(), strict=True):
        torch.testing.assert_close(target, 0.75 * old + 0.25 * online)
    assert all(p.grad is None for p in learner.target.parameters())


@pytest.mark.parametrize("head", SMALL_HEADS.values(), ids=SMALL_HEADS)
def test_cached_constants_are_never_stale(head):
    learner, batch = make_learner(head), random_batch()
    generator = torch.Generator().manual_seed(0)

    def assert_the_cache_is_fresh():
        for network in (learner.online, learner.target):
            fractions = network.head.fractions(Role.ACT, len(batch.actions), None)
            fresh = network(batch.observations, fractions, network.head.constants())
            assert torch.equal(network.predict(batch.observations, fractions).curve(), fresh.curve())

    assert_the_cache_is_fresh()
    learner.update(batch, generator)
    assert_the_cache_is_fresh()
    learner.sync()
    assert_the_cache_is_fresh()
    learner.load_state({name: tensor * 1.5 for name, tensor in learner.state().items()})
    assert_the_cache_is_fresh()


def test_importance_weights_scale_the_gradient_of_each_transition():
    batch = random_batch()
    twice = torch.zeros_like(batch.weights)
    twice[2] = 9.0
    gradients = []
    for weights in (twice, 2 * twice):
        learner = make_learner(SMALL_NDQFN)
        weighted = type(batch)(**(vars(batch) | {"weights": weights}))
        learner.update(weighted, torch.Generator().manual_seed(3))
        gradients.append(learner.online.head.curve.location.last.advantages.bias.grad.view(3, 2))  # anchor, spread
    torch.testing.assert_close(gradients[1], 2 * gradients[0])
    assert gradients[0].any(dim=1).nonzero().flatten().tolist() == [int(batch.actions[2])]


def test_the_diagnosis_of_values_is_that_of_the_best_allowed_actions():
    learner, batch = make_learner(SMALL_NDQFN), random_batch(masked=True)
    means = learner.online.predict(batch.observations, torch.empty(9, 0)).mean()
    best = means[torch.arange(9), best_allowed(means, batch.masks)]
    numbers = learner.diagnose(batch, torch.Generator())
    assert numbers["q_mean"] == pytest.approx(best.mean().item(), abs=1e-6)
    assert numbers["q_mean"] < means.max(dim=1).values.mean().item() - 1e-4


def test_diagnosis_names_the_numbers_that_are_logged():
    learner, batch = make_learner(SMALL_NDQFN), random_batch()
    numbers = learner.diagnose(batch, torch.Generator())
    assert set(numbers) == {"q_mean", "q_std", "crossing", "q_contrast", "dead_features", "dead_increments"}
    fractions = learner.online.fractions(Role.ACT, len(batch.actions), None)
    best = learner.online.predict(batch.observations, fractions).mean().max(dim=1).values
    assert numbers["q_mean"] == pytest.approx(best.mean().item(), abs=1e-6)
    assert numbers["q_std"] == pytest.approx((best - best.mean()).square().mean().sqrt().item(), abs=1e-6)
    assert numbers["crossing"] == 0
    size = torch.stack([abs(quantile) for quantile in fine_quantiles(learner, batch)]).mean().item()
    assert numbers["q_contrast"] == pytest.approx(numbers["q_std"] / size, rel=1e-3)


def fine_quantiles(learner, batch):
    """Return the batch's quantiles at the middles of 10,000 equal parts of the mass, one part after another."""
    view = learner.online.predict(batch.observations, learner.online.fractions(Role.ACT, len(batch.actions), None))
    return view.quantile((torch.arange(10_000) + 0.5) / 10_000).flatten()


@pytest.mark.parametrize("head", SMALL_HEADS.values(), ids=SMALL_HEADS)
def test_a_dead_torso_is_reported_with_every_head(head):
    learner, batch = make_learner(head), random_batch()
    assert learner.diagnose(batch, torch.Generator())["dead_features"] < 0.99
    with torch.no_grad():
        for parameter in learner.online.torso.parameters():
            parameter.zero_()
    learner.online.invalidate_cache()
    numbers = learner.diagnose(batch, torch.Generator())
    assert numbers["dead_features"] == 1
    assert numbers["q_contrast"] < 1e-4


def test_dead_features_are_those_that_are_zero_in_every_state():
    learner, batch = make_learner(SMALL_NDQFN), random_batch()
    features = learner.online.torso(batch.observations).tolist()
    dead = [all(row[place] == 0 for row in features) for place in range(8)]
    assert learner.diagnose(batch, torch.Generator())["dead_features"] == sum(dead) / 8
    with torch.no_grad():
        learner.online.torso.body[1].weight[:3], learner.online.torso.body[1].bias[:3] = 0, -1
    assert learner.diagnose(batch, torch.Generator())["dead_features"] == (3 + sum(dead[3:])) / 8


def test_contrast_and_dead_features_are_not_reported_for_a_single_state():
    learner, batch = make_learner(SMALL_NDQFN), random_batch()
    alike = replace(batch, observations=batch.observations[:1].expand_as(batch.observations))
    numbers = learner.diagnose(alike, torch.Generator())
    assert numbers["q_std"] == pytest.approx(0, abs=1e-6)
    assert not {"q_contrast", "dead_features"} & numbers.keys()


@pytest.mark.parametrize("double_q", [True, False])
def test_the_share_of_targets_outside_the_support_is_reported(double_q):
    learner, batch = make_learner(C51(atoms=5, low=-2.0, high=6.0, hidden=7), double_q), random_batch()
    batch = replace(batch, rewards=torch.tensor([0.0, 0, 0, 2, 2, 6.5, -2.5, 14, 6]))
    batch = replace(batch, discounts=torch.tensor([1.0, 0, 0.9, 1, 0.5, 0, 0, 0, 0]))
    # The atoms are -2, 0, 2, 4 and 6. A reward of 2 and a discount of 1 move the last atom and its mass outside. Of
    # the certain returns 6.5, -2.5 and 14 are outside; 14 is two half-widths of the support beyond its end.
    chooser = learner.online if double_q else learner.target
    last = batch.next_observations[3:4]
    best = chooser.predict(last, torch.empty(1, 0)).mean().argmax(dim=1)
    mass = learner.target.predict(last, torch.empty(1, 0)).take(best).probs[0, -1].item()
    numbers = learner.diagnose(batch, torch.Generator())
    assert numbers["clipped"] == pytest.approx((mass + 3) / 9, abs=1e-6)
    assert numbers["overshoot"] == pytest.approx(2)
    inside = replace(batch, rewards=torch.zeros(9))
    assert learner.diagnose(inside, torch.Generator()).items() >= {"clipped": 0, "overshoot": 0}.items()
