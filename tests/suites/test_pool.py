"""The pool of cells, tested with short scripts: concurrency, retries and stopping."""

import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from monotau.errors import StorageFault
from monotau.runs.process import locked
from monotau.suites import pool as pool_module
from monotau.suites.pool import Pool, last_log_line
from monotau.suites.track import Track
from monotau.suites.workers import local as workings
from monotau.suites.workers.local import Began, LocalWorkers, Outcome, Workers
from tests.support.suites import ScriptedPool


def local_pool(place: Path, script: str, count: int, jobs: int = 2, retries: int = 2, threads: int = 1) -> ScriptedPool:
    return ScriptedPool(place, script, count, partial(LocalWorkers, jobs=jobs, threads=threads), retries)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(pool_module, "POLL_SECONDS", 0.01)


def test_all_cells_run_and_never_more_at_once_than_allowed(tmp_path):
    script = """
(marks / f"{index}.on").touch()
time.sleep(0.15)
(marks / f"{index}.most{len(list(marks.glob('*.on')))}").touch()
(marks / f"{index}.on").unlink()
"""
    pool = local_pool(tmp_path, script, count=5).run()
    assert pool.states() == ["finished"] * 5
    together = {int(path.suffix.removeprefix(".most")) for path in pool.marks.glob("*.most*")}
    assert together <= {1, 2}
    assert 2 in together
    assert pool.shown.count(("cell3", "running")) == pool.shown.count(("cell3", "finished")) == 1
    assert all(track.seconds and track.seconds > 0.1 for track in pool.tracks)


def test_a_killed_cell_is_retried_and_succeeds(tmp_path):
    pool = local_pool(tmp_path, "if try_number() == 1 and index == '1': os.kill(os.getpid(), 9)", count=3).run()
    assert pool.states() == ["finished"] * 3
    assert pool.tries() == [1, 2, 1]
    assert ("cell1", "waiting") in pool.shown


def test_the_number_of_retries_is_limited_and_the_reason_is_recorded(tmp_path):
    pool = local_pool(tmp_path, "try_number(); print('error: the sea is rough'); sys.exit(1)", count=1, retries=2).run()
    assert pool.states() == ["failed"]
    assert pool.tries() == [3]
    assert len(list(pool.marks.glob("0.try*"))) == 3
    assert pool.tracks[0].reason == "the sea is rough"
    assert (tmp_path / "logs" / "cell0.log").read_text().count("rough") == 3


@pytest.mark.parametrize("code", [2, 3])
def test_a_failure_that_would_repeat_is_not_retried(tmp_path, code):
    pool = local_pool(tmp_path, f"print('error: no'); sys.exit({code} if index == '0' else 0)", count=2).run()
    assert pool.states() == ["failed", "finished"]
    assert pool.tries() == [1, 1]


def test_a_full_disk_stops_everything(tmp_path):
    script = "if index == '0': print('error: No space left'); sys.exit(4)\ntry_number(); time.sleep(60)"
    pool = local_pool(tmp_path, script, count=4)
    start = time.monotonic()
    with pytest.raises(StorageFault, match="No space left"):
        pool.run()
    assert time.monotonic() - start < 20
    assert pool.states() == ["failed", "waiting", "waiting", "waiting"]


def test_a_stop_ends_all_processes_and_leaves_the_rest_waiting(tmp_path):
    pool = local_pool(tmp_path, "try_number(); time.sleep(60)", count=3)

    def show(track: Track | None) -> None:
        if len(list(pool.marks.glob("*.try1"))) == 2:
            raise KeyboardInterrupt

    told: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        pool.pool.run(show, told.append)
    assert told == [2]
    assert pool.states() == ["waiting"] * 3
    for path in pool.marks.glob("*.try1"):
        time.sleep(0.1)
        with pytest.raises(ProcessLookupError):
            os.kill(int(path.read_text() or 0) or 2**22, 0)


def test_a_process_that_ignores_the_stop_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(workings, "GRACE_SECONDS", -3.5)
    script = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); try_number(); time.sleep(60)"
    pool = local_pool(tmp_path, script, count=1)

    def show(track: Track | None) -> None:
        if any(path.read_text() for path in pool.marks.glob("*.try1")):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pool.pool.run(show)
    pid = int((pool.marks / "0.try1").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_processes_have_their_own_session_so_that_only_the_pool_gets_ctrl_c(tmp_path):
    script = "(marks / 'session').write_text(str(os.getsid(0) == os.getpid()))"
    pool = local_pool(tmp_path, script, count=1).run()
    assert (pool.marks / "session").read_text() == "True"


def test_processes_receive_their_number_of_threads(tmp_path):
    script = "(marks / 'threads').write_text(os.environ['OMP_NUM_THREADS'] + os.environ['OMP_WAIT_POLICY'])"
    pool = local_pool(tmp_path, script, count=1, threads=7).run()
    assert (pool.marks / "threads").read_text() == "7PASSIVE"


def test_a_cell_of_another_process_is_left_alone_until_that_process_releases_it(tmp_path):
    pool = local_pool(tmp_path, "try_number()", count=2)
    pool.tracks[0].directory.mkdir()
    holder = locked(pool.tracks[0].directory)
    holder.__enter__()

    def show(track: Track | None) -> None:
        nonlocal holder
        if holder and pool.tracks[1].state == "finished":
            assert pool.tracks[0].state == "elsewhere"
            assert not list(pool.marks.glob("0.try*"))
            holder.__exit__(None, None, None)
            holder = None  # type: ignore[assignment]

    pool.pool.run(show)
    assert pool.states() == ["finished", "finished"]
    assert pool.tries() == [1, 1]


def test_a_cell_that_another_process_has_finished_is_not_run_again(tmp_path):
    pool = local_pool(tmp_path, "try_number()", count=2)
    pool.tracks[0].directory.mkdir()
    with locked(pool.tracks[0].directory):
        (pool.tracks[0].directory / "result.json").touch()
        answers = iter([True, False, False, False, False, False])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pool_module, "is_held", lambda directory: directory.name == "cell0" and next(answers))
            pool.run()
    assert pool.states() == ["finished", "finished"]
    assert pool.tries() == [0, 1]


