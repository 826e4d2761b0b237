"""Reads run directories: the one reader behind `monotau report`, `monotau scores` and `monotau suite`.

The score of a run is its last evaluation, everywhere in this package: the mean return of the greedy policy at the last
evaluated step. Its best evaluation is the one with the highest mean return, the first of several. The best is a maximum
over noisy estimates, so it is biased upwards.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

from monotau.envs import EnvConfig
from monotau.errors import ConfigError, brief
from monotau.runs.files import read_json
from monotau.runs.layout import CHECKPOINTS, CONFIG, DIAGNOSIS, METRICS, PROVENANCE, RESULT
from monotau.runs.metrics import Line, best_evaluation, read_lines
from monotau.runs.process import is_held

SUITE = "suite.json"
"""Written by a suite next to its runs: the planned runs and the names of their methods."""

RUN_FILES = (CONFIG, METRICS, RESULT, CHECKPOINTS)
"""A directory with any of these is a run, if perhaps a damaged one."""

LARGEST = 1e100
"""Numbers beyond this are treated as damage: their squares overflow."""

TAIL_BYTES = 16_384
"""`read_progress` reads only this much of the end of metrics.jsonl."""

State = Literal["finished", "unfinished", "not started", "damaged", "repeated"]

Measure = Literal["last", "best"]
"""Which evaluation of a run is its score."""


def is_evaluation(line: Line) -> bool:
    """Whether a line of metrics.jsonl is an evaluation of the greedy policy; a run also evaluates random play once."""
    return line.get("kind") == "eval" and line.get("policy") == "greedy"


@final
@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What a run directory says. For a damaged run only `directory`, `state` and `reason` are certain to be set."""

    directory: Path
    state: State
    reason: str = ""
    """Why the run is not finished or cannot be used."""
    method: str = "unknown"
    """The preset; `read_methods` replaces it by the suite's name and appends settings that differ between runs."""
    env: str = "unknown"
    """Id of the environment, followed by its protocol and arguments, if any."""
    seed: int = -1
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Every setting by its path, such as head.kind."""
    lines: Sequence[Line] = ()
    """Lines of metrics.jsonl."""
    starts: Sequence[Mapping[str, Any]] = ()
    """Versions and machine for each time the run was started, from provenance.json."""
    result: Mapping[str, Any] = field(default_factory=dict)
    """Contents of result.json; empty until the run has finished."""

    def evaluations(self) -> list[Line]:
        """Return the evaluations of the greedy policy in order of their steps."""
        return [line for line in self.lines if is_evaluation(line)]

    def score(self, measure: Measure = "last") -> float:
        """Return the mean return of the last evaluation, or of the best one."""
        evaluations = self.evaluations()
        if not evaluations:
            raise ConfigError(f"{self.directory} has no evaluation yet, so it has no score.")
        line = evaluations[-1] if measure == "last" else best_evaluation(evaluations)
        return float(line["return_mean"])

    def random_return(self) -> float | None:
        """Return the mean return of random play, which every run measures first."""
        random = (line for line in self.lines if line["kind"] == "eval" and line.get("policy") == "random")
        return next((line["return_mean"] for line in random), None)

    def training(self) -> list[Line]:
        """Return the lines logged during training."""
        return [line for line in self.lines if line["kind"] == "train"]

    def warnings(self) -> list[Line]:
        """Return the warnings logged during training."""
        return [line for line in self.lines if line["kind"] == "warning"]

    @property
    def usable(self) -> bool:
        """Whether the run takes part in comparisons; an unfinished run does from its first evaluation on."""
        return self.state in ("finished", "unfinished") and bool(self.evaluations())

    @property
    def step(self) -> int:
        """The last step that was logged."""
        return max((line["step"] for line in self.lines), default=0)

    @property
    def seconds(self) -> float | None:
        """Run time of a finished run."""
        return self.result.get("seconds")


def find_runs(paths: Iterable[Path]) -> list[Path]:
    """Return each run directory among or below the paths, once."""
    found: dict[Path, Path] = {}
    for path in paths:
        runs = [directory for directory, is_suite in walk_runs(path) if not is_suite]
        if not runs:
            raise ConfigError(f"{path} is not a run directory and contains none.")
        for directory in runs:
            found.setdefault(directory.resolve(), directory)
    return [*found.values()]


def walk_runs(path: Path) -> Iterator[tuple[Path, bool]]:
    """Yield the directories of runs, with False, and of suites, with True; runs are not searched for further runs."""
    for place, directories, files in os.walk(path):
        directories.sort()
        names = {*directories, *files}
        if names.intersection(RUN_FILES):
            directories.clear()
            yield Path(place), False
        elif SUITE in names:
            yield Path(place), True


def read_run(directory: Path) -> RunRecord:
    """Read a run directory; damage is recorded in `state` and `reason` instead of raised."""
    record = RunRecord(directory=directory, state="damaged")
    try:
        record = _read_config(directory)
        return _read_metrics_and_result(record)
    except (AttributeError, ConfigError, KeyError, TypeError, ValueError) as error:
        reason = str(error) if isinstance(error, ConfigError) else f"a file is not in the format of a run: {error}"
        return replace(record, state="damaged", reason=" ".join(reason.split())[:300])


def _read_config(directory: Path) -> RunRecord:
    path = directory / CONFIG
    config = read_json(path)
    env, preset, seed, steps = (config.get(name) for name in ("env", "preset", "seed", "steps"))
    if (
        not isinstance(env, dict)
        or not isinstance(env.get("id"), str)
        or not isinstance(preset, str)
        or type(seed) is not int
        or type(steps) is not int
        or steps < 1
    ):
        raise ConfigError(f"{path} is not the configuration of a run: preset, seed, steps or env.id is missing.")
    # Early runs recorded neither a protocol nor arguments, and ignored masks.
    protocol: Any = env.get("protocol", "none")
    kwargs: Any = env.get("kwargs", {})
    for name, value, kind in (("protocol", protocol, str), ("kwargs", kwargs, dict)):
        if not isinstance(value, kind):
            raise ConfigError(f"{path}: env.{name} is {brief(value)}, but must be a {kind.__name__}.")
    return RunRecord(
        directory=directory,
        state="unfinished",
        method=preset,
        env=EnvConfig(id=env["id"], protocol=protocol, kwargs=kwargs).title,
        seed=seed,
        settings={"env.action_masks": "ignore"} | dict(flatten_settings(config)),
    )


def _read_metrics_and_result(record: RunRecord) -> RunRecord:
    directory = record.directory
    lines = read_lines(directory / METRICS) if (directory / METRICS).exists() else []
    _check_lines(lines, directory / METRICS)
    starts = read_json(directory / PROVENANCE).get("starts") if (directory / PROVENANCE).exists() else []
    if not isinstance(starts, list) or not all(isinstance(start, dict) for start in starts):
        raise ConfigError(f"{directory / PROVENANCE}: starts is {brief(starts)}, but must be a list of mappings.")
    record = replace(record, lines=lines, starts=starts)
    if not (directory / RESULT).exists():
        return replace(record, reason=_why_unfinished(directory))
    result = read_json(directory / RESULT)
    if not _is_number(result.get("seconds")):
        raise ConfigError(f"{directory / RESULT}: seconds is {brief(result.get('seconds'))}, but must be a number.")
    steps, last = record.settings["steps"], max((line["step"] for line in record.evaluations()), default=0)
    if result.get("stopped") is not None:  # a hook ended the run early
        steps = result.get("steps")
    if last != steps:
        raise ConfigError(
            f"{directory} has a result after {steps} steps, but the last evaluation in {METRICS} is at step {last}."
        )
    return replace(record, state="finished", result=result)


def _why_unfinished(directory: Path) -> str:
    if (directory / DIAGNOSIS).exists():
        return f"learning diverged: see {DIAGNOSIS} in its directory"
    return "training now" if is_held(directory) else "interrupted"


def _check_lines(lines: Sequence[Line], path: Path) -> None:
    """Reject lines without the fields of their kind, and steps that decrease."""
    previous = 0
    for number, line in enumerate(lines, start=1):
        step, kind = line.get("step"), line.get("kind")
        if type(step) is not int or step < previous:
            raise ConfigError(
                f"{path}, line {number}: step is {brief(step)}, but must be an integer of at least {previous}."
            )
        if not isinstance(kind, str):
            raise ConfigError(f"{path}, line {number}: kind is {brief(kind)}, but must be a string.")
        if kind == "eval" and not _is_number(line.get("return_mean")):
            value = brief(line.get("return_mean"))
            raise ConfigError(f"{path}, line {number}: return_mean is {value}, but must be a finite number.")
        if kind == "warning" and not isinstance(line.get("text"), str):
            raise ConfigError(f"{path}, line {number}: text is {brief(line.get('text'))}, but must be a string.")
        previous = step


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST < value < LARGEST


def flatten_settings(plain: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every setting with its path; the arguments of the environment stay together."""
    for name, value in plain.items():
        here = f"{path}.{name}" if path else name
        if isinstance(value, Mapping) and here != "env.kwargs":
            yield from flatten_settings(value, here)
        else:
            yield here, value


