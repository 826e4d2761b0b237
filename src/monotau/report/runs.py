"""Runs as a report sees them: found in directories, and told apart by method."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from monotau.errors import ConfigError, brief
from monotau.report.reading import TRACES, ReportedRun, read_run
from monotau.runs.files import read_json

SUITE = "suite.json"
"""What a suite leaves beside its runs: which there are to be, and how their methods are called."""

OWN_TO_A_RUN = ("seed", "threads", "device", "compile", "log_every_steps", "preset", "profile")
"""Settings that make no other method of it: chance, machine and what is written down; and names of what is there."""

MOST_NAMED = 2
"""Settings that a method's name may carry; methods that differ in more are numbered."""


def read_runs(paths: Iterable[Path], tell: Callable[[str], None] = lambda what: None) -> list[ReportedRun]:
    """Read all runs in the directories, damaged and unfinished ones too, with methods told apart.

    `tell` is called with the name of each directory before it is read.
    """
    runs: dict[Path, ReportedRun] = {}
    for path in paths:
        inside = [*_directories(path)]
        if not inside:
            raise ConfigError(f"{path} is no run directory and holds none.")
        for directory, names in inside:
            tell(directory.name)
            for run in _read_suite(directory) if SUITE in names else [read_run(directory)]:
                held = runs.get(run.directory.resolve())
                if held is None or held.state == "not started":
                    runs[run.directory.resolve()] = run
    return _once_each(_told_apart(_named_by_suites([*runs.values()])))


def _once_each(runs: Sequence[ReportedRun]) -> list[ReportedRun]:
    """Let a seed count once: of several runs of the same method, environment and seed, a finished one, or the first."""
    kept: dict[tuple[str, str, int], Path] = {}
    for run in sorted(runs, key=lambda run: run.state != "finished"):
        if run.lines:
            kept.setdefault((run.method, run.env, run.seed), run.directory)
    told = []
    for run in runs:
        of_it = kept.get((run.method, run.env, run.seed), run.directory)
        copy = run.lines and of_it != run.directory
        reason = f"the same method, environment and seed as {of_it}"
        told.append(replace(run, state="repeated", reason=reason) if copy else run)
    return told


def _directories(path: Path) -> Iterator[tuple[Path, set[str]]]:
    for place, inner, files in os.walk(path):
        inner.sort()
        names = {*inner, *files}
        if names.intersection(TRACES):
            inner.clear()  # a run holds no runs
            yield Path(place), names - {SUITE}
        elif SUITE in names:
            yield Path(place), names


def _read_suite(directory: Path) -> list[ReportedRun]:
    """Return the runs that a suite is to have, as not started: those that are will be found themselves."""
    try:
        return [
            ReportedRun(directory=directory / name, state="not started", **cell)
            for name, cell in _cells(directory).items()
        ]
    except ConfigError as error:
        return [ReportedRun(directory=directory / SUITE, state="damaged", reason=str(error))]


def _cells(directory: Path) -> dict[str, dict[str, Any]]:
    """Return method, environment and seed of each cell of a suite, by the name of its directory."""
    cells = read_json(directory / SUITE).get("cells")
    wanted = {"method": str, "env": str, "seed": int}
    if not isinstance(cells, dict) or not all(
        isinstance(cell, dict) and all(isinstance(cell.get(key), kind) for key, kind in wanted.items())
        for cell in cells.values()
    ):
        raise ConfigError(f"{directory / SUITE} is not what a suite wrote: it lacks cells with method, env and seed.")
    return {name: {key: cell[key] for key in wanted} for name, cell in cells.items()}


def _named_by_suites(runs: Sequence[ReportedRun]) -> list[ReportedRun]:
    """Give runs that lie in a suite's directory the names that it gave their methods."""
    suites: dict[Path, dict[str, dict[str, Any]]] = {}
    for place in {run.directory.parent for run in runs}:
        try:
            suites[place] = _cells(place) if (place / SUITE).exists() else {}
        except ConfigError:  # listed as damaged
            suites[place] = {}
    named = []
    for run in runs:
        cell = suites[run.directory.parent].get(run.directory.name)
        named.append(run if cell is None else replace(run, **({"method": cell["method"]} if run.settings else cell)))
    return named


def _told_apart(runs: Sequence[ReportedRun]) -> list[ReportedRun]:
    """Add to a method's name the settings by which runs under it, in one environment, differ; or number them."""
    groups: dict[str, dict[str, list[ReportedRun]]] = {}
    for run in runs:
        if run.settings:
            groups.setdefault(run.method, {}).setdefault(run.env, []).append(run)
    names: dict[Path, str] = {}
    for method, envs in groups.items():
        telling = sorted({path for group in envs.values() for path in differing(group)})
        variants: dict[str, int] = {}
        for run in (run for group in envs.values() for run in group):
            values = ", ".join(f"{path} {_short(run, path)}" for path in telling)
            number = variants.setdefault(values, len(variants) + 1)
            suffix = values if len(telling) <= MOST_NAMED else f"settings {number}"
            names[run.directory] = f"{method}, {suffix}" if telling else method
    # A run of which no settings are known is of the method that its siblings are of, if those are of one.
    siblings: dict[tuple[Path, str], set[str]] = {}
    for run in runs:
        if run.settings:
            siblings.setdefault((run.directory.parent, run.method), set()).add(names[run.directory])
    for run in runs:
        known = siblings.get((run.directory.parent, run.method), set())
        if run.directory not in names and len(known) == 1:
            names[run.directory] = next(iter(known))
    return [replace(run, method=names.get(run.directory, run.method)) for run in runs]


def _short(run: ReportedRun, path: str) -> str:
    value = run.settings.get(path, "-")
    return value if isinstance(value, str) else brief(value)


def differing(runs: Sequence[ReportedRun]) -> list[str]:
    """Return the paths of settings in which runs differ, beyond what differs between any two."""
    paths = sorted({path for run in runs for path in run.settings})
    own = (*OWN_TO_A_RUN, "env.id", "env.protocol", "env.kwargs")
    return [
        path
        for path in paths
        if path not in own and any(run.settings.get(path) != runs[0].settings.get(path) for run in runs)
    ]
