"""Tensors on disk in the safetensors format: written in pieces without a copy, and read as memory-mapped views.

A file is the length of a header in eight bytes, the header as JSON, and the data. This reader is stricter than the
format: it never reads beyond the file, and every byte of the data must belong to exactly one tensor.
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
from monotau.machine import memory_bytes
from monotau.runs.files import DamagedFile, Record, reading, writing

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
"""Size limit of a header in bytes; thousands of tensors need less."""


class TensorEntry(NamedTuple):
    """Position, dtype and shape of one tensor in a file, from its header."""

    start: int
    end: int
    dtype: np.dtype
    shape: tuple[int, ...]


def write_arrays(path: Path, arrays: Mapping[str, Sequence[np.ndarray]]) -> Record:
    """Write arrays, each given in pieces to concatenate along the first axis, and return the record of the file."""
    header: dict[str, Any] = {}
    end = 0
    # The widest dtypes come first, so that every tensor is aligned to its item size.
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
    """Write tensors from any device."""
    return write_arrays(path, {name: [tensor.detach().cpu().numpy()] for name, tensor in tensors.items()})


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read tensors into memory of their own."""
    return {name: torch.from_numpy(array.copy()) for name, array in map_arrays(path).items()}


def map_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return read-only views of the arrays in a file, and raise if the file is invalid."""
    with reading(path) as file:
        entries = _read_header(path, file)
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise DamagedFile(path, f"cannot be read: {error.strerror}.") from None
    arrays: dict[str, np.ndarray] = {}
    for name, (start, _, dtype, shape) in entries.items():
        array: np.ndarray = np.frombuffer(data, dtype, prod(shape), start).reshape(shape)
        _check_booleans(path, name, array)
        arrays[name] = array
    return arrays


@final
class StoredArray:
    """An array in an open file, whose rows are read into memory only when they are indexed."""

    def __init__(self, path: Path, file: IO[bytes], name: str, entry: TensorEntry) -> None:
        self._path, self._file, self._name, self._start = path, file, name, entry.start
        self.shape, self.dtype = entry.shape, entry.dtype

    def __getitem__(self, rows: slice) -> np.ndarray:
        """Read a slice of consecutive rows."""
        start, stop, _ = rows.indices(self.shape[0])
        array: np.ndarray = np.empty((max(0, stop - start), *self.shape[1:]), self.dtype)
        if array.size:
            self._file.seek(self._start + start * (array.nbytes // len(array)))
            data = self._file.read(array.nbytes)
            if len(data) < array.nbytes:
                raise DamagedFile(self._path, "was truncated while it was being read.")
            array.data.cast("B")[:] = data
        _check_booleans(self._path, self._name, array)
        return array


@contextmanager
def stored_arrays(path: Path) -> Iterator[dict[str, StoredArray]]:
    """Open a file to read slices of its arrays, and raise if the file is invalid."""
    with reading(path) as file:
        yield {name: StoredArray(path, file, name, entry) for name, entry in _read_header(path, file).items()}


def _check_booleans(path: Path, name: str, array: np.ndarray) -> None:
    if array.dtype == np.bool_ and array.view(np.uint8).max(initial=0) > 1:
        raise DamagedFile(
            path, f"is not a valid tensor file: {brief(name)} has values that are neither true nor false."
        )


def check_alike(path: Path, wanted: Mapping[str, Tensor]) -> None:
    """Raise if the tensors of a file differ from these in name, dtype or shape; only the header is read.

    The wanted tensors may be on the device `meta`, which allocates no memory.
    """
    with reading(path) as file:
        held = {name: (str(entry.dtype), entry.shape) for name, entry in _read_header(path, file).items()}
    needed = {name: (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)) for name, tensor in wanted.items()}
    for name in [*needed, *held]:
        if held.get(name) != needed.get(name):
            there, here = (_described(alike.get(name)) for alike in (held, needed))
            raise ConfigError(f"{path} does not match its settings: {brief(name)} is {there}, but must be {here}.")
    stated, memory = sum(tensor.nbytes for tensor in wanted.values()), memory_bytes()
    if memory is not None and stated > memory:
        raise ConfigError(f"{path} holds {stated} bytes of tensors, but this machine has {memory} bytes of RAM.")


def _described(alike: tuple[str, tuple[int, ...]] | None) -> str:
    return "missing" if alike is None else f"{alike[0]} of shape {list(alike[1])}"


def _read_header(path: Path, file: IO[bytes]) -> dict[str, TensorEntry]:
    """Read and check the header of an open file."""
    try:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or length > LARGEST_HEADER:
            raise ConfigError(f"its header has {length} bytes, more than the file or than {LARGEST_HEADER}.")
        header = json.loads(file.read(length).decode(), object_pairs_hook=unique_pairs)
        return _check_header(header, 8 + length, os.fstat(file.fileno()).st_size)
    except (ConfigError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200].rstrip(".")
        raise DamagedFile(path, f"is not a valid tensor file: {reason}.") from None


def _check_header(header: Any, offset: int, size: int) -> dict[str, TensorEntry]:
    """Return the entries of all tensors in a header; they must fill the rest of the file without gaps."""
    if not isinstance(header, dict):
        raise ConfigError("its header is not a mapping of names to tensors.")
    entries = {name: _check_entry(entry, offset) for name, entry in header.items()}
    end_before = offset
    for name in sorted(entries, key=lambda name: entries[name][:2]):
        if entries[name].start != end_before or entries[name].end > size:
            raise ConfigError(
                f"the tensor {brief(name)} has an offset that overlaps, leaves a gap or exceeds the file."
            )
        end_before = entries[name].end
    if end_before != size:
        raise ConfigError("it has data after the last tensor.")
    return entries


def _check_entry(entry: Any, offset: int) -> TensorEntry:
    """Check the header entry of one tensor: its offsets, dtype and shape must agree."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise ConfigError(f"a header entry is {brief(entry)}, but must have dtype, shape and data_offsets.")
    name, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    numbers = [shape, offsets]
    if not all(isinstance(row, list) and all(type(n) is int and 0 <= n < 2**48 for n in row) for row in numbers):
        raise ConfigError(f"a header entry is {brief(entry)}, but shape and data_offsets must be lists of sizes.")
    if not isinstance(name, str) or name not in DTYPES or len(shape) > MOST_AXES or len(offsets) != 2:
        raise ConfigError(f"a header entry is {brief(entry)}, but must have a dtype of {', '.join(DTYPES)}.")
    dtype = np.dtype(DTYPES[name])
    if prod(shape) * dtype.itemsize != offsets[1] - offsets[0]:
        raise ConfigError(f"a tensor of {name} and shape {brief(shape)} does not match its offsets {brief(offsets)}.")
    return TensorEntry(offset + offsets[0], offset + offsets[1], dtype, tuple(shape))
