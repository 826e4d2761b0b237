"""How often quantile functions fall over training, and how many increments of those that cannot are dead."""

from collections.abc import Callable, Sequence

import numpy as np

from monotau.report.choosing import grouped, has_curve
from monotau.report.reading import ReportedRun
from monotau.report.sections import Section, Table
from monotau.report.traces import Traces, draw_shares, traces_by_env, training_lines

MOST_ROWS = 60
"""Of a table; of more, environments are taken together."""


def crossing_section(
    runs: Sequence[ReportedRun], everyone: Sequence[str], tell: Callable[[str], None]
) -> list[Section]:
    """Show which share of the changes of quantile functions are falls, at each evaluation."""
    tell("crossing over training")
    groups = grouped([run for run in runs if has_curve(run)])
    found = traces_by_env(groups, "crossing", ReportedRun.evaluations)
    if not found:
        return []
    picture, room = draw_shares(
        found,
        groups,
        everyone,
        "falls among changes",
        "crossing",
        "Crossing over training, at each evaluation.",
    )
    text = (
        "A quantile function must not fall. Each evaluation asks for it at 1001 fractions, in up to 64 states that it "
        "has visited and for all actions, and counts which share of its changes are falls. The increments of "
        "incremental IQN are asked for in one set here, within which they cannot fall; between sets they do."
    )
    return [Section(title="Crossing over training", text=text + room, pictures=[picture], tables=[_table(found)])]


def _table(found: dict[str, Traces]) -> Table:
    """Tell crossing at the end of each run, over seeds; over environments too where there are too many."""
    ends = [
        (method, env, [float(trace.values[-1]) for trace in traces])
        for env, methods in found.items()
        for method, traces in methods.items()
    ]
    if len(ends) > MOST_ROWS:
        together: dict[str, list[float]] = {}
        for method, _, values in ends:
            together.setdefault(method, []).extend(values)
        ends = [(method, "all together", values) for method, values in together.items()]
    return Table(
        caption="Falls among changes at the last evaluation of each run.",
        columns=("environment", "method", "runs", "mean", "max"),
        rows=[
            (env, method, str(len(values)), f"{np.mean(values):.2%}", f"{max(values):.2%}")
            for method, env, values in ends
        ],
    )


def dead_section(runs: Sequence[ReportedRun], everyone: Sequence[str], tell: Callable[[str], None]) -> list[Section]:
    """Show which share of the increments is zero wherever the batch looks."""
    tell("dead increments")
    groups = grouped(runs)
    found = traces_by_env(groups, "dead_increments", training_lines)
    if not found:
        return []
    picture, room = draw_shares(
        found, groups, everyone, "dead increments", "dead-increments", "Dead increments over training."
    )
    text = (
        "An increment is dead if it is zero in every state of a batch: its gradient is zero too, and the curve stays "
        "level there. Only methods that are made of increments have them."
    )
    return [Section(title="Dead increments", text=text + room, pictures=[picture])]
