"""Checkpoints: everything a run needs to resume, written atomically and verified before use.

A generation is one checkpoint. It contains what `Agent.save` writes, the optimiser states and the replay priorities.
The rows of the replay are in segments, one per iteration, which are written once and shared by generations.
"""

import os
import re
import shutil
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import numpy as np

from monotau.agent import Agent
from monotau.config.schema import Config
from monotau.errors import ConfigError, StorageFault, brief
from monotau.learning.train import Training
from monotau.networks.factory import prefixed, unprefixed
from monotau.replay import Replay
from monotau.runs.extend import digest, digests
from monotau.runs.files import DamagedFile, Record, check, reading, record_of, sync_directory, write_bytes
from monotau.runs.layout import CHECKPOINTS
from monotau.runs.manifest import (
    FILES,
    MANIFEST,
    TRAINING,
    WEIGHTS,
    Manifest,
    generations,
    name_of,
    read_manifest,
)
from monotau.runs.tensors import check_alike, read_tensors, stored_arrays, write_arrays

KEPT = 2
"""Number of generations to keep; the older one is a fallback in case the newest is damaged."""

MOST_SEGMENTS = 200
"""Beyond this number the replay is rewritten as one segment, so that short iterations do not pile up segments."""

REPLAY, LATEST, ASIDE = "replay", "LATEST", ".damaged"


