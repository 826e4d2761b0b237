"""Files that are whole or absent: JSON and tensors, written beside and renamed, read without executing anything."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from monotau.errors import ConfigError
from monotau.settings import read_settings


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old one or the new one and never a part."""
    beside = unfinished(path)
    try:
        with open(beside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def unfinished(path: Path) -> Path:
    """Return the file in which `path` is written until it is whole; what a crash may leave behind."""
    return path.with_name(f".{path.name}.tmp")


def write_json(path: Path, plain: Mapping[str, Any]) -> None:
    """Write plain values as readable JSON."""
    write_bytes(path, (json.dumps(plain, indent=2, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file written by `write_json`."""
    return read_settings(path)


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors in the safetensors format."""
    write_bytes(path, safetensors.torch.save({name: tensor.contiguous() for name, tensor in tensors.items()}))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read tensors; a file that is missing or not safetensors is refused."""
    try:
        return safetensors.torch.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise ConfigError(f"the weights {path} cannot be read: {error}.") from None
