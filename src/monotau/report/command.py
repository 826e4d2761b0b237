"""The command `monotau report`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from monotau.errors import ConfigError, StorageFault
from monotau.report.cells import listed, several
from monotau.report.comparing import (
    aggregate_curve_sections,
    curve_sections,
    improvement_sections,
    probability_sections,
    profile_sections,
)
from monotau.report.files import PAGE, check_place, write_files
from monotau.report.learned import learned_sections
from monotau.report.overview import provenance_sections, settings_sections, summary_sections
from monotau.report.runs import read_runs
from monotau.report.sections import Section, Tell
from monotau.report.standings import aggregate_sections, env_sections
from monotau.report.study import Study
from monotau.results.published import Constants

MAKERS: tuple[Callable[[Study, Tell], list[Section]], ...] = (
    summary_sections,
    aggregate_sections,
    env_sections,
    curve_sections,
    aggregate_curve_sections,
    improvement_sections,
    profile_sections,
    probability_sections,
    lambda study, tell: learned_sections(study.runs, tell),
    provenance_sections,
    settings_sections,
)
"""What a report consists of, in its order."""


@dataclass(frozen=True, kw_only=True)
class ReportCommand:
    """Write a page with curves, tables and settings of runs, and beside it its figures, the numbers and table.md.

    Damaged and unfinished runs are listed as such. The same runs give the same report.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUNS")] = ()
    """Run directories, or directories that hold some."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """Directory to write to: a new one, an empty one, or one with an earlier report."""
    smooth: int = 10
    """Evaluations that curves are averaged over; the mean of the last ones is a run's score."""
    constants: Constants = "dqn_zoo"
    """Random and human scores to normalise Atari by; table1 is what the papers in the NDQFN paper's Table 1 used."""
    over: Annotated[str | None, tyro.conf.arg(metavar="METHOD")] = None
    """Method that others are measured against; by default iqn-star if it is there, or the first method."""


def write_report(given: ReportCommand, console: Console) -> None:
    """Read runs and write their report; progress is shown on standard error, if that is a terminal."""
    if not given.runs:
        raise ConfigError("no RUNS are given: name run directories, or directories that hold some.")
    check_place(given.out)
    screen = Console(stderr=True)
    with Progress(console=screen, transient=True, disable=not screen.is_terminal) as progress:
        task = progress.add_task("reading runs", total=None)
        runs = read_runs(given.runs, lambda name: progress.update(task, description=f"reading {escape(name)}"))
        study = Study(runs, given.smooth, given.constants, given.over)
        sections = []
        progress.update(task, total=len(MAKERS))
        for make in MAKERS:
            sections += make(study, lambda what: progress.update(task, description=escape(what)))
            progress.advance(task)
        pictures = sum(len(section.pictures) for section in sections)
        progress.update(task, total=len(MAKERS) + pictures, description="drawing")
        title = f"{listed(study.methods or ('no method',), 4)} in {several(len(study.envs), 'environment')}"
        about = f"A report on {several(len(runs), 'run')}. The numbers are in results.csv, the tables in table.md."
        try:
            write_files(given.out, title, about, sections, runs, lambda: progress.advance(task))
        except OSError as error:
            raise StorageFault(f"{given.out} cannot be written to: {error}.") from None
    bad = sum(run.state != "finished" for run in runs)
    console.print(
        f"{escape(str(given.out / PAGE))}: {several(len(runs), 'run')}, "
        + (f"[bold]{bad} of them not finished, or not to be used[/]" if bad else "all finished")
        + f"; {several(pictures, 'figure')}",
        highlight=False,
        soft_wrap=True,
    )
