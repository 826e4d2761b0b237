"""Disk operations that fail on demand."""

import os

import pytest

from monotau.runs.files import Writer


class Crash(BaseException):
    """Stands in for the sudden death of the process; no code under test catches it."""


DISK_OPERATIONS = ("write", "fsync", "replace", "mkdir", "unlink", "rmdir")
"""Everything that saving does to the disk; `fail_at` makes one of these fail."""


def fail_at(monkeypatch: pytest.MonkeyPatch, operation: str, count: int, error: BaseException) -> None:
    """Make the operation raise `error` after `count` successful calls; a failing write still writes half its data."""
    owner = Writer if operation == "write" else os
    real, calls = getattr(owner, operation), iter(range(count))

    def counted(*arguments, **keywords):
        if next(calls, None) is None:
            if operation == "write":
                real(arguments[0], arguments[1][: len(arguments[1]) // 2])
            raise error
        return real(*arguments, **keywords)

    monkeypatch.setattr(owner, operation, counted)
