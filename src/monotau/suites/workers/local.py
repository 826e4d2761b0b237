"""Who runs the processes of a suite: the contract, and this machine by itself."""

import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, final

from monotau.runs.process import GRACE_SECONDS
from monotau.suites.track import Track

LOGS = "logs"

STOP_SECONDS = 4.0
"""What a process that was told to stop has beyond its own grace."""


class Began(NamedTuple):
    """The process of a cell has begun."""

    place: str = ""
    """On which machine, where there are several."""


class Outcome(NamedTuple):
    """How the process of a cell ended."""

    code: int | None
    """Its exit code, negative for a signal; None if it was lost together with the machine that ran it."""
    reason: str = ""
    """Why it was lost."""


class Workers(ABC):
    """Run the processes that are handed to them."""

    @property
    @abstractmethod
    def room(self) -> bool:
        """Whether another may be handed over now."""

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether any that was handed over has not ended."""

    @abstractmethod
    def start(self, track: Track) -> None:
        """Take over a cell, to be begun at once or when there is a place for it."""

    @abstractmethod
    def poll(self) -> list[tuple[Track, Began | Outcome]]:
        """Return what has happened since, without waiting; each cell begins at most once and ends once."""

    @abstractmethod
    def stop(self) -> None:
        """End all processes, and come back when they have ended."""


@final
class LocalWorkers(Workers):
    """So many processes at once on this machine."""

    def __init__(self, command: Callable[[int], list[str]], *, logs: Path, jobs: int, threads: int) -> None:
        self._command, self._logs, self._jobs, self._threads = command, logs, jobs, threads
        self._running: dict[int, tuple[Track, subprocess.Popen]] = {}
        self._fresh: list[Track] = []

    @property
    def room(self) -> bool:
        """Whether another may be handed over now."""
        return len(self._running) < self._jobs

    @property
    def busy(self) -> bool:
        """Whether any that was handed over has not ended."""
        return bool(self._running)

    def start(self, track: Track) -> None:
        """Start the process of a cell."""
        with open(self._logs / f"{track.name}.log", "ab") as log:
            # A session of its own: Ctrl-C is for the pool, which tells the others.
            process = subprocess.Popen(  # noqa: S603  # our own program, without a shell
                self._command(track.index),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ | thread_settings(self._threads),
            )
        self._running[process.pid] = (track, process)
        self._fresh.append(track)

    def poll(self) -> list[tuple[Track, Began | Outcome]]:
        """Return which processes have begun and ended since."""
        events: list[tuple[Track, Began | Outcome]] = [(track, Began()) for track in self._fresh]
        self._fresh.clear()
        for pid, (track, process) in list(self._running.items()):
            code = process.poll()
            if code is not None:
                del self._running[pid]
                events.append((track, Outcome(code)))
        return events

    def stop(self) -> None:
        """End all processes: at each moment what is on disk is whole, and they need no more than a moment."""
        for _, process in self._running.values():
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS + STOP_SECONDS
        for _, process in self._running.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()


def thread_settings(threads: int) -> Mapping[str, str]:
    """Return what tells the libraries of a process how many threads it has."""
    return {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}


def python_command(*words: str) -> list[str]:
    """Return the command that starts this program again."""
    return [sys.executable, "-m", "monotau", *words]
