"""The manifest of a checkpoint generation: its progress, and every file it needs with its size and SHA-256.

A generation is a directory named by its iteration.
"""

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from monotau.errors import ConfigError, brief
from monotau.runs.files import Record, check, read_json, reading, to_json, to_record
from monotau.runs.layout import CHECKPOINTS, METRICS

SCHEMA = 1
"""Version of the manifest format."""

MANIFEST, WEIGHTS, TRAINING = "manifest.json", "weights.safetensors", "training.safetensors"
FILES = ("agent.json", WEIGHTS, TRAINING)
LOGS = (METRICS,)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Progress and files of a generation."""

    iteration: int
    step: int
    updates: int
    seconds: float
    package: str
    config_sha256: str
    files: dict[str, Record]
    segments: dict[str, Record]
    logs: dict[str, Record]

    def to_bytes(self) -> bytes:
        """Return the manifest as JSON that ends with a digest of itself."""
        plain = {"schema": SCHEMA} | {
            name: {key: list(record) for key, record in value.items()} if isinstance(value, dict) else value
            for name, value in vars(self).items()
        }
        return to_json(plain | {"sha256": hashlib.sha256(to_json(plain)).hexdigest()})


def name_of(iteration: int) -> str:
    """Return the directory name of a generation; names sort in the order of iterations."""
    return f"{iteration:08d}"


def generations(home: Path) -> list[Path]:
    """Return all paths with the name of a generation, newest first."""
    found = [path for path in home.iterdir() if re.fullmatch(r"\d{8,}", path.name)] if os.path.isdir(home) else []
    return sorted(found, key=lambda path: int(path.name), reverse=True)


def read_manifest(path: Path) -> Manifest:
    """Read the manifest of a generation, and raise if it is not exactly what was written."""
    if path.is_symlink() or not path.is_dir():
        raise ConfigError(f"{path} is not a directory.")
    file = path / MANIFEST
    plain = read_json(file)
    if (schema := plain.pop("schema", None)) != SCHEMA:
        raise ConfigError(f"{file} has the schema {brief(schema)}, but must have {SCHEMA}.")
    plain.pop("sha256", None)
    try:
        records = {part: _records(plain[part]) for part in ("files", "segments", "logs")}
        manifest = Manifest(**(plain | records))
        with reading(file) as opened:
            same = opened.read() == manifest.to_bytes()
    except (TypeError, KeyError, ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is damaged: {brief(str(error))}.") from None
    counts = (manifest.iteration, manifest.step, manifest.updates)
    orderly = (
        same
        and all(type(count) is int and count >= 0 for count in counts)
        and type(manifest.seconds) in (int, float)
        and re.fullmatch(r"[\w.+!-]{1,99}", str(manifest.package))
        and set(manifest.files) == set(FILES)
        and set(manifest.logs) == set(LOGS)
        and all(re.fullmatch(r"\d{8,}\.safetensors", name) for name in manifest.segments)
    )
    if not orderly:
        raise ConfigError(f"{file} is damaged: its contents are not what was written.")
    return manifest


def newest_agent(directory: Path) -> tuple[Path | None, list[str]]:
    """Return the newest generation with an undamaged agent, and messages about damaged newer ones."""
    damages: list[str] = []
    for path in generations(directory / CHECKPOINTS):
        try:
            for name, record in read_manifest(path).files.items():
                check(path / name, record)
        except ConfigError as damage:
            damages.append(f"checkpoint {path.name} is not used: {damage}")
        else:
            return path, damages
    return None, damages


def _records(plain: Any) -> dict[str, Record]:
    if not isinstance(plain, dict):
        raise TypeError("the records of its files are missing")
    return {name: to_record(record) for name, record in plain.items()}
