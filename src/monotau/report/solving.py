"""How soon Deep Sea was solved."""

from collections.abc import Callable, Sequence

import numpy as np

from monotau.report.choosing import grouped
from monotau.report.reading import ReportedRun
from monotau.report.sections import Section, Table

DEEP_SEA = "monotau/DeepSea-v0"
USUAL_SIZE = 10
"""Of a world that is made without saying one."""
SOLVED = 0.9
"""The best return is 0.99, and that of never going for the treasure 0."""


def solving_section(runs: Sequence[ReportedRun], tell: Callable[[str], None]) -> list[Section]:
    """Tell how many seeds solved each Deep Sea, and after how much play."""
    sizes = {run.env: size for run in runs if (size := size_of(run)) is not None}
    if not sizes:
        return []
    tell("steps to solve Deep Sea")
    groups = grouped([run for run in runs if run.env in sizes])
    rows = []
    for env in sorted(groups, key=lambda env: (sizes[env], env)):
        for method, seeds in groups[env].items():
            steps = [step for step in map(solved_at, seeds) if step is not None]
            unfinished = sum(run.state != "finished" for run in seeds)
            count = f"{len(steps)} of {len(seeds)}" + (f" ({unfinished} unfinished)" if unfinished else "")
            rows.append((env, method, count, _range(steps), _range([step / sizes[env] for step in steps])))
    text = (
        "A run has solved its world from the first evaluation on of which it and all later ones have a mean return "
        f"above {SOLVED}. An episode has as many steps as the world has rows. Steps are counted at evaluations, so "
        "they are rounded up to the next one. Stochastic worlds, whose best return is lower, are left out."
    )
    table = Table(
        caption="Seeds that solved Deep Sea, and when: the median over them, and their range.",
        columns=("environment", "method", "seeds solved", "steps", "episodes"),
        rows=rows,
    )
    return [Section(title="Steps to solve Deep Sea", text=text, tables=[table])]


def solved_at(run: ReportedRun) -> int | None:
    """Return the step from which on every evaluation was good, if there is one."""
    first = None
    for line in reversed(run.evaluations()):
        if not line["return_mean"] > SOLVED:
            break
        first = int(line["step"])
    return first


def size_of(run: ReportedRun) -> int | None:
    """Return the size of a run's Deep Sea, unless it plays something else, or a stochastic one."""
    kwargs = run.settings.get("env.kwargs")
    if run.settings.get("env.id") != DEEP_SEA or not isinstance(kwargs, dict) or kwargs.get("stochastic"):
        return None
    size = kwargs.get("size", USUAL_SIZE)
    return size if type(size) is int and size > 0 else None


def _range(values: Sequence[float | int]) -> str:
    """Median, and between what they lie."""
    if not values:
        return "-"
    spread = f" ({min(values):,.0f} to {max(values):,.0f})" if len(values) > 1 else ""
    return f"{np.median(values):,.0f}{spread}"
