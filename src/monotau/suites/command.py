"""The command `monotau suite`: run a grid or one of its cells, estimate its cost, or write a Slurm job array."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.markup import escape

from monotau.config.command_line import IMPORTS, import_flags
from monotau.config.imports import import_parts
from monotau.config.resolve import Resolved
from monotau.config.schema import LOCAL
from monotau.distributed.connect import check_address, cluster_nodes, connected
from monotau.distributed.nodes import check_nodes
from monotau.distributed.resources import FINEST, Request, check_room, check_share, counted
from monotau.errors import ConfigError, check_least
from monotau.machine import cores
from monotau.results.read import SUITE as RECORD
from monotau.runs.files import read_json, write_json
from monotau.runs.layout import CONFIG, LOCK, RESULT
from monotau.runs.memory import LARGEST_SHARE, MemoryPlan, available_bytes
from monotau.runs.process import locked, stoppable
from monotau.runs.trackers import check_tracker
from monotau.suites.board import bar_of, line_printer
from monotau.suites.cell import is_finished, run_cell
from monotau.suites.driving import drive
from monotau.suites.dry_run import show_estimate
from monotau.suites.grid import Cell, Suite, read_suite, to_suite
from monotau.suites.workers.local import LOGS, LocalWorkers, python_command
from monotau.suites.workers.ray import RayWorkers
from monotau.suites.workers.slurm import array_script


@dataclass(frozen=True, kw_only=True)
class SuiteCommand:
    """Run a grid of presets x overrides x environments x seeds, by default one run per core at a time.

    Repeat the same command to resume interrupted runs; finished runs are skipped. `monotau list suites` shows the
    built-in suites; docs/suites.md describes how to write your own.
    """

    suite: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME|FILE")]
    """A built-in suite, or a .yaml or .json file."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Parent directory of the run directories; by default runs/NAME."""
    jobs: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Runs at once; 0 uses one per core, and with --ray as many as fit on the cluster."""
    threads: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Threads per run; 0 divides the cores among the jobs (--ray: the run's CPUs). A started run keeps its number."""
    scale: Annotated[float | None, tyro.conf.arg(metavar="SHARE")] = None
    """Fraction of the budget, above 0 and at most 1; scales steps, schedules, replay and evaluation steps."""
    retries: Annotated[int, tyro.conf.arg(metavar="N")] = 2
    """How many times a run is restarted after it was killed or its environment failed."""
    dry_run: bool = False
    """Print the grid and an estimate of time, RAM and disk space, and exit."""
    index: Annotated[int | None, tyro.conf.arg(metavar="K")] = None
    """Run only cell K, counted from 0, in this process: for job arrays."""
    slurm: bool = False
    """Write a Slurm job array, DIR/suite.sbatch, and exit."""
    ray: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS")] = None
    """Run cells as tasks on a Ray cluster: host:port, auto or local; DIR must be on storage that all nodes share."""
    cpus_per_run: Annotated[float | None, tyro.conf.arg(metavar="X")] = None
    """CPUs that Ray reserves for each run, a fraction or a whole number; by default enough for threads and actors."""
    gpus_per_run: Annotated[float | None, tyro.conf.arg(metavar="X")] = None
    """GPUs that Ray reserves for each run: 0, a fraction or a whole number; by default 0."""
    imports: Annotated[tuple[str, ...], IMPORTS, tyro.conf.UseAppendAction] = ()
    """Module with parts or environments of your own (docs/extending.md); can be repeated."""
    keep_checkpoints: bool = False
    """Keep the checkpoints of finished runs, which are large and no longer needed."""
    track: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Also send the metrics of the runs to an experiment tracker: wandb, trackio or mlflow."""
    force: bool = False
    """Run even if the runs seem to need too much RAM; with --ray, reserve no RAM and wait for nodes that fit."""


def run_suite(given: SuiteCommand, console: Console) -> None:
    """Run the command."""
    check_least("--", given, jobs=0, threads=0, retries=0)
    asked = {"--dry-run": given.dry_run, "--index": given.index is not None, "--slurm": given.slurm}
    if len(wanted := [flag for flag, on in asked.items() if on]) > 1:
        raise ConfigError(
            f"{' and '.join(wanted)} are given, but only one of {', '.join(asked)} can be used at a time."
        )
    _check_ray(given, wanted)
    if given.track is not None:
        check_tracker(given.track)
    import_parts(*given.imports)
    suite = replace(read_suite(given.suite, given.scale), imports=given.imports)
    out = given.out or Path("runs") / suite.name
    if (out.exists() and not out.is_dir()) or (out / CONFIG).exists():
        raise ConfigError(f"--out is {out}, which is a file or a single run; a suite needs a directory of its own.")
    jobs = min(given.jobs or cores(), len(suite.cells))
    threads = given.threads or max(1, int(given.cpus_per_run or 1) if given.ray else cores() // jobs)
    if given.index is not None:
        _run_one(given, suite, out, threads, console)
        return
    finished = _check(suite, out, threads, console)
    if given.dry_run:
        show_estimate(suite, finished, jobs, threads, console)
    elif given.slurm:
        _write_slurm(given, suite, out, threads, console)
    elif given.ray:
        _run_on_ray(given, suite, out.absolute(), finished, threads, console)
    else:
        if not given.force:
            _check_memory([suite.resolve(cell, threads) for cell in _one_of_each_method(suite)], jobs)
        command = _command(given, _made(out), threads)
        workers = LocalWorkers(command, logs=out / LOGS, jobs=jobs, threads=threads)
        about = f"{jobs} at once with {_threads(threads)}"
        if jobs * threads > cores():
            text = f"{jobs} x {threads} threads on {cores()} cores: the runs will compete for cores and slow down"
            line_printer(console)(f"[yellow]warning:[/] {text}")
        with locked(out, "the suite's directory"):
            drive(suite, out, finished, workers, given.retries, about, jobs, console)


def _check_ray(given: SuiteCommand, wanted: list[str]) -> None:
    """Raise for options that require --ray or cannot be combined with it."""
    flags = {"--cpus-per-run": given.cpus_per_run, "--gpus-per-run": given.gpus_per_run}
    for flag, value in flags.items():
        if value is not None:
            if given.ray is None:
                raise ConfigError(f"{flag} is given, but has no effect without --ray.")
            check_share(flag, value, 0.0 if flag == "--gpus-per-run" else FINEST)
    if given.ray is not None:
        if wanted:
            raise ConfigError(f"--ray and {wanted[0]} are given, but only one of them can be used at a time.")
        check_address(given.ray)


def _threads(threads: int) -> str:
    return f"{threads} thread{'s' * (threads > 1)} each"


def _command(given: SuiteCommand, out: Path, threads: int) -> Callable[[int], list[str]]:
    """Return a function from the index of a cell to the command that runs it."""
    options = import_flags(given.imports) + (["--keep-checkpoints"] if given.keep_checkpoints else [])
    options += ["--force"] if given.force else []
    options += ["--track", given.track] if given.track else []

    def command(index: int) -> list[str]:
        record = str(out / RECORD)  # not the original file, which may be edited while the suite runs
        words = ("--out", str(out), "--index", str(index), "--threads", str(threads))
        return python_command("suite", record, *words, *options)

    return command


def _run_on_ray(
    given: SuiteCommand, suite: Suite, out: Path, finished: set[str], threads: int, console: Console
) -> None:
    """Run the missing cells on a Ray cluster, after checking its nodes."""
    requests = {
        cell.method.name: _request(given, suite.resolve(cell, threads), threads) for cell in _one_of_each_method(suite)
    }
    with connected(given.ray or LOCAL):
        if not given.force:
            check_room(requests.values(), cluster_nodes())
        fresh = not out.exists()
        logs = _made(out) / LOGS
        with locked(out, "the suite's directory"):
            try:
                if given.ray != LOCAL:
                    check_nodes(out, line_printer(console))
            except ConfigError:
                if fresh:  # leave no empty directory behind
                    (out / LOCK).unlink()
                    out.rmdir()
                raise
            workers = RayWorkers(
                _command(given, out, threads),
                lambda index: requests[suite.cells[index].method.name],
                logs=logs,
                jobs=given.jobs or None,
                threads=threads,
            )
            most = max(requests.values())
            about = f"on Ray with {counted(most.cpus, 'CPU')}, {counted(most.gpus, 'GPU')} and {_threads(threads)}"
            drive(suite, out, finished, workers, given.retries, about, given.jobs or None, console)


def _request(given: SuiteCommand, resolved: Resolved, threads: int) -> Request:
    """Return the resources of a run, including its actors, which run on the same node."""
    config = resolved.config
    cpus = given.cpus_per_run or math.ceil(threads + config.actors * config.actor.cpus)
    memory = 0 if given.force else MemoryPlan.of(resolved, None).total
    return Request(float(cpus), given.gpus_per_run or 0.0, memory)


def _run_one(given: SuiteCommand, suite: Suite, out: Path, threads: int, console: Console) -> None:
    index = given.index or 0
    if not 0 <= index < len(suite.cells):
        raise ConfigError(
            f"--index is {index}, but the suite has {len(suite.cells)} runs: 0 to {len(suite.cells) - 1}."
        )
    if not (_made(out) / RECORD).exists():
        write_json(out / RECORD, suite.record())
    with stoppable():
        cell = suite.cells[index]
        keep, force, track = given.keep_checkpoints, given.force, given.track
        run_cell(suite, cell, out, console, threads=threads, keep=keep, force=force, track=track)


def _made(directory: Path) -> Path:
    """Create a directory and return it."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {directory} cannot be created: {error.strerror}.") from None
    return directory


