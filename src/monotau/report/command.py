"""The command `monotau report`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from monotau.config.command_line import IMPORTS
from monotau.config.imports import import_parts
from monotau.errors import ConfigError, StorageFault
from monotau.report.comparison import RunComparison
from monotau.report.formatting import name_list, plural
from monotau.report.page import PAGE, Notify, Section, check_output, write_report_files
from monotau.report.sections.audit import audit_sections
from monotau.report.sections.bonus import bonus_sections
from monotau.report.sections.compare import improvement_sections, probability_sections, profile_sections
from monotau.report.sections.crossing import crossing_sections, dead_increment_sections
from monotau.report.sections.curves import aggregate_sections, curve_sections
from monotau.report.sections.overview import overview_sections
from monotau.report.sections.provenance import provenance_sections, settings_sections
from monotau.report.sections.quantiles import quantile_sections
from monotau.report.sections.scores import aggregate_score_sections, env_score_sections
from monotau.report.sections.solving import solving_sections
from monotau.report.sections.truth import truth_sections
from monotau.results.methods import read_methods
from monotau.results.published import Constants

SECTIONS: tuple[Callable[[RunComparison, Notify], list[Section]], ...] = (
    overview_sections,
    curve_sections,
    aggregate_score_sections,
    env_score_sections,
    aggregate_sections,
    improvement_sections,
    profile_sections,
    probability_sections,
    quantile_sections,
    crossing_sections,
    bonus_sections,
    dead_increment_sections,
    truth_sections,
    audit_sections,
    solving_sections,
    provenance_sections,
    settings_sections,
)
"""The sections of a report in their order; each returns nothing if it does not apply."""


@dataclass(frozen=True, kw_only=True)
class ReportCommand:
    """Compare runs on one HTML page; its figures, tables and data are also written as files.

    Damaged and unfinished runs are listed as such. The same runs give the same report.
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUNS")] = ()
    """Run directories, or directories that contain some."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """Output directory: a new one, an empty one, or one with an earlier report."""
    smooth: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """Window of the moving average of learning curves, in evaluations; scores are not smoothed."""
    constants: Constants = "dqn_zoo"
    """Random and human scores for normalising Atari; table1: those of the papers in Table 1 of the NDQFN paper."""
    over: Annotated[str | None, tyro.conf.arg(metavar="METHOD")] = None
    """Baseline of the improvement figures; by default the first of iqn-star, iqn, qr-dqn and dqn that is present."""
    imports: Annotated[tuple[str, ...], IMPORTS, tyro.conf.UseAppendAction] = ()
    """Module with parts or environments of your own, which the quantile functions of such runs need; can be repeated.
    """


def write_report(given: ReportCommand, console: Console) -> None:
    """Read runs and write their report; progress is shown on standard error if that is a terminal."""
    if not given.runs:
        raise ConfigError("no RUNS are given: name run directories, or directories that contain some.")
    check_output(given.out)
    import_parts(*given.imports)
    screen = Console(stderr=True)
    with Progress(console=screen, transient=True, disable=not screen.is_terminal) as progress:
        task = progress.add_task("reading runs", total=None)
        runs = read_methods(given.runs, lambda name: progress.update(task, description=f"reading {escape(name)}"))
        comparison = RunComparison(runs, given.smooth, given.constants, given.over)
        sections: list[Section] = []
        progress.update(task, total=len(SECTIONS))
        for make in SECTIONS:
            sections += make(comparison, lambda what: progress.update(task, description=escape(what)))
            progress.advance(task)
        pictures = sum(len(section.pictures) for section in sections)
        progress.update(task, total=len(SECTIONS) + pictures, description="drawing")
        methods, envs = comparison.methods or ("no method",), plural(len(comparison.envs), "environment")
        title = f"{name_list(methods, 4)} in {envs}"
        about = f"A report on {plural(len(runs), 'run')}. The data are in results.csv, the tables in table.md."
        try:
            write_report_files(given.out, title, about, sections, runs, lambda: progress.advance(task))
        except OSError as error:
            raise StorageFault(f"{given.out} cannot be written to: {error}.") from None
    bad = sum(run.state != "finished" for run in runs)
    console.print(
        f"{escape(str(given.out / PAGE))}: {plural(len(runs), 'run')}, "
        + (f"[bold]{bad} of them unfinished or unusable[/]" if bad else "all finished")
        + f"; {plural(pictures, 'figure')}",
        highlight=False,
        soft_wrap=True,
    )
