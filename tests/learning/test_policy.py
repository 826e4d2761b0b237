"""Random actions: their share of the steps, and how long they are repeated."""

import numpy as np
import pytest

from monotau.errors import ConfigError
from monotau.explorers import EpsilonSchedule
from monotau.learning.policy import RandomActions


def played(longest: int, epsilon: float, steps: int = 20_000, lanes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Return actions, and whether they were random, as `[steps, lanes]`."""
    noise, rng = RandomActions(lanes, 50), np.random.default_rng(0)
    drawn = [noise.draw(epsilon, rng, longest) for _ in range(steps)]
    return np.stack([actions for actions, _ in drawn]), np.stack([taken for _, taken in drawn])


@pytest.mark.parametrize("longest", [1, 4, 100])
@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.5, 1.0])
def test_the_share_of_random_steps_is_epsilon_however_long_they_are_repeated(longest: int, epsilon: float) -> None:
    _, taken = played(longest, epsilon)
    assert taken.mean() == pytest.approx(epsilon, abs=0.02)


def test_a_repeat_of_n_steps_has_a_chance_in_proportion_to_one_over_n() -> None:
    actions, taken = played(4, 1.0)
    assert taken.all()
    changes = np.flatnonzero(np.diff(actions[:, 0])) + 1
    lengths = np.diff(changes)
    shares = np.array([np.mean(lengths == length) for length in (1, 2, 3, 4)])
    # The tolerance covers consecutive repeats of the same action, which look like one long repeat.
    assert shares == pytest.approx(np.array([12, 6, 4, 3]) / 25, abs=0.03)


def test_an_action_stays_the_same_while_it_is_repeated_and_lanes_are_independent() -> None:
    actions, taken = played(100, 0.3)
    going_on = taken[1:] & taken[:-1] & (actions[1:] == actions[:-1])
    assert going_on.mean() > 0.1
    assert not (actions[:, 0] == actions[:, 1]).all()


def test_without_repeats_draws_are_those_of_plain_epsilon_greedy() -> None:
    noise, rng, twin = RandomActions(5, 3), np.random.default_rng(1), np.random.default_rng(1)
    for _ in range(10):
        actions, taken = noise.draw(0.4, rng)
        np.testing.assert_array_equal(actions, twin.integers(3, size=5))
        np.testing.assert_array_equal(taken, twin.random(5) < 0.4)


def test_each_lane_may_have_its_own_epsilon() -> None:
    noise, rng = RandomActions(2, 3), np.random.default_rng(0)
    taken = np.stack([noise.draw(np.array([0.0, 1.0]), rng, 10)[1] for _ in range(100)])
    assert taken.mean(axis=0).tolist() == [0.0, 1.0]


def test_a_started_repeat_keeps_its_length_when_the_longest_repeat_shrinks() -> None:
    noise, rng = RandomActions(1, 1000), np.random.default_rng(3)
    first = noise.draw(1.0, rng, 30)[0]
    left = int(noise._left[0])
    assert left > 0
    assert [noise.draw(0.0, rng, 1) for _ in range(left)] == [(first, np.array([True]))] * left
    assert not noise.draw(0.0, rng, 1)[1].any()


def test_random_actions_are_repeated_during_the_warm_up_only() -> None:
    schedule = EpsilonSchedule(start=1.0, end=0.2, decay_steps=100, longest_repeat=31)
    assert [schedule.longest_at(step) for step in (-5, -1, 0, 50, 500)] == [31, 31, 1, 1, 1]
    assert EpsilonSchedule(decay_steps=100).longest_at(-1) == 1


def test_a_repeat_of_no_steps_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"epsilon.longest_repeat is 0, but must be at least 1"):
        EpsilonSchedule(longest_repeat=0)
