"""Runs one cell of a suite, and tells whether it has finished."""

import shutil
from pathlib import Path
from typing import Any

from rich.console import Console

from monotau.runs.extend import state_for
from monotau.runs.files import read_json
from monotau.runs.layout import CHECKPOINTS, CONFIG
from monotau.runs.runner import train_into
from monotau.suites.grid import Cell, Suite


def run_cell(
    suite: Suite, cell: Cell, out: Path, console: Console, *, threads: int, keep: bool, force: bool, track: str | None
) -> None:
    """Train one run to its end, and then delete its checkpoints unless `keep` is set."""
    from monotau.report.run_figures import draw_run_figures  # matplotlib takes a second to import

    directory = out / cell.name
    resolved = suite.resolve(cell, threads_of(directory, threads))
    train_into(directory, resolved, console, force, draw=draw_run_figures, track=track)
    if not keep:
        shutil.rmtree(directory / CHECKPOINTS, ignore_errors=True)


def threads_of(directory: Path, wanted: int) -> int:
    """Return the number of threads a run started with, which its results depend on, or else the wanted one."""
    path = directory / CONFIG
    held: Any = read_json(path).get("threads") if path.exists() else None
    return held if type(held) is int else wanted


def is_finished(suite: Suite, cell: Cell, out: Path) -> bool:
    """Whether a run has finished; raise if its directory has other settings."""
    directory = out / cell.name
    if not directory.exists():
        return False
    return state_for(directory, suite.resolve(cell, threads_of(directory, 1))) == "finished"
