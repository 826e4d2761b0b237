"""The loop hands the losses of each batch back to a replay that wants them, and to no other."""

import numpy as np
import pytest

from monotau.agent import Agent
from monotau.learner import Learner
from monotau.replay import PrioritizedReplay, Ring
from tests.small_runs import SMALL

UPDATES = 76  # every second step from the 50th on


def small_agent(kind):
    return Agent("CartPole-v1", "ndqfn", **(SMALL | {"replay": SMALL["replay"] | {"kind": kind}}))


@pytest.fixture
def learned(monkeypatch):
    """Every batch that was learned from, with its losses."""
    seen, update = [], Learner.update

    def spy(self, batch, *rest, **options):
        done = update(self, batch, *rest, **options)
        seen.append((batch.index, done.losses.numpy()))
        return done

    monkeypatch.setattr(Learner, "update", spy)
    return seen


def test_a_replay_by_priority_is_told_the_losses_of_every_batch(learned, monkeypatch):
    told, update = [], PrioritizedReplay.update

    def spy(self, index, losses):
        told.append((index, losses))
        update(self, index, losses)

    monkeypatch.setattr(PrioritizedReplay, "update", spy)
    agent = small_agent("prioritized").learn(200)
    assert len(told) == len(learned) == UPDATES
    for (index, losses), (batch_index, batch_losses) in zip(told, learned, strict=True):
        assert index.tolist() == batch_index.tolist()
        assert losses.tolist() == batch_losses.tolist()
    replay = agent._training.replay
    weights = replay.sample(64, np.random.default_rng(0)).weights
    assert len(set(weights.tolist())) > 8


def test_weights_make_up_for_all_of_the_bias_when_the_run_is_over():
    agent = small_agent("prioritized").learn(100)
    assert agent.config.steps == 200
    assert agent._training.replay.beta == pytest.approx(0.7)
    assert agent.learn(100)._training.replay.beta == 1.0


def test_a_uniform_replay_is_told_nothing(learned, monkeypatch):
    """For it losses would leave their device, and wait for it, in vain."""

    def refuse(*_):
        raise AssertionError

    monkeypatch.setattr(Ring, "update", refuse)
    small_agent("uniform").learn(200)
    assert len(learned) == UPDATES
