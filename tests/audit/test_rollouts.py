"""Visits and rollouts on worlds with known returns, with agents whose policy is known."""

import math

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from monotau import Agent
from monotau.audit import rollouts as module
from monotau.audit.rollouts import (
    NEGLIGIBLE,
    Player,
    audit_states,
    check_learns_distribution,
    first_stack,
    next_stack,
    visit,
)
from monotau.audit.snapshots import Seen, snapshots_of
from monotau.errors import ConfigError, EnvironmentFault
from tests.support.envs import MaskedEnv
from tests.support.small_runs import SMALL


def prepared(env, preset="ndqfn", **settings):
    agent = Agent(env, preset, 1, **(SMALL | settings))
    return Player(agent), snapshots_of(agent.envs)


def audited(env, states=4, **options):
    settings = options.pop("settings", {})
    player, snapshots = prepared(env, **settings)
    visits = visit(player, snapshots, states, seed=3)
    return player, visits, audit_states(player, snapshots, visits, **({"rollouts": 100, "seed": 7} | options))


def test_returns_of_a_coin_are_those_of_the_truth():
    player, visits, audits = audited("monotau/TwoStepCoin-v0", settings={"gamma": 0.5})
    assert [(each.episode, each.step) for each in visits] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for audit in audits:
        expected = {-1.0, 1.0} if audit.step else {-1.5, -0.5, 0.5, 1.5}
        assert audit.actions == (0, 1)
        assert {*audit.returns.ravel().tolist()} == expected
        assert np.abs(audit.returns.mean(axis=1)).max() < 4 * math.sqrt(1.25 / 100)
        assert (audit.steps == 2 - audit.step).all()
        assert not audit.unmeasured.any()
    learned = player.agent.distribution(0)
    for action in range(2):
        assert audits[0].curves[action].mean() == pytest.approx(float(learned.mean()[action]), abs=1e-5)
        assert audits[0].curves[action].cvar(0.1) == pytest.approx(float(learned.cvar(0.1)[action]), abs=1e-5)
    assert audits[0].greedy == int(player.agent.predict(0)[0])


def test_rollouts_do_not_depend_on_their_company(monkeypatch):
    player, snapshots = prepared("monotau/TwoStepCoin-v0")
    visits = visit(player, snapshots, 4, seed=3)
    both = audit_states(player, snapshots, visits, rollouts=20, seed=7)
    snapshots.lanes = 3
    few = audit_states(player, snapshots, visits, rollouts=20, seed=7)
    other = audit_states(player, snapshots, visits, rollouts=20, seed=8)
    assert all(np.array_equal(one.returns, two.returns) for one, two in zip(both, few, strict=True))
    assert not all(np.array_equal(one.returns, two.returns) for one, two in zip(both, other, strict=True))
    assert not np.array_equal(both[0].returns[0], both[0].returns[1])  # actions have randomness of their own


def test_only_the_greedy_action_is_audited_if_asked_for():
    done = []
    *_, audits = audited("monotau/Coin-v0", actions="greedy", rollouts=8, on_rollout=lambda: done.append(1))
    assert all(audit.actions == (audit.greedy,) and audit.returns.shape == (1, 8) for audit in audits)
    assert len(done) == 4 * 8
    assert [audit.episode for audit in audits] == [0, 1, 2, 3]  # each has one state


def test_only_allowed_actions_are_audited():
    *_, audits = audited(MaskedEnv, rollouts=8)
    assert [audit.actions for audit in audits[:2]] == [(1, 2), (0, 1, 3)]
    assert audits[0].returns.tolist() == [[pytest.approx(1 + 0.99)] * 8] * 2


class Steady(gym.Env):
    """Pays 3 in each step without end."""

    def __init__(self):
        self.observation_space, self.action_space = spaces.Box(-1, 1, (1,), np.float32), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 3.0, False, False, {}


def test_a_rollout_ends_when_rewards_no_longer_count_and_the_agent_estimates_the_rest(monkeypatch):
    settings = {"gamma": 0.9, "env_settings": {"max_episode_steps": 5}, "replay": {"reward_clip": 2.0}}
    player, snapshots = prepared(Steady, **settings)
    visits = visit(player, snapshots, 4, seed=3)
    assert max(each.step for each in visits) < 5  # visits keep to the time limit, rollouts do not
    monkeypatch.setattr(player, "value", lambda stack, mask: 100.0)
    audits = audit_states(player, snapshots, visits, rollouts=8)
    steps = math.ceil(math.log(NEGLIGIBLE) / math.log(0.9))
    assert player.horizon == steps == 51
    assert (audits[0].steps == steps).all()
    assert audits[0].returns == pytest.approx(2 * (1 - 0.9**steps) / 0.1 + 0.9**steps * 100)


