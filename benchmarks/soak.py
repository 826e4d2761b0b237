"""Trains on MinAtar for half an hour, killed every few minutes, and compares with an uninterrupted run.

Memory and file descriptors are sampled in the uninterrupted run, because a kill would hide leaks.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.endings import differences, end_of

PRESET, ENV = "ndqfn-dpe", "MinAtar/Breakout-v1"
SETTINGS = ("--iteration-steps", "2000", "--replay.capacity-steps", "10000", "--evaluation.episodes", "5")
KILL_AFTER_SECONDS = (120.0, 240.0)
WATCH_EVERY_SECONDS = 5.0
WARM_UP = 0.3
"""Share of samples before memory should be constant: until then the replay fills and all code paths run once."""


def start(directory: Path, steps: int) -> subprocess.Popen[bytes]:
    """Start the program as a user would."""
    words = ("train", PRESET, "--env", ENV, "--steps", str(steps), *SETTINGS, "--out", str(directory))
    with open(f"{directory}.log", "ab") as log:
        return subprocess.Popen([sys.executable, "-m", "monotau", *words], stdout=log, stderr=log)  # noqa: S603


def memory_and_descriptors(pid: int) -> tuple[float, int] | None:
    """Return resident megabytes and open file descriptors of a process; None if it has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6, len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None


def soak(home: Path, steps: int, seed: int) -> dict[str, object]:
    """Run both to their end, and return the measurements."""
    rng = random.Random(seed)  # noqa: S311
    home.mkdir(parents=True, exist_ok=True)
    begun = time.perf_counter()
    left_alone, killed = start(home / "whole", steps), start(home / "killed", steps)
    samples: list[tuple[float, float, int]] = []
    kills, next_kill = 0, time.perf_counter() + rng.uniform(*KILL_AFTER_SECONDS)
    while left_alone.poll() is None or killed.poll() is None:
        time.sleep(WATCH_EVERY_SECONDS)
        seen = memory_and_descriptors(left_alone.pid)
        if seen and left_alone.poll() is None:
            samples.append((time.perf_counter() - begun, *seen))
        if killed.poll() is None and time.perf_counter() >= next_kill:
            killed.send_signal(signal.SIGKILL)
            killed.wait()
            kills += 1
            killed = start(home / "killed", steps)
            next_kill = time.perf_counter() + rng.uniform(*KILL_AFTER_SECONDS)
    return {
        "steps": steps,
        "minutes": round((time.perf_counter() - begun) / 60, 1),
        "kills": kills,
        "exit_codes": [left_alone.returncode, killed.returncode],
        "differences": differences(end_of(home / "whole"), end_of(home / "killed")),
        **trend(samples),
    }


def trend(samples: list[tuple[float, float, int]]) -> dict[str, object]:
    """Return the least-squares slope of memory after the warm-up, and the numbers of open descriptors."""
    times, memory, descriptors = np.array(samples[int(WARM_UP * len(samples)) :]).T
    slope = np.polyfit(times / 3600, memory, 1)[0]
    return {
        "megabytes": [round(float(memory[0]), 1), round(float(memory[-1]), 1)],
        "megabytes_per_hour": round(float(slope), 2),
        "descriptors": sorted({int(number) for number in descriptors}),
        "samples": len(times),
    }


def main() -> None:
    """Run the soak test and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=Path("runs") / "soak", help="directory of both runs")
    parser.add_argument("--steps", type=int, default=60_000, help="steps of each run")
    parser.add_argument("--seed", type=int, default=0, help="seed of the kill times")
    given = parser.parse_args()
    print(json.dumps(soak(given.home, given.steps, given.seed)))


if __name__ == "__main__":
    main()
