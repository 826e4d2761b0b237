"""Atomic and durable file writes, checksums, and reads that follow no links and execute nothing."""

import hashlib
import json
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, final

from monotau.config.parse import LARGEST_FILE, parse_settings
from monotau.errors import ConfigError, brief

CHUNK_BYTES = 1 << 20

OPEN_FLAGS = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"))
"""Flags against links, pipes that block, and inheritance by child processes; Windows has none of them."""


class DamagedFile(ConfigError):
    """A file is missing, or its contents are not what was written."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} {reason}")
        self.path = path


def to_path(name: str, given: Any, what: str) -> Path:
    """Return the path that a caller gave as an argument; an empty text is a mistake, not the current directory."""
    if not isinstance(given, str | os.PathLike) or not str(given):
        raise ConfigError(f"{name} is {brief(given)}, but must be the path of a {what}.")
    return Path(given)


def check_file(failure: str, path: Path) -> None:
    """Raise, in words that start with the failure, if there is no place for a file at a path that the user gave."""
    if os.path.isdir(path):  # False, not an exception, for impossible names
        raise ConfigError(f"{failure}: it is a directory.")
    if not os.path.isdir(path.parent):
        raise ConfigError(f"{failure}: the directory does not exist.")


class Record(NamedTuple):
    """Size and SHA-256 of a file, or of its beginning."""

    bytes: int
    sha256: str


def to_record(plain: Any) -> Record:
    """Convert the JSON form of a record, and raise ValueError if it is invalid."""
    if not isinstance(plain, list) or len(plain) != 2:
        raise ValueError(f"a record is {brief(plain)}, but must be a size and a digest")
    size, digest = plain
    if type(size) is not int or size < 0 or not isinstance(digest, str):
        raise ValueError(f"a record is {brief(plain)}, but must be a size and a digest")
    return Record(size, digest)


@final
class Writer:
    """Appends to a file that contains `kept` so far, and keeps the size and hash of the whole file."""

    def __init__(self, file: IO[bytes], kept: bytes = b"") -> None:
        self._file, self._bytes, self._hash = file, len(kept), hashlib.sha256(kept)

    def write(self, data: bytes | memoryview) -> None:
        """Add to the file."""
        self._file.write(data)
        self._hash.update(data)
        self._bytes += len(data)

    def sync(self) -> Record:
        """Force the file to disk and return its record."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return Record(self._bytes, self._hash.hexdigest())


@contextmanager
def writing(path: Path) -> Iterator[Writer]:
    """Replace a file atomically: after a crash, and for readers, it is the old one or the new one.

    The rename itself is durable only after `sync_directory`.
    """
    temporary = temporary_path(path)
    try:
        with open(temporary, "wb", opener=open_no_follow) as file:
            writer = Writer(file)
            yield writer
            writer.sync()
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def temporary_path(path: Path) -> Path:
    """Return the temporary file that `writing` renames to `path`; a crash may leave it behind."""
    return path.with_name(f".{path.name}.tmp")


def sync_directory(path: Path) -> None:
    """Force the entries of a directory to disk; Windows has no way to do that."""
    if sys.platform != "win32":
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically and durably."""
    with writing(path) as writer:
        writer.write(data)
    sync_directory(path.parent)


def write_json(path: Path, plain: Mapping[str, Any]) -> None:
    """Write plain values as readable JSON."""
    write_bytes(path, to_json(plain))


def to_json(plain: Mapping[str, Any]) -> bytes:
    """Return plain values as readable JSON; the same values always give the same bytes."""
    return (json.dumps(plain, indent=2, allow_nan=False) + "\n").encode()


def open_no_follow(path: str | Path, flags: int) -> int:
    """Open a file for `open(opener=...)`; where the system can, links are refused and a pipe does not block."""
    return os.open(path, flags | OPEN_FLAGS, 0o666)


@contextmanager
def reading(path: Path) -> Iterator[IO[bytes]]:
    """Open a regular file for reading, and raise if it is anything else."""
    try:
        descriptor = open_no_follow(path, os.O_RDONLY)
    except OSError as error:
        raise DamagedFile(path, f"cannot be read: {error.strerror}.") from None
    except ValueError:  # os.open raises it for a name with a null byte
        raise DamagedFile(path, "cannot be read: it is not a valid file name.") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DamagedFile(path, "cannot be read: it is not a regular file.")
    with open(descriptor, "rb") as file:
        yield file


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file written by `write_json`."""
    with reading(path) as file:
        return parse_settings(path, file.read(LARGEST_FILE + 1))


def record_of(path: Path, most_bytes: int | None = None) -> Record:
    """Return the record of a file, or of its first `most_bytes` bytes."""
    digest, count = hashlib.sha256(), 0
    with reading(path) as file:
        while chunk := file.read(CHUNK_BYTES if most_bytes is None else min(CHUNK_BYTES, most_bytes - count)):
            digest.update(chunk)
            count += len(chunk)
    return Record(count, digest.hexdigest())


def check(path: Path, record: Record, *, whole: bool = True) -> None:
    """Raise if a file does not match its record; without `whole`, only its beginning must match."""
    with reading(path) as file:
        size = os.fstat(file.fileno()).st_size
    if size < record.bytes or (whole and size > record.bytes):
        raise DamagedFile(path, f"is damaged: it has {size} bytes, but {record.bytes} were written.")
    if record_of(path, record.bytes) != record:
        raise DamagedFile(path, "is damaged: its contents are not what was written.")


@final
class AppendOnlyFile:
    """An append-only file that can be truncated to an earlier record."""

    def __init__(self, path: Path, record: Record | None = None) -> None:
        """Open the file empty, or verify its beginning against a record and truncate it there."""
        if record is not None:
            check(path, record, whole=False)
        self._file = open(path, "r+b" if record else "wb", opener=open_no_follow)  # noqa: SIM115  # closed by `close`
        self.kept = self._file.read(record.bytes) if record else b""
        self._file.truncate()
        self._writer = Writer(self._file, self.kept)

    def write(self, data: bytes) -> None:
        """Append to the file and flush it, so that readers see the data at once."""
        self._writer.write(data)
        self._file.flush()

    def sync(self) -> Record:
        """Force the file to disk and return its record."""
        return self._writer.sync()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
