"""Runs the cells of a table in a process pool, and appends each to a CSV file when it ends."""

import argparse
import csv
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Cell = dict[str, Any]


def arguments(about: str | None, out: str, *, only: bool = True) -> argparse.ArgumentParser:
    """Make a parser with the options of all tables; `only` adds a filter on their first column."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument(
        "--out", type=Path, default=Path("results") / out, help="CSV file; rows in it are not run again"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    if only:
        parser.add_argument("--only", nargs="*", help="first column of the rows to run")
    return parser


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file; none if it does not exist."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def run_cells(function: Callable[[Cell], Cell], cells: Iterable[Cell], path: Path, jobs: int) -> None:
    """Run the cells that the file has no row for; a row joins the cell and the function's result."""
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


def rows_of(function: Callable[[Cell], Cell], cells: Sequence[Cell], path: Path, jobs: int) -> list[dict[str, str]]:
    """Run the cells that the file has no row for, and return the rows of all of them."""
    run_cells(function, cells, path, jobs)
    rows = read_rows(path)
    return [row for cell in cells for row in rows if is_of(row, cell)]


def is_of(row: dict[str, str], cell: Cell) -> bool:
    """Whether a row belongs to a cell."""
    return all(row.get(name) == str(value) for name, value in cell.items())


def append(path: Path, row: Cell) -> None:
    """Add a row to the file, and a header to a new file; new columns are empty in earlier rows."""
    before = read_rows(path)
    columns = list(before[0]) if before else []
    new = [name for name in row if name not in columns]
    if before and not new:
        with path.open("a", newline="") as file:
            csv.DictWriter(file, columns, lineterminator="\n").writerow(row)
        return
    new_file = path.with_name(path.name + ".new")  # replaces the old file atomically: rows took hours
    with new_file.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns + new, lineterminator="\n")
        writer.writeheader()
        writer.writerows([*before, row])
    new_file.replace(path)


def number(value: float | None) -> str:
    """Format a number; None is empty."""
    return "" if value is None else f"{value:g}"
