"""Ten minutes of training with actors, one of which is killed: training continues, and memory stays bounded."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from monotau.results.read import read_progress

RUN = """
import sys
from functools import partial
from monotau import train_agent
from tests.support.failing_envs import PidFileEnv
if __name__ == "__main__":
    train_agent(
        partial(PidFileEnv, sys.argv[1]), sys.argv[2], "ndqfn-dpe", steps=10_000_000, iteration_steps=20_000, actors=2,
        log_every_steps=200, replay={"capacity_steps": 5_000, "warmup_steps": 500}, actor={"patience_seconds": 30.0},
        torso={"width": 32}, head={"hidden": 32}, evaluation={"episodes": 1, "every_iterations": 1_000},
    )
"""
SECONDS, KILL_AT, SETTLED = 600, 150, 240


def resident(pid: int) -> float | None:
    """Return the resident megabytes of a process, or None if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS")), None)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_memory_is_bounded_over_ten_minutes_in_which_an_actor_is_killed(tmp_path):
    notes, out, root = tmp_path / "notes", tmp_path / "run", Path(__file__).parents[2]
    notes.mkdir()
    settings = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    settings.pop("RAY_ADDRESS", None)
    with open(tmp_path / "log", "wb") as log:
        words = [sys.executable, "-c", RUN, str(notes), str(out)]
        process = subprocess.Popen(words, env=settings, stdout=log, stderr=log)
    killed, killed_step, sizes = None, 0, []
    try:
        deadline = time.monotonic() + 120
        while len(list(notes.iterdir())) < 2 and time.monotonic() < deadline:
            time.sleep(0.2)
        start = time.monotonic()
        while (now := time.monotonic() - start) < SECONDS:
            assert process.poll() is None, (tmp_path / "log").read_text()[-2000:]
            actors = [int(path.name) for path in notes.iterdir()]
            if killed is None and now > KILL_AT:
                killed, killed_step = actors[0], read_progress(out).step
                os.kill(killed, signal.SIGKILL)
            alive = {pid: size for pid in [process.pid, *actors] if (size := resident(pid)) is not None}
            sizes.append((now, alive))
            time.sleep(2)
    finally:
        process.terminate()
        process.wait(30)
    end = read_progress(out).step
    settled, last = ([alive for now, alive in sizes if a <= now < b] for a, b in ((SETTLED, SETTLED + 60), (540, 600)))
    assert killed not in last[-1]
    assert len(last[-1]) == 3  # the learner, the surviving actor and the replacement
    assert end > killed_step + 10_000
    for pid, size in last[-1].items():
        before = max(alive[pid] for alive in settled if pid in alive)
        now = max(alive[pid] for alive in last if pid in alive)
        sys.stdout.write(
            f"{'learner' if pid == process.pid else 'actor'}: {before:.1f} MB, then {now:.1f} MB; {end} steps\n"
        )
        assert now < before + 10, f"process {pid} grew from {before:.1f} MB to {now:.1f} MB"
        assert size < 900
