"""The inventory environment: profits worked out by hand, bounds, and returns of simple policies."""

import math

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from monotau.envs import Inventory, register_own
from monotau.errors import ConfigError


def play(world: Inventory, orders, seed: int | None = 0) -> list[tuple]:
    """Play with a fixed action or a policy; return all steps."""
    observation, _ = world.reset(seed=seed)
    steps = []
    while not (steps and steps[-1][3]):
        action = orders(observation) if callable(orders) else orders[len(steps) % len(orders)]
        steps.append(world.step(action))
        observation = steps[-1][0]
    return steps


def test_the_inventory_passes_gymnasiums_checker_at_another_scale():
    register_own()
    check_env(gym.make("monotau/Inventory-v0", reward_scale=100.0, disable_env_checker=True).unwrapped)


def test_a_day_s_profit_is_as_worked_out_by_hand():
    """A sale earns 5; a delivery costs 8, a unit in it 0.2, a unit left over 1."""
    world = Inventory()
    before, _ = world.reset(seed=1)
    assert before[0] == 25
    for action in (0, 4, 10, 1):
        after, reward, terminated, truncated, info = world.step(action)
        assert info["sold"] == min(info["demand"], before[0])
        left = before[0] - info["sold"]
        assert reward == pytest.approx(5 * info["sold"] - left - (8 + action if action else 0))
        assert after[0] == min(left + 5 * action, 50)
        assert after[1:].argmax() == (before[1:].argmax() + 1) % 7
        assert after[1:].sum() == 1
        assert (terminated, truncated) == (False, False)
        before = after


def test_an_order_arrives_after_the_demand_of_its_day():
    world = Inventory()
    world.reset(seed=0)
    while world.step(0)[0][0]:  # sell all
        pass
    observation, reward, _, _, info = world.step(10)
    assert (observation[0], reward, info["sold"]) == (50, -18.0, 0)


def test_units_beyond_the_shelf_space_are_returned():
    assert max(step[0][0] for step in play(Inventory(), [10])) == 50


def test_seeds_repeat_and_differ():
    def rewards(seed):
        return [step[1] for step in play(Inventory(), [3, 2, 4], seed)]

    assert rewards(7) == rewards(7)
    assert rewards(7) != rewards(8)


def test_episodes_begin_on_any_day_of_the_week():
    world = Inventory()
    world.reset(seed=0)
    assert {int(world.reset()[0][1:].argmax()) for _ in range(100)} == set(range(7))


def test_demand_follows_the_week():
    world, demands = Inventory(), [[] for _ in range(7)]
    world.reset(seed=3)
    for _ in range(60):
        observation, _ = world.reset()
        for _ in range(100):
            weekday = int(observation[1:].argmax())
            observation, _, _, _, info = world.step(3)
            demands[weekday].append(info["demand"])
    for mean, drawn in zip((8, 8, 10, 12, 18, 22, 14), demands, strict=True):
        assert abs(np.mean(drawn) - mean) < 4 * math.sqrt(mean / len(drawn))
        assert np.var(drawn) == pytest.approx(mean, rel=0.25)  # Poisson


def test_an_episode_is_truncated_after_a_hundred_days_and_stays_within_bounds():
    world, generator = Inventory(), np.random.default_rng(0)
    for seed in range(5):
        steps = play(world, lambda _: int(generator.integers(11)), seed)
        assert len(steps) == 100
        assert not any(step[2] for step in steps)
        assert all(world.observation_space.contains(step[0]) for step in steps)
        assert all(-68 <= step[1] <= 250 for step in steps)


def test_a_simple_rule_earns_thousands_and_more_than_random_orders():
    def discounted(orders):
        returns = []
        for seed in range(40):
            steps = play(Inventory(), orders, seed)
            returns.append(sum(0.99**day * step[1] for day, step in enumerate(steps)))
        return np.mean(returns)

    generator = np.random.default_rng(0)
    assert 2_400 < discounted(lambda seen: int(max(0, (35 - seen[0]) // 5))) < 2_700
    assert 1_200 < discounted(lambda _: int(generator.integers(11))) < 1_500


@pytest.mark.parametrize("scale", [0.01, 4.0, 100.0])
def test_rewards_are_multiplied_and_nothing_else_changes(scale):
    plain, scaled = play(Inventory(), [3, 2, 4]), play(Inventory(reward_scale=scale), [3, 2, 4])
    assert [step[1] for step in scaled] == pytest.approx([scale * step[1] for step in plain])
    for one, other in zip(plain, scaled, strict=True):
        np.testing.assert_array_equal(one[0], other[0])


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_an_invalid_reward_scale_is_refused(scale):
    with pytest.raises(ConfigError, match=rf"Inventory's reward_scale is {scale}, but must be a finite number above 0"):
        Inventory(reward_scale=scale)
