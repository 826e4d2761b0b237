"""Kills runs at random times and fills their disk, and checks what is left: results/faults.md.

Every run is a separate process, ended by SIGKILL. At least a third of the kills happen during a save, whose writes are
slowed down for this. The full disk is a tmpfs of a few kilobytes, which only root may mount.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.context import ForkServerContext
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.progress import track

from benchmarks.endings import differences, end_of
from benchmarks.soak import soak
from monotau.config.resolve import Resolved, resolve
from monotau.errors import ConfigError, StorageFault
from monotau.runs import checkpoint
from monotau.runs.runner import train_into

PRESETS = ("dqn", "c51", "qr-dqn", "iqn", "fqf", "rainbow", "ndqfn", "ndqfn-dpe")
ENVS = ("CartPole-v1", "MinAtar/Breakout-v1", "monotau/DeepSea-v0")
SETTINGS: dict[str, Any] = {
    "profile": "classic",
    "steps": 800,
    "iteration_steps": 200,
    "log_every_steps": 90,
    "replay": {"capacity_steps": 500, "warmup_steps": 50},
    "update": {"batch_size": 8, "every_steps": 4, "sync_every_steps": 60},
    "epsilon": {"end": 0.05, "decay_steps": 300},
    "evaluation": {"episodes": 2, "episode_cap_steps": 50},
}
SLOWER_SECONDS = 0.02
"""Delay of each fsync in a slowed save."""


def settled(preset: str, env: str) -> Resolved:
    """Return the settings of a run of a few seconds that uses all components."""
    plain = {name: value for name, value in SETTINGS.items() if name != "profile"}
    profile = "minatar" if env.startswith("MinAtar") else "classic"
    return resolve(preset, plain, {"env": {"id": env}, "head": {"hidden": 16}}, profile=profile)


def child(directory: Path, preset: str, env: str, saving: "Synchronized[int]", slowed: bool) -> None:
    """Train in this process without figures; `saving` counts the saves begun, and is negative during one."""
    save, fsync = checkpoint.Checkpoints.save, os.fsync

    def counted(*arguments: Any) -> None:
        saving.value = -abs(saving.value) - 1
        save(*arguments)
        saving.value = -saving.value

    def slow(descriptor: int) -> None:
        time.sleep(SLOWER_SECONDS if saving.value < 0 else 0)
        fsync(descriptor)

    checkpoint.Checkpoints.save = counted  # type: ignore[assignment, method-assign]
    if slowed:
        os.fsync = slow  # type: ignore[assignment]
    train_into(directory, settled(preset, env), Console(quiet=True))


def kills(count: int, inside: int, seed: int) -> dict[str, Any]:
    """Kill `count` runs once each, `inside` of them during a save, restart them, and compare their final states."""
    rng, context = random.Random(seed), get_context("forkserver")  # noqa: S311
    context.set_forkserver_preload(["monotau.cli", "benchmarks.endings"])
    wholes: dict[tuple[str, str], tuple[dict[str, object], float]] = {}
    cells = [(PRESETS[i % 8], ENVS[i // 8 % 3]) for i in range(count)]
    seen: dict[str, Any] = {"kills": 0, "inside_a_save": 0, "before_the_first_checkpoint": 0, "differ": []}
    with TemporaryDirectory() as home:
        for number, cell in enumerate(track(cells, "kills")):
            if cell not in wholes:
                directory = Path(home) / f"whole{number}"
                process, _ = started(context, directory, *cell, wait=False)
                begun = beginning(directory, process)
                process.join()
                wholes[cell] = end_of(directory), time.perf_counter() - begun
            whole, seconds = wholes[cell]
            directory = Path(home) / f"killed{number}"
            while not (killed := kill_once(context, directory, cell, number < inside, seconds, rng)):
                shutil.rmtree(directory)  # it ended before the kill
                seconds *= 0.8
            seen["kills"] += 1
            seen["inside_a_save"] += killed == "inside a save"
            seen["before_the_first_checkpoint"] += not (directory / "checkpoints" / "LATEST").exists()
            again, _ = started(context, directory, *cell)
            wrong = differences(whole, end_of(directory)) if again.exitcode == 0 else [f"exit {again.exitcode}"]
            if wrong:
                seen["differ"].append([*cell, *wrong])
    return seen


def kill_once(
    context: ForkServerContext, directory: Path, cell: tuple[str, str], slowed: bool, seconds: float, rng: random.Random
) -> str:
    """Start a run and kill it within `seconds` or during a slowed save; return where it was, or "" if it had ended."""
    process, saving = started(context, directory, *cell, slowed=slowed, wait=False)
    if slowed:
        nth = rng.randint(1, SETTINGS["steps"] // SETTINGS["iteration_steps"])
        while saving.value != -nth and process.is_alive():
            time.sleep(0.0005)
        time.sleep(rng.uniform(0, 10 * SLOWER_SECONDS))
    else:
        beginning(directory, process)
        time.sleep(rng.uniform(0, seconds))
    process.kill()
    process.join()
    if process.exitcode != -signal.SIGKILL:
        return ""
    return "inside a save" if saving.value < 0 else "elsewhere"


def beginning(directory: Path, process: Any) -> float:
    """Wait until a run has started, after the imports, and return the time."""
    while not (directory / "config.json").exists() and process.is_alive():
        time.sleep(0.001)
    return time.perf_counter()


def started(
    context: ForkServerContext, directory: Path, *cell: str, slowed: bool = False, wait: bool = True
) -> tuple[Any, "Synchronized[int]"]:
    """Start a run in a separate process, and wait for its end if `wait` is set."""
    saving = context.Value("i", 0, lock=False)
    process = context.Process(target=child, args=(directory, *cell, saving, slowed))
    process.start()
    if wait:
        process.join()
    return process, saving


@contextmanager
def small_disk(kilobytes: int) -> Iterator[Path]:
    """Mount a tmpfs of this size for the block."""
    with TemporaryDirectory() as home:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", home], check=True)  # noqa: S603, S607
        try:
            yield Path(home)
        finally:
            subprocess.run(["umount", home], check=True)  # noqa: S603, S607


def full_disks(count: int) -> dict[str, Any]:
    """Train on disks of `count` sizes; a full disk must raise a typed error and leave the last checkpoint intact."""
    resolved = settled("qr-dqn", "CartPole-v1")
    seen: dict[str, Any] = {"sizes": 0, "stopped": 0, "finished": 0, "wrong": []}
    with TemporaryDirectory() as home:
        train_into(Path(home) / "whole", resolved, Console(quiet=True))
        whole = end_of(Path(home) / "whole")
        needed = sum(path.stat().st_size for path in (Path(home) / "whole").rglob("*") if path.is_file()) / 1024
    smallest = 8
    for number in track(range(count), "full disks"):
        kilobytes = int(smallest + (1.3 * needed - smallest) * number / (count - 1)) // 4 * 4
        with small_disk(kilobytes) as disk:
            seen["sizes"] += 1
            try:
                train_into(disk / "run", resolved, Console(quiet=True))
                seen["finished"] += 1
            except (StorageFault, ConfigError) as fault:  # ConfigError: not even the settings fitted
                seen["stopped"] += 1
                found = checkpoint.Checkpoints(disk / "run", resolved.config)
                if found.find() or (isinstance(fault, StorageFault) and found.last_good not in str(fault)):
                    seen["wrong"].append([kilobytes, "the last good checkpoint is not intact"])
                subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)  # noqa: S603, S607
                train_into(disk / "run", resolved, Console(quiet=True))
            if wrong := differences(whole, end_of(disk / "run")):
                seen["wrong"].append([kilobytes, *wrong])
    return seen


def cost(steps: int = 6_000) -> dict[str, Any]:
    """Return the share of a run's time spent on saves, with the default settings of two profiles."""
    seen: dict[str, Any] = {}
    for env in ("CartPole-v1", "MinAtar/Breakout-v1"):
        spent: list[float] = []
        save = checkpoint.Checkpoints.save

        def timed(*arguments: Any, save: Any = save, spent: list[float] = spent) -> None:
            begun = time.perf_counter()
            save(*arguments)
            spent.append(time.perf_counter() - begun)

        checkpoint.Checkpoints.save = timed  # type: ignore[assignment, method-assign]
        with TemporaryDirectory() as home:
            resolved = resolve("ndqfn-dpe", {"env": {"id": env}, "steps": steps if "Cart" in env else 2 * steps})
            begun = time.perf_counter()
            train_into(Path(home), resolved, Console(quiet=True))
            share = sum(spent) / (time.perf_counter() - begun)
        checkpoint.Checkpoints.save = save  # type: ignore[method-assign]
        seen[env] = {"saves": len(spent), "share": round(share, 4), "milliseconds": round(1e3 * max(spent), 1)}
    return seen


