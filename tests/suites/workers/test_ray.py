"""Cells as Ray tasks, with processes that take no time, on a Ray of the tests' own."""

import os
import sys
import time
from pathlib import Path

import pytest

from monotau.distributed import nodes
from monotau.distributed.connect import connected
from monotau.distributed.nodes import PACKAGES, View, check_nodes, judge, view
from monotau.distributed.resources import Request, check_room, check_share
from monotau.errors import ConfigError
from monotau.runs.process import locked
from monotau.suites import pool as pools
from monotau.suites.pool import Pool
from monotau.suites.track import Track
from monotau.suites.workers import ray as on_ray
from monotau.suites.workers.ray import RayWorkers
from tests.suites.test_pool import COUNT


@pytest.fixture(scope="module")
def _ray():
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RAY_ADDRESS", raising=False)
        with connected("local", cpus=2):
            yield


class Bench:
    """A pool over scripts instead of runs, on Ray."""

    def __init__(self, place: Path, script: str, count: int, jobs: int | None = None, retries: int = 2) -> None:
        self.marks = place / "marks"
        self.marks.mkdir()
        self.tracks = [Track(index=i, name=f"cell{i}", directory=place / f"cell{i}") for i in range(count)]
        self.shown: list[tuple[str, str]] = []
        workers = RayWorkers(
            lambda index: [sys.executable, "-c", COUNT + script, str(self.marks), str(index)],
            lambda _: Request(1.0, 0.0, 1_000_000),
            logs=place / "logs",
            jobs=jobs,
            threads=7,
        )
        self.pool = Pool(self.tracks, workers, out=place, retries=retries)

    def run(self, show=lambda: None) -> "Bench":
        def shown(track: Track | None) -> None:
            if track:
                self.shown.append((track.name, track.state))
            show()

        self.pool.run(shown)
        return self

    def states(self) -> list[str]:
        return [track.state for track in self.tracks]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def soon(what, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(pools, "POLL_SECONDS", 0.02)


@pytest.mark.usefixtures("_ray")
def test_all_are_run_with_their_threads_and_what_fails_is_told(tmp_path):
    script = """
(marks / f"{index}.told").write_text(os.environ["OMP_NUM_THREADS"] + os.environ["OMP_WAIT_POLICY"])
if index == "1" and try_number() == 1: os.kill(os.getpid(), 9)
if index == "2": try_number(); print("error: the sea is rough"); sys.exit(3)
"""
    bench = Bench(tmp_path, script, count=4).run()
    assert bench.states() == ["finished", "finished", "failed", "finished"]
    assert [track.tries for track in bench.tracks] == [1, 2, 1, 1]
    assert bench.tracks[2].reason == "the sea is rough"
    assert (bench.marks / "0.told").read_text() == "7PASSIVE"
    assert all(track.place for track in bench.tracks)
    assert bench.shown.count(("cell3", "running")) == bench.shown.count(("cell3", "finished")) == 1


@pytest.mark.usefixtures("_ray")
def test_a_cell_waits_until_its_task_has_begun_and_jobs_are_a_limit(tmp_path):
    most = 0

    def look() -> None:
        nonlocal most
        most = max(most, bench.states().count("running"))

    bench = Bench(tmp_path, "time.sleep(0.3)", count=4)
    bench.run(look)
    assert most == 2  # all four were handed over, to two CPUs
    most, again = 0, tmp_path / "again"
    again.mkdir()
    bench = Bench(again, "time.sleep(0.1)", count=3, jobs=1)
    bench.run(look)
    assert most == 1


@pytest.mark.usefixtures("_ray")
def test_a_worker_that_is_killed_takes_its_process_along_and_the_cell_is_run_again(tmp_path):
    script = """
number = try_number()
(marks / f"{index}.parent{number}").write_text(str(os.getppid()))
if number == 1: time.sleep(600)
"""
    bench, killed = Bench(tmp_path, script, count=1), []

    def kill() -> None:
        parent = bench.marks / "0.parent1"
        if not killed and parent.exists() and parent.read_text():
            killed.append(int((bench.marks / "0.try1").read_text()))
            os.kill(int(parent.read_text()), 9)

    bench.run(kill)
    assert bench.states() == ["finished"]
    assert bench.tracks[0].tries == 2
    assert "lost with its worker or node" in bench.tracks[0].reason
    assert ("cell0", "waiting") in bench.shown
    soon(lambda: not alive(killed[0]))


@pytest.mark.usefixtures("_ray")
def test_a_stop_is_told_to_the_processes_which_have_ended_when_it_is_over(tmp_path):
    script = """
import signal
def leave(*_):
    time.sleep(0.5); (marks / f"{index}.left").touch(); sys.exit(143)
signal.signal(signal.SIGTERM, leave)
try_number(); time.sleep(600)
"""
    bench = Bench(tmp_path, script, count=3)

    def stop() -> None:
        if sum(path.stat().st_size > 0 for path in bench.marks.glob("*.try1")) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.run(stop)
    assert len(list(bench.marks.glob("*.left"))) == 2
    assert bench.states() == ["waiting"] * 3
    assert not any(alive(int(path.read_text())) for path in bench.marks.glob("*.try1"))


@pytest.mark.usefixtures("_ray")
def test_who_does_not_listen_is_ended_by_force(tmp_path, monkeypatch):
    monkeypatch.setattr(on_ray, "GRACE_SECONDS", -1.0)  # of 1 for the process, and 3 for its task
    script = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); try_number(); time.sleep(600)"
    bench = Bench(tmp_path, script, count=1)

    def stop() -> None:
        if any(path.read_text() for path in bench.marks.glob("*.try1")):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.run(stop)
    pid = int((bench.marks / "0.try1").read_text())
    soon(lambda: not alive(pid))


