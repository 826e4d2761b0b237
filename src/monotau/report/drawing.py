"""Figures that compare methods: lines with intervals, bars, dots and a matrix."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from monotau.report.curves import Curve
from monotau.report.figures import COLOURS, LINE_COLOURS, STYLES, new_figure

MARKERS = ("", "o", "s", "^", "D", "v")
"""Told apart by these, when there are more methods than colours and styles."""

WIDE, NARROW = 9.6, 7.4
"""Inches of figures with panels, and of others."""

CHARACTERS_PER_INCH = 13
"""Of a legend, roughly."""

LEGEND_LINE = 0.19
"""Inches."""

MOST_BANDS = 8
"""Methods up to which intervals are drawn; those of more cannot be told apart."""

BETTER, WORSE = COLOURS[0], COLOURS[1]


Look = dict[str, Any]
"""How a line is drawn, as matplotlib takes it."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Curves of methods, under a title."""

    title: str
    curves: Mapping[str, Curve]
    level: tuple[str, float] | None = None
    """A reference and what it is called."""


def shown(text: str, width: int = 44, lines: int = 3) -> str:
    """Return a name from outside as text that matplotlib draws as it stands, in a few lines."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    wrapped = textwrap.wrap(printable, width, max_lines=lines, placeholder=" …", break_long_words=True) or ["-"]
    plain = "\n".join(wrapped).replace("$", r"\$")  # else it would be mathematics
    return f" {plain}" if plain.startswith("_") else plain  # with an underscore it would have no place in a legend


def looks(methods: Sequence[str]) -> dict[str, Look]:
    """Return how the line of each method is drawn, in all figures: by colour, then by style, then by marker."""
    kinds = [(colour, style, marker) for marker in MARKERS for style in STYLES for colour in LINE_COLOURS]
    return {
        method: {"color": colour, "linestyle": style, "marker": marker, "markersize": 3, "markevery": 0.1}
        for method, (colour, style, marker) in zip(methods, kinds * (1 + len(methods) // len(kinds)), strict=False)
    }


def draw_panels(
    panels: Sequence[Panel], look: Mapping[str, Look], *, xlabel: str, ylabel: str, columns: int = 3
) -> Figure:
    """Draw curves with their intervals, a panel for each environment, and one legend below all of them."""
    columns = min(columns, len(panels))
    methods = [method for method in look if any(method in panel.curves for panel in panels)]
    entries = [(shown(method), Line2D([], [], linewidth=1.8, **look[method])) for method in methods]
    level = next((panel.level for panel in panels if panel.level), None)
    if level:
        entries.append((level[0], Line2D([], [], color="0.35", linestyle=":", linewidth=1.2)))
    width = WIDE if columns > 1 else NARROW
    labels, handles = [label for label, _ in entries], [handle for _, handle in entries]
    ncols, needed = _legend_size(labels, width)
    rows = -(-len(panels) // columns)
    figure, axes = new_figure(width, 0.5 + (2.3 if columns > 1 else 3.8) * rows + needed, len(panels), columns)
    for number, (ax, panel) in enumerate(zip(axes, panels, strict=True)):
        for method, curve in panel.curves.items():
            if curve.ends is not None and len(methods) <= MOST_BANDS:
                ax.fill_between(curve.steps, *curve.ends, color=look[method]["color"], alpha=0.16, linewidth=0)
            alone = {"marker": "o", "markersize": 4, "markevery": 1} if len(curve.steps) == 1 else {}  # no line
            ax.plot(curve.steps, curve.values, linewidth=1.6, **look[method] | alone)
        if panel.level:
            ax.axhline(panel.level[1], color="0.35", linestyle=":", linewidth=1.2)
        ax.set_title(shown(panel.title, 34 if columns > 1 else 70), fontsize="medium")
        if number + columns >= len(panels):
            ax.set_xlabel(xlabel)
        if number % columns == 0:
            ax.set_ylabel(ylabel)
        _label(ax)
    figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=ncols, fontsize=8)
    return figure


def _legend_size(labels: Sequence[str], width: float) -> tuple[int, float]:
    """Return how many columns fit under a figure, and the inches that the legend then takes."""
    longest = max((len(line) for label in labels for line in label.splitlines()), default=1)
    columns = max(1, min(len(labels), int(width * CHARACTERS_PER_INCH / (longest + 8))))
    columns = -(-len(labels) // -(-len(labels) // columns))  # as few as make no more rows
    lines = sum(label.count("\n") + 1 for label in labels)
    return columns, LEGEND_LINE * -(-lines // columns)


def _label(ax: Axes) -> None:
    ax.set_xlim(left=0)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: thousands(y)))
    ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: thousands(x)))


def thousands(number: float) -> str:
    """Return a number as one reads it on an axis: 250k, 1.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.4g}{letter}"
    return f"{number:.4g}"


