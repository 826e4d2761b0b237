"""Names the methods of runs, so that runs with the same name differ only in environment and seed."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from monotau.errors import ConfigError, brief
from monotau.results.read import SUITE, RunRecord, read_run, walk_runs
from monotau.runs.files import read_json

NOT_PART_OF_METHOD = ("seed", "threads", "device", "compile", "log_every_steps", "preset", "profile", "imports")
"""Settings in which runs of one method may differ: chance, machine, logging, and names of settings or code."""

MAX_NAMED_SETTINGS = 2
"""A method's name includes at most this many settings; methods that differ in more are numbered."""


def read_methods(paths: Iterable[Path], notify: Callable[[str], None] = lambda name: None) -> list[RunRecord]:
    """Read all runs among or below the paths, whatever their state, and name their methods.

    Runs that a suite has planned but not started are included. `notify` is called with the name of each directory
    before it is read.
    """
    records: dict[Path, RunRecord] = {}
    for path in paths:
        directories = [*walk_runs(path)]
        if not directories:
            raise ConfigError(f"{path} is not a run directory and contains none.")
        for directory, is_suite in directories:
            notify(directory.name)
            for record in _planned_runs(directory) if is_suite else [read_run(directory)]:
                known = records.get(record.directory.resolve())
                if known is None or known.state == "not started":
                    records[record.directory.resolve()] = record
    return _mark_repeated(_name_by_settings(_name_by_suite([*records.values()])))


def _mark_repeated(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Keep one run of each method, environment and seed: a finished one if there is any, else the first."""
    kept: dict[tuple[str, str, int], Path] = {}
    for run in sorted(runs, key=lambda run: run.state != "finished"):
        if run.lines:
            kept.setdefault((run.method, run.env, run.seed), run.directory)
    marked = []
    for run in runs:
        original = kept.get((run.method, run.env, run.seed), run.directory)
        repeated = run.lines and original != run.directory
        reason = f"the same method, environment and seed as {original}"
        marked.append(replace(run, state="repeated", reason=reason) if repeated else run)
    return marked


def _planned_runs(directory: Path) -> list[RunRecord]:
    """Return the runs that a suite has planned, as not started; those that exist are found by themselves."""
    try:
        return [
            RunRecord(directory=directory / name, state="not started", **cell)
            for name, cell in _read_suite(directory).items()
        ]
    except ConfigError as error:
        return [RunRecord(directory=directory / SUITE, state="damaged", reason=str(error))]


def _read_suite(directory: Path) -> dict[str, dict[str, Any]]:
    """Return method, environment and seed of each run of a suite, by the name of its directory."""
    cells = read_json(directory / SUITE).get("cells")
    fields = {"method": str, "env": str, "seed": int}
    if not isinstance(cells, dict) or not all(
        isinstance(cell, dict) and all(isinstance(cell.get(key), kind) for key, kind in fields.items())
        for cell in cells.values()
    ):
        raise ConfigError(f"{directory / SUITE} was not written by a suite: it lacks cells with method, env and seed.")
    return {name: {key: cell[key] for key in fields} for name, cell in cells.items()}


def _name_by_suite(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Give runs inside a suite's directory the method names of the suite."""
    suites: dict[Path, dict[str, dict[str, Any]]] = {}
    for directory in {run.directory.parent for run in runs}:
        try:
            suites[directory] = _read_suite(directory) if (directory / SUITE).exists() else {}
        except ConfigError:  # already recorded as damaged
            suites[directory] = {}
    named = []
    for run in runs:
        cell = suites[run.directory.parent].get(run.directory.name)
        named.append(run if cell is None else replace(run, **({"method": cell["method"]} if run.settings else cell)))
    return named


def _name_by_settings(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Append to a method's name the settings that differ between its runs in one environment, or a number."""
    groups: dict[str, dict[str, list[RunRecord]]] = {}
    for run in runs:
        if run.settings:
            groups.setdefault(run.method, {}).setdefault(run.env, []).append(run)
    names: dict[Path, str] = {}
    for method, envs in groups.items():
        paths = sorted({path for group in envs.values() for path in differing_settings(group)})
        variants: dict[str, int] = {}
        for run in (run for group in envs.values() for run in group):
            values = ", ".join(f"{path} {_short(run, path)}" for path in paths)
            number = variants.setdefault(values, len(variants) + 1)
            suffix = values if len(paths) <= MAX_NAMED_SETTINGS else f"settings {number}"
            names[run.directory] = f"{method}, {suffix}" if paths else method
    # A run without readable settings gets the name of the runs beside it if they all have the same one.
    siblings: dict[tuple[Path, str], set[str]] = {}
    for run in runs:
        if run.settings:
            siblings.setdefault((run.directory.parent, run.method), set()).add(names[run.directory])
    for run in runs:
        known = siblings.get((run.directory.parent, run.method), set())
        if run.directory not in names and len(known) == 1:
            names[run.directory] = next(iter(known))
    return [replace(run, method=names.get(run.directory, run.method)) for run in runs]


def _short(run: RunRecord, path: str) -> str:
    value = run.settings.get(path, "-")
    return value if isinstance(value, str) else brief(value)


def differing_settings(runs: Sequence[RunRecord]) -> list[str]:
    """Return the paths of the settings in which runs differ, apart from those that do not define a method."""
    paths = sorted({path for run in runs for path in run.settings})
    ignored = (*NOT_PART_OF_METHOD, "env.id", "env.protocol", "env.kwargs")
    return [
        path
        for path in paths
        if path not in ignored and any(run.settings.get(path) != runs[0].settings.get(path) for run in runs)
    ]
