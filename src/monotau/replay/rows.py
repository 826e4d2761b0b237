"""Rows of a ring by their numbers, which count from a lane's first: where they are, and whether they fit."""

from collections.abc import Mapping
from math import prod
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int64
from numpy.typing import DTypeLike

Columns = Mapping[str, tuple[tuple[int, ...], np.dtype]]
"""Shape and type of what a slot holds, by name."""


def columns_of(frame_shape: tuple[int, ...], frame_dtype: DTypeLike) -> Columns:
    """Return what a slot of a ring holds."""
    return {
        "frames": (frame_shape, np.dtype(frame_dtype)),
        "actions": ((), np.dtype(np.int32)),
        "rewards": ((), np.dtype(np.float64)),  # rounded only once, in the unit of returns
        "flags": ((), np.dtype(np.uint8)),
    }


def slot_bytes(columns: Columns) -> dict[str, int]:
    """Return the bytes of each column in a slot."""
    return {name: prod(shape) * dtype.itemsize for name, (shape, dtype) in columns.items()}


BLOCK_ROWS = 1_000
"""Rows copied at a time: rows that come from a file are then never in memory twice, but for these."""


@runtime_checkable
class Rows(Protocol):
    """Rows of one column: an array, or what reads slices of one from a file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """As an array's."""

    @property
    def dtype(self) -> np.dtype:
        """As an array's."""

    def __getitem__(self, rows: slice, /) -> np.ndarray: ...


def copy_rows(target: np.ndarray, source: Rows, start: int) -> None:
    """Fill the target with the rows of a source from `start` on."""
    for low in range(0, len(target), BLOCK_ROWS):
        block = target[low : low + BLOCK_ROWS]
        block[...] = source[start + low : start + low + len(block)]


def lane_slices(lane: int, lane_slots: int, first: int, end: int) -> list[slice]:
    """Return where the rows from `first` to before `end` of a lane are, at most a lane's length of them."""
    start, low = lane * lane_slots, first % lane_slots
    beyond = max(0, low + end - first - lane_slots)  # these start over at the lane's first slot
    return [slice(start + low, start + low + end - first - beyond), slice(start, start + beyond)]


def check_rows(
    rows: Mapping[str, Rows],
    columns: Mapping[str, np.ndarray],
    written: Int64[np.ndarray, "E"],
    lane_slots: int,
) -> None:
    """Refuse rows that do not go into these columns after what each lane has written."""
    first, end = rows["first"][:], rows["end"][:]
    lanes = first.shape == end.shape == written.shape and first.dtype == end.dtype == np.int64
    count = int((end - first).sum()) if lanes else -1
    fits = lanes and (first >= 0).all() and (first <= end).all() and (end - first <= lane_slots).all()
    # The oldest rows have none before them any more, and rows that fill a lane need none.
    joined = fits and ((first == written) | (written == 0) | (end - first == lane_slots)).all()
    if not joined or any(
        rows[name].shape != (count, *column.shape[1:]) or rows[name].dtype != column.dtype
        for name, column in columns.items()
    ):
        raise ValueError(
            f"The rows {first} to {end} do not follow those before {written} in {len(written)} lanes of {lane_slots}, "
            "or are not of this replay's shapes; transitions would be wrong."
        )
