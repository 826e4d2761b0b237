"""What a run was made by: versions, commit, machine and times, written down for every time it was started."""

import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from monotau.machine import cores
from monotau.runs.files import read_json, write_json
from monotau.runs.layout import PROVENANCE

PACKAGES = ("monotau", "torch", "numpy", "gymnasium", "ale-py", "minatar")


def record_start(directory: Path, step: int, device: torch.device) -> None:
    """Add to a run directory by what it is trained from this step on; earlier starts stay as they are."""
    path = directory / PROVENANCE
    earlier = read_json(path).get("starts") if path.exists() else []
    starts = [start for start in earlier if isinstance(start, dict)] if isinstance(earlier, list) else []
    write_json(path, {"starts": [*starts, {"step": step, **describe(device)}]})


def describe(device: torch.device) -> Mapping[str, Any]:
    """Return what is known of program and machine."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
        "commit": commit(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": processor(),
        "cores": cores(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
    }


def commit(source: Path = Path(__file__)) -> str | None:
    """Return the commit that the program is of, with a + if files differ from it; None unless run from a checkout."""
    root = source.resolve().parents[2]
    if not (root / ".git").exists():  # installed: a repository further up is somebody else's
        return None
    found = _git(root, "rev-parse", "HEAD")
    return found and found + ("+" if _git(root, "status", "--porcelain", "--", "src") else "")


def _git(root: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603  # no shell, and no word from outside
            ["git", "-C", str(root), *words],  # noqa: S607  # wherever it is installed
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
    """Return the processor's name; Linux has it in a file, which Python does not read."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
