"""Files that are whole or absent: written beside, forced to disk and renamed; read without executing anything."""

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, final

from monotau.config.parse import LARGEST_FILE, parse_settings
from monotau.errors import ConfigError, brief

CHUNK_BYTES = 1 << 20


class Damage(ConfigError):
    """A file that is not there, or not what was written."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} {reason}")
        self.path = path


class Record(NamedTuple):
    """What identifies the contents of a file, or of its beginning."""

    bytes: int
    sha256: str


def to_record(plain: Any) -> Record:
    """Take a record from a file; what is none is refused."""
    if not isinstance(plain, list) or len(plain) != 2:
        raise ValueError(f"a size and a digest are needed, but there is {brief(plain)}")
    size, digest = plain
    if type(size) is not int or size < 0 or not isinstance(digest, str):
        raise ValueError(f"a size and a digest are needed, but there is {brief(plain)}")
    return Record(size, digest)


@final
class Writer:
    """Writes to a file that holds `kept` so far, and counts and hashes all of it."""

    def __init__(self, file: IO[bytes], kept: bytes = b"") -> None:
        self._file, self._bytes, self._hash = file, len(kept), hashlib.sha256(kept)

    def write(self, data: bytes | memoryview) -> None:
        """Add to the file."""
        self._file.write(data)
        self._hash.update(data)
        self._bytes += len(data)

    def sync(self) -> Record:
        """Force all of it to disk, and return what it is."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return Record(self._bytes, self._hash.hexdigest())


@contextmanager
def writing(path: Path) -> Iterator[Writer]:
    """Write a file so that a reader, or a crash, sees the old one or the new one and never a part.

    The new name itself is on disk only after `sync_directory`.
    """
    beside = unfinished(path)
    try:
        with open(beside, "wb", opener=opened_itself) as file:
            writer = Writer(file)
            yield writer
            writer.sync()
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def unfinished(path: Path) -> Path:
    """Return the file in which `path` is written until it is whole; what a crash may leave behind."""
    return path.with_name(f".{path.name}.tmp")


def sync_directory(path: Path) -> None:
    """Force the names in a directory to disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file; it is on disk, name and all, when this returns."""
    with writing(path) as writer:
        writer.write(data)
    sync_directory(path.parent)


def write_json(path: Path, plain: Mapping[str, Any]) -> None:
    """Write plain values as readable JSON."""
    write_bytes(path, to_json(plain))


def to_json(plain: Mapping[str, Any]) -> bytes:
    """Return plain values as readable JSON, always the same for the same values."""
    return (json.dumps(plain, indent=2, allow_nan=False) + "\n").encode()


def opened_itself(path: str | Path, flags: int) -> int:
    """Open the file of that name and no other: a link would lead elsewhere, and a pipe would never end."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)


@contextmanager
def reading(path: Path) -> Iterator[IO[bytes]]:
    """Open a regular file for reading."""
    try:
        descriptor = opened_itself(path, os.O_RDONLY)
    except OSError as error:
        raise Damage(path, f"cannot be read: {error.strerror}.") from None
    except ValueError:  # os.open, of a name with a zero in it
        raise Damage(path, "cannot be read: it is no name of a file.") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Damage(path, "cannot be read: it is not a regular file.")
    with open(descriptor, "rb") as file:
        yield file


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file written by `write_json`."""
    with reading(path) as file:
        return parse_settings(path, file.read(LARGEST_FILE + 1))


def record_of(path: Path, most_bytes: int | None = None) -> Record:
    """Look at a file, or at the beginning of it."""
    digest, count = hashlib.sha256(), 0
    with reading(path) as file:
        while chunk := file.read(CHUNK_BYTES if most_bytes is None else min(CHUNK_BYTES, most_bytes - count)):
            digest.update(chunk)
            count += len(chunk)
    return Record(count, digest.hexdigest())


def check(path: Path, record: Record, *, whole: bool = True) -> None:
    """Refuse a file that is not what was recorded, or that does not begin so where more may have been added."""
    with reading(path) as file:
        size = os.fstat(file.fileno()).st_size
    if size < record.bytes or (whole and size > record.bytes):
        raise Damage(path, f"is damaged: it has {size} bytes, but {record.bytes} were written.")
    if record_of(path, record.bytes) != record:
        raise Damage(path, "is damaged: its contents are not those that were written.")


@final
class Appended:
    """A file that only grows, and can be cut back to what was once recorded of it."""

    def __init__(self, path: Path, record: Record | None = None) -> None:
        """Open it empty, or cut back to what was recorded, which is checked first."""
        if record is not None:
            check(path, record, whole=False)
        self._file = open(path, "r+b" if record else "wb", opener=opened_itself)  # noqa: SIM115  # closed by `close`
        self.kept = self._file.read(record.bytes) if record else b""
        self._file.truncate()
        self._writer = Writer(self._file, self.kept)

    def write(self, data: bytes) -> None:
        """Add to the end, so that a reader sees it at once."""
        self._writer.write(data)
        self._file.flush()

    def sync(self) -> Record:
        """Force all of it to disk, and return what it is."""
        return self._writer.sync()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
