"""Small suites of training runs, and pools that run short scripts in place of training runs."""

import io
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from monotau.suites.command import SuiteCommand, run_suite
from monotau.suites.pool import Pool
from monotau.suites.track import Track
from monotau.suites.workers.local import Workers

TINY_SUITE: dict[str, Any] = {
    "presets": ["dqn", "ndqfn"],
    "envs": ["monotau/Coin-v0"],
    "seeds": 1,
    "settings": {
        "steps": 60,
        "iteration_steps": 20,
        "log_every_steps": 10,
        "torso": {"width": 8, "layers": 1},
        "head": {"hidden": 8},
        "replay": {"capacity_steps": 60, "warmup_steps": 10},
        "update": {"batch_size": 4},
        "evaluation": {"episodes": 2, "num_envs": 2},
    },
}


def suite_file(place: Path, **changes: Any) -> str:
    """Write TINY_SUITE with changes to a file, and return its path."""
    path = place / "mine.yaml"
    path.write_text(yaml.safe_dump(TINY_SUITE | changes))
    return str(path)


def output_of(command: SuiteCommand) -> str:
    """Run a suite, and return what it prints."""
    console = Console(file=io.StringIO(), width=200)
    run_suite(command, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def learned_weights(out: Path) -> dict[str, bytes]:
    """Return the weights that each finished run of a suite has learned."""
    return {path.parent.parent.name: path.read_bytes() for path in out.glob("*/agent/*.safetensors")}


def wait_for(condition: Callable[[], Any], seconds: float = 120.0) -> None:
    """Wait until a condition holds, and fail after so many seconds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


PREAMBLE = """
import os, pathlib, sys, time
marks = pathlib.Path(sys.argv[1]); index = sys.argv[2]
def try_number():
    number = len(list(marks.glob(f"{index}.try*"))) + 1
    (marks / f"{index}.try{number}").write_text(str(os.getpid()))
    return number
"""
"""Starts every script of a ScriptedPool; `try_number` marks an attempt with the process id and returns its number."""


class ScriptedPool:
    """A pool that runs a short script for each cell in place of a training run; scripts leave files in `marks`."""

    def __init__(self, place: Path, script: str, count: int, workers: Callable[..., Workers], retries: int = 2) -> None:
        self.marks = place / "marks"
        self.marks.mkdir()
        self.tracks = [Track(index=i, name=f"cell{i}", directory=place / f"cell{i}") for i in range(count)]
        self.shown: list[tuple[str, str]] = []

        def command(index: int) -> list[str]:
            return [sys.executable, "-c", PREAMBLE + script, str(self.marks), str(index)]

        self.pool = Pool(self.tracks, workers(command, logs=place / "logs"), out=place, retries=retries)

    def run(self, show: Callable[[], None] = lambda: None) -> "ScriptedPool":
        """Run all cells, and record the state of each cell whenever the pool shows it."""

        def shown(track: Track | None) -> None:
            if track:
                self.shown.append((track.name, track.state))
            show()

        self.pool.run(shown)
        return self

    def states(self) -> list[str]:
        return [track.state for track in self.tracks]

    def tries(self) -> list[int]:
        return [track.tries for track in self.tracks]