class Progress(NamedTuple):
    """How far a run has got."""

    step: int = 0
    total: int = 0
    """Steps of the whole run; 0 while unknown."""
    last_return: float | None = None
    """Mean return of the last evaluation."""


def read_progress(directory: Path) -> Progress:
    """Read step and last evaluation from the end of metrics.jsonl, cheaply enough for thousands of runs at once.

    Missing files and lines that are being written yield no information.
    """
    try:
        total = read_json(directory / CONFIG).get("steps")
        with open(directory / METRICS, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            texts = file.read().split(b"\n")
    except (OSError, ConfigError):
        return Progress()
    step, last_return = 0, None
    for text in texts:
        try:
            line: Any = json.loads(text)
        except ValueError:  # the first line is usually cut, and the last one may be
            continue
        if isinstance(line, dict) and type(line.get("step")) is int:
            step = max(step, line["step"])
            last_return = line.get("return_mean") if is_evaluation(line) else last_return
    return Progress(step, total if type(total) is int else 0, last_return)


def count_warnings(directory: Path) -> int:
    """Return how many warnings a finished run lists in its result."""
    found = _result(directory).get("warnings", ())
    return len(found) if isinstance(found, list) else 0


def was_stopped(directory: Path) -> bool:
    """Whether a hook ended a finished run early."""
    return _result(directory).get("stopped") is not None


def _result(directory: Path) -> Mapping[str, Any]:
    """Return the result of a finished run, or nothing if it cannot be read."""
    try:
        return read_json(directory / RESULT)
    except ConfigError:
        return {}