def draw_bars(panels: Mapping[str, Mapping[str, float]], *, xlabel: str) -> Figure:
    """Draw a bar with its number for each environment in each panel, the largest on top; giants are cut and say so."""
    columns = 1 if len(panels) == 1 else 2
    rows, most = -(-len(panels) // columns), max(len(bars) for bars in panels.values())
    width = NARROW if columns == 1 else WIDE
    figure, axes = new_figure(width, rows * (0.9 + 0.21 * most) + 0.3, len(panels), columns)
    for number, (ax, (title, bars)) in enumerate(zip(axes, panels.items(), strict=True)):
        names = sorted(bars, key=lambda name: bars[name])
        values = np.array([100 * bars[name] for name in names])
        end = cut_at(values)
        drawn = values.clip(-end, end)
        ax.barh(range(len(names)), drawn, color=[BETTER if value > 0 else WORSE for value in values], height=0.7)
        for place, (value, length) in enumerate(zip(values, drawn, strict=True)):
            cut = "" if value == length else (" ▸" if value > 0 else "◂ ")
            told = f"{value:+,.0f} %" if abs(value) >= 10 else f"{value:+.1f} %"
            text = told + cut if value > 0 else cut + told
            side = "left" if value >= 0 else "right"
            ax.annotate(
                text, (length, place), (3 if value >= 0 else -3, 0), textcoords="offset points",
                ha=side, va="center", fontsize=7,
            )  # fmt: skip
        ax.set_yticks(range(len(names)), [shown(name, 40, 1) for name in names], fontsize=8)
        low, high = min(0.0, drawn.min()), max(0.0, drawn.max())
        room = 0.24 * max(high - low, 1.0)  # for the numbers, which stand beyond the bars
        ax.set_xlim(low - (room if low < 0 else 0.05 * room), high + (room if high > 0 else 0.05 * room))
        ax.set_ylim(-0.6, len(names) - 0.4)
        ax.xaxis.set_major_locator(MaxNLocator(6))
        ax.axvline(0, color="0.2", linewidth=0.8)
        ax.grid(visible=False, axis="y")
        ax.set_title(shown(title, 60), fontsize="medium")
        if number + columns >= len(panels):
            ax.set_xlabel(xlabel)
    return figure


def cut_at(values: Float[np.ndarray, " N"]) -> float:
    """Return how long a bar may get, so that one giant does not make all others vanish."""
    longest, usual = float(np.abs(values).max()), max(100.0, 4 * float(np.median(np.abs(values))))
    return longest if longest <= 2 * usual else usual


def draw_profiles(
    profiles: Mapping[str, tuple[Float[np.ndarray, " T"], Float[np.ndarray, "2 T"] | None]],
    taus: Float[np.ndarray, " T"],
    look: Mapping[str, Look],
    *,
    xlabel: str,
) -> Figure:
    """Draw the share of runs above each score."""
    labels = [shown(method) for method in profiles]
    ncols, needed = _legend_size(labels, NARROW)
    figure, (ax,) = new_figure(NARROW, 4.2 + needed)
    for method, (shares, ends) in profiles.items():
        if ends is not None and len(profiles) <= MOST_BANDS:
            ax.fill_between(taus, *(100 * ends), color=look[method]["color"], alpha=0.16, linewidth=0)
        ax.plot(taus, 100 * shares, linewidth=1.8, **look[method])
    ax.set(xlabel=xlabel, ylabel="runs that score more (%)", ylim=(-2, 102))
    ax.set_xlim(taus[0], taus[-1])
    handles = [Line2D([], [], linewidth=1.8, **look[method]) for method in profiles]
    figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=ncols, fontsize=8)
    return figure


def draw_probabilities(rows: Sequence[tuple[str, str, float, tuple[float, float] | None]]) -> Figure:
    """Draw the probability that one method beats another as a dot with its interval, a line for each pair."""
    labels = [f"{shown(one, 36, 2)}\nover {shown(other, 36, 2)}" for one, other, _, _ in rows]
    tall = [0.2 + 0.14 * label.count("\n") for label in labels]
    figure, (ax,) = new_figure(NARROW, 1.0 + sum(tall))
    places = -np.cumsum(tall)
    for place, (_, _, value, ends) in zip(places, rows, strict=True):
        if ends is not None:
            ax.plot(100 * np.array(ends), [place, place], color=COLOURS[0], linewidth=2.2, solid_capstyle="butt")
        ax.plot(100 * value, place, "o", color=COLOURS[0], markersize=6, clip_on=False, zorder=3)
    ax.axvline(50, color="0.35", linestyle=":", linewidth=1.2)
    ax.set_yticks(places, labels, fontsize=8)
    ax.set(xlabel="probability of improvement (%)", xlim=(0, 100), ylim=(places[-1] - 0.25, places[0] + 0.25))
    return figure


def draw_matrix(methods: Sequence[str], values: Float[np.ndarray, "N N"]) -> Figure:
    """Draw the probability that the method of a row beats that of a column."""
    size = 2.6 + 0.27 * len(methods)
    figure, (ax,) = new_figure(max(NARROW, size + 2.4), size)
    image = ax.imshow(100 * values, cmap="PuOr", vmin=0, vmax=100)
    for row, column in np.ndindex(values.shape):
        if row != column:
            share = 100 * values[row, column]
            ax.text(
                column, row, f"{share:.0f}", ha="center", va="center", fontsize=6.5,
                color="white" if abs(share - 50) > 35 else "black",
            )  # fmt: skip
    numbers = range(len(methods))
    ax.set_yticks(numbers, [f"{shown(name, 40, 1)}  {place + 1}" for place, name in enumerate(methods)], fontsize=8)
    ax.set_xticks(numbers, [str(place + 1) for place in numbers], fontsize=7)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    ax.set_xlabel("over the method of this number")
    figure.colorbar(image, ax=ax, shrink=0.6, label="probability of improvement (%)")
    return figure
