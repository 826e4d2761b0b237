"""The lock of a run directory, and the orderly exit of a process at a signal."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from monotau.errors import ConfigError
from monotau.runs.files import open_no_follow
from monotau.runs.layout import LOCK
from monotau.runs.locks import try_lock

HANGUP: int | None = getattr(signal, "SIGHUP", None)  # Windows has none
SIGNALS = tuple(number for number in (signal.SIGINT, signal.SIGTERM, HANGUP) if number is not None)
"""Ctrl-C, a request to terminate, and a closed terminal."""

GRACE_SECONDS = 8.0
"""The longest time from the first signal to the exit."""

PROBE_SECONDS = 0.05
"""More than the longest time for which `is_held` may take the lock."""

SHOW_CURSOR = "\x1b[?25h"


@contextmanager
def locked(directory: Path, what: str = "the run directory") -> Iterator[None]:
    """Lock a directory for this process; raise at once if another process holds the lock.

    The kernel releases the lock when the process ends, however it ends; the lock file may stay.
    """
    with open(directory / LOCK, "a+", opener=open_no_follow) as file:
        mine = try_lock(file)
        if not mine:  # it may only be `is_held` of another process, which takes microseconds
            time.sleep(PROBE_SECONDS)
            mine = try_lock(file)
        if not mine:
            file.seek(0)
            holder = file.read(100).strip() or "another process"
            raise ConfigError(
                f"{holder} is training into {what} {directory} now; use another directory, or wait until it ends."
            )
        file.truncate(0)
        file.write(f"process {os.getpid()}")
        file.flush()
        yield


def is_held(directory: Path) -> bool:
    """Whether a process on any machine holds the lock of a directory."""
    try:
        with open(directory / LOCK, "rb", opener=open_no_follow) as file:
            return not try_lock(file, shared=True)  # released when the file is closed
    except OSError:  # there is no lock file
        return False


class Stopped(BaseException):
    """A signal requested the exit; not an Exception, so that `except Exception` does not catch it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise `Stopped` in the block on one of SIGNALS; a second signal ends the process immediately.

    This is safe at any time, because files are written atomically.
    """

    exit_timers: list[threading.Timer] = []

    def stop(number: int, frame: FrameType | None) -> None:
        for each in handled:
            signal.signal(each, leave)
        # Third-party code may swallow the exception or block the interpreter.
        exit_timers.append(threading.Timer(GRACE_SECONDS, leave, (number, None)))
        exit_timers[0].daemon = True
        exit_timers[0].start()
        raise Stopped(number)

    def leave(number: int, frame: FrameType | None) -> None:
        if sys.stdout.isatty():
            os.write(sys.stdout.fileno(), SHOW_CURSOR.encode())
        os._exit(128 + number)

    # nohup ignores SIGHUP, and so must the run.
    ignored = HANGUP is not None and signal.getsignal(HANGUP) is signal.SIG_IGN
    handled = [number for number in SIGNALS if not (ignored and number == HANGUP)]
    before = {number: signal.signal(number, stop) for number in handled}
    try:
        yield
    finally:
        for timer in exit_timers:
            timer.cancel()
        if not exit_timers:  # a stopped process is about to exit, and keeps `leave` for a second signal
            for number, handler in before.items():
                signal.signal(number, handler)