TESTS = {
    "touches": ("tests/runs/test_checkpoint.py", "tests/runs/test_resuming.py"),
    "signals and locks": ("tests/runs/test_process.py",),
    "damage": ("tests/runs/test_damaged_checkpoints.py",),
    "hostile files": (
        "tests/runs/test_hostile_agents.py",
        "tests/runs/test_hostile_checkpoints.py",
        "tests/runs/test_tensors.py",
    ),
    "malformed environments": ("tests/runs/test_malformed_envs.py",),
    "fuzzing": ("tests/config/test_random_settings.py",),
}
"""Test files of the parts that tests cover, slow tests included."""


def tested(files: tuple[str, ...]) -> dict[str, Any]:
    """Run test files, and return the numbers of passed and failed tests."""
    begun = time.perf_counter()
    words = [sys.executable, "-m", "pytest", "-n", "2", "--timeout=3600", *files]
    out = subprocess.run(words, capture_output=True, text=True, check=False).stdout  # noqa: S603
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|error)", out.splitlines()[-1])}
    return counts | {"seconds": round(time.perf_counter() - begun)}


ABOUT = {
    "kills": "SIGKILL at random times over 8 presets and 3 environments, then a restart; final states compared",
    "disks": "a tmpfs of increasing but too small sizes, then enlarged, and the same command again",
    "soak": "MinAtar with a kill every 2 to 4 minutes, compared with an uninterrupted run, whose memory is sampled",
    "cost": "share of a run's time spent on saves, with default settings",
    "touches": "a fault at every write, fsync, rename, mkdir, unlink and rmdir of a save and of whole runs",
    "signals and locks": "SIGINT, SIGTERM, a second one, a second process, a killed owner",
    "damage": "1,000 single-bit flips and 300 truncations of the newest generation",
    "hostile files": "headers, shapes, names, links, pipes, JSON, types, pickles; 1 s, 100 MB and no code run",
    "malformed environments": "environments that break their contract, most of them after the first checkpoint",
    "fuzzing": "2,000 settings and command lines",
}


