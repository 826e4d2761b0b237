"""Probe environments against their known return distributions, and all our environments against Gymnasium's checker."""

import math
from collections import Counter

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from monotau.envs import (
    Chain,
    Coin,
    Gate,
    Grid,
    HeavyTail,
    LargeReturns,
    LongChain,
    NegativeReturns,
    Probe,
    TimeLimit,
    TwoShapes,
    TwoSpreads,
    TwoStepCoin,
    register_own,
)
from monotau.envs.catalog import OWN, own_class
from monotau.errors import ConfigError

GAMMA = 0.9


@pytest.mark.parametrize("env_id", OWN)
def test_own_worlds_pass_gymnasiums_checker(env_id):
    register_own()
    world = gym.make(env_id, disable_env_checker=True).unwrapped
    assert env_id == f"monotau/{type(world).__name__}-v0"
    check_env(world)


PROBES = [Coin, TwoStepCoin, TwoSpreads, TwoShapes, TimeLimit, Chain, Gate, Grid]
FAR_OR_LONG = [LargeReturns, NegativeReturns, HeavyTail, LongChain]


def test_every_probe_is_tested_here():
    assert {world for env_id in OWN if issubclass(world := own_class(env_id), Probe)} == {*PROBES, *FAR_OR_LONG}


@pytest.mark.parametrize("world", [kind() for kind in PROBES + FAR_OR_LONG], ids=str)
def test_the_probabilities_of_each_truth_sum_to_one(world: Probe):
    for outcomes in world.truth(GAMMA).values():
        assert sum(probability for probability, _ in outcomes) == pytest.approx(1)


@pytest.mark.parametrize("world", [Coin(), TwoStepCoin(), TwoSpreads()], ids=str)
@pytest.mark.parametrize("action", [0, 1])
def test_outcomes_are_as_frequent_as_the_truth_says(world: Probe, action: int):
    trials = 4000
    seen: Counter[float] = Counter()
    world.reset(seed=action)
    for _ in range(trials):
        world.reset()
        total, discount, terminated = 0.0, 1.0, False
        while not terminated:
            _, reward, terminated, truncated, _ = world.step(action)
            assert not truncated
            total += discount * reward
            discount *= GAMMA
        seen[round(total, 9)] += 1
    truth = {round(outcome, 9): probability for probability, outcome in world.truth(GAMMA)[0, action]}
    assert set(seen) == set(truth)
    for outcome, probability in truth.items():
        spread = (trials * probability * (1 - probability)) ** 0.5
        assert abs(seen[outcome] - trials * probability) < 4 * spread


def test_the_second_coin_is_independent_of_the_first():
    assert TwoStepCoin().truth(GAMMA)[1, 0] == [(0.5, 1.0), (0.5, -1.0)]
    assert sorted(outcome for _, outcome in TwoStepCoin().truth(GAMMA)[0, 1]) == pytest.approx([-1.9, -0.1, 0.1, 1.9])


def test_two_spreads_have_one_mean():
    truth = TwoSpreads().truth(GAMMA)
    assert truth[0, 0] == [(0.5, 0.1), (0.5, -0.1)]
    assert truth[0, 1] == [(0.5, 2.0), (0.5, -2.0)]


def test_the_time_limit_truncates_and_never_terminates():
    world = TimeLimit()
    for _ in range(2):
        world.reset()
        steps = [world.step(0) for _ in range(10)]
        assert [step[1] for step in steps] == [1.0] * 10
        assert [step[2] for step in steps] == [False] * 10
        assert [step[3] for step in steps] == [False] * 9 + [True]
    assert world.truth(GAMMA) == {(0, 0): [(1.0, pytest.approx(10))], (0, 1): [(1.0, pytest.approx(10))]}


def test_the_chain_pays_at_its_right_end_only():
    world = Chain(length=4)
    world.reset()
    steps = [world.step(action) for action in (1, 0, 0, 1, 1, 1)]
    assert [step[0] for step in steps] == [1, 0, 0, 1, 2, 3]
    assert [step[1] for step in steps] == [0, 0, 0, 0, 0, 1]
    assert [step[2] for step in steps] == [False] * 5 + [True]
    assert not any(step[3] for step in steps)


