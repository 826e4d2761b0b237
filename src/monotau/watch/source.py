"""The run that a viewer shows: its agent, which is loaded again when the run has saved a newer one, and its metrics."""

import os
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from monotau.agent import Agent
from monotau.errors import ConfigError
from monotau.report.formatting import name_list
from monotau.runs.agent_files import find_agent, unmade
from monotau.runs.layout import AGENT, BEST_AGENT, CHECKPOINTS, CONFIG, METRICS, RESULT
from monotau.runs.manifest import generations, read_manifest
from monotau.runs.metrics import Line, read_lines
from monotau.runs.process import is_held

SERIES: dict[str, tuple[tuple[str, str], ...]] = {
    "return": (("eval", "return_mean"), ("eval", "return_min"), ("eval", "return_max"), ("train", "return_mean")),
    "bonus": (("train", "bonus_mean"),),
    "crossing": (("train", "crossing"),),
    "dead_features": (("train", "dead_features"),),
}
"""Metrics of each learning curve, by kind and name."""
MOST_POINTS = 400
"""Longer curves are thinned out."""
RARELY = 20.0
"""The metrics are read again after this many times the seconds that the last reading took, at least."""

Point = list[int | float]
Curves = dict[str, dict[str, list[Point]]]
"""By learning curve and `kind.name`: points of step and value."""


@final
@dataclass
class Source:
    """A run directory, or one that `Agent.save` wrote."""

    directory: Path
    best: bool = False
    checkpoint: int | None = None
    """Show the checkpoint of this step instead of the newest agent."""
    env: str | None = None
    """The environment in place of the one named in the files."""

    def __post_init__(self) -> None:
        self.directory = Path(self.directory)
        if self.best and self.checkpoint is not None:
            raise ConfigError(f"--best and --checkpoint {self.checkpoint} name two agents: use one of them.")
        if not os.path.isdir(self.directory):
            raise ConfigError(f"there is no run in {self.directory}: it is not a directory.")
        held = os.listdir(self.directory)
        if CONFIG not in held and "agent.json" not in held and AGENT not in held:
            raise ConfigError(f"there is no run in {self.directory}: it holds neither {CONFIG} nor agent.json.")
        self.agent_name = ""
        """Which agent of the run was loaded, for people; empty if there is only one."""
        self._loaded: tuple[str, int] | None = None
        self._metrics_mark: tuple[int, int] | None = None
        self._next_reading = 0.0

    @property
    def name(self) -> str:
        """The name of the directory."""
        return self.directory.resolve().name

    @property
    def unfinished(self) -> bool:
        """Whether this is a run that has not ended."""
        return os.path.exists(self.directory / CONFIG) and not os.path.exists(self.directory / RESULT)

    @property
    def training(self) -> bool:
        """Whether a process is training into the directory now."""
        return self.unfinished and is_held(self.directory)

    def newer_agent(self) -> Agent | None:
        """Load the agent if there is one that this method has not returned yet.

        A run that has no agent yet gives None as well. Damaged files raise ConfigError.
        """
        mark = self._mark()
        if mark is None or mark == self._loaded:
            return None
        agent = self._load()
        self._loaded = mark
        return agent

    def _load(self) -> Agent:
        with warnings.catch_warnings(action="ignore"):  # that the run has not finished is shown, not printed
            place = self._place()
            agent = Agent.load(place, self.env)
        if agent.envs is None:
            raise unmade(self.directory, agent.config.env)
        self.agent_name = self._name_of(place)
        return agent

    def _name_of(self, place: Path) -> str:
        if place.name == BEST_AGENT:
            return "best agent"
        if place.parent.name == CHECKPOINTS:
            return f"checkpoint of step {read_manifest(place).step:,d}"
        return "last agent" if place.name == AGENT else ""

    def _place(self) -> Path:
        """Return the directory of the agent."""
        if self.checkpoint is not None:
            return self._generation(self.checkpoint)
        return find_agent(self.directory, best=self.best)[0]

    def _mark(self) -> tuple[str, int] | None:
        """Return what changes when there is another agent to load: its path and the time of its file."""
        if self.checkpoint is not None:
            return "checkpoint", self.checkpoint
        if self.best or os.path.exists(self.directory / AGENT) or os.path.exists(self.directory / "agent.json"):
            path, _ = find_agent(self.directory, best=self.best)
        else:
            newest = generations(self.directory / CHECKPOINTS)
            if not newest:
                return None
            path = newest[0]
        try:
            return str(path), os.stat(path / "agent.json").st_mtime_ns
        except OSError:
            return str(path), 0

    def _generation(self, step: int) -> Path:
        """Return the checkpoint of a step."""
        steps: dict[int, Path] = {}
        for path in generations(self.directory / CHECKPOINTS):
            try:
                steps[read_manifest(path).step] = path
            except ConfigError:  # damaged; it cannot be shown
                continue
        if step not in steps:
            kept = f"only {name_list([*map(str, sorted(steps))])}; a run keeps the last two" if steps else "none at all"
            raise ConfigError(f"{self.directory} has no checkpoint of step {step}: it has {kept}.")
        return steps[step]

    def newer_curves(self) -> Curves | None:
        """Read the learning curves if the metrics have changed since this method last returned them."""
        path = self.directory / METRICS
        try:
            status = os.stat(path)
        except OSError:  # a saved agent, or a run that has just started
            return None
        mark, now = (status.st_size, status.st_mtime_ns), time.monotonic()
        if mark == self._metrics_mark or now < self._next_reading:
            return None
        curves = curves_of(read_lines(path))
        done = time.monotonic()
        self._metrics_mark, self._next_reading = mark, done + RARELY * (done - now)
        return curves


def curves_of(lines: list[Line]) -> Curves:
    """Return the learning curves; values that are missing or no numbers are left out."""
    return {
        curve: {f"{kind}.{name}": _thinned(_points(lines, kind, name)) for kind, name in parts}
        for curve, parts in SERIES.items()
    }


def _points(lines: list[Line], kind: str, name: str) -> list[Point]:
    def is_number(value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)

    return [
        [line["step"], line[name]]
        for line in lines
        if line.get("kind") == kind and is_number(line.get(name)) and is_number(line.get("step"))
    ]


def _thinned(points: list[Point]) -> list[Point]:
    """Return at most MOST_POINTS points, evenly spaced, the last one among them."""
    stride = -(-len(points) // MOST_POINTS) or 1
    return points[(len(points) - 1) % stride :: stride]
