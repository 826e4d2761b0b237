"""The layout of a run directory: the name of every file in it, and the state of the run."""

import re
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from monotau.errors import ConfigError, brief
from monotau.runs.files import read_json, temporary_path

CONFIG = "config.json"
PROVENANCE = "provenance.json"
METRICS = "metrics.jsonl"
EVENTS = "events.out.tfevents.0.monotau"
LEARNING_CURVE = "learning_curve.png"
QUANTILES = "quantile_functions.png"
AGENT = "agent"
BEST_AGENT = "best_agent"
CHECKPOINTS = "checkpoints"
RESULT = "result.json"
DIAGNOSIS = "diagnosis.json"
EXTENSIONS = "extensions.json"
AUDIT = "audit.json"  # written by `monotau audit`
LOCK = ".lock"

CONTENTS = {
    CONFIG: "every setting",
    PROVENANCE: "versions, commit and machine of every start",
    METRICS: "the metrics, one JSON line each",
    EVENTS: "the same for TensorBoard",
    LEARNING_CURVE: "returns over training",
    QUANTILES: "return distributions of all actions in one state",
    AGENT: "networks and settings, for `monotau evaluate` and Agent.load",
    BEST_AGENT: "the agent as of its best evaluation",
    CHECKPOINTS: "what an interrupted run resumes from; a finished run no longer needs them",
    RESULT: "final and best returns",
}
"""Descriptions of the files, which a finished run prints."""


def directory_name(method: str, env: str, seed: int) -> str:
    """Return the default name of a run directory."""
    return "_".join(re.sub("[/: ]", "-", part) for part in (method, env, f"seed{seed}"))


def state_of(directory: Path, wanted: Mapping[str, Any], changed: Mapping[str, Any] | None = None) -> str:
    """Return `new`, `unfinished` or `finished` for a run with the settings `wanted`; refuse another run's directory.

    The refusal names the settings in which the run differs from `changed`, by default from all that are wanted.
    """
    try:
        if not directory.exists():
            return "new"
        if not directory.is_dir():
            raise ConfigError(f"the run directory {directory} is a file, but must be a directory.")
        names = {path.name for path in directory.iterdir()}
    except OSError as error:
        raise ConfigError(f"the run directory {directory} cannot be used: {error}.") from None
    if CONFIG not in names:
        if names - {temporary_path(directory / CONFIG).name, LOCK}:
            raise ConfigError(f"the run directory {directory} is not empty and holds no run; use another directory.")
        return "new"
    held = read_json(directory / CONFIG)
    if held != wanted:
        if missing := _modules(held) - _modules(wanted):
            flags = " ".join(f"--import {brief(name)[1:-1]}" for name in sorted(missing))
            raise ConfigError(f"the run in {directory} was started with {flags}: pass it again to continue the run.")
        settings = differences(held, wanted if changed is None else changed)
        raise ConfigError(
            f"the run directory {directory} holds another run{_other_version(directory)}: it differs in "
            f"{', '.join(settings[:5])}{' and more' if len(settings) > 5 else ''}; use another directory."
        )
    return "finished" if RESULT in names else "unfinished"


def _modules(settings: Mapping[str, Any]) -> set[str]:
    """Return the modules that settings record."""
    recorded = settings.get("imports")
    return {str(name) for name in recorded} if isinstance(recorded, list) else set()


def _other_version(directory: Path) -> str:
    """Name the version of monotau that started a run, if it is another one and known: settings change with versions."""
    try:
        writer = read_json(directory / PROVENANCE)["starts"][0]["packages"]["monotau"]
    except (ConfigError, KeyError, IndexError, TypeError):
        return ""
    return f", started by monotau {brief(writer)}" if writer != version("monotau") else ""


def differences(held: Any, wanted: Any, path: str = "") -> list[str]:
    """Return the paths of the settings in which two configurations differ, with both values."""
    if isinstance(held, Mapping) and isinstance(wanted, Mapping):
        names = sorted(held.keys() | wanted.keys())
        inner = (differences(held.get(n), wanted.get(n), f"{path}.{n}" if path else n) for n in names)
        return [each for found in inner for each in found]
    setting = " ".join(path.split())[:100]
    return [] if held == wanted else [f"{setting} ({brief(held)} there, {brief(wanted)} here)"]
