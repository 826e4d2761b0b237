"""Tensors on disk, in the safetensors format: written piece by piece without a copy, and read as views of the file.

The format is eight bytes with the length of a header, the header as JSON, and the numbers. This reader is stricter than
the format: it looks at no more than the file holds, and every byte of the file has its place in one tensor.
"""

import json
import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from math import prod
from pathlib import Path
from typing import IO, Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from monotau.config.parse import unique_pairs
from monotau.errors import ConfigError, brief
from monotau.runs.files import Damage, Record, reading, writing

DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I32": "int32",
    "I64": "int64",
    "F32": "float32",
    "F64": "float64",
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}

MOST_AXES = 8

LARGEST_HEADER = 1_000_000
"""Bytes; thousands of tensors have less."""


class Place(NamedTuple):
    """What a header says of one tensor, and where in the file it is."""

    start: int
    end: int
    dtype: np.dtype
    shape: tuple[int, ...]


def write_arrays(path: Path, arrays: Mapping[str, Sequence[np.ndarray]]) -> Record:
    """Write each array, given in pieces that follow one another along the first axis; says what was written."""
    header: dict[str, Any] = {}
    end = 0
    # The widest numbers first, so that each tensor starts at a multiple of their size.
    names = sorted(arrays, key=lambda name: (-arrays[name][0].itemsize, name))
    for name in names:
        pieces = arrays[name]
        start, end = end, end + sum(piece.nbytes for piece in pieces)
        shape = [sum(len(piece) for piece in pieces), *pieces[0].shape[1:]] if pieces[0].ndim else []
        header[name] = {"dtype": NAMES[str(pieces[0].dtype)], "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with writing(path) as writer:
        writer.write(len(text).to_bytes(8, "little") + text)
        for piece in chain.from_iterable(arrays[name] for name in names):
            if piece.size:
                writer.write(np.ascontiguousarray(piece).data.cast("B"))
        return writer.sync()


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> Record:
    """Write tensors of any device."""
    return write_arrays(path, {name: [tensor.detach().cpu().numpy()] for name, tensor in tensors.items()})


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read tensors, which own their memory."""
    return {name: torch.from_numpy(array.copy()) for name, array in map_arrays(path).items()}


def map_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return views of the arrays in a file, for reading only; a file that is not in order is refused."""
    with reading(path) as file:
        places = _places(path, file)
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise Damage(path, f"cannot be read: {error.strerror}.") from None
    arrays: dict[str, np.ndarray] = {}
    for name, (start, _, dtype, shape) in places.items():
        array: np.ndarray = np.frombuffer(data, dtype, prod(shape), start).reshape(shape)
        _check_truths(path, name, array)
        arrays[name] = array
    return arrays


@final
class StoredArray:
    """An array in an open file; what is asked for of its rows is read, and nothing else is in memory."""

    def __init__(self, path: Path, file: IO[bytes], name: str, place: Place) -> None:
        self._path, self._file, self._name, self._start = path, file, name, place.start
        self.shape, self.dtype = place.shape, place.dtype

    def __getitem__(self, rows: slice) -> np.ndarray:
        """Read neighbouring rows."""
        start, stop, _ = rows.indices(self.shape[0])
        array: np.ndarray = np.empty((max(0, stop - start), *self.shape[1:]), self.dtype)
        if array.size:
            self._file.seek(self._start + start * (array.nbytes // len(array)))
            data = self._file.read(array.nbytes)
            if len(data) < array.nbytes:
                raise Damage(self._path, "became shorter while it was read.")
            array.data.cast("B")[:] = data
        _check_truths(self._path, self._name, array)
        return array


@contextmanager
def stored_arrays(path: Path) -> Iterator[dict[str, StoredArray]]:
    """Open a file for reading its arrays in parts; one that is not in order is refused."""
    with reading(path) as file:
        yield {name: StoredArray(path, file, name, place) for name, place in _places(path, file).items()}


def _check_truths(path: Path, name: str, array: np.ndarray) -> None:
    if array.dtype == np.bool_ and array.view(np.uint8).max(initial=0) > 1:
        raise Damage(path, f"is no file of tensors: {brief(name)} holds what is neither true nor false.")


def check_alike(path: Path, wanted: Mapping[str, Tensor]) -> None:
    """Refuse a file that does not hold tensors of these names, types and shapes, by a look at its header alone.

    Wanted tensors may be of the device meta, which has sizes and no memory.
    """
    with reading(path) as file:
        held = {name: (str(place.dtype), place.shape) for name, place in _places(path, file).items()}
    needed = {name: (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)) for name, tensor in wanted.items()}
    for name in [*needed, *held]:
        if held.get(name) != needed.get(name):
            there, here = (_described(alike.get(name)) for alike in (held, needed))
            raise ConfigError(f"{path} does not fit its settings: {brief(name)} is {there}, but must be {here}.")
    stated, memory = sum(tensor.nbytes for tensor in wanted.values()), _memory_bytes()
    if stated > memory:
        raise ConfigError(f"{path} holds {stated} bytes of numbers, but this machine has {memory} bytes of memory.")


def _described(alike: tuple[str, tuple[int, ...]] | None) -> str:
    return "missing" if alike is None else f"{alike[0]} of shape {list(alike[1])}"


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _places(path: Path, file: IO[bytes]) -> dict[str, Place]:
    """Read the header, and nothing else."""
    try:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or length > LARGEST_HEADER:
            raise ConfigError(f"its header has {length} bytes, more than there are or than {LARGEST_HEADER}.")
        header = json.loads(file.read(length).decode(), object_pairs_hook=unique_pairs)
        return _filling(header, 8 + length, os.fstat(file.fileno()).st_size)
    except (ConfigError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise Damage(path, f"is no file of tensors: {reason}.") from None


def _filling(header: Any, offset: int, size: int) -> dict[str, Place]:
    """Places of all tensors that the header names, which must fill the rest of the file without gaps."""
    if not isinstance(header, dict):
        raise ConfigError("its header is no mapping of names to tensors.")
    places = {name: _place(entry, offset) for name, entry in header.items()}
    end_before = offset
    for name in sorted(places, key=lambda name: places[name][:2]):
        if places[name].start != end_before or places[name].end > size:
            raise ConfigError(f"the tensor {brief(name)} is said to be where it cannot be.")
        end_before = places[name].end
    if end_before != size:
        raise ConfigError("it goes on after the last tensor.")
    return places


def _place(entry: Any, offset: int) -> Place:
    """Check what a header says of one tensor: start, end, type and shape agree."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise ConfigError(f"a tensor is said to be {brief(entry)}.")
    name, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    numbers = [shape, offsets]
    if not all(isinstance(row, list) and all(type(n) is int and 0 <= n < 2**48 for n in row) for row in numbers):
        raise ConfigError(f"a tensor is said to have {brief(entry)}.")
    if not isinstance(name, str) or name not in DTYPES or len(shape) > MOST_AXES or len(offsets) != 2:
        raise ConfigError(f"a tensor is said to have {brief(entry)}; types are {', '.join(DTYPES)}.")
    dtype = np.dtype(DTYPES[name])
    if prod(shape) * dtype.itemsize != offsets[1] - offsets[0]:
        raise ConfigError(f"a tensor of {name} and shape {brief(shape)} cannot have the place {brief(offsets)}.")
    return Place(offset + offsets[0], offset + offsets[1], dtype, tuple(shape))