def test_the_estimate_of_the_rest_is_the_mean_of_the_best_allowed_action():
    player, _ = prepared("CartPole-v1", return_scale=50.0)
    means = player.agent.distribution([0.1, 0.2, 0.3, 0.4]).mean().numpy()
    stack = np.array([[0.1, 0.2, 0.3, 0.4]], np.float32)
    assert player.value(stack, None) == pytest.approx(means.max(), rel=1e-4)
    assert player.value(stack, np.array([True, False])) == pytest.approx(means[0], rel=1e-4)
    assert player.value(stack, np.array([False, True])) == pytest.approx(means[1], rel=1e-4)
    assert abs(means[0] - means[1]) > 1e-3 * abs(means).max()


@pytest.mark.parametrize(("gamma", "steps"), [(0.0, 1), (0.99, 528), (1.0, 27_000), (0.99999, 27_000)])
def test_the_horizon_follows_from_gamma(gamma, steps):
    assert Player(Agent("CartPole-v1", "ndqfn", gamma=gamma)).horizon == steps


def test_a_truncation_by_the_environment_leaves_returns_unmeasured():
    *_, audits = audited("monotau/TimeLimit-v0", rollouts=8)
    assert all(audit.unmeasured.all() for audit in audits)
    *_, audits = audited("monotau/TimeLimit-v0", rollouts=8, beyond_truncation=True, settings={"gamma": 0.9})
    assert not any(audit.unmeasured.any() for audit in audits)
    assert audits[0].returns == pytest.approx(10, abs=0.1)


def test_rollouts_without_discount_that_never_end_are_unmeasured(monkeypatch):
    monkeypatch.setattr(module, "LONGEST_STEPS", 20)
    *_, audits = audited(Steady, 1, rollouts=8, settings={"gamma": 1.0, "env_settings": {"max_episode_steps": 5}})
    assert audits[0].unmeasured.all()
    assert (audits[0].steps == 20).all()


class Long(Steady):
    """A hundred steps."""

    def reset(self, *, seed=None, options=None):
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.count += 1
        return np.full(1, self.count / 100, np.float32), 1.0, self.count == 100, False, {}


def test_all_states_of_an_episode_are_equally_likely():
    player, snapshots = prepared(Long)
    steps = np.array([each.step for each in visit(player, snapshots, 60, seed=0)])
    assert steps.min() >= 0
    assert steps.max() <= 99
    assert steps.mean() == pytest.approx(49.5, abs=4 * 28.9 / math.sqrt(60))
    counts, _ = np.histogram(steps, 4, (0, 100))
    assert counts.min() >= 6  # 15 are expected


def test_decisions_are_remembered_and_forgotten_when_there_are_too_many(monkeypatch):
    player, _ = prepared("CartPole-v1")
    stacks = np.random.default_rng(0).normal(size=(50, 1, 4)).astype(np.float32)
    asked = []
    best = player.agent.networks.evaluation_policy.best
    monkeypatch.setattr(
        player.agent.networks.evaluation_policy,
        "best",
        lambda some, *rest: (asked.append(len(some)), best(some, *rest))[1],
    )
    expected = best(stacks, None, None)
    assert np.array_equal(player.greedy(stacks, None), expected)
    assert np.array_equal(player.greedy(np.concatenate([stacks, stacks]), None), np.tile(expected, 2))
    assert asked == [50]
    monkeypatch.setattr(module, "KEPT_DECISIONS", 10)
    assert np.array_equal(player.greedy(-stacks[:5], None), best(-stacks[:5], None, None))
    assert len(player._known) == 5


def test_stacks_begin_with_empty_frames_and_drop_the_oldest():
    player = Player(Agent("CartPole-v1", "ndqfn", env_settings={"frame_stack": 3}))
    frames = [Seen(np.full(4, value, np.float32), None) for value in (1, 2, 3, 4)]
    stack = first_stack(player, frames[0])
    assert stack[:, 0].tolist() == [0, 0, 1]
    for seen in frames[1:]:
        stack = next_stack(stack, seen)
    assert stack[:, 0].tolist() == [2, 3, 4]


class Failing(Steady):
    fails = False

    def step(self, action):
        if self.fails:
            raise OSError("the simulator is gone")
        return super().step(action)


def test_an_environment_that_fails_is_named():
    player, snapshots = prepared(Failing, gamma=0.5, env_settings={"max_episode_steps": 5})
    visits = visit(player, snapshots, 1, seed=0)
    try:
        Failing.fails = True
        with pytest.raises(EnvironmentFault, match=r"in a rollout: it raised OSError: the simulator is gone"):
            audit_states(player, snapshots, visits, rollouts=8)
        with pytest.raises(EnvironmentFault, match=r": it raised OSError: the simulator is gone"):
            visit(player, snapshots, 1, seed=0)
    finally:
        Failing.fails = False


def test_an_agent_without_distributions_is_refused():
    check_learns_distribution(Agent("CartPole-v1", "iqn"))
    with pytest.raises(ConfigError, match=r"^the agent is dqn, whose head learns mean returns only; an audit needs"):
        check_learns_distribution(Agent("CartPole-v1", "dqn"))
