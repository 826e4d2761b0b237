"""Random actions: their share of the steps, and how long they are repeated."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from monotau.agent import Agent
from monotau.errors import ConfigError
from monotau.explorers import EpsilonSchedule
from monotau.explorers.epsilon_greedy import GreedyExplorer
from monotau.learning.policy import EpisodeNumbers, Policy, RandomActions
from tests.support.networks import random_batch, small_factory


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


class Numbering(GreedyExplorer):
    """Draws 1, 2, 3 ... for episodes, and prefers the action of their number; without numbers, action 0."""

    drawn = 0

    def draw_episodes(self, count, generator):
        self.drawn += count
        return torch.arange(self.drawn - count, self.drawn) + 1

    def scores_in_episodes(self, observations, prediction, generator, masks, numbers):
        return torch.nn.functional.one_hot(numbers, 3).float()

    def scores(self, observations, prediction, generator, masks=None):
        return torch.eye(3)[[0] * len(observations)]


def test_the_number_of_an_episode_is_drawn_when_it_starts_and_kept_until_it_ends():
    numbers, explorer = EpisodeNumbers(3), Numbering()
    seen = [numbers.begin(np.array(first), explorer, torch.Generator()).tolist() for first in ENDS]
    assert seen == [[1, 2, 3], [1, 2, 3], [1, 4, 3], [5, 4, 6]]


ENDS = [[True] * 3, [False] * 3, [False, True, False], [True, False, True]]


def test_explorers_that_do_not_tell_episodes_apart_draw_nothing():
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    assert EpisodeNumbers(2).begin(np.array([True, True]), GreedyExplorer(), generator).tolist() == [0, 0]
    assert torch.equal(generator.get_state(), before)


def test_scores_are_those_of_each_lane_s_episode_wherever_the_action_is_not_random():
    policy = Policy(small_factory().make("online"), 3, Numbering())
    observations = random_batch(40).observations.numpy()
    numbers = np.arange(40) % 3
    noise, rng = RandomActions(40, 3), np.random.default_rng(0)
    actions, random = policy.explore(observations, 0.4, rng, torch.Generator(), noise, numbers=numbers)
    assert 5 < random.sum() < 35
    np.testing.assert_array_equal(actions[~random], numbers[~random])
    assert (actions[random] != numbers[random]).any()
    assert policy.explore(observations, 0.0, rng, None, noise, numbers=numbers)[0].tolist() == numbers.tolist()
    assert policy.best(observations, None).tolist() == [0] * 40
    masks = np.ones((40, 3), bool)
    masks[:, 2] = False
    assert (policy.best(observations, None, masks, numbers) == np.where(numbers == 2, 0, numbers)).all()


@pytest.mark.slow
def test_each_lane_follows_the_member_of_its_episode_in_training():
    agent = Agent("CartPole-v1", "bootstrapped-dqn", env_settings={"num_envs": 3}, **WHOLE)
    explorer = agent.networks.explorer
    seen, real = [], explorer.scores_in_episodes
    explorer.scores_in_episodes = lambda *given: (seen.append(given[-1].tolist()), real(*given))[1]
    agent.learn(240)
    frames = agent._training.replay
    changed = [lane for one, other in pairwise(seen) for lane in range(3) if one[lane] != other[lane]]
    assert set(changed) == {0, 1, 2}
    assert len(changed) <= (frames._flags & 1).sum()  # at most once for each episode
    assert len(seen) == 80


WHOLE = {
    "steps": 240,
    "iteration_steps": 240,
    "epsilon": {"start": 0.0, "end": 0.0},
    "explorer": {"members": 7},
    "replay": {"warmup_steps": 30, "capacity_steps": 900},
    "update": {"batch_size": 4, "every_steps": 8},
}
