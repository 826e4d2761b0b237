"""Runs the cells of a suite as Ray tasks, each of which supervises the process that a local suite would start."""

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
"""A program that executes the command in its arguments, which the kernel kills when its parent dies
(PR_SET_PDEATHSIG is 1).

It is a separate program because code between fork and exec may deadlock on locks that other threads held.
"""

FORCE_SECONDS = 3.0
"""Time to wait for tasks that were cancelled by force."""


def make_supervisor() -> Callable[..., Generator[str | int]]:
    """Return the function that tasks run.

    It is a nested function so that Ray pickles it by value. A module-level function would make each of Ray's worker
    processes import this package, and with it torch, in addition to the run itself.
    """

    def supervise(tether: str, words: list[str], log: str, settings: Mapping[str, str], grace: float) -> Any:
        import os
        import signal
        import subprocess
        import sys
        import time

        import ray

        # Ray cancels a task with SIGINT, which is ignored if a script started the driver in the background.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        node = os.getppid()
        yield ray.util.get_node_ip_address()
        # Ray puts entries on the path that are for its own processes only.
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
                    # The raylet of this node has died. Ray would let this process run on as an orphan while the cell is
                    # restarted on another node; exiting at once tells the driver, and ends the run.
                    os._exit(1)
                time.sleep(0.1)
        finally:  # cancelling the task raises KeyboardInterrupt in the sleep
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(grace)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        yield process.returncode

    return supervise


@final
class RayWorkers(Workers):
    """Submits cells to the Ray cluster that this process is connected to; Ray schedules them."""

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
        # Only the pool retries, because it knows how far a run has come.
        # Unwrapped, because the wrapper of run-time type checks is not a generator function.
        self._task = ray.remote(max_retries=0, num_returns="streaming")(inspect.unwrap(make_supervisor()))
        self._submitted: dict[Any, Track] = {}
        self._begun: set[Any] = set()  # the submitted tasks that have started

    @property
    def room(self) -> bool:
        """Whether another cell can be submitted; without --jobs all are, so that an autoscaler sees the demand."""
        return self._jobs is None or len(self._submitted) < self._jobs

    @property
    def busy(self) -> bool:
        """Whether any submitted cell has not ended."""
        return bool(self._submitted)

    def start(self, track: Track) -> None:
        """Submit a cell to Ray."""
        options = self._requests(track.index).options()
        task = self._task.options(name=f"monotau {track.name}", **options).remote(
            TETHER,
            self._command(track.index)[1:],  # the node's own Python replaces the first word
            str(self._logs / f"{track.name}.log"),
            dict(self._settings),
            GRACE_SECONDS + STOP_SECONDS / 2,
        )
        self._submitted[task] = track

    def poll(self) -> list[tuple[Track, Began | Outcome]]:
        """Return the tasks that have started and ended since the last call."""
        import ray

        if not self._submitted:
            return []
        ready, _ = ray.wait([*self._submitted], num_returns=len(self._submitted), timeout=0)
        events: list[tuple[Track, Began | Outcome]] = []
        for task in ready:
            event = _next(task)
            if event is None:
                continue
            events.append((self._submitted[task], event))
            if isinstance(event, Outcome):
                del self._submitted[task]
                self._begun.discard(task)
            else:
                self._begun.add(task)
        return events

    def stop(self) -> None:
        """Cancel all tasks, which terminate their processes; tasks that do not end in time are cancelled by force."""
        import ray

        for force, seconds in ((False, GRACE_SECONDS + STOP_SECONDS), (True, FORCE_SECONDS)):
            for task in self._submitted:
                ray.cancel(task, force=force)
            deadline = time.monotonic() + seconds
            while self._begun and time.monotonic() < deadline:  # tasks that have not begun have no process to wait for
                self.poll()
                time.sleep(0.05)
        self._submitted.clear()
        self._begun.clear()


def _next(task: Any) -> Began | Outcome | None:
    """Return the next event of a task, or None if there is none yet."""
    import ray
    from ray.exceptions import RayError, RayTaskError, RuntimeEnvSetupError

    try:
        # Not next(task), which may block forever on a cancelled task.
        if (said := task._next_sync(timeout_s=0)).is_nil():
            return None
        said = ray.get(said)
    except StopIteration:
        return Outcome(None, "its task ended without a result")
    except (RayTaskError, RuntimeEnvSetupError) as error:
        return Outcome(None, in_one_line(error)[-400:])
    except RayError as error:
        return Outcome(None, f"lost with its worker or node ({type(error).__name__})")
    return Began(said) if isinstance(said, str) else Outcome(said)
