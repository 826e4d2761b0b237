"""Sends the log of a run to an experiment tracker: Weights & Biases, Trackio or MLflow.

A tracker never ends a training: one that fails is reported once and not called again. metrics.jsonl holds every line.
"""

import hashlib
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, final

from monotau.config.schema import Config
from monotau.errors import MissingExtra, in_one_line, unknown_name
from monotau.results.read import flatten_settings
from monotau.runs.files import to_json
from monotau.runs.metrics import Line, scalars_of
from monotau.runs.process import Stopped
from monotau.runs.provenance import first_start

PROJECT = "monotau"
"""Project or experiment of the runs, unless the tracker's own environment variable names another."""

Status = Literal["finished", "interrupted", "failed"]


@final
@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """What a tracker is told about a run."""

    name: str
    id: str
    """The same whenever the run is resumed, so that the tracker continues its own run."""
    settings: Mapping[str, Any]
    """All settings, as in config.json."""

    @classmethod
    def of(cls, directory: Path, config: Config) -> "TrackedRun":
        """Describe the run in a directory that has been started."""
        name, settings = directory.resolve().name, config.to_plain()
        known = to_json({"name": name, "settings": settings, "start": first_start(directory)})
        return cls(name=name, id=hashlib.sha256(known).hexdigest()[:16], settings=settings)


class Tracker(ABC):
    """A connection to an experiment tracker."""

    @abstractmethod
    def __init__(self, run: TrackedRun) -> None:
        """Start the tracker's run, or continue the one with the same id."""

    @abstractmethod
    def log(self, step: int, numbers: Mapping[str, float | int]) -> None:
        """Send numbers of one step."""

    @abstractmethod
    def finish(self, status: Status) -> None:
        """End the tracker's run; if it was interrupted, it may be continued later."""


@final
class Wandb(Tracker):
    """Weights & Biases; WANDB_PROJECT, WANDB_MODE and other variables apply."""

    def __init__(self, run: TrackedRun) -> None:
        project = os.environ.get("WANDB_PROJECT", PROJECT)
        self._run = import_module("wandb").init(
            project=project, name=run.name, id=run.id, resume="allow", config=dict(run.settings)
        )
        # Its own step only grows, but a resumed run may repeat steps.
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int, numbers: Mapping[str, float | int]) -> None:
        """Send numbers of one step."""
        self._run.log({"step": step, **numbers})

    def finish(self, status: Status) -> None:
        """End the run with an exit code."""
        self._run.finish(exit_code=0 if status == "finished" else 1)


@final
class Trackio(Tracker):
    """Trackio, which knows a run by its name."""

    def __init__(self, run: TrackedRun) -> None:
        name = f"{run.name}-{run.id[:6]}"
        self._run = import_module("trackio").init(
            project=PROJECT, name=name, resume="allow", config=dict(flatten_settings(run.settings))
        )

    def log(self, step: int, numbers: Mapping[str, float | int]) -> None:
        """Send numbers of one step."""
        self._run.log(dict(numbers), step=step)

    def finish(self, status: Status) -> None:
        """Send what is left."""
        self._run.finish()


@final
class Mlflow(Tracker):
    """MLflow; MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME apply. It makes its own ids, so a tag holds ours."""

    TAG = "monotau.run"
    ENDS: Mapping[Status, str] = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}
    MOST_PARAMETERS = 100
    """Limit of one request."""

    def __init__(self, run: TrackedRun) -> None:
        mlflow = import_module("mlflow")
        entities = import_module("mlflow.entities")
        self._metric: Callable[..., Any] = entities.Metric
        self._client = mlflow.MlflowClient()
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        experiment = mlflow.set_experiment(name).experiment_id
        found = self._client.search_runs([experiment], filter_string=f"tags.`{self.TAG}` = '{run.id}'")
        if found:
            self._id = found[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
            return
        made = self._client.create_run(experiment, tags={self.TAG: run.id}, run_name=run.name)
        self._id = made.info.run_id
        settings = [entities.Param(key, str(value)) for key, value in flatten_settings(run.settings)]
        for first in range(0, len(settings), self.MOST_PARAMETERS):
            self._client.log_batch(self._id, params=settings[first : first + self.MOST_PARAMETERS])

    def log(self, step: int, numbers: Mapping[str, float | int]) -> None:
        """Send numbers of one step."""
        now = int(1000 * time.time())
        metrics = [self._metric(name, float(number), now, step) for name, number in numbers.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def finish(self, status: Status) -> None:
        """Set the run's status."""
        self._client.set_terminated(self._id, status=self.ENDS[status])


TRACKERS: Mapping[str, type[Tracker]] = {"wandb": Wandb, "trackio": Trackio, "mlflow": Mlflow}


def check_tracker(name: str, option: str = "track") -> None:
    """Raise if a tracker is unknown or its package is not installed."""
    if name not in TRACKERS:
        raise unknown_name(option, name, TRACKERS)
    if find_spec(name) is None:
        raise MissingExtra(f"{option} is {name!r}, but {name} is not installed: pip install 'monotau[{name}]'.")


@contextmanager
def tracked(name: str, run: TrackedRun, warn: Callable[[str], None]) -> Iterator[Callable[[Line], None]]:
    """Connect a run to a tracker while the block runs, and yield a function that sends a line; warn if it fails."""
    tracker: Tracker | None = None

    def attempt(action: Callable[[], Any]) -> Any:
        nonlocal tracker
        try:
            return action()
        except Exception as error:  # foreign code and a network: anything may be raised
            tracker = None
            warn(f"{name} failed and receives no more lines of this run: {in_one_line(error)[:300]}")

    def send(line: Line) -> None:
        numbers = scalars_of(line)
        if numbers and (connected := tracker) is not None:
            attempt(lambda: connected.log(line["step"], numbers))

    status: Status = "failed"
    tracker = attempt(lambda: TRACKERS[name](run))
    try:
        yield send
        status = "finished"
    except (Stopped, KeyboardInterrupt):
        status = "interrupted"
        raise
    finally:
        if (connected := tracker) is not None:
            attempt(lambda: connected.finish(status))
