"""What is drawn where there is more than a reader can take in, and how each method looks in every figure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from monotau.networks import HEADS
from monotau.report import cells
from monotau.report.figures import LINE_COLOURS, STYLES, new_figure
from monotau.report.reading import ReportedRun

MOST_METHODS = 12
"""Lines in a panel that can still be told apart."""
COLUMNS = 3
"""Panels in a row."""

Look = tuple[str, Any]
"""Colour and line style."""
Grouped = Mapping[str, Mapping[str, Sequence[ReportedRun]]]
"""Runs by environment and method, in the order of their seeds."""

LOOKS: Sequence[Look] = [(colour, style) for style in STYLES for colour in LINE_COLOURS]


def grouped(runs: Iterable[ReportedRun]) -> Grouped:
    """Sort runs by environment and method; environments with most methods come first."""
    envs: dict[str, dict[str, list[ReportedRun]]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        envs.setdefault(run.env, {}).setdefault(run.method, []).append(run)
    order = {method: place for place, method in enumerate(dict.fromkeys(run.method for run in runs))}
    return {
        env: {method: methods[method] for method in sorted(methods, key=order.__getitem__)}
        for env, methods in sorted(envs.items(), key=lambda item: (-len(item[1]), item[0]))
    }


def has_curve(run: ReportedRun) -> bool:
    """Whether a run learns distributions; of a head that is not known here, it may be."""
    kind = HEADS.get(str(run.settings.get("head.kind")))
    return kind is None or kind().has_spread


def one_of_each_head(first: Mapping[str, ReportedRun]) -> list[str]:
    """Order methods, given with a run of each, so that the first few are of as many kinds of heads as can be."""
    seen: dict[str, int] = {}
    rounds = []
    for place, (method, run) in enumerate(first.items()):
        kind = str(run.settings.get("head.kind"))
        seen[kind] = seen.get(kind, 0) + 1
        rounds.append((seen[kind], place, method))
    return [method for _, _, method in sorted(rounds)]


def drawn_methods(groups: Grouped) -> tuple[list[str], list[str]]:
    """Return the methods that are drawn in a figure of all groups, and those left out of it."""
    first = {method: runs[0] for methods in groups.values() for method, runs in methods.items()}
    order = one_of_each_head(first)
    drawn = {*order[:MOST_METHODS]}
    return [method for method in first if method in drawn], order[MOST_METHODS:]


def looks(drawn: Sequence[str], everyone: Sequence[str]) -> dict[str, Look]:
    """Give each drawn method the look of its place among all methods of the report, or the next that is free."""
    given: dict[str, Look] = {}
    for method in drawn:
        start = everyone.index(method)
        turns = (LOOKS[(start + turn) % len(LOOKS)] for turn in range(len(LOOKS)))
        given[method] = next(look for look in turns if look not in given.values())
    return given


def panels(count: int, height: float) -> tuple[Figure, list[Axes]]:
    """Return a figure as wide as the page with panels in rows of at most three."""
    columns = columns_of(count)
    rows = -(-count // columns)
    return new_figure(3.7 * max(columns, 2), height * rows, count, columns)


def columns_of(count: int) -> int:
    """Return how many of so many panels stand in a row; four make a square."""
    return 2 if count == 4 else min(count, COLUMNS)


def add_legend(figure: Figure, handles: Sequence[Line2D], labels: Sequence[str]) -> None:
    """Put one legend below all panels, where no curve can run through it, and make room for it."""
    broken = [wrapped(label, 48) for label in labels]
    longest = max(len(line) for label in broken for line in label.splitlines())
    columns = max(1, min(len(labels), 6, int(figure.get_figwidth() * 11 / (longest + 8))))
    lines = -(-len(labels) // columns) * max(1 + label.count("\n") for label in broken)
    figure.set_figheight(figure.get_figheight() + 0.2 * (lines - 1))
    figure.legend(handles, broken, frameon=False, loc="outside lower center", ncols=columns)


def wrapped(text: str, width: int = 36) -> str:
    """Break a long name into lines."""
    return fill(text, width)


def slug(text: str) -> str:
    """Return a name for files."""
    return re.sub(r"[^A-Za-z0-9.=]+", "-", text).strip("-")


def listed(names: Sequence[str], most: int = 5) -> str:
    """Name things, but not too many; between them stands no comma, which names of methods may have."""
    return cells.listed(names, most, "; ")


def left_out(what: str, names: Sequence[str]) -> str:
    """Say what is not drawn, if anything."""
    return f" Not drawn for want of room: {what} {listed(names)}." if names else ""
