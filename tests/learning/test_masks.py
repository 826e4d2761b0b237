"""Action masks in training: every action is allowed, and the replay gets the masks of the states they belong to."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from monotau import Agent
from monotau.distributions import Risk
from monotau.envs import EnvConfig, EnvFactory
from monotau.explorers import EpsilonGreedy
from monotau.learning.learner import Learner
from monotau.learning.policy import Policy, RandomActions, random_actions
from monotau.learning.rollout import Rollout
from monotau.networks import Role
from tests.support.envs import MaskedEnv, MethodMaskedEnv, allowed_at
from tests.support.networks import SMALL_IQN, random_batch, small_factory
from tests.support.small_runs import SMALL


@given(st.integers(1, 5), st.integers(1, 9), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_random_actions_are_uniform_over_the_allowed_ones(lanes, actions, seed):
    rng = np.random.default_rng(seed)
    masks = rng.random((lanes, actions)) < 0.4
    masks[np.arange(lanes), rng.integers(actions, size=lanes)] = True
    drawn = np.stack([random_actions(rng, lanes, actions, masks) for _ in range(600)])
    for lane in range(lanes):
        counts = np.bincount(drawn[:, lane], minlength=actions)
        expected = 600 * masks[lane] / masks[lane].sum()
        assert (counts[~masks[lane]] == 0).all()
        assert (np.abs(counts - expected) < 6 * np.sqrt(600 * 0.25)).all()


@given(st.integers(1, 20), st.floats(0, 1), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_a_repeated_random_action_is_always_allowed_and_changes_only_if_it_must(longest, epsilon, seed):
    rng, noise = np.random.default_rng(seed), RandomActions(3, 4)
    before, left = np.zeros(3, int), np.zeros(3, int)
    for step in range(40):
        masks = np.array([allowed_at(step // 2 + lane) for lane in range(3)])
        actions, taken = noise.draw(epsilon, rng, longest, masks)
        assert masks[np.arange(3), actions][taken].all()
        going_on = left > 0
        assert taken[going_on].all()
        kept = going_on & masks[np.arange(3), before]
        assert (actions[kept] == before[kept]).all()
        before, left = actions, noise._left.copy()


def test_masks_do_not_change_how_often_random_actions_are_taken():
    rng, noise = np.random.default_rng(0), RandomActions(3, 4)
    taken = [noise.draw(0.3, rng, 10, np.array([allowed_at(step)] * 3))[1] for step in range(10_000)]
    assert np.mean(taken) == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize(("env", "warned"), [("CartPole-v1", 1), ("monotau/Gate-v0", 0)])
def test_a_training_that_asks_for_masks_warns_once_if_there_are_none(env, warned):
    agent = Agent(env, "dqn", **(SMALL | {"head": {"hidden": 8}}), env_settings={"action_masks": "use"}).learn(200)
    warnings = [line["text"] for line in agent.history if line.get("rule") == "no_masks"]
    text = (
        f"env.action_masks is 'use', but {env} has neither a method action_masks nor an action_mask in the info of its "
        "reset: every action counts as allowed."
    )
    assert warnings == [text] * warned


@pytest.mark.parametrize("risk", [Risk("mean"), Risk("cvar", 0.25), Risk("wang", eta=1.5)])
@pytest.mark.parametrize("explores", [True, False])
def test_the_policy_takes_the_allowed_action_with_the_highest_score(risk, explores):
    factory, batch = small_factory(SMALL_IQN), random_batch(size=11, masked=True)
    learner = Learner(factory, double_q=True)
    explorer = EpsilonGreedy().build(factory, learner.online, learner.target) if explores else None
    policy = Policy(learner.online, 3, explorer, risk)
    states, masks = batch.observations.numpy(), batch.masks.numpy()
    actions = policy.best(states, None, masks)
    predicted = learner.online.predict(batch.observations, learner.online.fractions(Role.ACT, 11, None))
    scores = (predicted.mean() if explores else risk.of(predicted)).tolist()
    best = [
        max((score, action) for action, score in enumerate(row) if mask[action])[1]
        for row, mask in zip(scores, masks.tolist(), strict=True)
    ]
    assert actions.tolist() == best
    assert policy.best(states, None).tolist() != best
    mixed = policy.act(states, 0.5, np.random.default_rng(0), torch.Generator(), masks)
    assert masks[np.arange(11), mixed].all()


@pytest.mark.parametrize("make", [MaskedEnv, MethodMaskedEnv])
@pytest.mark.parametrize("truncates", [True, False])
def test_steps_hold_the_masks_before_and_after_each_action(make, truncates):
    """Episodes of lane 0 last two steps and those of lane 1 three; the mask after a termination does not count."""
    lengths = iter((9, 2, 3))  # the first environment is made for its spaces only
    rollout = Rollout(EnvFactory(EnvConfig(), lambda: make(next(lengths), truncates)), 2, 1, seed=0)
    rng = np.random.default_rng(0)
    for step in range(12):
        counts = step % 2, step % 3
        assert rollout.masks.tolist() == [allowed_at(count) for count in counts]
        steps = rollout.step(random_actions(rng, 2, 4, rollout.masks)).steps
        assert steps.frames[:, 0].tolist() == list(counts)
        assert steps.masks.tolist() == [allowed_at(count) for count in counts]
        for lane, count in enumerate(counts):
            if not steps.terminated[lane]:
                assert steps.final_frames[lane, 0] == count + 1
                assert steps.final_masks[lane].tolist() == allowed_at(count + 1)


def test_an_episode_that_is_cut_starts_again_with_its_first_mask():
    lengths = iter((9, 9, 3))
    rollout = Rollout(EnvFactory(EnvConfig(), lambda: MaskedEnv(next(lengths))), 2, 1, seed=0)
    for _ in range(4):
        rollout.step(rollout.masks.argmax(axis=1))
    assert rollout.masks.tolist() == [allowed_at(4), allowed_at(1)]
    assert [lane for lane, *_ in rollout.cut_beyond(4)] == [0]
    assert rollout.masks.tolist() == [allowed_at(0), allowed_at(1)]


def test_environments_without_masks_have_none():
    rollout = Rollout(EnvFactory(EnvConfig(id="CartPole-v1")), 2, 1, seed=0)
    steps = rollout.step(np.zeros(2, np.int64)).steps
    assert rollout.masks is steps.masks is steps.final_masks is None


EXPLORERS = {
    "dpe": {"normalise": True},
    "deep-dpe": {"views": 2},
    "dltv": {},
    "rnd": {"features": 2},
    "pqr": {"delta": 50.0},
    "bootstrapped": {"members": 3},
    "pe-dqn": {"outputs": 5},
    "epsilon-greedy": {},
}
RIVALS = ("rnd", "pqr", "bootstrapped", "pe-dqn")
"""Explorers whose runs are slow tests; tests of their own cover their masks."""


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.slow if kind in RIVALS else ()) for kind in EXPLORERS]
)
def test_training_and_evaluation_take_allowed_actions_only(kind):
    """MaskedEnv raises for all others, in random, repeated, greedy, optimistic and evaluated actions alike."""
    agent = Agent(
        lambda: MaskedEnv(4, truncates=True),
        "ndqfn",
        seed=1,
        env_settings={"num_envs": 2},
        explorer={"kind": kind} | EXPLORERS[kind],
        **(SMALL | {"epsilon": {"longest_repeat": 9, "end": 0.3, "decay_steps": 50}, "noisy": True}),
    ).learn(200, evaluated=True)
    training = agent._training
    training.evaluate_random()
    assert [line["length_mean"] for line in agent.history if line["kind"] == "eval"] == [4.0] * 3
    batch = training.replay.sample(300, np.random.default_rng(0))
    for observations, masks in ((batch.observations, batch.masks), (batch.next_observations, batch.next_masks)):
        assert set(observations[:, 0, 0].tolist()) >= {1.0, 2.0, 3.0}
        assert [allowed_at(int(count)) for count in observations[:, 0, 0]] == masks.tolist()
    assert batch.masks[torch.arange(300), batch.actions].all()
    assert agent.evaluate(3, risk="cvar", alpha=0.2).lengths == [4] * 3