def test_a_cell_that_loses_the_race_for_its_directory_waits_for_the_winner(tmp_path, monkeypatch):
    pool = local_pool(tmp_path, "sys.exit(2 if try_number() == 1 else 0)", count=1)
    pool.tracks[0].directory.mkdir()
    (pool.tracks[0].directory / ".lock").touch()
    answers = iter([False, True, True, False, False])
    monkeypatch.setattr(pool_module, "is_held", lambda directory: next(answers))
    pool.run()
    assert pool.states() == ["finished"]
    assert ("cell0", "elsewhere") in pool.shown


def test_the_time_left_follows_from_the_rate_so_far():
    track = Track(index=0, name="x", directory=Path("x"), state="running", started=100.0, started_step=1_000)
    assert track.eta_seconds(150.0) is None
    track.progress = track.progress._replace(step=2_000, total=5_000)
    assert track.eta_seconds(150.0) == 150.0
    track.state = "finished"
    assert track.eta_seconds(150.0) is None


def test_the_reason_for_a_failure_is_the_last_error_line_or_the_signal(tmp_path):
    log = tmp_path / "log"
    log.write_text("training\nerror: it is broken\n\n")
    assert last_log_line(log, 1) == "it is broken"
    assert last_log_line(log, -signal.SIGSEGV) == "ended by SIGSEGV"
    log.write_text("")
    assert last_log_line(log, 5) == "exit code 5"


class Script(Workers):
    """Workers that replay a list of events; an integer means that the run has reached that step."""

    def __init__(self, *events: Began | Outcome | int) -> None:
        self._events, self._track = [*events], None

    room = property(lambda self: self._track is None)
    busy = property(lambda self: self._track is not None)

    def start(self, track: Track) -> None:
        self._track = track

    def poll(self) -> list[tuple[Track, Began | Outcome]]:
        event, track = self._events.pop(0), self._track
        if isinstance(event, int):
            track.directory.mkdir(exist_ok=True)
            (track.directory / "config.json").write_text('{"steps": 900}')
            (track.directory / "metrics.jsonl").write_text(f'{{"step": {event}}}')
            return []
        self._track = track if isinstance(event, Began) else None
        return [(track, event)]

    def stop(self) -> None:
        self._track = None


LOST = Outcome(None, "the node is gone")


@pytest.mark.parametrize(
    ("events", "state", "tries"),
    [
        # A run that gets further every time is retried without limit.
        ([Began(), 10, LOST, Began(), 20, LOST, Began(), 30, LOST, Began(), Outcome(0)], "finished", 4),
        # Repeating steps from an earlier checkpoint is no progress.
        ([Began(), 10, LOST, 0, Began(), 10, LOST, Began(), 10, LOST], "failed", 3),
        ([Began(), LOST, Began(), 5, LOST, Began(), LOST], "failed", 3),
        # A failure of the process itself always counts as a retry.
        ([Began(), 10, Outcome(-9), Began(), 20, Outcome(-9)], "failed", 2),
        # The node was lost before the run started.
        ([LOST, LOST], "failed", 2),
    ],
)
def test_a_lost_node_counts_as_a_retry_only_if_the_run_made_no_progress(tmp_path, events, state, tries):
    track = Track(index=0, name="cell", directory=tmp_path / "cell")
    Pool([track], Script(*events), out=tmp_path, retries=1).run(lambda _: None)
    assert (track.state, track.tries) == (state, tries)
    if state == "failed" and events[-1] is LOST:
        assert track.reason == "the node is gone"


def test_a_submitted_cell_waits_until_it_starts_and_then_shows_its_node(tmp_path):
    track, shown = Track(index=0, name="cell", directory=tmp_path / "cell"), []
    Pool([track], Script(0, 0, Began("n7"), Outcome(0)), out=tmp_path, retries=1).run(
        lambda each: shown.append((track.state, track.node, each is not None))
    )
    changes = [(state, place) for state, place, changed in shown if changed]
    assert changes == [("running", "n7"), ("finished", "n7")]
    assert shown[:2] == [("waiting", "", False)] * 2
