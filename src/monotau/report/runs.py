"""Runs as a report sees them: what each directory holds, whatever its state, and which of them are of one method."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from monotau.envs import EnvConfig
from monotau.errors import ConfigError
from monotau.log import METRICS, Line, read_lines
from monotau.provenance import FILE_NAME as PROVENANCE
from monotau.settings import brief
from monotau.storage import read_json

SUITE = "suite.json"
"""What a suite leaves beside its runs: which there are to be, and how their methods are called."""

State = Literal["finished", "unfinished", "not started", "damaged", "repeated"]

TRACES = ("config.json", METRICS, "result.json", "checkpoints")
"""Of which one is enough to take a directory for a run, if a damaged one."""

DIAGNOSIS = "diagnosis.json"
"""What a run leaves whose learning diverged."""

LARGEST = 1e100
"""Beyond, a number is damage: its square would be infinite."""

OWN_TO_A_RUN = ("seed", "threads", "device", "compile", "log_every_steps", "preset", "profile")
"""Settings that make no other method of it: chance, machine and what is written down; and names of what is there."""


@dataclass(frozen=True, kw_only=True)
class ReportedRun:
    """One run. Of a damaged one, only directory, state and reason are sure to be told."""

    directory: Path
    state: State
    reason: str = ""
    """Why it cannot be read, or does not count."""
    method: str = "unknown"
    """What it is compared by: the name that its suite gave it, or its preset, and settings that tell runs apart."""
    env: str = "unknown"
    """Id of the environment, with protocol and arguments where there are any."""
    seed: int = -1
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Every setting by its path, such as head.kind."""
    lines: Sequence[Line] = ()
    """What it has measured."""
    starts: Sequence[Mapping[str, Any]] = ()
    """By what it was made: one entry for each time it was started."""
    seconds: float | None = None
    """Run time, of a finished run."""

    def evaluations(self) -> list[Line]:
        """Return the evaluations of what was learned, in the order of their steps."""
        return [line for line in self.lines if line["kind"] == "eval" and line.get("policy") == "greedy"]

    @property
    def counts(self) -> bool:
        """Whether it takes part in comparisons: with what it has so far, if it is unfinished."""
        return self.state in ("finished", "unfinished") and bool(self.evaluations())

    def random_return(self) -> float | None:
        """Return what random play earns, which every run measures first."""
        return next(
            (line["return_mean"] for line in self.lines if line["kind"] == "eval" and line.get("policy") == "random"),
            None,
        )

    def training(self, name: str) -> tuple[list[int], list[float]]:
        """Return steps and values of a number that is logged while training, where there is one."""
        known = [line for line in self.lines if line["kind"] == "train" and line.get(name) is not None]
        return [line["step"] for line in known], [line[name] for line in known]

    @property
    def step(self) -> int:
        """The last step of which something is known."""
        return max((line["step"] for line in self.lines), default=0)


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
            for run in _read_suite(directory) if SUITE in names else [_read(directory)]:
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


def _read(directory: Path) -> ReportedRun:
    try:
        return _read_whole(directory)
    except (AttributeError, ConfigError, KeyError, TypeError, ValueError) as error:
        reason = str(error) if isinstance(error, ConfigError) else f"something is not of the form a run writes: {error}"
        return ReportedRun(directory=directory, state="damaged", reason=" ".join(reason.split())[:300])


def _read_whole(directory: Path) -> ReportedRun:
    config = read_json(directory / "config.json")
    env = config["env"]
    # Runs from before there were protocols and arguments had neither.
    env = EnvConfig(id=env["id"], protocol=env.get("protocol", "none"), kwargs=env.get("kwargs", {}))
    preset, seed, steps = config["preset"], config["seed"], config["steps"]
    if not isinstance(preset, str) or type(seed) is not int or type(steps) is not int or steps < 1:
        raise ConfigError(f"{directory / 'config.json'} is not a run's: it lacks a preset, a seed or steps.")
    lines = read_lines(directory / METRICS) if (directory / METRICS).exists() else []
    for before, line in pairwise([{"step": 0}, *lines]):
        if not _is_whole(line) or line["step"] < before["step"]:
            raise ConfigError(f"{directory / METRICS} holds {brief(line)}, which has no step, kind or return in order.")
    finished = (directory / "result.json").exists()
    seconds = read_json(directory / "result.json")["seconds"] if finished else None
    if finished and not _is_number(seconds):
        raise ConfigError(f"{directory / 'result.json'} is not a run's: its seconds are {brief(seconds)}.")
    starts = read_json(directory / PROVENANCE)["starts"] if (directory / PROVENANCE).exists() else []
    if not isinstance(starts, list) or not all(isinstance(start, dict) for start in starts):
        raise ConfigError(f"{directory / PROVENANCE} is not a run's: its starts are {brief(starts)}.")
    return ReportedRun(
        directory=directory,
        state="finished" if finished else "unfinished",
        reason="" if finished or not (directory / DIAGNOSIS).exists() else f"learning diverged: see its {DIAGNOSIS}",
        method=preset,
        env=env.title,
        seed=seed,
        settings=dict(flattened(config)),
        lines=lines,
        starts=starts,
        seconds=seconds,
    )


def _is_whole(line: Line) -> bool:
    """Whether a line of the metrics has what every line has, and an evaluation its return."""
    known = type(line.get("step")) is int and isinstance(line.get("kind"), str)
    return known and (line["kind"] != "eval" or _is_number(line.get("return_mean")))


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and -LARGEST < value < LARGEST  # type: ignore[operator]  # just asked


def flattened(plain: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Return each setting by its path."""
    for name, value in plain.items():
        here = f"{path}.{name}" if path else name
        if isinstance(value, Mapping) and here != "env.kwargs":
            yield from flattened(value, here)
        else:
            yield here, value


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
        known = run.state != "damaged"
        named.append(run if cell is None else replace(run, **({"method": cell["method"]} if known else cell)))
    return named


def _told_apart(runs: Sequence[ReportedRun]) -> list[ReportedRun]:
    """Add to a method's name the settings by which runs under it, in one environment, differ."""
    groups: dict[str, dict[str, list[ReportedRun]]] = {}
    for run in runs:
        if run.settings:
            groups.setdefault(run.method, {}).setdefault(run.env, []).append(run)
    telling = {
        method: sorted({path for group in envs.values() for path in differing(group)})
        for method, envs in groups.items()
    }
    return [
        replace(run, method=", ".join([run.method, *(f"{path} {_short(run, path)}" for path in telling[run.method])]))
        if run.settings
        else run
        for run in runs
    ]


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
