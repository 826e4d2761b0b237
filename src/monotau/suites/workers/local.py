"""The interface of workers, which run the processes of a suite, and workers on this machine."""

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
"""Time beyond its own grace period that a process has to stop."""


class Began(NamedTuple):
    """The process of a cell has started."""

    node: str = ""
    """The machine it runs on, if there are several."""


class Outcome(NamedTuple):
    """How the process of a cell ended."""

    code: int | None
    """Its exit code, negative for a signal; None if it was lost with its machine."""
    reason: str = ""
    """Why it was lost."""


class Workers(ABC):
    """Run the cells of a suite as processes."""

    @property
    @abstractmethod
    def room(self) -> bool:
        """Whether another cell can be submitted now."""

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether any submitted cell has not ended."""

    @abstractmethod
    def start(self, track: Track) -> None:
        """Submit a cell, which starts at once or when there are resources for it."""

    @abstractmethod
    def poll(self) -> list[tuple[Track, Began | Outcome]]:
        """Return the events since the last call, without waiting; each cell begins at most once and ends once."""

    @abstractmethod
    def stop(self) -> None:
        """Stop all processes, and return when they have ended."""


@final
class LocalWorkers(Workers):
    """Up to `jobs` processes at once on this machine."""

    def __init__(self, command: Callable[[int], list[str]], *, logs: Path, jobs: int, threads: int) -> None:
        self._command, self._logs, self._jobs, self._threads = command, logs, jobs, threads
        self._running: dict[int, tuple[Track, subprocess.Popen]] = {}
        self._fresh: list[Track] = []

    @property
    def room(self) -> bool:
        """Whether another cell can be started now."""
        return len(self._running) < self._jobs

    @property
    def busy(self) -> bool:
        """Whether any process is running."""
        return bool(self._running)

    def start(self, track: Track) -> None:
        """Start the process of a cell."""
        with open(self._logs / f"{track.name}.log", "ab") as log:
            # A session of its own, so that Ctrl-C reaches only the pool, which then stops the processes.
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
        """Return the processes that have started and ended since the last call."""
        events: list[tuple[Track, Began | Outcome]] = [(track, Began()) for track in self._fresh]
        self._fresh.clear()
        for pid, (track, process) in list(self._running.items()):
            code = process.poll()
            if code is not None:
                del self._running[pid]
                events.append((track, Outcome(code)))
        return events

    def stop(self) -> None:
        """Terminate all processes, and kill those that do not exit within their grace period."""
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
    """Return the environment variables that set the number of threads of a process."""
    return {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}


def python_command(*words: str) -> list[str]:
    """Return a command line of monotau for this Python."""
    return [sys.executable, "-m", "monotau", *words]
