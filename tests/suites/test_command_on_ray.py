"""`monotau suite --ray` from end to end: lost nodes and drivers do not change the results of a suite."""

import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from monotau.errors import ConfigError
from monotau.suites.command import SuiteCommand, _request
from monotau.suites.grid import read_suite
from tests.support.suites import TINY_SUITE, learned_weights, output_of, suite_file, wait_for

LONGER = {"settings": TINY_SUITE["settings"] | {"steps": 3_000, "iteration_steps": 100}, "seeds": 2}


@pytest.fixture(scope="module")
def place() -> dict[str, str]:
    """Environment variables that hide all other clusters and set a token known only to these tests."""
    own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}
    return {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"} | own


@pytest.fixture
def nodes(place) -> Iterator[dict[str, Any]]:
    words = [sys.executable, "-m", "tests.support.ray_cluster", "3"]
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=place
    )
    assert process.stdout is not None
    yield json.loads(process.stdout.readline())
    process.communicate(timeout=60)


def words(file: str, out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "monotau", "suite", file, "--out", str(out), *more]


def learned(out: Path) -> dict[str, Any]:
    """Return weights, metrics and results of all runs, without timings."""
    found: dict[str, Any] = dict(learned_weights(out))
    for path in [*out.glob("*/metrics.jsonl"), *out.glob("*/result.json")]:
        lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
        found[f"{path.parent.name}/{path.name}"] = [
            {name: value for name, value in json.loads(line).items() if "second" not in name} for line in lines
        ]
    return found


def cells_of(out: Path) -> dict[int, list[int]]:
    """Return the processes that run cells of a suite, each with its ancestors."""
    parents, found = {}, []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            given = (path / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"--index" in given and str(out).encode() in given:
            found.append(int(path.name))
    return {pid: [*_line(pid, parents)] for pid in found}


def _line(pid: int, parents: dict[int, int]) -> Iterator[int]:
    while pid in parents:
        pid = parents[pid]
        yield pid


@pytest.mark.slow
def test_the_death_of_a_node_does_not_change_the_results(tmp_path, place, nodes):
    file, out = suite_file(tmp_path, **LONGER), tmp_path / "out"
    subprocess.run(words(file, tmp_path / "whole", "--jobs", "2", "--threads", "1"), check=True, capture_output=True)
    driver = subprocess.Popen(
        words(file, out, "--ray", nodes["address"]),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=place,
    )
    at_work: list[int] = []

    def busy() -> bool:
        """Whether a run on a node other than the driver's has saved a checkpoint."""
        at_work[:] = [raylet for line in cells_of(out).values() for raylet in nodes["raylets"][1:] if raylet in line]
        return bool(at_work) and len([*out.glob("*/checkpoints/LATEST")]) >= 2

    wait_for(busy)
    before = {pid for pid, line in cells_of(out).items() if at_work[0] in line}
    os.kill(at_work[0], signal.SIGKILL)
    wait_for(lambda: not before & {*cells_of(out)}, 30)
    text, errors = driver.communicate(timeout=240)
    assert driver.returncode == 0, text + errors
    assert "4 of 4 runs are finished" in text
    assert re.search(r"will be retried: lost with its worker or node \(\w+\)", text)
    assert learned(out) == learned(tmp_path / "whole")
    assert len(learned_weights(out)) == 4
    assert "Traceback" not in errors


@pytest.mark.slow
def test_an_interrupted_or_killed_driver_resumes_and_ends_the_same(tmp_path, place, nodes):
    file, out = suite_file(tmp_path, **LONGER), tmp_path / "out"
    subprocess.run(words(file, tmp_path / "whole", "--jobs", "2", "--threads", "1"), check=True, capture_output=True)
    for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -9), (signal.SIGTERM, 143)):
        driver = subprocess.Popen(
            words(file, out, "--ray", nodes["address"]), stdout=subprocess.PIPE, text=True, env=place
        )
        assert driver.stdout is not None
        while not re.search("started on", driver.stdout.readline()):
            assert driver.poll() is None
        wait_for(lambda: len([*out.glob("*/checkpoints/LATEST")]) > len([*out.glob("*/result.json")]))
        os.kill(driver.pid, number)
        text, _ = driver.communicate(timeout=60)
        assert driver.returncode == code
        assert number == signal.SIGKILL or "the same command resumes" in text
        wait_for(lambda: not cells_of(out), 0.5 if number != signal.SIGKILL else 30)
    done = subprocess.run(words(file, out, "--ray", nodes["address"]), capture_output=True, text=True, env=place)
    assert "4 of 4 runs are finished" in done.stdout, done.stdout + done.stderr
    assert learned(out) == learned(tmp_path / "whole")


