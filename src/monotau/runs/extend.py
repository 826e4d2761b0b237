"""Extends a run: training goes on in its directory when the same run is requested with more steps."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from monotau.config.resolve import Resolved
from monotau.config.schema import Config
from monotau.errors import ConfigError
from monotau.learning.agent_networks import compiles, pick_device
from monotau.replay import Prioritized
from monotau.runs.files import read_json, to_json, write_json
from monotau.runs.layout import CHECKPOINTS, CONFIG, EXTENSIONS, RESULT, differences, state_of
from monotau.runs.manifest import generations


def state_for(directory: Path, resolved: Resolved) -> str:
    """Return `new`, `unfinished`, `finished`, or `shorter` for a run that only lacks steps; refuse other runs."""
    wanted = resolved.config.to_plain()
    there = _as_long_as_there(directory, resolved)
    asked = resolved.config.steps
    if there is None or there.config.steps == asked:
        return state_of(directory, wanted)
    alike = there.config.to_plain()
    if alike != read_json(directory / CONFIG):
        # What follows from the number of steps is not what the user changed.
        return state_of(directory, wanted, alike | {"steps": asked})
    if there.config.steps < asked:
        return "shorter"
    trained = read_json(directory / RESULT).get("steps") if (directory / RESULT).exists() else None
    length = f"has already trained {trained:,d}" if type(trained) is int else f"is to train {there.config.steps:,d}"
    raise ConfigError(
        f"the run in {directory} {length} steps, but only {asked:,d} are asked for: ask for more, or use another "
        "directory."
    )


def _as_long_as_there(directory: Path, resolved: Resolved) -> Resolved | None:
    """Return the settings with the number of steps of the run in the directory; None if there is none."""
    if not os.path.isfile(directory / CONFIG):  # False, not an exception, for impossible names
        return None
    steps = read_json(directory / CONFIG).get("steps")
    if type(steps) is not int:
        return None
    try:
        return resolved.override({"steps": steps})
    except ConfigError:  # other settings do not go with this number of steps, so they differ
        return None


def extend(directory: Path, resolved: Resolved) -> str:
    """Make the directory hold the longer run, and return a message; the caller holds the lock.

    A process killed in between leaves the directory as that of the shorter or of the longer run, and both commands
    still work: the digest of the old settings, which the checkpoints carry, is written down first.
    """
    before = _as_long_as_there(directory, resolved)
    assert before is not None  # noqa: S101  # the caller has checked
    old, new = before.config, resolved.config
    if (directory / RESULT).exists() and not generations(directory / CHECKPOINTS):
        raise ConfigError(
            f"the run in {directory} ended after {old.steps:,d} steps and its checkpoints were removed, so it cannot "
            f"go on to {new.steps:,d}; use another directory."
        )
    write_json(directory / EXTENSIONS, {"earlier": [*_earlier(directory), {"steps": old.steps, "sha256": digest(old)}]})
    (directory / RESULT).unlink(missing_ok=True)
    write_json(directory / CONFIG, new.to_plain())
    changed = _depends_on_steps(old, new)
    ends = f"differs from a run of {new.steps:,d} steps" if changed else f"ends as a run of {new.steps:,d} steps does"
    why = f" because its first part had another value of: {', '.join(changed)}" if changed else ""
    return f"extending the run from {old.steps:,d} to {new.steps:,d} steps; it {ends}{why}"


def _depends_on_steps(old: Config, new: Config) -> list[str]:
    """Name the settings and schedules that follow from the number of steps, and so changed with it."""
    texts = differences(old.to_plain(), new.to_plain())
    changed = [name for name in (text.partition(" (")[0] for text in texts) if name != "steps"]
    if new.optimiser.anneal < 1:
        changed.append("learning rate (optimiser.anneal)")
    if isinstance(new.replay, Prioritized) and not new.replay.beta_steps:
        changed.append("importance weights (replay.beta_steps)")
    if old.steps % old.iteration_steps:
        changed.append(f"iteration_steps (the iteration at step {old.steps:,d} was cut short)")
    device = pick_device(new.device)
    if compiles(old, device) != compiles(new, device):
        changed.append("compile")
    return changed


def digest(config: Config) -> str:
    """Return a digest of all settings, by which a checkpoint knows its run."""
    return hashlib.sha256(to_json(config.to_plain())).hexdigest()


def digests(directory: Path, config: Config) -> set[str]:
    """Return the digests of the settings of a run, and of its settings before it was extended."""
    return {digest(config), *(str(entry.get("sha256")) for entry in _earlier(directory))}


def earlier_ends(directory: Path) -> set[int]:
    """Return the steps at which the run would have ended before it was extended."""
    return {entry["steps"] for entry in _earlier(directory) if type(entry.get("steps")) is int}


def _earlier(directory: Path) -> list[Mapping[str, Any]]:
    path = directory / EXTENSIONS
    found = read_json(path).get("earlier") if path.exists() else []
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
