"""How far a run has come, seen from outside by the end of its metrics."""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from monotau.errors import ConfigError
from monotau.runs.files import read_json
from monotau.runs.layout import CONFIG, METRICS, RESULT

TAIL_BYTES = 16_384


class Progress(NamedTuple):
    """What a run has written last."""

    step: int = 0
    total: int = 0
    """Steps it is to make; 0 as long as that is not known."""
    returned: float | None = None
    """Mean return of its last evaluation."""


def count_warnings(directory: Path) -> int:
    """Return of how much a finished run has warned while it trained."""
    try:
        found = read_json(directory / RESULT).get("warnings", ())
    except ConfigError:
        return 0
    return len(found) if isinstance(found, list) else 0


def read_progress(directory: Path) -> Progress:
    """Return how far a run is; of what is not there, or being written at this moment, nothing is known."""
    try:
        total = read_json(directory / CONFIG).get("steps")
        with open(directory / METRICS, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            texts = file.read().split(b"\n")
    except (OSError, ConfigError):
        return Progress()
    step, returned = 0, None
    for text in texts:
        try:
            line: Any = json.loads(text)
        except ValueError:  # the first is cut, and the last may be
            continue
        if isinstance(line, dict) and type(line.get("step")) is int:
            step = max(step, line["step"])
            returned = line.get("return_mean") if line.get("policy") == "greedy" else returned
    return Progress(step, total if type(total) is int else 0, returned)
