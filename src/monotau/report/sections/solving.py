"""How many steps each method needs to solve Deep Sea."""

from collections.abc import Sequence

import numpy as np

from monotau.report.comparison import RunComparison, group_by_env
from monotau.report.page import Notify, Section, Table
from monotau.results.read import RunRecord

DEEP_SEA = "monotau/DeepSea-v0"
DEFAULT_SIZE = 10
SOLVED = 0.9
"""The optimal return is 0.99; without the treasure it is at most 0."""


def solving_sections(comparison: RunComparison, notify: Notify) -> list[Section]:
    """Return the section on how many seeds solved Deep Sea, and when."""
    runs = comparison.started
    sizes = {run.env: size for run in runs if (size := deep_sea_size(run)) is not None}
    if not sizes:
        return []
    notify("steps to solve Deep Sea")
    by_env = group_by_env([run for run in runs if run.env in sizes])
    rows = []
    for env in sorted(by_env, key=lambda env: (sizes[env], env)):
        for method, seeds in by_env[env].items():
            steps = [step for step in map(solved_at, seeds) if step is not None]
            unfinished = sum(run.state != "finished" for run in seeds)
            count = f"{len(steps)} of {len(seeds)}" + (f" ({unfinished} unfinished)" if unfinished else "")
            rows.append((env, method, count, _range(steps), _range([step / sizes[env] for step in steps])))
    text = (
        f"A run has solved Deep Sea at the first evaluation from which on all mean returns are above {SOLVED}, so "
        "steps are rounded up to an evaluation. An episode has as many steps as the environment has rows. "
        "Stochastic variants, whose optimal return is lower, are left out."
    )
    table = Table(
        caption="Seeds that solved Deep Sea, and when: median over these seeds, and range.",
        columns=("environment", "method", "seeds solved", "steps", "episodes"),
        rows=rows,
    )
    return [Section(title="Steps to solve Deep Sea", text=text, tables=[table])]


def solved_at(run: RunRecord) -> int | None:
    """Return the step from which on every evaluation was above `SOLVED`, if there is one."""
    first = None
    for line in reversed(run.evaluations()):
        if not line["return_mean"] > SOLVED:
            break
        first = int(line["step"])
    return first


def deep_sea_size(run: RunRecord) -> int | None:
    """Return the size of a run's Deep Sea; None for stochastic variants and other environments."""
    kwargs = run.settings.get("env.kwargs")
    if run.settings.get("env.id") != DEEP_SEA or not isinstance(kwargs, dict) or kwargs.get("stochastic"):
        return None
    size = kwargs.get("size", DEFAULT_SIZE)
    return size if type(size) is int and size > 0 else None


def _range(values: Sequence[float | int]) -> str:
    """Return the median, with the range of several values."""
    if not values:
        return "-"
    spread = f" ({min(values):,.0f} to {max(values):,.0f})" if len(values) > 1 else ""
    return f"{np.median(values):,.0f}{spread}"
