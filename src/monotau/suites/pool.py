"""Runs the cells of a suite in processes of their own, so many at once, until none is left or somebody says stop."""

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, final

from monotau.errors import StorageFault
from monotau.processes import GRACE_SECONDS, is_held
from monotau.suites.watching import Progress, read_progress

State = Literal["waiting", "running", "elsewhere", "finished", "failed"]

LOGS = "logs"

POLL_SECONDS = 0.2

DETERMINED = (2, 3)
"""Exit codes of what would only happen again: settings that cannot be used, and divergence."""

STORAGE = 4
"""Exit code of a disk that does not take what must be written: no other run would fare better."""


@final
@dataclass(kw_only=True)
class Track:
    """What is known of one cell."""

    index: int
    name: str
    directory: Path
    state: State = "waiting"
    tries: int = 0
    reason: str = ""
    """Why it failed the last time."""
    progress: Progress = field(default_factory=Progress)
    started: float = 0.0
    """When its process was started, by the clock of the pool."""
    started_step: int = 0
    seconds: float | None = None
    """How long its last process took."""

    def eta_seconds(self, now: float) -> float | None:
        """Return how long it will still take at the rate it has had."""
        done, left = self.progress.step - self.started_step, self.progress.total - self.progress.step
        if self.state != "running" or done <= 0 or left < 0:
            return None
        return (now - self.started) / done * left


@final
class Pool:
    """Keeps so many processes at work."""

    def __init__(
        self,
        tracks: Sequence[Track],
        command: Callable[[int], list[str]],
        *,
        out: Path,
        jobs: int,
        threads: int,
        retries: int,
    ) -> None:
        self.tracks, self.jobs, self.retries = tracks, jobs, retries
        self._command, self.logs, self._threads = command, out / LOGS, threads
        self._queue = deque(track for track in tracks if track.state == "waiting")
        self._running: dict[int, tuple[Track, subprocess.Popen]] = {}
        self._elsewhere: list[Track] = []
        self._fault: str | None = None

    def run(self, show: Callable[[Track | None], None], stopping: Callable[[int], None] = lambda running: None) -> None:
        """Run to the end; `show` is told of each cell whose state changed, and of the passing of time.

        Whatever ends it before, `stopping` is told how many processes must be ended first.
        """
        self.logs.mkdir(parents=True, exist_ok=True)
        try:
            while self._queue or self._running or self._elsewhere:
                self._reap(show)
                if self._fault:
                    raise StorageFault(self._fault)
                self._look_elsewhere(show)
                while self._queue and len(self._running) < self.jobs:
                    self._start(self._queue.popleft(), show)
                show(None)
                time.sleep(POLL_SECONDS)
        finally:
            if self._running:
                stopping(len(self._running))
                self._stop()

    def _start(self, track: Track, show: Callable[[Track | None], None]) -> None:
        if is_held(track.directory):
            track.state = "elsewhere"
            self._elsewhere.append(track)
        else:
            track.state, track.tries = "running", track.tries + 1
            track.started, track.progress = time.monotonic(), read_progress(track.directory)
            track.started_step = track.progress.step
            with open(self.logs / f"{track.name}.log", "ab") as log:
                # A session of its own: Ctrl-C is for the pool, which tells the others.
                process = subprocess.Popen(  # noqa: S603  # our own program, without a shell
                    self._command(track.index),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    env=os.environ | {"OMP_NUM_THREADS": str(self._threads), "OMP_WAIT_POLICY": "PASSIVE"},
                )
            self._running[process.pid] = (track, process)
        show(track)

    def _reap(self, show: Callable[[Track | None], None]) -> None:
        for pid, (track, process) in list(self._running.items()):
            code = process.poll()
            if code is None:
                continue
            del self._running[pid]
            track.seconds, track.progress = time.monotonic() - track.started, read_progress(track.directory)
            if code == 0:
                track.state = "finished"
            elif code in DETERMINED and is_held(track.directory):  # another was quicker by a moment
                track.state = "elsewhere"
                self._elsewhere.append(track)
            else:
                track.reason = last_words(self.logs / f"{track.name}.log", code)
                track.state = "failed"
                if code == STORAGE:
                    self._fault = track.reason
                elif code not in DETERMINED and track.tries <= self.retries:
                    track.state = "waiting"
                    self._queue.append(track)
            show(track)

    def _look_elsewhere(self, show: Callable[[Track | None], None]) -> None:
        """Take over what another process has let go of before its end."""
        for track in [track for track in self._elsewhere if not is_held(track.directory)]:
            self._elsewhere.remove(track)
            if (track.directory / "result.json").exists():
                track.state, track.progress = "finished", read_progress(track.directory)
                show(track)
            else:
                self._queue.appendleft(track)

    def _stop(self) -> None:
        """End all processes: at each moment what is on disk is whole, and they need no more than a moment."""
        for _, process in self._running.values():
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS + 4
        for track, process in self._running.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            track.state = "waiting"
        self._running.clear()


def last_words(log: Path, code: int) -> str:
    """Return what a process said last, or by what it was ended."""
    if code < 0:
        return f"ended by {signal.Signals(-code).name}"
    with open(log, "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - 4096))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    return (lines[-1].removeprefix("error: ") if lines else f"exit code {code}")[:400]


def python_command(*words: str) -> list[str]:
    """Return the command that starts this program again."""
    return [sys.executable, "-m", "monotau", *words]
