"""Runs the cells of a suite as Ray tasks, each of which minds the same process that a local suite would start."""

import inspect
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, final

from monotau.distributed.resources import Request
from monotau.errors import in_one_line
from monotau.runs.process import GRACE_SECONDS
from monotau.suites.track import Track
from monotau.suites.workers.local import STOP_SECONDS, Began, Outcome, Workers, thread_settings

TETHER = """
import ctypes, os, signal, sys
prctl = getattr(ctypes.CDLL(None), "prctl", None)
if prctl:
    prctl(1, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""
"""Becomes the command that follows, which the kernel ends together with its parent: PR_SET_PDEATHSIG is 1.

A program of its own, because code that runs between fork and exec may find locks held by threads that are no more.
"""

FORCE_SECONDS = 3.0
"""For the news of a task that was ended by force."""


def minder() -> Callable[..., Generator[str | int]]:
    """Return the function that tasks run.

    It is made here so that Ray sends it as a whole: a function of a module would have each of Ray's processes import
    this package, and with it torch, beside the run that does the work.
    """

    def mind(tether: str, words: list[str], log: str, settings: Mapping[str, str], grace: float) -> Any:
        import os
        import signal
        import subprocess
        import sys
        import time

        import ray

        # By this Ray interrupts a task; a driver that was started in the background of a script passes on its deafness.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        node = os.getppid()
        yield ray.util.get_node_ip_address()
        # What Ray puts before our packages is for its own processes.
        own = os.path.dirname(ray.__file__)
        path = [entry for entry in sys.path if entry and not entry.startswith(own)]
        with open(log, "ab") as file:
            process = subprocess.Popen(  # noqa: S603  # our own program, without a shell
                [sys.executable, "-I", "-S", "-c", tether, str(os.getpid()), sys.executable, *words],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
                env={**os.environ, **settings, "PYTHONPATH": os.pathsep.join(path)},
            )
        try:
            while process.poll() is None:
                if os.getppid() != node:
                    # Ray's process for this node is no more. Ray would let this one go on, unknown to all, while the
                    # run is given to another node; leaving at once tells the driver, and ends the run.
                    os._exit(1)
                time.sleep(0.1)
        finally:  # a task that is cancelled is interrupted in its sleep
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(grace)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        yield process.returncode

    return mind


@final
class RayWorkers(Workers):
    """Hands cells to the cluster that this process has joined; what runs where and when is Ray's to decide."""

    def __init__(
        self,
        command: Callable[[int], list[str]],
        requests: Callable[[int], Request],
        *,
        logs: Path,
        jobs: int | None,
        threads: int,
    ) -> None:
        import ray

        self._command, self._requests, self._logs, self._jobs = command, requests, logs, jobs
        self._settings = thread_settings(threads)
        # Tried again by the pool alone, which knows how far a run has come.
        # Unwrapped: where types are checked as the program runs, what checks them is no generator function.
        self._task = ray.remote(max_retries=0, num_returns="streaming")(inspect.unwrap(minder()))
        self._handed: dict[Any, Track] = {}
        self._begun: set[Any] = set()  # of these

    @property
    def room(self) -> bool:
        """Whether another may be handed over: all at once, so that a cluster that can grow sees what is wanted."""
        return self._jobs is None or len(self._handed) < self._jobs

    @property
    def busy(self) -> bool:
        """Whether any that was handed over has not ended."""
        return bool(self._handed)

    def start(self, track: Track) -> None:
        """Hand a cell to Ray."""
        options = self._requests(track.index).options()
        task = self._task.options(name=f"monotau {track.name}", **options).remote(
            TETHER,
            self._command(track.index)[1:],  # by the Python of the node
            str(self._logs / f"{track.name}.log"),
            dict(self._settings),
            GRACE_SECONDS + STOP_SECONDS / 2,
        )
        self._handed[task] = track

    def poll(self) -> list[tuple[Track, Began | Outcome]]:
        """Return which tasks have begun and ended since."""
        import ray

        if not self._handed:
            return []
        ready, _ = ray.wait([*self._handed], num_returns=len(self._handed), timeout=0)
        events: list[tuple[Track, Began | Outcome]] = []
        for task in ready:
            event = _next(task)
            if event is None:
                continue
            events.append((self._handed[task], event))
            if isinstance(event, Outcome):
                del self._handed[task]
                self._begun.discard(task)
            else:
                self._begun.add(task)
        return events

    def stop(self) -> None:
        """Cancel all tasks, which tell their processes; those that do not listen are ended by force."""
        import ray

        for force, seconds in ((False, GRACE_SECONDS + STOP_SECONDS), (True, FORCE_SECONDS)):
            for task in self._handed:
                ray.cancel(task, force=force)
            deadline = time.monotonic() + seconds
            while self._begun and time.monotonic() < deadline:  # the others have no process yet, and now get none
                self.poll()
                time.sleep(0.05)
        self._handed.clear()
        self._begun.clear()


def _next(task: Any) -> Began | Outcome | None:
    """Take what a task has to say next, if it is there."""
    import ray
    from ray.exceptions import RayError, RayTaskError, RuntimeEnvSetupError

    try:
        # Not next(task): of a task that was cancelled, that may wait for ever for a last word which never comes.
        if (said := task._next_sync(timeout_s=0)).is_nil():
            return None
        said = ray.get(said)
    except StopIteration:
        return Outcome(None, "its task ended without a word")
    except (RayTaskError, RuntimeEnvSetupError) as error:
        return Outcome(None, in_one_line(error)[-400:])
    except RayError as error:
        return Outcome(None, f"lost with its worker or node ({type(error).__name__})")
    return Began(said) if isinstance(said, str) else Outcome(said)