class Checkpoints:
    """The generations in a run directory, for the process that holds its lock."""

    def __init__(self, directory: Path, config: Config) -> None:
        self._run, self._home, self._replay = directory, directory / CHECKPOINTS, directory / CHECKPOINTS / REPLAY
        self._config_sha256, self._digests = digest(config), digests(directory, config)
        self._kept: list[Manifest] = []
        self._ends: dict[str, np.ndarray] = {}  # by segment: the end of each lane's rows

    @property
    def manifest(self) -> Manifest | None:
        """The manifest of the newest verified generation."""
        return self._kept[-1] if self._kept else None

    @property
    def last_good(self) -> str:
        """A phrase for messages about an interrupted run: where its last checkpoint is."""
        return f"the last good checkpoint is {self._path}" if self._kept else "there is no checkpoint yet"

    @property
    def _path(self) -> Path:
        return self._home / name_of(self._kept[-1].iteration)

    def find(self) -> list[str]:
        """Find the newest intact generation, set damaged newer ones aside, and return warnings about those."""
        for path in (self._home, self._replay):
            if path.is_symlink():  # files must not be written or removed outside of the run directory
                raise StorageFault(f"{path} is a link, but must be a directory of the run: restore the checkpoints.")
        damages: dict[Path, ConfigError] = {}
        for path in generations(self._home):
            try:
                self._kept = [self._verified(path)]
                break
            except ConfigError as damage:
                damages[path] = damage
        if not self._kept and not damages and os.path.lexists(self._home / LATEST):
            raise StorageFault(
                f"{self._home / LATEST} exists, but no checkpoint does: restore them from a backup, or remove that "
                "file to start over."
            )
        if damages and not self._kept:
            path, reason = next(iter(damages.items()))
            raise StorageFault(
                f"no checkpoint in {self._home} can be used ({path.name}: {reason}) Restore the file from a backup, or "
                "start over with another --out."
            )
        self._clean_up()
        for path, reason in damages.items():
            _put_aside(path)
            if isinstance(reason, DamagedFile) and reason.path.parent == self._replay and os.path.lexists(reason.path):
                _put_aside(reason.path)
        warnings = self._check_latest()
        if self._kept:  # a crash may have come between the generation and LATEST
            write_bytes(self._home / LATEST, f"{self._path.name}\n".encode())
        return warnings + [f"checkpoint {path.name} is not used: {why}" for path, why in damages.items()]

    def restore(self, agent: Agent, training: Training) -> None:
        """Restore the agent and the training from the newest generation."""
        manifest, path = self._kept[-1], self._path
        try:
            check_alike(path / WEIGHTS, agent.networks.state())
            agent.networks.load_state(read_tensors(path / WEIGHTS))
            tensors, optimisers = read_tensors(path / TRAINING), agent.networks.optimisers()
            known = ("replay.", *(f"optimiser.{name}." for optimiser in optimisers for name in optimiser.networks))
            if strange := next((name for name in tensors if not name.startswith(known)), None):
                raise KeyError(f"{TRAINING} holds {brief(strange)}")
            memory = unprefixed("optimiser", tensors)
            for optimiser in optimisers:
                own = tuple(f"{name}." for name in optimiser.networks)
                optimiser.load_state({name: tensor for name, tensor in memory.items() if name.startswith(own)})
            oldest = None
            for name in manifest.segments:
                with stored_arrays(self._replay / name) as rows:
                    training.replay.put_back(rows)
                    self._ends[name] = rows["end"][:]
                    oldest = rows["first"][:] if oldest is None else oldest
            if oldest is None or (oldest > training.replay.span.first).any():
                raise ValueError("rows of the replay are missing")
            training.replay.load_state({name: array.numpy() for name, array in unprefixed("replay", tensors).items()})
        except (LookupError, ValueError, TypeError, ArithmeticError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise StorageFault(f"{path} is undamaged, but does not match this run: {reason}") from None
        training.step, training.iteration, training.updates = manifest.step, manifest.iteration, manifest.updates

    def save(self, agent: Agent, training: Training, seconds: float) -> None:
        """Write a generation; it becomes valid when its directory is renamed."""
        name = name_of(training.iteration)
        temporary, segment = self._home / f".{name}.tmp", self._replay / f"{name}.safetensors"
        try:
            self._replay.mkdir(parents=True, exist_ok=True)
            temporary.mkdir()
            segments = self._save_rows(training.replay, segment)
            agent.write(temporary)
            write_arrays(
                temporary / TRAINING, {key: [array] for key, array in _training_state(agent, training).items()}
            )
            manifest = Manifest(
                iteration=training.iteration,
                step=training.step,
                updates=training.updates,
                seconds=seconds,
                package=version("monotau"),
                config_sha256=self._config_sha256,
                files={file: record_of(temporary / file) for file in FILES},
                segments=segments,
                logs=dict(training.log.sync()),
            )
            write_bytes(temporary / MANIFEST, manifest.to_bytes())  # also syncs the directory with the other files
            os.replace(temporary, self._home / name)
        except BaseException:
            with suppress(OSError):  # free the space if the disk is full
                _remove(temporary)
                if not (self._home / name).exists():
                    _remove(segment)
            raise
        self._kept = [*self._kept, manifest][-KEPT:]
        sync_directory(self._home)
        write_bytes(self._home / LATEST, f"{name}\n".encode())
        self._clean_up()

    def _save_rows(self, replay: Replay, path: Path) -> dict[str, Record]:
        """Write the rows that are in no segment yet, and return the segments that hold the replay."""
        before = dict(self._kept[-1].segments) if self._kept else {}
        if len(before) >= MOST_SEGMENTS:
            before = {}
        since = self._ends[list(before)[-1]] if before else np.zeros_like(replay.span.end)
        fresh = write_arrays(path, replay.rows(since))
        sync_directory(self._replay)
        self._ends[path.name] = replay.span.end
        needed = {old: record for old, record in before.items() if (self._ends[old] > replay.span.first).any()}
        return needed | {path.name: fresh}

    def _verified(self, path: Path) -> Manifest:
        """Read the manifest of a generation and verify every file it lists."""
        manifest = read_manifest(path)
        if name_of(manifest.iteration) != path.name or manifest.config_sha256 not in self._digests:
            raise ConfigError(f"{path / MANIFEST} belongs to another run.")
        for name, record in manifest.files.items():
            check(path / name, record)
        for name, record in manifest.segments.items():
            check(self._replay / name, record)
        for name, record in manifest.logs.items():
            check(self._run / name, record, whole=False)
        return manifest

    def _check_latest(self) -> list[str]:
        """Return a warning if LATEST names a newer generation than the newest usable one, or is invalid.

        An older one is normal after a crash.
        """
        path = self._home / LATEST
        if not self._kept or not os.path.lexists(path):
            return []
        try:
            with reading(path) as file:
                named = file.read(100).decode(errors="replace").strip()
        except DamagedFile as damage:
            _put_aside(path)  # a directory of that name would block the next write
            return [str(damage)]
        newest = name_of(self._kept[-1].iteration)
        if re.fullmatch(r"\d{8,}", named) and int(named) <= int(newest):
            return []
        return [f"{path} names {brief(named)}, but the newest checkpoint that can be used is {newest}"]

    def _clean_up(self) -> None:
        """Remove temporary files of a killed process, old generations, and segments that no generation needs."""
        for left in (*self._home.glob(".*.tmp"), *self._replay.glob(".*.tmp")):
            _remove(left)
        if len(self._kept) < KEPT:
            return  # an older generation may still be needed
        names = {name_of(manifest.iteration) for manifest in self._kept}
        segments = {name for manifest in self._kept for name in manifest.segments}
        for path in generations(self._home):
            if path.name not in names:
                gone = path.with_name(f".{path.name}.tmp")  # a partly removed generation must not look damaged
                os.replace(path, gone)
                _remove(gone)
        for path in self._replay.iterdir():
            if path.suffix == ".safetensors" and path.name not in segments:
                _remove(path)
                self._ends.pop(path.name, None)


def _training_state(agent: Agent, training: Training) -> dict[str, np.ndarray]:
    """Return the state to resume from that is neither in the networks nor in the rows of the replay."""
    arrays = prefixed("replay", training.replay.state())
    for optimiser in agent.networks.optimisers():
        memory = {key: tensor.detach().cpu().numpy() for key, tensor in optimiser.state().items()}
        arrays |= prefixed("optimiser", memory)
    return arrays


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _put_aside(path: Path) -> None:
    """Rename a damaged file or directory, so that its name is free and its contents are kept."""
    number = 0
    while os.path.lexists(aside := path.with_name(f"{path.name}{ASIDE}{number or ''}")):
        number += 1
    os.replace(path, aside)
