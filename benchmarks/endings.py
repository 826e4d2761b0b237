"""Compares the final files of two runs, one of which may have been interrupted and resumed."""

import json
from pathlib import Path

from monotau.runs.manifest import generations
from monotau.runs.metrics import TIMING, read_lines


def contents(directory: Path) -> dict[str, bytes]:
    """Return the content of every file below a directory, by relative path."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def end_of(directory: Path) -> dict[str, object]:
    """Return the final state of a run without timings: weights, optimisers, replay, priorities and metrics."""
    newest = generations(directory / "checkpoints")[0]
    manifest = json.loads((newest / "manifest.json").read_text())
    for name in ("seconds", "sha256", "logs"):  # the logs hold times too
        del manifest[name]
    result = json.loads((directory / "result.json").read_text())
    del result["seconds"]
    lines = read_lines(directory / "metrics.jsonl")
    return {
        "metrics": [{name: value for name, value in line.items() if name not in TIMING} for line in lines],
        "manifest": manifest,
        "result": result,
        "generation": {name: data for name, data in contents(newest).items() if name != "manifest.json"},
        "segments": {name: (directory / "checkpoints" / "replay" / name).read_bytes() for name in manifest["segments"]},
        "agent": contents(directory / "agent"),
        "best_agent": contents(directory / "best_agent"),
    }


def differences(one: dict[str, object], other: dict[str, object]) -> list[str]:
    """Return the names of the parts that differ."""
    return [name for name in one.keys() | other.keys() if one.get(name) != other.get(name)]
