"""Draws environments that do not draw themselves, from their observations: MinAtar, grids and numbered states."""

import math
from collections.abc import Sequence

import numpy as np
from gymnasium import spaces
from jaxtyping import Shaped, UInt8

BACKGROUND, EMPTY, MARKED = (17, 22, 29), (34, 42, 53), (240, 228, 66)
CHANNELS = (
    (86, 180, 233), (240, 228, 66), (90, 104, 120), (213, 94, 0), (0, 158, 115),
    (204, 121, 167), (230, 159, 0), (0, 114, 178), (236, 240, 244), (150, 110, 220),
)  # fmt: skip
"""Colours of MinAtar's channels, in their order; those of Okabe and Ito first, which colour-blind people tell apart."""

PIXELS = 240
"""Approximate width of a drawing."""
MOST_CELLS = 10_000
"""Larger grids are not drawn: a cell would be smaller than a pixel."""

Rgb = Sequence[int]


def draw_observation(observation: Shaped[np.ndarray, "..."], space: spaces.Space) -> UInt8[np.ndarray, "H W 3"] | None:
    """Draw the channels of a grid, a one-hot grid, or the number of a state; None for other observations."""
    if isinstance(space, spaces.Discrete):
        return _draw_state(int(observation) - int(space.start), int(space.n))
    shape = observation.shape
    if len(shape) == 3 and observation.dtype == np.bool_ and math.prod(shape[:2]) <= MOST_CELLS:
        return _draw_channels(observation)
    if is_one_hot_grid(space):
        side = math.isqrt(observation.size)
        return _draw_channels(observation.reshape(side, side, 1) > 0, (MARKED,))
    return None


def is_one_hot_grid(space: spaces.Space) -> bool:
    """Whether observations may be cells of a square grid: numbers from 0 to 1, as many as a square has cells."""
    if not isinstance(space, spaces.Box) or len(space.shape) > 2:
        return False
    cells = math.prod(space.shape)
    square = math.isqrt(cells) ** 2 == cells and (len(space.shape) == 1 or space.shape[0] == space.shape[1])
    return square and 4 <= cells <= MOST_CELLS and bool((space.low == 0).all() and (space.high == 1).all())


def _draw_channels(grid: Shaped[np.ndarray, "H W C"], colours: Sequence[Rgb] = CHANNELS) -> UInt8[np.ndarray, "h w 3"]:
    """Draw each cell in the colour of its first channel that is on: in MinAtar players come before their trails."""
    table = np.array([EMPTY, *(colours[channel % len(colours)] for channel in range(grid.shape[2]))], np.uint8)
    first = np.where(grid.any(axis=2), grid.argmax(axis=2) + 1, 0)
    return _cells(table[first])


def _draw_state(state: int, states: int) -> UInt8[np.ndarray, "h w 3"] | None:
    if states > MOST_CELLS:
        return None
    columns = states if states <= 10 else math.ceil(math.sqrt(states))
    colours = np.full((math.ceil(states / columns) * columns, 3), BACKGROUND, np.uint8)
    colours[:states] = EMPTY
    colours[state] = MARKED
    return _cells(colours.reshape(-1, columns, 3))


def _cells(colours: UInt8[np.ndarray, "H W 3"]) -> UInt8[np.ndarray, "h w 3"]:
    """Return a picture with a square for each colour, and gaps between the squares."""
    height, width, _ = colours.shape
    side = max(PIXELS // max(height, width), 1)
    picture = colours.repeat(side, axis=0).repeat(side, axis=1)
    if side >= 4:
        gaps = np.arange(side * max(height, width)) % side == 0
        picture[gaps[: side * height]] = BACKGROUND
        picture[:, gaps[: side * width]] = BACKGROUND
    return picture
