"""Drawings show what observations contain."""

import numpy as np
import pytest
from gymnasium import spaces

from monotau.watch.drawing import BACKGROUND, CHANNELS, EMPTY, MARKED, MOST_CELLS, draw_observation


def cell(picture, row, column, side):
    """The colour in the middle of a cell."""
    return tuple(int(part) for part in picture[row * side + side // 2, column * side + side // 2])


def test_each_cell_has_the_colour_of_its_first_channel():
    grid = np.zeros((10, 10, 4), np.bool_)
    grid[2, 3, 1] = grid[2, 3, 2] = grid[9, 0, 3] = True
    picture = draw_observation(grid, spaces.Box(0, 1, grid.shape, np.bool_))
    assert picture.shape == (240, 240, 3)
    assert cell(picture, 2, 3, 24) == CHANNELS[1]
    assert cell(picture, 9, 0, 24) == CHANNELS[3]
    assert cell(picture, 0, 0, 24) == EMPTY


@pytest.mark.parametrize("shape", [(25,), (5, 5)])
def test_a_one_hot_grid_is_drawn_as_a_square(shape):
    observation = np.zeros(25, np.float32)
    observation[7] = 1
    picture = draw_observation(observation.reshape(shape), spaces.Box(0, 1, shape, np.float32))
    assert cell(picture, 1, 2, 48) == MARKED
    assert sum(cell(picture, row, column, 48) == MARKED for row in range(5) for column in range(5)) == 1


def test_a_numbered_state_is_marked_and_cells_beyond_the_last_state_are_not_drawn():
    picture = draw_observation(np.array(4), spaces.Discrete(11, start=2))
    assert cell(picture, 0, 2, 60) == MARKED
    assert cell(picture, 2, 2, 60) == EMPTY
    assert cell(picture, 2, 3, 60) == BACKGROUND


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1, 1, (4,), np.float32),
        spaces.Box(0, 1, (5,), np.float32),
        spaces.Box(0, 1, (4, 9), np.float32),
        spaces.Box(0, 1, (101, 101), np.float32),
        spaces.Discrete(MOST_CELLS + 1),
    ],
)
def test_other_observations_are_not_drawn(space):
    assert draw_observation(np.asarray(space.sample()), space) is None
