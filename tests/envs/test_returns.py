"""Environments with continuous returns against simulated returns and values worked out by hand."""

import math
from itertools import pairwise

import numpy as np
import pytest

from monotau.envs import HeavyTail, LargeReturns, LongChain, NegativeReturns, Probe, TwoShapes
from monotau.envs.returns import t3_cdf, t3_quantile

GAMMA = 0.99


def curve(world: Probe, state: int = 0, action: int = 0, gamma: float = GAMMA) -> np.ndarray:
    outcomes = world.truth(gamma)[state, action]
    assert {probability for probability, _ in outcomes} == {1 / 1000}
    return np.array([value for _, value in outcomes])


def simulated(world: Probe, action: int, episodes: int) -> np.ndarray:
    """Return the discounted returns from each step of each episode, as `[episodes, steps]`."""
    world.reset(seed=5 + action)
    returns = []
    for _ in range(episodes):
        world.reset()
        rewards, terminated = [], False
        while not terminated:
            _, reward, terminated, truncated, _ = world.step(action)
            assert not truncated
            rewards.append(reward)
        total, backwards = 0.0, []
        for reward in reversed(rewards):
            total = reward + GAMMA * total
            backwards.append(total)
        returns.append(backwards[::-1])
    return np.array(returns)


def check_quantiles(drawn: np.ndarray, true: np.ndarray) -> None:
    """Assert agreement within the sampling error of a quantile: sqrt(tau (1 - tau) / n) over the density."""
    for tau in (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99):
        below, above = true[round(1000 * tau) - 1], true[round(1000 * tau)]  # half a thousandth to each side
        error = math.sqrt(tau * (1 - tau) / len(drawn)) * (above - below) * 1000
        assert abs(np.quantile(drawn, tau) - (below + above) / 2) < 4 * error


@pytest.mark.parametrize("world", [LargeReturns(), NegativeReturns(), HeavyTail(), TwoShapes()], ids=str)
@pytest.mark.parametrize("action", [0, 1])
def test_returns_are_drawn_as_their_truth_says(world, action):
    check_quantiles(simulated(world, action, 20_000)[:, 0], curve(world, action=action))


def test_the_long_chain_pays_as_its_truth_says_in_every_state():
    world, truth = LongChain(), LongChain().truth(GAMMA)
    drawn = simulated(world, 0, 2_000)
    assert drawn.shape == (2_000, 50)
    assert set(truth) == {(state, action) for state in range(50) for action in range(2)}
    for state in range(50):
        true = np.array([value for _, value in truth[state, 0]])
        assert truth[state, 1] == truth[state, 0]
        assert abs(drawn[:, state].mean() - true.mean()) < 4 * true.std() / math.sqrt(2_000)
        assert abs(drawn[:, state].std() / true.std() - 1) < 4 / math.sqrt(2 * 2_000)
    check_quantiles(drawn[:, 0], curve(world))
    check_quantiles(drawn[:, 49], curve(world, 49))


def test_the_long_chain_pays_as_worked_out_by_hand():
    """The last state has one reward to go, the one before two; without a discount 50 rewards have a variance of 50."""
    normal_95 = 1.6448536269514722
    for gamma, state, mean, variance in ((0.5, 49, 1, 1), (0.5, 48, 1.5, 1.25), (1.0, 0, 50, 50), (0.0, 7, 1, 1)):
        values = curve(LongChain(), state, 1, gamma)
        assert values.mean() == pytest.approx(mean)
        assert (values[949] + values[950]) / 2 == pytest.approx(mean + normal_95 * variance**0.5, rel=1e-4)


def test_the_long_chain_ends_after_fifty_steps_whatever_is_done():
    world = LongChain()
    for _ in range(2):
        assert world.reset(seed=0)[0] == 0
        steps = [world.step(step % 2) for step in range(50)]
        assert [step[0] for step in steps] == [*range(1, 50), 49]
        assert [step[2] for step in steps] == [False] * 49 + [True]
        assert not any(step[3] for step in steps)


@pytest.mark.parametrize("world", [LargeReturns(), NegativeReturns(), HeavyTail(), LongChain()], ids=str)
def test_quantiles_rise(world):
    for outcomes in world.truth(GAMMA).values():
        assert all(low < high for (_, low), (_, high) in pairwise(outcomes))


@pytest.mark.parametrize(("world", "sign"), [(LargeReturns(), 1), (NegativeReturns(), -1)], ids=str)
def test_returns_far_from_zero_are_as_worked_out_by_hand(world, sign):
    """Mean 2400 and deviation 100; the median of the exponential one is 2400 + 100 (log 2 - 1) = 2369.3."""
    for action, median in ((0, 2400.0), (1, 2369.3147)):
        values = curve(world, action=action)
        assert values.mean() == pytest.approx(sign * 2400, abs=0.1)
        assert values.std() == pytest.approx(100, abs=1.5)
        assert (values[499] + values[500]) / 2 == pytest.approx(sign * median, abs=0.01)


def test_the_negative_world_is_the_large_one_mirrored():
    for action in range(2):
        np.testing.assert_allclose(curve(NegativeReturns(), action=action), -curve(LargeReturns(), action=action)[::-1])


def test_students_quantiles_are_those_of_the_books():
    for tau, value in (
        (0.5, 0.0),
        (0.75, 0.76489),
        (0.95, 2.35336),
        (0.975, 3.18245),
        (0.99, 4.54070),
        (0.9995, 12.924),
    ):
        assert t3_quantile(tau) == pytest.approx(value, abs=1e-3 if tau > 0.999 else 1e-5)
        assert t3_quantile(1 - tau) == pytest.approx(-t3_quantile(tau), abs=1e-9)
        assert t3_cdf(t3_quantile(tau)) == pytest.approx(tau, abs=1e-12)


def test_heavy_tails_have_a_mean_of_zero():
    """The midpoint of the last thousandth lies below its mean: by 0.0024 of the mean for Pareto."""
    world = HeavyTail()
    assert curve(world, action=0).mean() == pytest.approx(0, abs=1e-9)
    pareto = curve(world, action=1)
    assert pareto.mean() == pytest.approx(0, abs=0.004)
    assert pareto[0] == pytest.approx(-0.5, abs=1e-3)
    assert (pareto[874] + pareto[875]) / 2 == pytest.approx(2 - 1.5, abs=1e-4)  # an eighth lies beyond 2