def test_the_two_shapes_are_drawn_as_their_truth_says():
    """Both have mean 0 and deviation 1; their medians are 0 and log 2 - 1."""
    world = TwoShapes()
    for action, median in ((0, 0.0), (1, math.log(2) - 1)):
        world.reset(seed=3)
        drawn = np.array([world.step(action)[1] for _ in range(20_000)])
        truth = np.array([value for _, value in world.truth(GAMMA)[0, action]])
        assert truth.mean() == pytest.approx(0, abs=0.01)
        assert truth.std() == pytest.approx(1, abs=0.02)
        assert (truth[499] + truth[500]) / 2 == pytest.approx(median, abs=1e-4)
        np.testing.assert_allclose(np.quantile(drawn, (0.05, 0.5, 0.95)), truth[[49, 499, 949]], atol=0.05)


def test_the_truth_of_the_chain_is_as_worked_out_by_hand():
    assert Chain(length=4).truth(0.5) == {
        (0, 1): [(1.0, 0.25)],  # R R R: the third step pays
        (0, 0): [(1.0, 0.125)],  # L R R R
        (1, 1): [(1.0, 0.5)],
        (1, 0): [(1.0, 0.125)],
        (2, 1): [(1.0, 1.0)],
        (2, 0): [(1.0, 0.25)],
    }


def test_a_chain_walked_to_the_left_is_truncated_in_the_end():
    world = Chain(length=2)
    world.reset()
    steps = [world.step(0) for _ in range(16)]
    assert [step[3] for step in steps] == [False] * 15 + [True]
    assert not any(step[2] for step in steps)


def test_a_chain_that_ends_on_its_last_step_is_not_truncated_as_well():
    world = Chain(length=2)
    world.reset()
    for _ in range(15):
        world.step(0)
    assert world.step(1)[1:4] == (1.0, True, False)


def test_the_gate_is_played_as_its_truth_says():
    world = Gate()
    arrivals = []
    for seed in range(40):
        assert world.reset(seed=seed)[1]["action_mask"].tolist() == [1, 1]
        room, reward, terminated, truncated, info = world.step(0)
        assert (room, reward, terminated, info["action_mask"].tolist()) == (1, 0.0, False, [1, 0])
        arrivals.append(truncated)
        assert world.step(0)[:4] == (1, -1.0, True, False)
        world.reset()
        assert world.step(1)[:4] == (0, 1.0, True, False)
    assert 10 < sum(arrivals) < 30
    assert world.truth(GAMMA) == {(0, 0): [(1.0, -GAMMA)], (0, 1): [(1.0, 1.0)], (1, 0): [(1.0, -1.0)]}


def test_walls_stop_a_move_in_the_grid():
    world = Grid(size=3)
    observation, info = world.reset()
    assert info == {"state": 0}
    up, right, down, left = range(4)
    states = []
    for action in (up, left, right, right, right, down, down, down, left, up):
        observation, reward, terminated, _, info = world.step(action)
        states.append(info["state"])
        assert reward == 0
        assert not terminated
        np.testing.assert_array_equal(observation, np.eye(9, dtype=np.float32)[info["state"]])
    assert states == [0, 0, 1, 2, 2, 5, 8, 8, 7, 4]


def test_the_grid_is_truncated_at_its_horizon():
    world = Grid(horizon=3)
    assert world.observation_space.shape == (225,)
    for _ in range(2):
        world.reset()
        assert [world.step(1)[3] for _ in range(3)] == [False, False, True]


def test_the_grid_is_worth_nothing_everywhere():
    truth = Grid(size=2).truth(GAMMA)
    assert len(truth) == 16
    assert all(outcomes == [(1.0, 0.0)] for outcomes in truth.values())


def test_a_chain_of_a_single_state_is_refused():
    with pytest.raises(ConfigError, match="Chain's length is 1, but must be at least 2"):
        Chain(length=1)


@pytest.mark.parametrize("settings", [{"size": 0}, {"horizon": 0}, {"size": 1001}])
def test_a_grid_without_cells_or_time_or_with_too_many_cells_is_refused(settings):
    with pytest.raises(
        ConfigError, match=r"Grid's size is \d+ and its horizon \d+, but both must be at least 1, .* at most 1000"
    ):
        Grid(**settings)
