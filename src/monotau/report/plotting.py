"""Colours, line styles, legends, text and axes of every figure, and panels of learning curves."""

import io
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

# The palette of Okabe and Ito, which colour-blind readers can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
LINE_COLOURS = COLOURS[:-1]
"""All but yellow, which is too faint for lines on white."""
DASHES = ("-", (0, (5, 1.5)), "-.")
MARKERS = ("", "o", "s", "^", "D", "v")
REFERENCE: dict[str, Any] = {"color": "0.35", "linestyle": ":", "linewidth": 1.2}
"""Style of reference lines, such as random play."""

WIDE, NARROW = 9.6, 7.4
"""Width in inches of figures with several panels, and of others."""
MAX_COLUMNS = 3
DPI = 150

CHARACTERS_PER_INCH = 13
"""Approximate width of legend text."""
LEGEND_LINE_INCHES = 0.19

MAX_INTERVALS = 8
"""Figures with more methods omit intervals, which would only cover each other."""

LineStyle = dict[str, Any]
"""Keyword arguments of matplotlib's `plot`."""


def new_figure(
    width: float | int,
    height: float | int,
    panels: int = 1,
    columns: int | None = None,
    ratios: Sequence[float | int] | None = None,
) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels in rows of `columns`; matplotlib's global state is not used.

    `ratios` are the relative widths of the columns.
    """
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    columns = columns or panels
    grid = figure.add_gridspec(-(-panels // columns), columns, width_ratios=ratios)
    axes = [figure.add_subplot(grid[number // columns, number % columns]) for number in range(panels)]
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(True, alpha=0.25, linewidth=0.6)
    return figure, axes


def panel_figure(count: int, height: float | int) -> tuple[Figure, list[Axes]]:
    """Return a figure with `count` panels of this height, as wide as the page unless there is only one."""
    columns = panel_columns(count)
    return new_figure(WIDE if columns > 1 else NARROW, height * -(-count // columns), count, columns)


def panel_columns(count: int) -> int:
    """Return the number of panels in a row; four panels form a square."""
    return 2 if count == 4 else min(count, MAX_COLUMNS)


def label(text: str, width: int = 44, lines: int = 3) -> str:
    """Return a name from a file so that matplotlib draws it literally, wrapped into a few lines."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    wrapped = textwrap.wrap(printable, width, max_lines=lines, placeholder=" …", break_long_words=True) or ["-"]
    plain = "\n".join(wrapped).replace("$", r"\$")  # a dollar sign would start a formula
    return f" {plain}" if plain.startswith("_") else plain  # legends skip labels that start with an underscore


def method_styles(methods: Sequence[str]) -> dict[str, LineStyle]:
    """Return a line style for each method: methods differ in colour first, then in dashes, then in markers.

    Figures of the same report pass the same methods, so that a method looks the same in all of them.
    """
    styles = [(colour, dash, marker) for marker in MARKERS for dash in DASHES for colour in LINE_COLOURS]
    return {
        method: {"color": colour, "linestyle": dash, "marker": marker, "markersize": 3, "markevery": 0.1}
        for method, (colour, dash, marker) in zip(methods, styles * (1 + len(methods) // len(styles)), strict=False)
    }


def add_legend(figure: Figure, entries: Sequence[tuple[str, Line2D]]) -> None:
    """Add a legend below all panels, where it covers no curve, and enlarge the figure to make room for it."""
    labels, handles = [text for text, _ in entries], [handle for _, handle in entries]
    longest = max((len(line) for text in labels for line in text.splitlines()), default=1)
    fitting = max(1, min(len(labels), int(figure.get_figwidth() * CHARACTERS_PER_INCH / (longest + 8))))
    rows = -(-len(labels) // fitting)
    columns = -(-len(labels) // rows)  # the smallest number of columns with this number of rows
    lines = sum(text.count("\n") + 1 for text in labels)
    figure.set_figheight(figure.get_figheight() + LEGEND_LINE_INCHES * -(-lines // columns))
    figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=columns, fontsize=8)


def method_entries(methods: Sequence[str], styles: Mapping[str, LineStyle]) -> list[tuple[str, Line2D]]:
    """Return the legend entries of methods."""
    return [(label(method), Line2D([], [], linewidth=1.8, **styles[method])) for method in methods]


def format_thousands(number: float) -> str:
    """Return a number for an axis: 250k, 1.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.4g}{letter}"
    return f"{number:.4g}"


def use_thousands(axis: Axis) -> None:
    """Label the ticks of an axis as 250k and 1.5M."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: format_thousands(value)))


def label_steps(ax: Axes, text: str = "training steps") -> None:
    """Label the horizontal axis of a curve over training."""
    ax.set_xlabel(text)
    ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    use_thousands(ax.xaxis)


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A learning curve with its 95 % interval, if there are several seeds."""

    steps: Float[np.ndarray, " T"]
    values: Float[np.ndarray, " T"]
    ends: Float[np.ndarray, "2 T"] | None
    seeds: int
    shortened: bool
    """Whether the curve ends with the shortest run although others are longer."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Learning curves of several methods."""

    title: str
    curves: Mapping[str, Curve]
    reference: tuple[str, float] | None = None
    """Label and value of a reference line."""


def plot_curves(ax: Axes, panel: Panel, styles: Mapping[str, LineStyle], *, intervals: bool) -> None:
    """Plot the learning curves of a panel."""
    for method, curve in panel.curves.items():
        if curve.ends is not None and intervals:
            ax.fill_between(curve.steps, *curve.ends, color=styles[method]["color"], alpha=0.16, linewidth=0)
        point = {"marker": "o", "markersize": 4, "markevery": 1} if len(curve.steps) == 1 else {}
        ax.plot(curve.steps, curve.values, linewidth=1.6, **styles[method] | point)
    if panel.reference:
        ax.axhline(panel.reference[1], **REFERENCE)
    ax.set_xlim(left=0)
    use_thousands(ax.yaxis)


def draw_panels(panels: Sequence[Panel], styles: Mapping[str, LineStyle], *, xlabel: str, ylabel: str) -> Figure:
    """Draw one panel of learning curves for each environment, with one legend below all of them."""
    columns = panel_columns(len(panels))
    methods = [method for method in styles if any(method in panel.curves for panel in panels)]
    figure, axes = panel_figure(len(panels), 2.5 if columns > 1 else 4.2)
    for number, (ax, panel) in enumerate(zip(axes, panels, strict=True)):
        plot_curves(ax, panel, styles, intervals=len(methods) <= MAX_INTERVALS)
        ax.set_title(label(panel.title, 34 if columns > 1 else 70), fontsize="medium")
        label_steps(ax, xlabel if number + columns >= len(panels) else "")
        if number % columns == 0:
            ax.set_ylabel(ylabel)
    entries = method_entries(methods, styles)
    reference = next((panel.reference for panel in panels if panel.reference), None)
    if reference:
        entries.append((reference[0], Line2D([], [], **REFERENCE)))
    add_legend(figure, entries)
    return figure


def render(figure: Figure, suffix: str) -> bytes:
    """Return a figure as the contents of a PNG or SVG file; equal figures give equal bytes."""
    data = io.BytesIO()
    # Text becomes paths, so that the figure looks the same on a machine with other fonts.
    with mpl.rc_context({"svg.fonttype": "path", "svg.hashsalt": "monotau"}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # letters that the font lacks are drawn as boxes
        metadata = {"Date": None} if suffix == "svg" else {}
        figure.savefig(data, format=suffix, dpi=DPI, metadata=metadata)
    return data.getvalue()