@pytest.mark.slow
def test_refusals_are_one_line_come_quickly_and_leave_nothing_behind(tmp_path, place, nodes):
    file, out = suite_file(tmp_path), tmp_path / "out"
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
        closed.close()
        for more, message in (
            (("--ray", f"127.0.0.1:{port}"), "Connection refused"),
            (("--ray", f"127.0.0.1:{silent.getsockname()[1]}"), "did not answer as a Ray cluster"),
            (("--ray", nodes["address"], "--cpus-per-run", "64"), "requests 64 CPUs, 0 GPUs and 0.4 GB, but no node"),
            (("--ray", nodes["address"], "--gpus-per-run", "0.5"), "requests 1 CPU, 0.5 GPUs"),
        ):
            start = time.monotonic()
            done = subprocess.run(words(file, out, *more), capture_output=True, text=True, env=place)
            assert done.returncode == 2, done.stdout + done.stderr
            assert message in done.stderr
            assert len(done.stderr.splitlines()) == 1
            assert time.monotonic() - start < 25  # includes the start of the program
            assert not out.exists()


@pytest.mark.slow
def test_a_local_ray_ends_with_its_driver(tmp_path, place):
    file, out = suite_file(tmp_path, presets=["dqn"], **LONGER), tmp_path / "out"
    driver = subprocess.Popen(
        words(file, out, "--ray", "local"), stdout=subprocess.PIPE, text=True, env=place, start_new_session=True
    )
    wait_for(lambda: cells_of(out))
    raylets = {pid for line in cells_of(out).values() for pid in line[: line.index(driver.pid)]}
    os.kill(driver.pid, signal.SIGKILL)
    driver.communicate(timeout=60)
    wait_for(lambda: not cells_of(out) and not any(Path(f"/proc/{pid}").exists() for pid in raylets), 30)
    done = subprocess.run(words(file, out, "--ray", "local"), capture_output=True, text=True, env=place)
    assert "2 of 2 runs are finished" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cpus_per_run": 2.0}, "--cpus-per-run is given, but has no effect without --ray"),
        ({"gpus_per_run": 0.5}, "--gpus-per-run is given, but has no effect without --ray"),
        ({"ray": "local", "cpus_per_run": -1.0}, "--cpus-per-run is -1, but must be a fraction"),
        ({"ray": "local", "cpus_per_run": 0.0}, "--cpus-per-run is 0, but must be a fraction"),
        ({"ray": "local", "gpus_per_run": float("nan")}, "--gpus-per-run is nan, but must be 0, a fraction"),
        ({"ray": "local", "dry_run": True}, "--ray and --dry-run are given, but only one of them"),
        ({"ray": "local", "slurm": True}, "--ray and --slurm are given"),
        ({"ray": "local", "index": 0}, "--ray and --index are given"),
        ({"ray": "nowhere"}, "the Ray address is 'nowhere', but must be 'local'"),
        ({"ray": ""}, "the Ray address is '', but must be 'local'"),
        ({"ray": "ray://host:10001"}, "but Ray Client is not supported"),
    ],
)
def test_invalid_combinations_of_options_are_refused(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message):
        output_of(SuiteCommand(suite=suite_file(tmp_path), out=tmp_path / "out", **changes))
    assert not (tmp_path / "out").exists()


def test_a_run_with_actors_requests_their_cpus_and_memory_too(tmp_path):
    settings = TINY_SUITE["settings"] | {"actors": 3, "actor": {"cpus": 0.5}}
    suite = read_suite(suite_file(tmp_path, settings=settings))
    given = SuiteCommand(suite="", ray="auto")
    resolved = suite.resolve(suite.cells[0], 2)
    request = _request(given, resolved, 2)
    assert request[:2] == (4.0, 0.0)  # two for its threads and one and a half for its actors
    assert request.memory > 4 * 380_000_000
    assert _request(replace(given, cpus_per_run=0.5, force=True), resolved, 2) == (0.5, 0.0, 0)


def test_without_ray_nothing_is_started(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install 'monotau\[cluster\]'"):
        output_of(SuiteCommand(suite=suite_file(tmp_path), out=tmp_path / "out", ray="local"))
    assert not (tmp_path / "out").exists()
