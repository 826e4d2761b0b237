"""Munchausen targets: against a plain implementation for every head, and by hand."""

import math
from dataclasses import replace

import pytest
import torch

from monotau import Agent
from monotau.config.schema import MunchausenConfig
from monotau.errors import ConfigError
from monotau.explorers import EpsilonGreedy
from monotau.learning.learner import Learner
from monotau.networks import Estimate, Role
from monotau.networks.heads.qr import Qr
from monotau.replay import Batch
from tests.support.networks import SMALL_HEADS, Watching, random_batch, small_factory

SETTING = MunchausenConfig(alpha=0.7, temperature=0.4, clip=-0.5)


def make_learner(head, *, with_current=False, setting=SETTING, actions=3) -> Learner:
    explorer = Watching() if with_current else EpsilonGreedy()
    learner = Learner(small_factory(head, actions=actions), double_q=False, explorer=explorer, munchausen=setting)
    with torch.no_grad():  # makes the networks and their actions differ
        for network, seed in ((learner.online, 1), (learner.target, 2)):
            for parameter in network.parameters():
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed)))
            network.invalidate_cache()
    return learner


def naive_policy(values: list[float], allowed: list[bool]) -> list[float]:
    best = max(value for value, may in zip(values, allowed, strict=True) if may)
    powers = [
        math.exp((value - best) / SETTING.temperature) if may else 0.0
        for value, may in zip(values, allowed, strict=True)
    ]
    return [power / sum(powers) for power in powers]


def plain_losses(learner: Learner, batch: Batch, generator: torch.Generator, *, with_current: bool):
    """Compute the losses with a pass for everything, and policies and entropies one state at a time."""
    online, target, size = learner.online, learner.target, len(batch.actions)

    def everything(network, observations, fractions):
        return network(observations, fractions, network.head.constants())

    chosen = online.fractions(Role.ACT, 2 * size, generator)
    rows = 2 * size if with_current or not target.head.samples else size
    drawn = target.fractions(Role.TARGET, rows, generator)
    predicting = online.fractions(Role.LEARN, size, generator)
    with torch.no_grad():
        here = everything(target, batch.observations, chosen[:size]).mean().tolist()
        there = everything(target, batch.next_observations, chosen[size:]).mean().tolist()
        future = everything(target, batch.next_observations, drawn[rows - size :])
    everywhere = [[True] * len(here[0])] * size
    masks = everywhere if batch.masks is None else batch.masks.tolist()
    next_masks = everywhere if batch.next_masks is None else batch.next_masks.tolist()
    weights, rewards = [], []
    for row in range(size):
        log = math.log(max(naive_policy(here[row], masks[row])[int(batch.actions[row])], 1e-300))
        bonus = SETTING.alpha * max(SETTING.temperature * log, SETTING.clip)
        policy = naive_policy(there[row], next_masks[row])
        entropy = -SETTING.temperature * sum(p * math.log(p) for p in policy if p)
        weights.append(policy)
        rewards.append(batch.rewards[row].item() + bonus + batch.discounts[row].item() * entropy)
    soft = future.average(torch.tensor(weights)).affine(batch.discounts, torch.tensor(rewards))
    prediction = everything(online, batch.observations, predicting).take(batch.actions)
    losses = online.head.loss(Estimate(prediction, predicting), Estimate(soft, drawn[rows - size :]))
    return losses.detach(), (soft.mean() - prediction.mean()).abs().detach()


