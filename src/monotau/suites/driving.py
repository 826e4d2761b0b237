"""Runs the missing cells of a suite with workers, shows their progress, and prints a summary."""

from pathlib import Path

from rich.console import Console
from rich.markup import escape

from monotau.results.read import SUITE as RECORD
from monotau.results.read import read_progress
from monotau.runs.files import write_json
from monotau.runs.process import stoppable
from monotau.suites.board import Board, line_printer
from monotau.suites.grid import Suite
from monotau.suites.pool import Pool
from monotau.suites.track import Track
from monotau.suites.workers.local import Workers


def drive(
    suite: Suite,
    out: Path,
    finished: set[str],
    workers: Workers,
    retries: int,
    about: str,
    jobs: int | None,
    console: Console,
) -> None:
    """Run the missing cells with these workers; this process must hold the lock of the directory `out`."""
    tracks = [
        Track(
            index=index,
            name=cell.name,
            directory=out / cell.name,
            state="finished" if cell.name in finished else "waiting",
            progress=read_progress(out / cell.name),
        )
        for index, cell in enumerate(suite.cells)
    ]
    pool = Pool(tracks, workers, out=out, retries=retries)
    missing = len(tracks) - len(finished)
    say = line_printer(console)
    say(
        f"[bold]{escape(suite.name)}[/]: {len(tracks)} runs, {missing} to do, {about}, into {escape(str(out))}; "
        f"logs in {escape(str(pool.logs))}"
    )
    if others := _other_runs(suite, out):
        say(f"[yellow]warning:[/] runs in {escape(str(out))} that are not in this suite: {escape(', '.join(others))}")
    write_json(out / RECORD, suite.record())
    try:
        run_shown(suite.name, pool, jobs, console)
    finally:
        _summarise(tracks, out, console)
    if any(track.state == "failed" for track in tracks):
        raise SystemExit(1)


def run_shown(title: str, pool: Pool, jobs: int | None, console: Console) -> None:
    """Run all cells of a pool and show their progress; a signal stops them in order."""
    board, say = Board(title, pool.tracks, console, jobs), line_printer(console)
    with stoppable(), board.shown():
        pool.run(board.show, lambda running: say(f"stopping {running} runs; a second signal ends them at once"))


def _other_runs(suite: Suite, out: Path) -> list[str]:
    """Return the names of up to five runs in a suite's directory that are not in its grid."""
    known = {cell.name for cell in suite.cells}
    found = sorted(path.parent.name for path in out.glob("*/config.json") if path.parent.name not in known)
    return found[:5] + ([f"and {len(found) - 5} more"] if len(found) > 5 else [])


def _summarise(tracks: list[Track], out: Path, console: Console) -> None:
    done = sum(track.state == "finished" for track in tracks)
    failed = [track for track in tracks if track.state == "failed"]
    left = len(tracks) - done - len(failed)
    say = line_printer(console)
    say(f"{done} of {len(tracks)} runs are finished" + (f", {left} to go; the same command resumes" if left else ""))
    for track in failed:
        say(f"[red]failed[/] {escape(track.name)}: {escape(track.reason)}")
    if done:
        say(f"to compare them: monotau report {escape(str(out))} --out {escape(str(out / 'report'))}")
