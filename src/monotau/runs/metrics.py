"""The log of a run: metrics.jsonl, the source of truth, and TensorBoard events derived from it."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from monotau.errors import ConfigError, brief
from monotau.learning.hooks import call_hook
from monotau.runs import tensorboard
from monotau.runs.files import AppendOnlyFile, Record
from monotau.runs.layout import EVENTS, METRICS

Line = dict[str, Any]

TIMING = ("seconds", "updates_per_second", "steps_per_second")
"""Fields that differ between two runs with the same seed."""


class Log:
    """Keeps the lines of a run in memory and, given a directory, writes each line at once."""

    def __init__(self, directory: Path | None = None, records: Mapping[str, Record] | None = None) -> None:
        """Start a new log, or resume one from the records that `sync` returned; lines written since are removed."""
        self.lines: list[Line] = []
        self.on_line: Callable[[Line], object] | None = None
        self._of: dict[str, list[Line]] = {}
        self._metrics: AppendOnlyFile | None = None
        self._events: AppendOnlyFile | None = None
        if directory:
            self._metrics = AppendOnlyFile(directory / METRICS, records[METRICS] if records else None)
            self._events = AppendOnlyFile(directory / EVENTS)  # rewritten from the metrics
            self._events.write(tensorboard.first_record())
            try:
                for line in _parse(directory / METRICS, self._metrics.kept.decode(errors="replace")):
                    if type(line.get("step")) is not int or line["step"] < 0 or not isinstance(line.get("kind"), str):
                        raise ConfigError(f"{directory / METRICS} holds {brief(line)}, which has no step or no kind.")
                    self._add(line)
            except ConfigError:
                self.close()
                raise

    def write(self, kind: str, step: int, values: Mapping[str, float | int | str | None]) -> None:
        """Add a line of kind train, eval or warning; NaN and infinite values are written as null."""
        line: Line = {"step": step, "kind": kind}
        for name, value in values.items():
            line[name] = None if isinstance(value, float) and not math.isfinite(value) else value
        if self._metrics:
            self._metrics.write((json.dumps(line, allow_nan=False) + "\n").encode())
        self._add(line)
        if self.on_line is not None:
            call_hook(self.on_line, dict(line))

    def of(self, kind: str) -> Sequence[Line]:
        """Return the lines of a kind."""
        return self._of.get(kind, ())

    def _add(self, line: Line) -> None:
        """Keep a line, and write it as a TensorBoard event."""
        self.lines.append(line)
        self._of.setdefault(line["kind"], []).append(line)
        if self._events:
            self._events.write(tensorboard.scalars_record(line["step"], scalars_of(line)))

    def sync(self) -> dict[str, Record]:
        """Force the metrics to disk and return their record."""
        return {METRICS: self._metrics.sync()} if self._metrics else {}

    def close(self) -> None:
        """Close the files."""
        for file in (self._metrics, self._events):
            if file:
                file.close()


def scalars_of(line: Line) -> dict[str, float | int]:
    """Return the numbers of a line under the names that dashboards show, such as eval/return_mean."""
    return {
        f"{line['kind']}/{name}": value
        for name, value in line.items()
        if isinstance(value, int | float) and name != "step"
    }


def best_evaluation(evaluations: Iterable[Line]) -> Line:
    """Return the evaluation with the highest mean return, the first of several."""
    return max(evaluations, key=lambda line: line["return_mean"])


def read_lines(path: Path) -> list[Line]:
    """Read the lines of a metrics file, without a last line that a crash left incomplete."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the metrics {path} cannot be read: {error}.") from None
    return _parse(path, text)


def _parse(path: Path, text: str) -> list[Line]:
    texts = text.splitlines()
    lines: list[Line] = []
    for number, line in enumerate(texts, start=1):
        try:
            held = json.loads(line)
        except (ValueError, RecursionError):
            if number < len(texts):
                raise ConfigError(
                    f"{path}, line {number} is not valid JSON; only the last line may be incomplete."
                ) from None
            break
        if not isinstance(held, dict):
            raise ConfigError(f"{path}, line {number} is {brief(held)}, but must be a mapping of names to values.")
        lines.append(held)
    return lines
