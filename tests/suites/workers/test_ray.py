"""Cells of a suite as Ray tasks, on a local Ray and with scripts that end at once."""

import os
from pathlib import Path

import pytest

from monotau.distributed.resources import Request
from monotau.suites import pool as pool_module
from monotau.suites.workers import ray as on_ray
from monotau.suites.workers.ray import RayWorkers
from tests.support.suites import ScriptedPool, wait_for


def ray_pool(place: Path, script: str, count: int, jobs: int | None = None) -> ScriptedPool:
    def workers(command, *, logs):
        return RayWorkers(command, lambda _: Request(1.0, 0.0, 1_000_000), logs=logs, jobs=jobs, threads=7)

    return ScriptedPool(place, script, count, workers)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(pool_module, "POLL_SECONDS", 0.02)


@pytest.mark.usefixtures("local_ray")
def test_all_cells_run_with_their_threads_and_failures_are_reported(tmp_path):
    script = """
(marks / f"{index}.told").write_text(os.environ["OMP_NUM_THREADS"] + os.environ["OMP_WAIT_POLICY"])
if index == "1" and try_number() == 1: os.kill(os.getpid(), 9)
if index == "2": try_number(); print("error: the sea is rough"); sys.exit(3)
"""
    pool = ray_pool(tmp_path, script, count=4).run()
    assert pool.states() == ["finished", "finished", "failed", "finished"]
    assert pool.tries() == [1, 2, 1, 1]
    assert pool.tracks[2].reason == "the sea is rough"
    assert (pool.marks / "0.told").read_text() == "7PASSIVE"
    assert all(track.node for track in pool.tracks)
    assert pool.shown.count(("cell3", "running")) == pool.shown.count(("cell3", "finished")) == 1


@pytest.mark.usefixtures("local_ray")
def test_a_cell_waits_until_its_task_starts_and_jobs_limit_the_tasks(tmp_path):
    most = 0

    def look() -> None:
        nonlocal most
        most = max(most, pool.states().count("running"))

    pool = ray_pool(tmp_path, "time.sleep(0.3)", count=4)
    pool.run(look)
    assert most == 2  # all four cells are submitted, but there are two CPUs
    most, again = 0, tmp_path / "again"
    again.mkdir()
    pool = ray_pool(again, "time.sleep(0.1)", count=3, jobs=1)
    pool.run(look)
    assert most == 1


@pytest.mark.usefixtures("local_ray")
def test_the_process_of_a_killed_worker_ends_too_and_the_cell_is_retried(tmp_path):
    script = """
number = try_number()
(marks / f"{index}.parent{number}").write_text(str(os.getppid()))
if number == 1: time.sleep(600)
"""
    pool, killed = ray_pool(tmp_path, script, count=1), []

    def kill() -> None:
        parent = pool.marks / "0.parent1"
        if not killed and parent.exists() and parent.read_text():
            killed.append(int((pool.marks / "0.try1").read_text()))
            os.kill(int(parent.read_text()), 9)

    pool.run(kill)
    assert pool.states() == ["finished"]
    assert pool.tracks[0].tries == 2
    assert "lost with its worker or node" in pool.tracks[0].reason
    assert ("cell0", "waiting") in pool.shown
    wait_for(lambda: not alive(killed[0]), seconds=20)


@pytest.mark.usefixtures("local_ray")
def test_a_stop_terminates_the_processes_and_waits_for_them(tmp_path):
    script = """
import signal
def leave(*_):
    time.sleep(0.5); (marks / f"{index}.left").touch(); sys.exit(143)
signal.signal(signal.SIGTERM, leave)
try_number(); time.sleep(600)
"""
    pool = ray_pool(tmp_path, script, count=3)

    def stop() -> None:
        if sum(path.stat().st_size > 0 for path in pool.marks.glob("*.try1")) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pool.run(stop)
    assert len(list(pool.marks.glob("*.left"))) == 2
    assert pool.states() == ["waiting"] * 3
    assert not any(alive(int(path.read_text())) for path in pool.marks.glob("*.try1"))


@pytest.mark.usefixtures("local_ray")
def test_a_task_that_ignores_the_stop_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(on_ray, "GRACE_SECONDS", -1.0)  # leaves 1 s for the process and 3 s for its task
    script = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); try_number(); time.sleep(600)"
    pool = ray_pool(tmp_path, script, count=1)

    def stop() -> None:
        if any(path.read_text() for path in pool.marks.glob("*.try1")):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pool.run(stop)
    pid = int((pool.marks / "0.try1").read_text())
    wait_for(lambda: not alive(pid), seconds=20)
