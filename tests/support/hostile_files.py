"""What an attacker may put in place of a file: malicious contents, and things that are not files at all."""

import io
import json
import os
import pickle
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

TERABYTE = 10**12


class Bomb:
    """Calls a function when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.getcwd, ()


def header(text: str | bytes, length: int | None = None) -> bytes:
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data) if length is None else length) + data


def tensor(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8), numbers: bytes = b"\0" * 8) -> bytes:
    """Return a file with one tensor; every field can be falsified."""
    return header(json.dumps({"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}})) + numbers


def two(first: tuple[int, int], second: tuple[int, int]) -> bytes:
    entries = {
        name: {"dtype": "U8", "shape": [end - start], "data_offsets": [start, end]}
        for name, (start, end) in (("a", first), ("b", second))
    }
    return header(json.dumps(entries)) + b"\0" * 8


def many(count: int) -> bytes:
    entry = '{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    return header("{" + ",".join(f'"{number}":{entry}' for number in range(count)) + "}")


def saved_by_torch() -> bytes:
    file = io.BytesIO()
    torch.save({"a": torch.zeros(2)}, file)
    return file.getvalue()


DEEP_LISTS, DEEP_OBJECTS = "[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000

TENSORS: dict[str, Callable[[], bytes]] = {
    "a header of 2^63 bytes": lambda: header("{}", 2**63),
    "a header of 2^64 - 1 bytes": lambda: header("{}", 2**64 - 1),
    "a header of 999,999 bytes of noise": lambda: header(b"\xff" * 999_999),
    "a header of 999,999 brackets": lambda: header(b"[" * 999_999),
    "a header of 999,999 bytes that are not there": lambda: header("{}", 999_999),
    "a real header of 100 MB": lambda: header(b"{}" + b" " * 100_000_000),
    "a million tensors": lambda: many(1_000_000),
    "as many tensors as a header holds": lambda: many(17_000),
    "deep lists": lambda: header(DEEP_LISTS),
    "deep objects": lambda: header(DEEP_OBJECTS),
    "a list for a header": lambda: header("[]"),
    "a shape beyond 64 bits": lambda: tensor(shape=[2**40, 2**40]),
    "a shape whose product is 0 modulo 2^64": lambda: tensor(shape=[2**32, 2**32], offsets=[0, 0], numbers=b""),
    "a side beyond 64 bits": lambda: tensor(shape=[2**64]),
    "a side of a hundred thousand digits": lambda: tensor(shape=7).replace(b": 7,", b": 1" + b"0" * 100_000 + b","),
    "a negative shape": lambda: tensor(shape=[-2]),
    "two negative sides": lambda: tensor(shape=[-2, -1]),
    "a fractional shape": lambda: tensor(shape=[2.0]),
    "a true shape": lambda: tensor(shape=[2, True]),
    "a shape that is no number": lambda: tensor(shape=[float("nan")]),
    "a shape of text": lambda: tensor(shape="2"),
    "no shape": lambda: tensor(shape=None),
    "a shape of a thousand axes": lambda: tensor(shape=[1] * 1000 + [2]),
    "offsets turned round": lambda: tensor(offsets=[8, 0]),
    "negative offsets": lambda: tensor(offsets=[-8, 0]),
    "offsets beyond the end": lambda: tensor(offsets=[2**40, 2**40 + 8]),
    "three offsets": lambda: tensor(offsets=[0, 8, 8]),
    "overlapping tensors": lambda: two((0, 5), (3, 8)),
    "a gap between tensors": lambda: two((0, 3), (5, 8)),
    "a gap at the end": lambda: two((0, 3), (3, 5)),
    "a name that stands twice": lambda: header('{"a":{},"a":{}}'),
    "float16": lambda: tensor("F16", [4]),
    "bfloat16": lambda: tensor("BF16", [4]),
    "a type of text": lambda: tensor("object"),
    "a type that is a list": lambda: tensor(["F32"]),
    "true and more than true": lambda: tensor("BOOL", [8], numbers=b"\2" * 8),
    "a tensor nobody asked for": tensor,
    "a pickle": lambda: pickle.dumps(Bomb()),
    "a file of torch.save": saved_by_torch,
    "nothing": lambda: b"",
    "seven bytes": lambda: b"\0" * 7,
}

TEXTS: dict[str, Callable[[], bytes]] = {
    "deep lists": DEEP_LISTS.encode,
    "deep objects": DEEP_OBJECTS.encode,
    "lists as deep as can be read": lambda: b'{"schema": ' + b"[" * 900 + b"]" * 900 + b"}",
    "a key that stands twice": lambda: b'{"schema": 1, "schema": 1}',
    "what is no number": lambda: b'{"format": NaN, "schema": Infinity}',
    "a number of a hundred thousand digits": lambda: b'{"format": 1' + b"0" * 100_000 + b"}",
    "two megabytes": lambda: b'{"format": "' + b"x" * 2_000_000 + b'"}',
    "a long key": lambda: b'{"' + b"x\\n" * 200_000 + b'": 1}',
    "no text": lambda: b"\xff\xfe\x00",
    "half a pair": lambda: b'{"\\ud800": "\\udfff"}',
    "a list": lambda: b"[]",
    "null": lambda: b"null",
    "a pickle": lambda: pickle.dumps(Bomb()),
    "nothing": lambda: b"",
}


def sparse(path: Path, start: bytes = b"", size: int = TERABYTE) -> None:
    """Write a file that claims to be large but takes no space on disk."""
    path.write_bytes(start)
    os.truncate(path, size)


def huge(path: Path, dtype: str) -> None:
    """Write a well-formed file that holds a single tensor of a terabyte."""
    text = json.dumps({"a": {"dtype": dtype, "shape": [TERABYTE], "data_offsets": [0, TERABYTE]}})
    sparse(path, header(text), 8 + len(text) + TERABYTE)


def in_a_directory(path: Path, beside: Path) -> None:
    path.mkdir()
    shutil.copy(beside, path)


ODDITIES: dict[str, Callable[[Path, Path], None]] = {
    "a link to what was there": lambda path, beside: path.symlink_to(beside),
    "a link to what never ends": lambda path, beside: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path, beside: path.symlink_to(path),
    "a link to nothing": lambda path, beside: path.symlink_to("nowhere"),
    "a pipe": lambda path, beside: os.mkfifo(path),
    "a directory": in_a_directory,
    "a terabyte of zeros": lambda path, beside: sparse(path),
}
"""Each gets the path to fill, and the path to which the original file was moved."""

HUGE: dict[str, Callable[[Path, Path], None]] = {
    "a terabyte in one tensor": lambda path, beside: huge(path, "U8"),
    "a terabyte of truth": lambda path, beside: huge(path, "BOOL"),
}


def replaced(path: Path, put: bytes | Callable[[Path, Path], None]) -> None:
    """Replace a file with something hostile."""
    if isinstance(put, bytes):
        path.write_bytes(put)
    else:
        beside = path.rename(path.with_name("beside"))
        put(path, beside)