@pytest.mark.usefixtures("_ray")
def test_nodes_that_see_the_directory_pass_and_nothing_is_left_there(tmp_path):
    said: list[str] = []
    with locked(tmp_path):
        check_nodes(tmp_path, said.append)
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    assert [line for line in said if "warning" in line] == []
    check_nodes(tmp_path, said.append)
    assert "locks do not reach over this storage" in said[-1]


@pytest.mark.usefixtures("_ray")
def test_a_node_that_does_not_answer_is_named(tmp_path, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(nodes, "PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(nodes, "DEADLINE_SECONDS", 0.2)
    with pytest.raises(ConfigError, match=r"no answer within 0 seconds from node [\d.]+\."):
        check_nodes(tmp_path, said.append)
    assert "waiting for an answer of node" in said[0]
    assert list(tmp_path.iterdir()) == []


HERE = {package: nodes.version(package) for package in PACKAGES}


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        (View("No such file or directory: /data/.x", HERE, True), r"--out /data is not the same on node n7 \(No such"),
        (View("", HERE | {"torch": "1.0"}, True), r"node n7 has torch 1.0, but here is .*: they must be the same"),
        (View("", HERE | {"monotau": "9"}, True), "node n7 has monotau 9, but here is "),
    ],
)
def test_a_node_that_cannot_take_part_is_named(seen, message):
    with pytest.raises(ConfigError, match=message):
        judge("n7", seen, Path("/data"), pytest.fail)


def test_a_directory_is_looked_at_from_a_node(tmp_path):
    (tmp_path / "token").write_text("ours")
    assert view(str(tmp_path), "token", "ours") == View("", HERE, False)
    assert view(str(tmp_path), "token", "theirs").problem == "another directory of that name"
    assert view(str(tmp_path / "no"), "token", "ours").problem.startswith("No such file or directory: ")
    assert [path.name for path in tmp_path.iterdir()] == ["token"]


def node(name: str, alive: bool = True, **resources: float) -> dict[str, object]:
    return {"NodeManagerAddress": name, "Alive": alive, "Resources": resources}


def test_a_request_must_fit_into_one_node():
    nodes = [node("n1", CPU=8.0, memory=9e9), node("n2", CPU=2.0, GPU=1.0, memory=4e9), node("n3", False, CPU=64.0)]
    check_room([Request(8.0, 0.0, 9_000_000_000), Request(1.0, 0.5, 0)], nodes)
    message = "asks for 4 CPUs, 1 GPU and 1.0 GB, but no node has that; the largest, n2, has 2 CPUs, 1 GPU and 4.0 GB"
    with pytest.raises(ConfigError, match=message):
        check_room([Request(1.0, 0.0, 0), Request(4.0, 1.0, 1_000_000_000)], nodes)
    with pytest.raises(ConfigError, match="--force, if the cluster grows on demand"):
        check_room([Request(9.0, 0.0, 0)], nodes)
    with pytest.raises(ConfigError, match="no node has that; the largest, none, has 0 CPUs"):
        check_room([Request(1.0, 0.0, 0)], [])


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), 1.5, 0.00001])
def test_shares_that_cannot_be_kept_are_refused(value):
    with pytest.raises(ConfigError, match=r"--gpus-per-run is .* but must be 0, a share from 0.0001 to 1, or a whole"):
        check_share("--gpus-per-run", value, 0.0)


def test_shares_that_can_be_kept():
    for value in (0.0, 0.0001, 0.25, 1.0, 8.0):
        check_share("--gpus-per-run", value, 0.0)
    with pytest.raises(ConfigError, match="--cpus-per-run is 0, but must be a share"):
        check_share("--cpus-per-run", 0.0, 0.0001)
