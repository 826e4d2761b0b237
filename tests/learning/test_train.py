"""The training loop: annealing of the learning rate, and priorities passed back to the replay."""

import numpy as np
import pytest
import torch

from monotau.agent import Agent
from monotau.learning import train
from monotau.learning.learner import Learner
from monotau.networks.optimiser import NetworkOptimiser
from monotau.replay import PrioritizedReplay, Ring
from monotau.runs.metrics import Log
from monotau.runs.progress import Display
from tests.support.small_runs import BRIEF, SMALL

UPDATES = 76  # every second step from the 50th on


def small_agent(kind, **settings):
    return Agent("CartPole-v1", "ndqfn", **(SMALL | {"replay": SMALL["replay"] | {"kind": kind} | settings}))


@pytest.fixture
def learned(monkeypatch):
    """The index, losses and priorities of every batch of the run."""
    seen, update = [], Learner.update

    def spy(self, batch, *rest, **options):
        done = update(self, batch, *rest, **options)
        seen.append((batch.index, done.losses.numpy(), done.priorities.numpy()))
        return done

    monkeypatch.setattr(Learner, "update", spy)
    return seen


@pytest.mark.parametrize("priority", ["loss", "td"])
def test_a_prioritised_replay_receives_the_priorities_of_every_batch(priority, learned, monkeypatch):
    told, update = [], PrioritizedReplay.update

    def spy(self, index, priorities):
        told.append((index, priorities))
        update(self, index, priorities)

    monkeypatch.setattr(PrioritizedReplay, "update", spy)
    agent = small_agent("prioritized", priority=priority).learn(200)
    assert len(told) == len(learned) == UPDATES
    for (index, priorities), (batch_index, losses, batch_priorities) in zip(told, learned, strict=True):
        assert index.tolist() == batch_index.tolist()
        assert priorities.tolist() == batch_priorities.tolist()
        assert (priorities.tolist() == losses.tolist()) == (priority == "loss")
    replay = agent._training.replay
    weights = replay.sample(64, np.random.default_rng(0)).weights
    assert len(set(weights.tolist())) > 8


def test_the_preset_of_schaul_takes_the_absolute_error_and_that_of_rainbow_the_loss():
    settings = SMALL | {"head": {"hidden": 8}}
    assert Agent("CartPole-v1", "prioritized", **settings).config.replay.priority == "td"
    assert Agent("CartPole-v1", "rainbow", **settings).config.replay.priority == "loss"


def test_importance_weights_fully_correct_the_bias_at_the_end_of_the_run():
    agent = small_agent("prioritized").learn(100)
    assert agent.config.steps == 200
    assert agent._training.replay.beta == pytest.approx(0.7)
    assert agent.learn(100)._training.replay.beta == 1.0


def test_a_uniform_replay_receives_no_priorities(learned, monkeypatch):
    """Copying losses from the device for it would be wasted time."""

    def refuse(*_):
        raise AssertionError

    monkeypatch.setattr(Ring, "update", refuse)
    small_agent("uniform").learn(200)
    assert len(learned) == UPDATES


@pytest.mark.parametrize("preset", ["ndqfn-dpe", "ndqfn-deep-dpe"])
def test_the_learning_rate_is_annealed_at_every_update_and_stays_constant_after_the_run(preset, monkeypatch):
    agent = Agent("CartPole-v1", preset, **(BRIEF | {"steps": 40, "optimiser": {"learning_rate": 0.01, "anneal": 0.2}}))
    seen, descend = {}, NetworkOptimiser.descend

    def spy(self, *arguments):
        seen.setdefault(id(self), []).append((agent._training.step, self.main.param_groups[0]["lr"]))
        descend(self, *arguments)

    monkeypatch.setattr(NetworkOptimiser, "descend", spy)
    agent.learn(60)
    assert len(seen) == {"ndqfn-dpe": 1, "ndqfn-deep-dpe": 2}[preset]
    for rates in seen.values():
        assert [step for step, _ in rates] == list(range(20, 61, 2))
        for step, rate in rates:
            assert rate == pytest.approx(0.01 * (1 - 0.8 * min(step, 40) / 40))


def test_the_learning_rate_is_logged():
    settings = SMALL | {"optimiser": {"learning_rate": 0.01, "anneal": 0.5}}
    lines = [line for line in Agent("CartPole-v1", "ndqfn", **settings).learn(300).history if line["kind"] == "train"]
    rates = {line["step"]: line["learning_rate"] for line in lines}
    assert rates == pytest.approx({50: 0.00875, 100: 0.0075, 150: 0.00625, 200: 0.005, 250: 0.005, 300: 0.005})


@pytest.mark.parametrize(("every", "share"), [(4, 0.04), (200, 1.0)])
def test_an_averaged_target_network_moves_at_every_update_by_its_share(every, share, monkeypatch):
    shares = []
    monkeypatch.setattr(Learner, "sync", lambda self, share=1.0: shares.append(share))
    update = {"batch_size": 4, "every_steps": every, "sync": "average", "sync_every_steps": 100}
    settings = SMALL | {"head": {"hidden": 8}, "update": update}
    agent = Agent("CartPole-v1", "dqn", env_settings={"num_envs": 10}, **settings).learn(200)
    assert shares == [share] * agent._training.updates != []


