"""Deep Sea against values worked out by hand."""

import numpy as np
import pytest

from monotau.envs import DeepSea
from monotau.errors import ConfigError


def play(sea: DeepSea, moves: str, seed: int = 0) -> tuple[list[float], list[tuple[int, int]], list[bool]]:
    """Play a string of R and L; return rewards, cells and ends. The cell below the last row is (-1, -1)."""
    observation, _ = sea.reset(seed=seed)
    rewards, cells, ends = [], [cell_of(observation)], []
    for move in moves:
        right = int(sea.right_actions[cells[-1]])
        observation, reward, terminated, truncated, _ = sea.step(right if move == "R" else 1 - right)
        assert not truncated
        rewards.append(reward)
        cells.append(cell_of(observation))
        ends.append(terminated)
    return rewards, cells, ends


def cell_of(observation: np.ndarray) -> tuple[int, int]:
    if not observation.any():
        return -1, -1
    assert observation.sum() == 1
    row, column = np.argwhere(observation)[0]
    return int(row), int(column)


def test_going_right_all_the_way_pays_one_less_the_moves():
    rewards, cells, ends = play(DeepSea(size=4), "RRRR")
    assert rewards == pytest.approx([-0.0025, -0.0025, -0.0025, 0.9975])
    assert cells == [(0, 0), (1, 1), (2, 2), (3, 3), (-1, -1)]
    assert ends == [False, False, False, True]


def test_one_move_left_forfeits_the_reward():
    rewards, cells, ends = play(DeepSea(size=4), "RRLR")
    assert rewards == pytest.approx([-0.0025, -0.0025, 0, -0.0025])
    assert cells == [(0, 0), (1, 1), (2, 2), (3, 1), (-1, -1)]
    assert ends == [False, False, False, True]


def test_going_left_is_free_and_stops_at_the_edge():
    rewards, cells, _ = play(DeepSea(size=3), "LLL")
    assert rewards == [0, 0, 0]
    assert cells == [(0, 0), (1, 0), (2, 0), (-1, -1)]


def test_the_last_move_must_be_right_as_well():
    rewards, _, _ = play(DeepSea(size=3), "RRL")
    assert sum(rewards) == pytest.approx(-2 * 0.01 / 3)


@pytest.mark.parametrize("size", [1, 2, 10, 30])
def test_the_best_return_is_099_at_any_size(size):
    sea = DeepSea(size=size)
    rewards, _, _ = play(sea, "R" * size)
    assert sum(rewards) == pytest.approx(0.99)
    assert sea.optimal_return == pytest.approx(0.99)


def test_the_cost_of_moving_can_be_set():
    rewards, _, _ = play(DeepSea(size=2, unscaled_move_cost=0.5), "RR")
    assert rewards == pytest.approx([-0.25, 0.75])


def test_an_unmixed_sea_goes_right_with_action_one():
    assert (DeepSea(size=5, randomize_actions=False).right_actions == 1).all()


def test_the_mapping_of_actions_follows_its_seed_only():
    first, again, other = (DeepSea(size=8, mapping_seed=seed) for seed in (3, 3, 4))
    again.reset(seed=99)
    np.testing.assert_array_equal(first.right_actions, again.right_actions)
    assert (first.right_actions != other.right_actions).any()
    assert 0 < first.right_actions.mean() < 1


def test_copies_with_default_settings_are_the_same_world():
    np.testing.assert_array_equal(DeepSea().right_actions, DeepSea().right_actions)


def test_a_stochastic_sea_repeats_under_its_seed():
    sea = DeepSea(size=4, stochastic=True)
    rewards = [play(sea, "RRRR", seed=seed)[0] for seed in (7, 7, 8)]
    assert rewards[0] == rewards[1]
    assert rewards[0][-1] != rewards[2][-1]


def test_wind_stops_one_in_size_moves_to_the_right_and_their_cost_is_still_paid():
    sea = DeepSea(size=5, stochastic=True)
    sea.reset(seed=1)
    trials, moved = 2000, 0
    for _ in range(trials):
        observation, _ = sea.reset()
        observation, reward, _, _, _ = sea.step(int(sea.right_actions[0, 0]))
        assert reward == pytest.approx(-0.002)
        moved += cell_of(observation) == (1, 1)
    spread = (trials * 0.8 * 0.2) ** 0.5
    assert abs(moved - trials * 0.8) < 4 * spread


@pytest.mark.parametrize(
    ("moves", "mean"),
    [("LLL", 0.0), ("RRR", 1 - 0.01 / 3), ("RRL", 0.0)],
    ids=["left corner", "right corner, going right", "right corner, going left"],
)
def test_the_bottom_corners_have_standard_normal_noise(moves, mean):
    sea = DeepSea(size=3, stochastic=True)
    goal = (2, 0) if moves[0] == "L" else (2, 2)
    noise = []
    for seed in range(1500):
        rewards, cells, _ = play(sea, moves, seed=seed)
        if cells[2] == goal:
            noise.append(rewards[2] - mean)
    assert len(noise) > 500
    assert abs(np.mean(noise)) < 4 / len(noise) ** 0.5
    assert abs(np.std(noise) - 1) < 4 / (2 * len(noise)) ** 0.5


def test_other_cells_have_no_noise():
    sea = DeepSea(size=3, stochastic=True)
    games = [play(sea, "LRR", seed=seed) for seed in range(30)]
    between = [rewards for rewards, cells, _ in games if cells[2] == (2, 1)]
    assert len(between) > 10
    for rewards in between:
        assert rewards == pytest.approx([0, -0.01 / 3, -0.01 / 3])


def best(size: int, row: int = 0, column: int = 0) -> float:
    """Return the expected return of the best policy in the stochastic sea, by exhaustive search."""
    if row == size:
        return 0.0
    left = best(size, row + 1, max(column - 1, 0))
    moved, stayed = best(size, row + 1, min(column + 1, size - 1)), best(size, row + 1, column)
    right = (1 - 1 / size) * moved + stayed / size - 0.01 / size + (column == size - 1)
    return max(left, right)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_the_optimal_return_is_what_trying_everything_finds(size):
    assert DeepSea(size=size, stochastic=True).optimal_return == pytest.approx(best(size))


@pytest.mark.parametrize("size", [0, 1001])
def test_a_sea_without_cells_or_with_more_than_memory_has_room_for_is_refused(size):
    with pytest.raises(ConfigError, match=f"DeepSea's size is {size}, but must be at least 1 and at most 1000"):
        DeepSea(size=size)
