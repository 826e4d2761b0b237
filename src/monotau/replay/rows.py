"""Rows of a ring, numbered from each lane's first: their position in the ring, and checks before loading them."""

from collections.abc import Mapping
from math import prod
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int64
from numpy.typing import DTypeLike

Columns = Mapping[str, tuple[tuple[int, ...], np.dtype]]
"""Shape and type of each column of a slot, by name."""


def columns_of(frame_shape: tuple[int, ...], frame_dtype: DTypeLike, masked_actions: int = 0) -> Columns:
    """Return the columns of a slot; a mask takes one bit per action."""
    masks = {"masks": ((-(-masked_actions // 8),), np.dtype(np.uint8))} if masked_actions else {}
    return {
        "frames": (frame_shape, np.dtype(frame_dtype)),
        "actions": ((), np.dtype(np.int32)),
        "rewards": ((), np.dtype(np.float64)),  # rounded once, after division by the unit of returns
        "flags": ((), np.dtype(np.uint8)),
        **masks,
    }


def slot_bytes(columns: Columns) -> dict[str, int]:
    """Return the bytes per slot of each column."""
    return {name: prod(shape) * dtype.itemsize for name, (shape, dtype) in columns.items()}


BLOCK_ROWS = 1_000
"""Rows copied at a time, so that at most this many rows from a file are in memory twice."""


@runtime_checkable
class Rows(Protocol):
    """Rows of one column: an array, or a reader of slices from a file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape, as of an array."""

    @property
    def dtype(self) -> np.dtype:
        """Type, as of an array."""

    def __getitem__(self, rows: slice, /) -> np.ndarray: ...


def copy_rows(target: np.ndarray, source: Rows, start: int) -> None:
    """Fill the target with the source's rows from `start` on."""
    for low in range(0, len(target), BLOCK_ROWS):
        block = target[low : low + BLOCK_ROWS]
        block[...] = source[start + low : start + low + len(block)]


def lane_slices(lane: int, lane_slots: int, first: int, end: int) -> list[slice]:
    """Return the slices of a ring that hold a lane's rows from `first` up to, and without, `end`."""
    start, low = lane * lane_slots, first % lane_slots
    wrapped = max(0, low + end - first - lane_slots)  # rows that wrap around to the lane's first slot
    return [slice(start + low, start + low + end - first - wrapped), slice(start, start + wrapped)]


def check_rows(
    rows: Mapping[str, Rows],
    columns: Mapping[str, np.ndarray],
    written: Int64[np.ndarray, "E"],
    lane_slots: int,
) -> None:
    """Raise ValueError if the rows do not fit the columns or do not continue what each lane has written."""
    first, end = rows["first"][:], rows["end"][:]
    lanes = first.shape == end.shape == written.shape and first.dtype == end.dtype == np.int64
    count = int((end - first).sum()) if lanes else -1
    fits = lanes and (first >= 0).all() and (first <= end).all() and (end - first <= lane_slots).all()
    # The oldest rows may start anywhere, and rows that fill a lane replace all before them.
    joined = fits and ((first == written) | (written == 0) | (end - first == lane_slots)).all()
    if not joined or any(
        rows[name].shape != (count, *column.shape[1:]) or rows[name].dtype != column.dtype
        for name, column in columns.items()
    ):
        raise ValueError(
            f"The rows {first} to {end} do not continue the rows up to {written} in {len(written)} lanes of "
            f"{lane_slots}, or do not have this replay's shapes; transitions would be wrong."
        )
