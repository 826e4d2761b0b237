"""The record of a run: metrics.jsonl as the source of truth, TensorBoard events beside it."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from monotau.errors import ConfigError, brief
from monotau.runs import tensorboard
from monotau.runs.files import Appended, Record

Line = dict[str, Any]

METRICS = "metrics.jsonl"

TIMING = ("seconds", "updates_per_second", "steps_per_second")
"""Fields that differ between two runs of the same seed."""


class Log:
    """Keeps the lines of a run and, given a directory, writes each as it comes."""

    def __init__(self, directory: Path | None = None, records: Mapping[str, Record] | None = None) -> None:
        """Start anew, or go on from where `sync` returned these records: what was written since is cut off."""
        self.lines: list[Line] = []
        self._of: dict[str, list[Line]] = {}
        self._metrics: Appended | None = None
        self._events: Appended | None = None
        if directory:
            self._metrics = Appended(directory / METRICS, records[METRICS] if records else None)
            self._events = Appended(directory / tensorboard.FILE_NAME)  # made anew: it holds nothing but the same lines
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
        """Add a line of kind train, eval or warning; what is not a finite number is written as null."""
        line: Line = {"step": step, "kind": kind}
        for name, value in values.items():
            line[name] = None if isinstance(value, float) and not math.isfinite(value) else value
        if self._metrics:
            self._metrics.write((json.dumps(line, allow_nan=False) + "\n").encode())
        self._add(line)

    def of(self, kind: str) -> Sequence[Line]:
        """Return the lines of a kind."""
        return self._of.get(kind, ())

    def _add(self, line: Line) -> None:
        """Remember a line, and show it to TensorBoard."""
        self.lines.append(line)
        self._of.setdefault(line["kind"], []).append(line)
        if self._events:
            scalars = {
                f"{line['kind']}/{name}": value
                for name, value in line.items()
                if isinstance(value, int | float) and name != "step"
            }
            self._events.write(tensorboard.scalars_record(line["step"], scalars))

    def sync(self) -> dict[str, Record]:
        """Force the metrics to disk, and return what they are."""
        return {METRICS: self._metrics.sync()} if self._metrics else {}

    def close(self) -> None:
        """Finish the files."""
        for file in (self._metrics, self._events):
            if file:
                file.close()


def read_lines(path: Path) -> list[Line]:
    """Read the lines of a metrics file; a last line torn by a crash is left out."""
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
                raise ConfigError(f"{path}, line {number} is not JSON, and it is not the last one.") from None
            break
        if not isinstance(held, dict):
            raise ConfigError(f"{path}, line {number} is {brief(held)}, but must be a mapping of names to values.")
        lines.append(held)
    return lines
