"""Acting, evaluating and choosing the next action run only f if they need nothing but the mean."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch

from monotau.distributions import Risk
from monotau.explorers.dltv import Dltv
from monotau.explorers.dpe import Dpe
from monotau.explorers.epsilon_greedy import EpsilonGreedy
from monotau.learning.learner import Learner
from monotau.learning.policy import Policy
from monotau.networks import Role
from tests.support.networks import SMALL_NDQFN, random_batch, small_factory


def make(explorer=None, double_q=True):
    factory = small_factory(SMALL_NDQFN)
    learner = Learner(factory, double_q=double_q)
    with torch.no_grad():  # makes actions and networks differ
        for number, network in enumerate((learner.online, learner.target)):
            for parameter in network.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number)))
            network.invalidate_cache()
    return learner, explorer.build(factory, learner.online, learner.target) if explorer else None


@contextmanager
def counted(*networks):
    """Count how often each network runs g."""
    counts, hooks = [0] * len(networks), []

    def count(number):
        def hook(*_):
            counts[number] += 1

        return hook

    for number, network in enumerate(networks):
        hooks.append(network.head.curve.increments.register_forward_hook(count(number)))
    yield counts
    for hook in hooks:
        hook.remove()


def expected_means(network, observations):
    return network.predict(observations, network.fractions(Role.ACT, len(observations), None)).mean()


def test_greedy_acting_runs_f_alone_and_chooses_as_the_distribution_would():
    learner, _ = make()
    observations = random_batch(40).observations
    with counted(learner.online, learner.target) as counts:
        actions = Policy(learner.online, 3).best(observations.numpy(), None)
    assert counts == [0, 0]
    assert len(set(actions.tolist())) > 1
    np.testing.assert_array_equal(actions, expected_means(learner.online, observations).argmax(dim=1).numpy())


def test_acting_by_a_risk_measure_other_than_the_mean_runs_g_as_well():
    learner, _ = make()
    with counted(learner.online) as counts:
        Policy(learner.online, 3, risk=Risk("cvar", 0.25)).best(random_batch().observations.numpy(), None)
    assert counts == [1]


@pytest.mark.parametrize("explorer", [EpsilonGreedy(), Dpe(c=0.0), Dpe(c=0.5)], ids=str)
def test_explorers_that_need_only_the_mean_do_not_run_g(explorer):
    learner, made = make(explorer)
    observations = random_batch(40).observations
    others = [learner.target, made.predictor] if isinstance(explorer, Dpe) else [learner.target]
    with counted(learner.online, *others) as counts:
        actions = Policy(learner.online, 3, made).best(observations.numpy(), None)
    wanted = isinstance(explorer, Dpe) and explorer.c > 0
    assert counts == [0] + [int(wanted)] * len(others)
    full = learner.online.predict(observations, torch.empty(40, 0))
    np.testing.assert_array_equal(actions, made.scores(observations, full, None).argmax(dim=1).numpy())


def test_an_explorer_that_needs_the_spread_runs_g():
    learner, made = make(Dltv(c=5.0))
    with counted(learner.online) as counts:
        Policy(learner.online, 3, made).best(random_batch().observations.numpy(), None)
    assert made.wants_spread
    assert counts == [1]


@pytest.mark.parametrize("explorer", [EpsilonGreedy(), Dpe()])
def test_an_update_runs_g_once_for_the_prediction_and_once_for_the_target(explorer):
    learner = Learner(small_factory(SMALL_NDQFN), double_q=True, explorer=explorer)
    with counted(learner.online, learner.target) as counts:
        learner.update(random_batch(), torch.Generator().manual_seed(0))
    assert counts == [1, 1]


def test_the_online_network_chooses_the_next_action_as_its_distribution_would():
    learner, _ = make()
    batch = random_batch(40)
    draws = learner.draw(40, torch.Generator().manual_seed(0), with_current=False)
    with counted(learner.online) as counts:
        best = learner._online_choice(batch, draws, learner.online.head.constants())
    assert counts == [0]
    assert torch.equal(best, expected_means(learner.online, batch.next_observations).argmax(dim=1))
    assert len(best.unique()) > 1
