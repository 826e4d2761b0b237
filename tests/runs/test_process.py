"""Locks allow one process for each directory, and signals stop it quickly and cleanly."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from monotau.errors import ConfigError
from monotau.runs.layout import LOCK
from monotau.runs.process import SIGNALS, Stopped, is_held, locked, stoppable
from tests.support.small_runs import SMALL_FLAGS


def test_a_second_process_is_refused_at_once_with_the_pid_of_the_holder(tmp_path):
    code = f"""
from pathlib import Path
from monotau.runs.process import locked
with locked(Path({str(tmp_path)!r})):
    pass
"""
    with locked(tmp_path):
        start = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert f"process {os.getpid()} is training into the run directory" in done.stderr
        assert done.returncode == 1
        assert time.perf_counter() - start < 60  # the refusal itself is immediate; this is the start of Python
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_process_cannot_lock_a_directory_twice_at_once_but_can_lock_it_again_later(tmp_path):
    with locked(tmp_path):
        for _ in range(2):
            with (
                pytest.raises(ConfigError, match=r"process \d+ is training into .* now; use another"),
                locked(tmp_path),
            ):
                pass
    with locked(tmp_path):
        pass


def test_a_viewer_that_asks_whether_a_run_is_training_keeps_nobody_from_starting_it(tmp_path):
    (tmp_path / LOCK).touch()
    stop, asked = threading.Event(), []

    def ask():
        while not stop.is_set():
            asked.append(is_held(tmp_path))

    viewer = threading.Thread(target=ask)
    viewer.start()
    try:
        while not asked:
            time.sleep(0.001)
        for _ in range(50):
            with locked(tmp_path):
                pass
    finally:
        stop.set()
        viewer.join()


def test_the_lock_of_a_killed_process_is_released(tmp_path):
    code = f"""
import time
from pathlib import Path
from monotau.runs.process import locked
with locked(Path({str(tmp_path)!r})):
    print("held", flush=True)
    time.sleep(600)
"""
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(ConfigError, match=f"process {holder.pid} is training into"), locked(tmp_path):
            pass
    finally:
        holder.kill()
        holder.communicate()
    with locked(tmp_path):
        assert (tmp_path / ".lock").read_text() == f"process {os.getpid()}"


@pytest.fixture
def restored_handlers():
    before = {number: signal.getsignal(number) for number in SIGNALS}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores SIGHUP, and it must stay ignored
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_signal_handlers_are_restored_after_the_block():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with stoppable():
        assert signal.getsignal(signal.SIGINT) not in before
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_stops_the_block(number, code, restored_handlers):
    with pytest.raises(Stopped) as caught, stoppable():  # noqa: PT012
        os.kill(os.getpid(), number)
        time.sleep(10)
    assert caught.value.exit_code == code


def test_nohup_is_obeyed(restored_handlers):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with stoppable():
        os.kill(os.getpid(), signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_is_held_tells_whether_a_directory_is_locked(tmp_path):
    assert not is_held(tmp_path / "nowhere")
    with locked(tmp_path):
        assert is_held(tmp_path)
    assert not is_held(tmp_path)


def program(code):
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


DEAF = """
import time
from monotau.runs import process
process.GRACE_SECONDS = {grace}
with process.stoppable():
    try:
        print("ready", flush=True)
        time.sleep(60)
    except BaseException:
        print("heard", flush=True)
        time.sleep(60)
"""


def test_a_second_signal_ends_a_process_that_ignores_the_first():
    deaf = program(DEAF.format(grace=600))
    assert deaf.stdout is not None
    assert deaf.stdout.readline() == "ready\n"
    deaf.send_signal(signal.SIGINT)
    assert deaf.stdout.readline() == "heard\n"
    start = time.perf_counter()
    deaf.send_signal(signal.SIGINT)
    deaf.communicate()
    assert deaf.returncode == 130
    assert time.perf_counter() - start < 5


def test_a_process_that_ignores_signals_ends_after_a_grace_period():
    deaf = program(DEAF.format(grace=0.5))
    assert deaf.stdout is not None
    assert deaf.stdout.readline() == "ready\n"
    deaf.send_signal(signal.SIGTERM)
    start = time.perf_counter()
    deaf.communicate()
    assert deaf.returncode == 143
    assert time.perf_counter() - start < 10


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_the_program_stops_within_ten_seconds_and_names_its_last_checkpoint(number, code, tmp_path):
    words = [*SMALL_FLAGS, "--steps", "1000000", "--out", str(tmp_path / "run")]
    process = subprocess.Popen(
        [sys.executable, "-m", "monotau", "train", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (tmp_path / "run" / "checkpoints" / "LATEST").exists():
        assert process.poll() is None
        time.sleep(0.05)
    start = time.perf_counter()
    process.send_signal(number)
    out, err = process.communicate()
    assert time.perf_counter() - start < 10
    assert (process.returncode, err) == (code, "")
    latest = (tmp_path / "run" / "checkpoints" / "LATEST").read_text().strip()
    last = out.strip().splitlines()[-1]
    assert last.startswith("stopped at step ")
    assert last.endswith(f"checkpoints/{latest}; the same command resumes the run")


def test_a_lock_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / ".lock").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic links"), locked(tmp_path):
        pass
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_second_signal_during_the_exit_keeps_the_exit_code(tmp_path):
    code = """
import os, signal, time
from monotau.cli import main
import monotau.runs.command
def train(*_, **__):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
monotau.runs.command.train_into = train
try:
    main(["train"])
finally:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
"""
    process = program(code)
    _, err = process.communicate()
    assert (process.returncode, err) == (130, "")