def write_table(seen: dict[str, Any], path: Path) -> None:
    """Write the results as a Markdown table."""
    lines = ["# Fault injection: tests and results", "", "Written by `python -m benchmarks.faults`.", ""]
    lines += ["| part | test | result |", "|---|---|---|"]
    for part, about in ABOUT.items():
        if part in seen:
            shown = "; ".join(f"{name.replace('_', ' ')} {json.dumps(value)}" for name, value in seen[part].items())
            lines.append(f"| {part} | {about} | {shown} |")
    path.write_text("\n".join(lines) + "\n")


def main() -> None:
    """Run the named parts, and write all results so far."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*ABOUT, []], help="parts to run; all except the soak by default")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("results") / "faults.json",
        help="JSON file of results; a .md file is written beside it",
    )
    parser.add_argument("--count", type=int, default=50, help="number of kills, or of disk sizes")
    parser.add_argument("--inside", type=int, default=18, help="number of kills during a save")
    parser.add_argument("--seed", type=int, default=0, help="seed of the kill times")
    given = parser.parse_args()
    seen: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {}
    parts = {
        "kills": lambda: kills(given.count, given.inside, given.seed),
        "disks": lambda: full_disks(given.count),
        "cost": cost,
        "soak": lambda: soak(Path("runs") / "soak", 60_000, given.seed),
    }
    for part in given.parts or [part for part in ABOUT if part != "soak"]:
        seen[part] = tested(TESTS[part]) if part in TESTS else parts[part]()
        given.out.write_text(json.dumps(seen, indent=2) + "\n")
        write_table(seen, given.out.with_suffix(".md"))
        print(json.dumps({part: seen[part]}))


if __name__ == "__main__":
    main()