@pytest.mark.parametrize("name", SMALL_HEADS)
@pytest.mark.parametrize(("with_current", "masked"), [(True, False), (False, True)])
def test_the_update_equals_the_plain_one(name, with_current, masked):
    learner = make_learner(SMALL_HEADS[name], with_current=with_current)
    batch = random_batch(size=13, masked=masked)
    expected, errors = plain_losses(learner, batch, torch.Generator().manual_seed(5), with_current=with_current)
    update = learner.update(batch, torch.Generator().manual_seed(5), priority="td")
    torch.testing.assert_close(update.losses, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(update.priorities, errors, rtol=1e-3, atol=1e-4)
    if with_current:
        (seen,) = learner.explorer.seen
        assert seen.distribution.batch_shape == (13,)
        assert seen.fractions.shape[0] == 13


def test_a_target_worked_by_hand(monkeypatch):
    """Both states have the action values 1 and 1 - ln 3, so at temperature 1 the policy is 3/4 and 1/4."""
    learner = Learner(
        small_factory(Qr(quantiles=2, hidden=7), actions=2),
        double_q=False,
        munchausen=MunchausenConfig(alpha=0.5, temperature=1.0, clip=-1.0),
    )
    low = 1 - math.log(3)
    with torch.no_grad():
        learner.target.head.last.advantages.weight.zero_()
        learner.target.head.last.advantages.bias.copy_(torch.tensor([0.0, 2.0, low - 3, low + 3]))
    seen = []
    monkeypatch.setattr(
        learner.online.head, "loss", lambda prediction, target: (seen.append(target), prediction.distribution.mean())[1]
    )
    batch = replace(
        random_batch(size=3, actions=2),
        actions=torch.tensor([0, 1, 1]),
        rewards=torch.tensor([10.0, 0.0, 0.0]),
        discounts=torch.tensor([0.5, 0.5, 0.0]),
    )
    learner.update(batch, torch.Generator())
    entropy = 0.75 * math.log(4 / 3) + 0.25 * math.log(4)
    quantiles = [0.25 * (low - 3) + entropy, 0.75 * 2 + 0.25 * (low + 3) + entropy]
    bonuses = [0.5 * math.log(0.75), -0.5, -0.5]  # ln 1/4 is clipped to -1
    expected = [
        [10 + bonuses[0] + 0.5 * quantile for quantile in quantiles],
        [bonuses[1] + 0.5 * quantile for quantile in quantiles],
        [bonuses[2], bonuses[2]],
    ]
    torch.testing.assert_close(seen[0].distribution.values, torch.tensor(expected))


def test_nothing_changes_if_alpha_is_zero():
    states = []
    for given in ({}, {"munchausen": MunchausenConfig()}):
        learner = Learner(small_factory(), double_q=True, **given)
        learner.update(random_batch(), torch.Generator().manual_seed(0))
        states.append(learner.state())
    assert all(torch.equal(tensor, states[1][name]) for name, tensor in states[0].items())


def test_the_share_of_targets_outside_the_support_counts_the_bonus():
    learner, batch = make_learner(SMALL_HEADS["c51"]), random_batch()
    batch = replace(batch, rewards=torch.full((9,), -9.99), discounts=torch.zeros(9))
    assert learner.diagnose(batch, torch.Generator())["clipped"] > 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"alpha": -0.1}, r"^munchausen\.alpha is -0\.1, but must be a weight from 0 to 1"),
        ({"alpha": 1.1}, r"^munchausen\.alpha is 1\.1, but must be a weight from 0 to 1"),
        ({"alpha": 0.9, "temperature": 0.0}, r"^munchausen\.temperature is 0\.0, but must be a positive number"),
        ({"alpha": 0.9, "clip": 0.0}, r"^munchausen\.clip is 0\.0, but must be a finite number below 0"),
        ({"temperature": 0.1}, r"^munchausen\.\* settings are given, but munchausen\.alpha is 0"),
    ],
)
def test_invalid_settings_are_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        Agent("CartPole-v1", "iqn", munchausen=given)


def test_an_infinite_clip_is_refused():
    with pytest.raises(ConfigError, match=r"^munchausen\.clip is -inf, but must be a finite number below 0"):
        MunchausenConfig(alpha=0.9, clip=-math.inf)


def test_double_q_has_nothing_to_choose():
    with pytest.raises(ConfigError, match=r"^munchausen\.alpha is 0\.9 and double_q is on, but .*: turn double_q off"):
        Agent("CartPole-v1", "iqn-star", munchausen={"alpha": 0.9})
    agent = Agent("CartPole-v1", "iqn-star", munchausen={"alpha": 0.9}, double_q=False)
    assert agent.config.munchausen == MunchausenConfig(alpha=0.9)
