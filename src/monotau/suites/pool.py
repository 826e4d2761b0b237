"""Schedules the cells of a suite: starts them, retries failures, and waits for cells that other processes run."""

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import final

from monotau.errors import StorageFault
from monotau.results.read import read_progress
from monotau.runs.layout import RESULT
from monotau.runs.process import is_held
from monotau.suites.track import Track
from monotau.suites.workers.local import LOGS, Began, Outcome, Workers

POLL_SECONDS = 0.2

NOT_RETRIED = (2, 3)
"""Exit codes of errors that a retry would repeat: invalid settings and divergence."""

STORAGE = 4
"""Exit code of a storage fault, which would hit all other runs too."""

Show = Callable[[Track | None], None]


@final
class Pool:
    """Runs all cells that are not finished with a set of workers."""

    def __init__(self, tracks: Sequence[Track], workers: Workers, *, out: Path, retries: int) -> None:
        self.tracks, self.retries = tracks, retries
        self._workers, self.logs = workers, out / LOGS
        self._queue = deque(track for track in tracks if track.state == "waiting")
        self._elsewhere: list[Track] = []
        self._fault: str | None = None

    def run(self, show: Show, stopping: Callable[[int], None] = lambda running: None) -> None:
        """Run all cells; `show` is called with each cell whose state changed, and with None at every poll.

        If an exception interrupts it, `stopping` is called with the number of processes that are being stopped.
        """
        self.logs.mkdir(parents=True, exist_ok=True)
        try:
            while self._queue or self._workers.busy or self._elsewhere:
                self._check_elsewhere(show)
                while self._queue and self._workers.room:
                    self._start(self._queue.popleft(), show)
                for track, event in self._workers.poll():
                    self._follow(track, event)
                    show(track)
                if self._fault:
                    raise StorageFault(self._fault)
                show(None)
                time.sleep(POLL_SECONDS)
        finally:
            if self._workers.busy:
                running = [track for track in self.tracks if track.state == "running"]
                stopping(len(running))
                self._workers.stop()
                for track in running:
                    track.state = "waiting"

    def _start(self, track: Track, show: Show) -> None:
        if is_held(track.directory):
            self._leave_to_other(track)
            show(track)
        else:
            self._workers.start(track)

    def _leave_to_other(self, track: Track) -> None:
        track.state = "elsewhere"
        self._elsewhere.append(track)

    def _follow(self, track: Track, event: Began | Outcome) -> None:
        if isinstance(event, Began):
            track.state, track.tries, track.node = "running", track.tries + 1, event.node
            track.started, track.progress = time.monotonic(), read_progress(track.directory)
            track.started_step = track.progress.step
            track.furthest = max(track.furthest, track.started_step)
        else:
            self._end(track, event)

    def _end(self, track: Track, outcome: Outcome) -> None:
        if track.state != "running":  # lost before it started: counts as a try, or retries would never end
            track.tries, track.started = track.tries + 1, time.monotonic()
        track.seconds, track.progress = time.monotonic() - track.started, read_progress(track.directory)
        if outcome.code == 0:
            track.state = "finished"
        elif outcome.code in NOT_RETRIED and is_held(track.directory):  # another process took the lock first
            self._leave_to_other(track)
        else:
            # Lost machines do not count as retries as long as the run makes progress on each.
            track.excused += outcome.code is None and track.progress.step > track.furthest
            track.furthest = max(track.furthest, track.progress.step)
            track.reason = outcome.reason
            if outcome.code is not None:
                track.reason = last_log_line(self.logs / f"{track.name}.log", outcome.code)
            track.state = "failed"
            if outcome.code == STORAGE:
                self._fault = track.reason
            elif outcome.code not in NOT_RETRIED and track.tries - track.excused <= self.retries:
                track.state = "waiting"
                self._queue.append(track)

    def _check_elsewhere(self, show: Show) -> None:
        """Take over cells that another process abandoned, and note those that it finished."""
        for track in [track for track in self._elsewhere if not is_held(track.directory)]:
            self._elsewhere.remove(track)
            if (track.directory / RESULT).exists():
                track.state, track.progress = "finished", read_progress(track.directory)
                show(track)
            else:
                track.state = "waiting"
                self._queue.appendleft(track)


def last_log_line(log: Path, code: int) -> str:
    """Return the last line of a process's log, or the signal that ended it."""
    if code < 0:
        return f"ended by {signal.Signals(-code).name}"
    with open(log, "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - 4096))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    return (lines[-1].removeprefix("error: ") if lines else f"exit code {code}")[:400]
