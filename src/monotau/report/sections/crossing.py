"""Crossing of quantile functions over training, and dead increments of heads that cannot cross."""

import numpy as np

from monotau.report.comparison import RunComparison, group_by_env, learns_distribution
from monotau.report.page import Notify, Section, Table
from monotau.report.series import SeriesByMethod, draw_percentages, series_by_env
from monotau.results.read import RunRecord

MAX_ROWS = 60
"""A longer table is aggregated over environments."""


def crossing_sections(comparison: RunComparison, notify: Notify) -> list[Section]:
    """Return the section on the fraction of decreases in quantile functions at each evaluation."""
    notify("crossing over training")
    runs = group_by_env([run for run in comparison.started if learns_distribution(run)])
    found = series_by_env(runs, "crossing", RunRecord.evaluations)
    if not found:
        return []
    picture, note = draw_percentages(
        comparison,
        found,
        runs,
        ylabel="decreases among changes",
        name="crossing",
        caption="Crossing over training, at each evaluation.",
    )
    text = (
        "A quantile function must not decrease. Each evaluation computes it at 1001 fractions for all actions in up to "
        "64 visited states, and counts the fraction of its changes that are decreases. Incremental IQN is evaluated at "
        "one set of fractions here, within which it cannot decrease; between sets it does."
    )
    return [Section(title="Crossing over training", text=text + note, pictures=[picture], tables=[_table(found)])]


def _table(found: dict[str, SeriesByMethod]) -> Table:
    """Return crossing at the end of runs by environment and method, or by method if there are too many rows."""
    ends = [
        (method, env, [float(one.values[-1]) for one in series])
        for env, methods in found.items()
        for method, series in methods.items()
    ]
    if len(ends) > MAX_ROWS:
        by_method: dict[str, list[float]] = {}
        for method, _, values in ends:
            by_method.setdefault(method, []).extend(values)
        ends = [(method, "all", values) for method, values in by_method.items()]
    return Table(
        caption="Decreases among changes at the last evaluation of each run.",
        columns=("environment", "method", "runs", "mean", "max"),
        rows=[
            (env, method, str(len(values)), f"{np.mean(values):.2%}", f"{max(values):.2%}")
            for method, env, values in ends
        ],
    )


def dead_increment_sections(comparison: RunComparison, notify: Notify) -> list[Section]:
    """Return the section on the fraction of increments that are zero in a whole batch."""
    notify("dead increments")
    runs = group_by_env(comparison.started)
    found = series_by_env(runs, "dead_increments", RunRecord.training)
    if not found:
        return []
    picture, note = draw_percentages(
        comparison,
        found,
        runs,
        ylabel="dead increments",
        name="dead-increments",
        caption="Dead increments over training.",
    )
    text = (
        "An increment is dead if it is zero in every state of a batch: its gradient is zero too, and the quantile "
        "function stays flat there. Only methods that learn increments have them."
    )
    return [Section(title="Dead increments", text=text + note, pictures=[picture])]
