"""The record of a run: metrics.jsonl as the source of truth, TensorBoard events beside it."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboardX import SummaryWriter

from monotau.errors import ConfigError

Line = dict[str, Any]

TIMING = ("seconds", "updates_per_second", "steps_per_second")
"""Fields that differ between two runs of the same seed."""


class Log:
    """Keeps the lines of a run and, given a directory, writes each as it comes."""

    def __init__(self, directory: Path | None = None) -> None:
        self.lines: list[Line] = []
        self._file = open(directory / "metrics.jsonl", "w", encoding="utf-8") if directory else None  # noqa: SIM115
        self._events = SummaryWriter(str(directory)) if directory else None

    def write(self, kind: str, step: int, values: Mapping[str, float | int | str | None]) -> None:
        """Add a line of kind train or eval; what is not a finite number is written as null."""
        line: Line = {"step": step, "kind": kind}
        for name, value in values.items():
            line[name] = None if isinstance(value, float) and not math.isfinite(value) else value
        self.lines.append(line)
        if self._file and self._events:
            self._file.write(json.dumps(line, allow_nan=False) + "\n")
            self._file.flush()
            for name, value in line.items():
                if isinstance(value, int | float) and name != "step":
                    self._events.add_scalar(f"{kind}/{name}", value, step)

    def last(self, kind: str) -> Line | None:
        """Return the newest line of a kind."""
        return next((line for line in reversed(self.lines) if line["kind"] == kind), None)

    def close(self) -> None:
        """Finish the files."""
        if self._file and self._events:
            self._file.close()
            self._events.close()


def read_lines(path: Path) -> list[Line]:
    """Read the lines of a metrics file; a last line torn by a crash is left out."""
    try:
        texts = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the metrics {path} cannot be read: {error}.") from None
    lines: list[Line] = []
    for number, text in enumerate(texts, start=1):
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            if number < len(texts):
                raise ConfigError(f"{path}, line {number} is not JSON, and it is not the last one.") from None
    return lines
