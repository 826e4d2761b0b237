"""The provenance of a run: versions, commit, machine and time of every start."""

import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from monotau.machine import cores, memory_bytes
from monotau.runs.files import read_json, write_json
from monotau.runs.layout import PROVENANCE

PACKAGES = ("monotau", "torch", "numpy", "gymnasium", "ale-py", "minatar")


def record_start(directory: Path, step: int, device: torch.device, *, compiled: bool) -> None:
    """Add an entry for the start at this step to the run's provenance file; earlier entries are kept."""
    here = {"step": step, "compiled": compiled, **describe(device)}
    write_json(directory / PROVENANCE, {"starts": [*_starts(directory), here]})


def was_compiled(directory: Path) -> bool | None:
    """Return whether the last start of a run compiled its updates; None if that is not known."""
    compiled = next((start.get("compiled") for start in reversed(_starts(directory))), None)
    return compiled if isinstance(compiled, bool) else None


def first_start(directory: Path) -> str:
    """Return the time of the first start of a run."""
    return str(_starts(directory)[0].get("time"))


def _starts(directory: Path) -> list[Mapping[str, Any]]:
    """Return the entries of the run's provenance file so far."""
    path = directory / PROVENANCE
    earlier = read_json(path).get("starts") if path.exists() else []
    return [start for start in earlier if isinstance(start, dict)] if isinstance(earlier, list) else []


def describe(device: torch.device) -> Mapping[str, Any]:
    """Describe the software and the machine."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
        "commit": commit(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": processor(),
        "cores": cores(),
        "memory_gb": None if (memory := memory_bytes()) is None else round(memory / 1e9, 1),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
    }


def commit(source: Path = Path(__file__)) -> str | None:
    """Return the git commit of the source, with a + if files are modified; None unless run from a checkout."""
    root = source.resolve().parents[2]
    if not (root / ".git").exists():  # installed: a repository further up is another project's
        return None
    found = _git(root, "rev-parse", "HEAD")
    return found and found + ("+" if _git(root, "status", "--porcelain", "--", "src") else "")


def _git(root: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603  # no shell, and no argument from outside
            ["git", "-C", str(root), *words],  # noqa: S607  # git is found on the PATH
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def processor(file: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor's name; on Linux it is only in /proc/cpuinfo, which `platform` does not read."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