def _check(suite: Suite, out: Path, threads: int, console: Console) -> set[str]:
    """Resolve each method and each environment once before any run starts, and return the names of finished cells.

    A cell with the same settings in the suite's record has finished if it has a result; the run directories of others
    are checked in full.
    """
    firsts = {cell.method.name: cell for cell in reversed(suite.cells)} | {
        cell.env.config.title: cell for cell in reversed(suite.cells)
    }
    before = to_suite(suite.name, read_json(out / RECORD)) if (out / RECORD).exists() else None
    known = {cell.name: before.given(cell) for cell in before.cells} if before else {}
    finished = set()
    with bar_of(console) as bar:
        for cell in bar.track([*firsts.values()], description="checking settings"):
            try:
                suite.resolve(cell, threads)
            except ConfigError as error:
                raise ConfigError(f"{suite.name}, {cell.method.name} on {cell.env.config.title}: {error}") from None
        there = [cell for cell in suite.cells if (out / cell.name).exists()]
        for cell in bar.track(there, description="checking runs"):
            if known.get(cell.name) == suite.given(cell):
                done = (out / cell.name / RESULT).exists()
            else:
                done = is_finished(suite, cell, out)
            if done:
                finished.add(cell.name)
    return finished


def _one_of_each_method(suite: Suite) -> list[Cell]:
    return [*{cell.method.name: cell for cell in reversed(suite.cells)}.values()]


