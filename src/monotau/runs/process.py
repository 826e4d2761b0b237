"""What a process may use, one process for each run directory, and its end when it is told to stop."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from pathlib import Path
from types import FrameType

from monotau.errors import ConfigError
from monotau.runs.files import opened_itself
from monotau.runs.layout import LOCK

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, the end asked for by others, and a terminal that was closed."""

GRACE_SECONDS = 8.0
"""From the first signal to the end at the latest."""

SHOW_CURSOR = "\x1b[?25h"


@contextmanager
def locked(directory: Path, what: str = "the run directory") -> Iterator[None]:
    """Hold a directory for this process alone; whoever comes second is refused at once.

    The lock is the kernel's, so it ends with the process however that ends, and the file itself may stay.
    """
    with open(directory / LOCK, "a+", opener=opened_itself) as file:
        try:
            flock(file, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read(100).strip() or "another process"
            raise ConfigError(
                f"{holder} is training into {what} {directory} now; name another directory, or wait for it."
            ) from None
        file.truncate(0)
        file.write(f"process {os.getpid()}")
        file.flush()
        yield


def is_held(directory: Path) -> bool:
    """Whether a process, on whatever machine, trains into a directory at this moment."""
    try:
        with open(directory / LOCK, "rb", opener=opened_itself) as file:
            flock(file, LOCK_SH | LOCK_NB)  # let go of when the file is closed
    except BlockingIOError:
        return True
    except OSError:  # nobody was ever there
        return False
    return False


class Stopped(BaseException):
    """A signal asked for the end; not an Exception, so that nobody takes it for a failure of their own."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise `Stopped` in the block at one of SIGNALS; a second one ends the process there and then.

    What is on disk is whole at any moment, so that no moment is a bad one.
    """

    last_word: list[threading.Timer] = []

    def stop(number: int, frame: FrameType | None) -> None:
        for each in heard:
            signal.signal(each, leave)
        # Foreign code may swallow what is raised here, or keep the interpreter waiting.
        last_word.append(threading.Timer(GRACE_SECONDS, leave, (number, None)))
        last_word[0].daemon = True
        last_word[0].start()
        raise Stopped(number)

    def leave(number: int, frame: FrameType | None) -> None:
        if sys.stdout.isatty():
            os.write(sys.stdout.fileno(), SHOW_CURSOR.encode())
        os._exit(128 + number)

    # Under nohup, closing a terminal is to end nothing.
    deaf = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    heard = [number for number in SIGNALS if not (deaf and number == signal.SIGHUP)]
    before = {number: signal.signal(number, stop) for number in heard}
    try:
        yield
    finally:
        for timer in last_word:
            timer.cancel()
        if not last_word:  # who was told to stop is on the way out, and a second signal shortens it
            for number, handler in before.items():
                signal.signal(number, handler)
