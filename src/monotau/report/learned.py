"""The sections of a report about what was learned, beyond returns."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from monotau.report.bonus import bonus_section
from monotau.report.choosing import listed
from monotau.report.crossing import crossing_section, dead_section
from monotau.report.quantiles import quantile_section
from monotau.report.reading import ReportedRun
from monotau.report.sections import Section
from monotau.report.solving import solving_section
from monotau.report.truth import truth_section

MOST_NAMED = 30
"""Runs of each state that are named."""


def learned_sections(runs: Sequence[ReportedRun], tell: Callable[[str], None]) -> list[Section]:
    """Show quantile functions, crossing, bonus, dead increments, distance to the truth and steps to solve.

    A section without anything to show is left out. What cannot be drawn of the runs is said in the first.
    """
    known = [run for run in runs if run.state in ("finished", "unfinished")]
    counting = {run.method for run in known if run.counts}
    # In the order of all figures, so that a method looks the same in each.
    everyone = sorted({run.method for run in known}, key=lambda method: (method not in counting, method))
    sections = [
        *quantile_section(known, tell),
        *crossing_section(known, everyone, tell),
        *bonus_section(known, everyone, tell),
        *dead_section(known, everyone, tell),
        *truth_section(known, tell),
        *solving_section(known, tell),
    ]
    about = _about(runs)
    if not sections or not about:
        return sections
    return [replace(sections[0], text=f"{sections[0].text} {about}"), *sections[1:]]


def _about(runs: Sequence[ReportedRun]) -> str:
    """Name the runs that are shown in part or not at all."""
    states = {
        "unfinished": "Unfinished, shown as far as they came",
        "damaged": "Damaged, not shown",
        "repeated": "Repeated, not shown",
        "not started": "Not started",
    }
    told = []
    for state, words in states.items():
        shown = [run for run in runs if run.state == state]
        names = [
            f"{run.directory.name} ({run.reason.rstrip('.')})" if run.reason else run.directory.name for run in shown
        ]
        told += [f"{words}: {listed(names, MOST_NAMED)}."] if names else []
    return " ".join(told)