def _check_memory(resolved: list[Resolved], jobs: int) -> None:
    """Raise if the concurrent runs together need more RAM than is available, though each alone may fit."""
    available = available_bytes()
    most = max(MemoryPlan.of(each, None).total for each in resolved)
    if available is not None and jobs > 1 and jobs * most > LARGEST_SHARE * available:
        fit = int(LARGEST_SHARE * available // most)
        instead = f"use --jobs {fit}" if fit else "a smaller --scale or replay.capacity_steps is needed"
        raise ConfigError(
            f"--jobs is {jobs}, and runs need up to {most / 1e9:.1f} GB each, but only {available / 1e9:.1f} GB are "
            f"available: {instead}, or --force to try anyway."
        )


def _write_slurm(given: SuiteCommand, suite: Suite, out: Path, threads: int, console: Console) -> None:
    memory = max(MemoryPlan.of(suite.resolve(cell, threads), None).total for cell in _one_of_each_method(suite))
    _made(out / LOGS)
    write_json(out / RECORD, suite.record())
    path = out.resolve()
    options = ["--out", str(path), "--threads", str(threads), *import_flags(given.imports)]
    options += ["--track", given.track] if given.track else []
    words = python_command("suite", str(path / RECORD), *options)
    script = array_script(suite.name, out, len(suite.cells), threads, math.ceil(1.2 * memory / 1e9), words)
    target = out / "suite.sbatch"
    target.write_text(script)
    line_printer(console)(
        f"wrote {escape(str(target))}: {len(suite.cells)} tasks; review it, then run: sbatch {escape(str(target))}"
    )
