"""Tensors on disk, in the safetensors format: written piece by piece without a copy, and read as views of the file.

The format is eight bytes with the length of a header, the header as JSON, and the numbers. This reader is stricter than
the format: it looks at no more than the file holds, and every byte of the file has its place in one tensor.
"""

import json
import mmap
from collections.abc import Mapping, Sequence
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from monotau.errors import ConfigError
from monotau.settings import brief, unique_pairs
from monotau.storage import Damage, Record, reading, writing

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
        try:
            start = file.read(8)
            length = int.from_bytes(start, "little")
            if len(start) < 8 or length > LARGEST_HEADER:
                raise ConfigError(f"its header has {length} bytes, more than there are or than {LARGEST_HEADER}.")
            header = json.loads(file.read(length).decode(), object_pairs_hook=unique_pairs)
            return _arrays(header, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), 8 + length)
        except (ConfigError, ValueError, RecursionError) as error:
            reason = " ".join(str(error).split())[:200].rstrip(".")
            raise Damage(path, f"is no file of tensors: {reason}.") from None


def _arrays(header: Any, data: mmap.mmap, offset: int) -> dict[str, np.ndarray]:
    """Views of all tensors that the header names, which must fill the rest of the file without gaps."""
    if not isinstance(header, dict):
        raise ConfigError("its header is no mapping of names to tensors.")
    entries = sorted(((*_entry(entry), name) for name, entry in header.items()), key=lambda entry: entry[:2])
    arrays: dict[str, np.ndarray] = {}
    end_before = 0
    for start, end, dtype, shape, name in entries:
        if start != end_before or end > len(data) - offset:
            raise ConfigError(f"the tensor {brief(name)} is said to be where it cannot be.")
        array: np.ndarray = np.frombuffer(data, dtype, prod(shape), offset + start).reshape(shape)
        if dtype == np.bool_ and (array.view(np.uint8) > 1).any():
            raise ConfigError(f"the tensor {brief(name)} holds what is neither true nor false.")
        arrays[name], end_before = array, end
    if end_before != len(data) - offset:
        raise ConfigError("it goes on after the last tensor.")
    return arrays


def _entry(entry: Any) -> tuple[int, int, np.dtype, list[int]]:
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
    return offsets[0], offsets[1], dtype, shape
