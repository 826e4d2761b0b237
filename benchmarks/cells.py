"""Runs the cells of a table in a pool of processes; each is written to a CSV file as it ends, and never run twice."""

import argparse
import csv
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Cell = dict[str, Any]


def arguments(about: str | None, out: str, *, only: bool = True) -> argparse.ArgumentParser:
    """Make a parser with what all tables have in common; `only` is for those that name their first column no better."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument(
        "--out", type=Path, default=Path("results") / out, help="CSV file; rows in it are not run again"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    if only:
        parser.add_argument("--only", nargs="*", help="first column of the rows to run")
    return parser


def read_rows(path: Path) -> list[dict[str, str]]:
    """Read what is there."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def run_cells(function: Callable[[Cell], Cell], cells: Iterable[Cell], path: Path, jobs: int) -> None:
    """Run the cells that the file has no row for; a row is the cell and what the function returned for it."""
    done = read_rows(path)
    missing = [cell for cell in cells if not any(is_of(row, cell) for row in done)]
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as bar, ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        task = bar.add_task(path.name, total=len(missing))
        running = {pool.submit(function, cell): cell for cell in missing}
        for future in as_completed(running):
            append(path, running[future] | future.result())
            bar.advance(task)


def is_of(row: dict[str, str], cell: Cell) -> bool:
    """Whether a row is that of a cell."""
    return all(row.get(name) == str(value) for name, value in cell.items())


def append(path: Path, row: Cell) -> None:
    """Add a row to the file, and a header to a new file; columns that the file has not yet are empty in its rows."""
    before = read_rows(path)
    columns = list(before[0]) if before else []
    new = [name for name in row if name not in columns]
    if before and not new:
        with path.open("a", newline="") as file:
            csv.DictWriter(file, columns, lineterminator="\n").writerow(row)
        return
    whole = path.with_name(path.name + ".new")  # put in place at once: rows took hours
    with whole.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns + new, lineterminator="\n")
        writer.writeheader()
        writer.writerows([*before, row])
    whole.replace(path)


def number(value: float | None) -> str:
    """Write a number, or nothing where there is none."""
    return "" if value is None else f"{value:g}"