def test_a_copied_target_network_changes_when_a_copy_is_due(monkeypatch):
    syncs = []
    monkeypatch.setattr(Learner, "sync", lambda self, *share: syncs.append(share))
    update = {"batch_size": 4, "every_steps": 2, "sync": "copy", "sync_every_steps": 60}
    Agent("CartPole-v1", "dqn", **(SMALL | {"head": {"hidden": 8}, "update": update})).learn(200)
    assert syncs == [()] * 3


def test_the_average_spans_its_share_of_all_updates_so_far(monkeypatch):
    """With a share of a quarter, the first four updates are copied and the k-th after them moves it by 4 / (k + 4)."""
    shares = []
    monkeypatch.setattr(Learner, "update_average", lambda self, share: shares.append(share))
    settings = SMALL | {"update": SMALL["update"] | {"average": 0.25}}
    agent = Agent("CartPole-v1", "ndqfn", **settings).learn(100).learn(100)
    updates = agent._training.updates
    assert shares == pytest.approx([1, 1, 1, 1, *(4 / number for number in range(5, updates + 1))])
    assert updates > 50


@pytest.mark.parametrize(("share", "name"), [(0.0, "online"), (0.5, "average")])
def test_the_average_is_evaluated_and_shown_if_there_is_one(share, name):
    agent = Agent("CartPole-v1", "ndqfn", **(SMALL | {"update": SMALL["update"] | {"average": share}})).learn(200)
    network, observation = getattr(agent.networks.learner, name), np.array([[[0.1, 0.2, -0.1, 0.3]]], np.float32)
    shown = agent.distribution(observation[0, 0]).mean() / agent.unit
    expected = network.predict(torch.from_numpy(observation), torch.empty(1, 0)).mean()[0]
    torch.testing.assert_close(shown, expected)
    assert agent.networks.evaluation_policy.network is network
    other = agent.networks.learner.target if name == "online" else agent.networks.learner.online
    assert not torch.equal(other.predict(torch.from_numpy(observation), torch.empty(1, 0)).mean()[0], expected)


@pytest.mark.parametrize(("cut", "longest"), [(True, 1), (False, 3)])
def test_returns_stop_at_the_random_actions_of_the_collector_if_asked_for(cut, longest, monkeypatch):
    """With epsilon 1 all actions are random, so that every transition has one step."""
    discounts, update = [], Learner.update

    def spy(self, batch, *rest, **options):
        discounts.extend(batch.discounts.tolist())
        return update(self, batch, *rest, **options)

    monkeypatch.setattr(Learner, "update", spy)
    settings = SMALL | {"gamma": 0.9, "n_step": 3, "cut_at_random": cut, "epsilon": {"start": 1.0, "end": 1.0}}
    Agent("CartPole-v1", "ndqfn", **settings).learn(200)
    assert min(discount for discount in discounts if discount) == pytest.approx(0.9**longest)


@pytest.mark.parametrize(("seconds", "said"), [(40.0, ["step         0  evaluating, about 2 min more"]), (3.0, [])])
def test_a_long_evaluation_shows_its_progress_and_says_once_how_long_it_takes(seconds, said, monkeypatch):
    """Four episodes of `seconds` each: after the first, three are left."""
    agent = Agent("CartPole-v1", "dqn", **(SMALL | {"head": {"hidden": 8}, "evaluation": {"episodes": 4}}))
    training = agent.start_training(Log(), Display(None))
    clock, stages, lines = [0.0], [], []
    monkeypatch.setattr(train.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(training.display, "advance", lambda step, stage="training": stages.append(stage))
    monkeypatch.setattr(training.display, "say", lines.append)
    show = training._evaluating()
    for done in range(1, 5):
        clock[0] += seconds
        show(done, done / 4)
    assert stages == ["evaluating", "evaluating 25%", "evaluating 50%", "evaluating 75%", "evaluating 100%"]
    assert lines == said
    stages.clear()
    training.evaluate()
    assert stages[-2:] == ["evaluating 100%", "training"]
    training.evaluate_random()
    assert stages[-1] == "evaluating 100%"


def test_a_training_that_never_starts_to_learn_says_so_once():
    settings = SMALL | {"head": {"hidden": 8}, "replay": {"warmup_steps": 300, "capacity_steps": 500}}
    agent = Agent("CartPole-v1", "dqn", **settings).learn(200)
    (line,) = [line for line in agent.history if line["kind"] == "warning"]
    assert (line["rule"], line["step"]) == ("no_updates", 200)
    assert line["text"].startswith("learning never started: 200 steps are too few for replay.warmup_steps (300)")
    assert agent.learn(200)._training.updates > 0
    assert [line["kind"] for line in agent.history].count("warning") == 1
