"""Runs that are over in a second and touch everything a checkpoint keeps, and disks that fail."""

import os
from pathlib import Path
from typing import Any

import pytest

from monotau.config.presets import Resolved, resolve
from monotau.runs.files import Writer
from monotau.runs.runner import train_into
from tests.small_runs import SMALL, silent


class Cut(BaseException):
    """The end of a process, as far as one test can make it."""


# Two lanes, a capacity that is written over, and iterations that no line of kind train ends with.
SETTINGS = {
    "steps": 240,
    "iteration_steps": 60,
    "log_every_steps": 25,
    "env": {"num_envs": 2},
    "replay": {"capacity_steps": 150, "warmup_steps": 20},
}


def tiny(preset: str = "dqn", **settings: Any) -> Resolved:
    return resolve(preset, SMALL | {"head": {"hidden": 8}}, SETTINGS, settings)


TOUCHES = ("write", "fsync", "replace", "mkdir", "unlink", "rmdir")
"""What a save does to the disk; `fail_at` makes one of them fail."""


def fail_at(monkeypatch: pytest.MonkeyPatch, touch: str, count: int, error: BaseException) -> None:
    """Let the count-th touch of the disk fail; with a write, half of it is done."""
    owner = Writer if touch == "write" else os
    real, calls = getattr(owner, touch), iter(range(count))

    def counted(*arguments, **keywords):
        if next(calls, None) is None:
            if touch == "write":
                real(arguments[0], arguments[1][: len(arguments[1]) // 2])
            raise error
        return real(*arguments, **keywords)

    monkeypatch.setattr(owner, touch, counted)


def train_undrawn(directory: Path, resolved: Resolved) -> None:
    """Train into a directory without drawing, for what outlives one test."""
    train_into(directory, resolved, silent())
