"""Epsilon-greedy actions on top of every explorer, and networks that run only when needed."""

import numpy as np
import pytest
import torch

from monotau.errors import ConfigError
from monotau.explorers.dpe import Dpe
from monotau.explorers.epsilon_greedy import EpsilonGreedy, EpsilonSchedule
from monotau.learning.learner import Learner
from monotau.learning.policy import Policy, RandomActions
from monotau.networks.layers import Layers, Linear
from tests.support.networks import random_batch, small_factory


def make_policies():
    factory = small_factory()
    learner = Learner(factory, double_q=True)
    explorer = Dpe().build(factory, learner.online, learner.target)
    return learner, explorer, Policy(learner.online, 3, explorer), Policy(learner.online, 3)


OBSERVATIONS = np.random.default_rng(0).standard_normal((6, 1, 5)).astype(np.float32)


def test_random_steps_run_no_network(monkeypatch):
    learner, explorer, exploration_policy, _ = make_policies()
    for network in (learner.online, learner.target, explorer.predictor):
        monkeypatch.setattr(network.torso, "forward", lambda _: pytest.fail("a network ran"))
    actions = exploration_policy.act(OBSERVATIONS, 1.0, np.random.default_rng(0), torch.Generator())
    assert set(actions.tolist()) <= {0, 1, 2}


def test_only_rows_that_are_not_random_reach_the_networks(monkeypatch):
    learner, _, exploration_policy, _ = make_policies()
    rows, see = [], learner.online.torso.forward
    monkeypatch.setattr(learner.online.torso, "forward", lambda seen: (rows.append(len(seen)), see(seen))[1])
    rng = np.random.default_rng(1)
    total = 0
    for _ in range(50):
        exploration_policy.act(OBSERVATIONS, 0.5, rng, torch.Generator())
        total += 6
    assert abs(sum(rows) - total / 2) < 4 * np.sqrt(total / 4)


def test_exploring_says_which_actions_are_random():
    _, _, exploration_policy, greedy = make_policies()
    rng, noise = np.random.default_rng(3), RandomActions(6, 3)
    epsilons = np.array([0.0, 1.0, 0.5, 0.5, 0.0, 1.0])
    best, seen = greedy.best(OBSERVATIONS, None), []
    exploration_policy.explorer = None
    for _ in range(20):
        actions, random = exploration_policy.explore(OBSERVATIONS, epsilons, rng, None, noise)
        assert (actions == best)[~random].all()
        seen.append(random)
    shares = np.mean(seen, axis=0)
    assert shares[[0, 1, 4, 5]].tolist() == [0, 1, 0, 1]
    assert 0 < shares[2] < 1


def test_evaluation_runs_neither_target_nor_predictor(monkeypatch):
    learner, explorer, _, greedy = make_policies()
    monkeypatch.setattr(learner.target.torso, "forward", lambda _: pytest.fail("the target network ran"))
    monkeypatch.setattr(explorer.predictor.torso, "forward", lambda _: pytest.fail("the predictor ran"))
    actions = greedy.act(OBSERVATIONS, 0.0, np.random.default_rng(0), torch.Generator())
    means = learner.online.predict(torch.from_numpy(OBSERVATIONS), torch.empty(6, 0)).mean()
    assert actions.tolist() == means.argmax(dim=1).tolist()


def test_the_share_of_random_actions_is_epsilon():
    _, _, _, greedy = make_policies()
    best = greedy.best(OBSERVATIONS[:1], None)[0]
    rng, trials, epsilon = np.random.default_rng(2), 3000, 0.3
    others = sum(int(greedy.act(OBSERVATIONS[:1], epsilon, rng, None)[0] != best) for _ in range(trials))
    expected = epsilon * 2 / 3  # a random action is the best one by chance in one of three cases
    assert abs(others / trials - expected) < 4 * np.sqrt(expected * (1 - expected) / trials)


def test_epsilon_falls_in_a_straight_line_after_the_warm_up():
    schedule = EpsilonSchedule(start=1.0, end=0.2, decay_steps=100)
    assert [schedule.at(step) for step in (-50, 0, 25, 50, 100, 900)] == pytest.approx([1, 1, 0.8, 0.6, 0.2, 0.2])
    at_once = EpsilonSchedule(start=1.0, end=0.1, decay_steps=0)
    assert [at_once.at(step) for step in (-1, 0, 5)] == [1.0, 0.1, 0.1]


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"start": 1.5}, "epsilon.start is 1.5, but must be a probability"),
        ({"end": -0.1}, "epsilon.end is -0.1"),
        ({"decay_steps": -1}, "epsilon.decay_steps is -1, but must not be negative"),
    ],
)
def test_schedules_that_cannot_work_are_refused(settings, match):
    with pytest.raises(ConfigError, match=match):
        EpsilonSchedule(**settings)


def test_noise_is_drawn_for_exploring_and_removed_afterwards():
    factory = small_factory(layers=Layers(noisy=True))
    learner = Learner(factory, double_q=True)
    explorer = EpsilonGreedy().build(factory, learner.online, learner.target)
    curious, greedy = Policy(learner.online, 3, explorer), Policy(learner.online, 3)
    states = np.random.default_rng(1).standard_normal((200, 1, 5)).astype(np.float32)
    quiet = greedy.best(states, None)
    generator = torch.Generator().manual_seed(0)
    draws = [curious.best(states, generator) for _ in range(10)]
    assert any((draw != quiet).any() for draw in draws)
    assert len({tuple(draw) for draw in draws}) > 2
    assert (greedy.best(states, None) == quiet).all()
    learner.update(random_batch(), generator)
    for network in (learner.online, learner.target):
        for layer in network.head.modules():
            if isinstance(layer, Linear):
                assert not layer.noise_in.any()
