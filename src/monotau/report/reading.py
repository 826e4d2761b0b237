"""One run directory as a report reads it: whatever its state, with all that can be known of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from monotau.envs import EnvConfig
from monotau.errors import ConfigError, brief
from monotau.runs.files import read_json
from monotau.runs.layout import METRICS, PROVENANCE
from monotau.runs.metrics import Line, read_lines
from monotau.runs.process import is_held

State = Literal["finished", "unfinished", "not started", "damaged", "repeated"]

TRACES = ("config.json", METRICS, "result.json", "checkpoints")
"""Of which one is enough to take a directory for a run, if a damaged one."""

DIAGNOSIS = "diagnosis.json"
"""What a run leaves whose learning diverged."""

LARGEST = 1e100
"""Beyond, a number is damage: its square would be infinite."""


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

    def warnings(self) -> list[Line]:
        """Return what it has warned of while it trained."""
        return [line for line in self.lines if line["kind"] == "warning"]

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

    @property
    def step(self) -> int:
        """The last step of which something is known."""
        return max((line["step"] for line in self.lines), default=0)


def read_run(directory: Path) -> ReportedRun:
    """Read a run; what is damaged is said, and what it is a run of, as far as its settings tell."""
    known = ReportedRun(directory=directory, state="damaged")
    try:
        known = _identity(directory)
        return _read_rest(known)
    except (AttributeError, ConfigError, KeyError, TypeError, ValueError) as error:
        reason = str(error) if isinstance(error, ConfigError) else f"something is not of the form a run writes: {error}"
        return replace(known, state="damaged", reason=" ".join(reason.split())[:300])


def _identity(directory: Path) -> ReportedRun:
    """Return what its settings say of a run."""
    config = read_json(directory / "config.json")
    env = config["env"]
    # Runs from before there were protocols and arguments had neither.
    env = EnvConfig(id=env["id"], protocol=env.get("protocol", "none"), kwargs=env.get("kwargs", {}))
    preset, seed, steps = config["preset"], config["seed"], config["steps"]
    if not isinstance(preset, str) or type(seed) is not int or type(steps) is not int or steps < 1:
        raise ConfigError(f"{directory / 'config.json'} is not a run's: it lacks a preset, a seed or steps.")
    return ReportedRun(
        directory=directory,
        state="unfinished",
        method=preset,
        env=env.title,
        seed=seed,
        settings=dict(flattened(config)),
    )


def _read_rest(run: ReportedRun) -> ReportedRun:
    directory = run.directory
    lines = read_lines(directory / METRICS) if (directory / METRICS).exists() else []
    _check(lines, directory / METRICS)
    starts = read_json(directory / PROVENANCE)["starts"] if (directory / PROVENANCE).exists() else []
    if not isinstance(starts, list) or not all(isinstance(start, dict) for start in starts):
        raise ConfigError(f"{directory / PROVENANCE} is not a run's: its starts are {brief(starts)}.")
    run = replace(run, lines=lines, starts=starts)
    if not (directory / "result.json").exists():
        return replace(run, reason=_why_unfinished(directory))
    seconds = read_json(directory / "result.json")["seconds"]
    if not _is_number(seconds):
        raise ConfigError(f"{directory / 'result.json'} is not a run's: its seconds are {brief(seconds)}.")
    last = max((line["step"] for line in run.evaluations()), default=0)
    if last != run.settings["steps"]:
        steps = run.settings["steps"]
        raise ConfigError(
            f"{directory} has a result after {steps} steps, but its last evaluation in {METRICS} is of step {last}."
        )
    return replace(run, state="finished", seconds=seconds)


def _why_unfinished(directory: Path) -> str:
    if (directory / DIAGNOSIS).exists():
        return f"learning diverged: see its {DIAGNOSIS}"
    return "training now" if is_held(directory) else "cut off"


def _check(lines: Sequence[Line], path: Path) -> None:
    """Refuse lines that lack what every line has or what their kind is for, and steps that go back."""
    before = 0
    for number, line in enumerate(lines, start=1):
        step, kind = line.get("step"), line.get("kind")
        if type(step) is not int or step < before:
            raise ConfigError(
                f"{path}, line {number}: step is {brief(step)}, but must be a number of at least {before}."
            )
        if not isinstance(kind, str):
            raise ConfigError(f"{path}, line {number}: kind is {brief(kind)}, but must be a name.")
        if kind == "eval" and not _is_number(line.get("return_mean")):
            raise ConfigError(f"{path}, line {number}: return_mean is {brief(line.get('return_mean'))}, not a number.")
        if kind == "warning" and not isinstance(line.get("text"), str):
            raise ConfigError(f"{path}, line {number}: text is {brief(line.get('text'))}, but must be a text.")
        before = step


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST < value < LARGEST


def flattened(plain: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Return each setting by its path."""
    for name, value in plain.items():
        here = f"{path}.{name}" if path else name
        if isinstance(value, Mapping) and here != "env.kwargs":
            yield from flattened(value, here)
        else:
            yield here, value
