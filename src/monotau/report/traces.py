"""Numbers that runs log while they train, as lines over steps: crossing, bonus, dead increments."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

from monotau.report.choosing import (
    MOST_METHODS,
    Grouped,
    Look,
    add_legend,
    columns_of,
    drawn_methods,
    left_out,
    listed,
    looks,
    panels,
    wrapped,
)
from monotau.report.reading import ReportedRun
from monotau.report.sections import Picture
from monotau.runs.metrics import Line

MOST_ENVS = 6
MOST_POINTS = 200
"""Points of a line; more are averaged over neighbours."""
SEEDS = "Thick: mean over the seeds that came so far; thin: each seed. Lines of many points are averages of neighbours."


@dataclass(frozen=True)
class Trace:
    """A number of one run over its steps."""

    steps: Float[np.ndarray, " n"]
    values: Float[np.ndarray, " n"]

    @classmethod
    def of(cls, lines: Sequence[Line], name: str) -> "Trace":
        """Read it from the lines that have it as a finite number."""
        known = [line for line in lines if type(line.get(name)) in (int, float) and math.isfinite(line[name])]
        return cls(
            np.array([line["step"] for line in known], dtype=np.float64),
            np.array([line[name] for line in known], dtype=np.float64),
        )

    def within(self, low: float | int, high: float | int) -> "Trace":
        """Keep the steps from low to high."""
        inside = (self.steps >= low) & (self.steps <= high)
        return Trace(self.steps[inside], self.values[inside])

    def thinned(self, most: int = MOST_POINTS) -> "Trace":
        """Average as many neighbours as leaves no more than so many points."""
        if len(self.steps) <= most:
            return self
        starts = np.arange(0, len(self.steps), -(-len(self.steps) // most))
        counts = np.diff(starts, append=len(self.steps))
        return Trace(np.add.reduceat(self.steps, starts) / counts, np.add.reduceat(self.values, starts) / counts)


def mean_trace(traces: Sequence[Trace]) -> Trace:
    """Average, at each step, those that have a value there."""
    steps, places = np.unique(np.concatenate([trace.steps for trace in traces]), return_inverse=True)
    values = np.concatenate([trace.values for trace in traces])
    return Trace(steps, np.bincount(places, weights=values) / np.maximum(np.bincount(places), 1))


Traces = Mapping[str, Sequence[Trace]]
"""Of each method, those of its runs."""


def training_lines(run: ReportedRun) -> list[Line]:
    """Return what was logged between evaluations."""
    return [line for line in run.lines if line.get("kind") == "train"]


def traces_by_env(groups: Grouped, name: str, lines: Callable[[ReportedRun], Sequence[Line]]) -> dict[str, Traces]:
    """Collect a number of all runs; methods and environments without it are left away."""
    found: dict[str, Traces] = {}
    for env, methods in groups.items():
        traces = {method: [Trace.of(lines(run), name) for run in runs] for method, runs in methods.items()}
        told = {method: [trace for trace in ones if len(trace.steps)] for method, ones in traces.items()}
        if any(told.values()):
            found[env] = {method: ones for method, ones in told.items() if ones}
    return found


def plot_traces(ax: Axes, traces: Traces, styles: Mapping[str, Look], scale: float | int = 1) -> None:
    """Draw the mean of each method over its seeds, and the seeds as thin lines where there are several."""
    for method, (colour, style) in styles.items():
        ones = traces.get(method, ())
        for trace in ones if len(ones) > 1 else ():
            thin = trace.thinned()
            ax.plot(thin.steps, scale * thin.values, color=colour, linewidth=0.6, alpha=0.45)
        if ones:
            mean = mean_trace(ones).thinned()
            marker = "o" if len(mean.steps) == 1 else ""  # one point makes no line
            ax.plot(mean.steps, scale * mean.values, color=colour, linestyle=style, linewidth=1.8, marker=marker)
    ax.set_xlabel("training steps")
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.locator_params(axis="x", nbins=6)


def add_methods(figure: Figure, styles: Mapping[str, Look]) -> None:
    """Name the methods below the figure."""
    handles = [Line2D([], [], color=colour, linestyle=style, linewidth=1.8) for colour, style in styles.values()]
    add_legend(figure, handles, [*styles])


def draw_shares(
    found: Mapping[str, Traces], groups: Grouped, everyone: Sequence[str], what: str, name: str, caption: str
) -> tuple[Picture, str]:
    """Draw a share over steps, one panel for each environment; also say what there was no room for."""
    shown = {env: found[env] for env in [*found][:MOST_ENVS]}
    drawn, rest = drawn_methods(having(groups, shown))
    styles = looks(drawn, everyone)
    figure, axes = panels(len(shown), 2.9)
    for ax, (env, traces) in zip(axes, shown.items(), strict=True):
        plot_traces(ax, traces, styles, 100)
        top = max(1.0, ax.get_ylim()[1])
        ax.set_title(wrapped(env), fontsize="medium")
        ax.set(xlim=(0, None), ylim=(-0.03 * top, top))  # a line at 0 stays off the axis
    for ax in axes[:: columns_of(len(shown))]:
        ax.set_ylabel(f"{what}, %")
    add_methods(figure, styles)
    room = left_out("environments", [*found][MOST_ENVS:]) + left_out("methods", rest)
    level = [
        method for method in drawn if not any(one.values.any() for env in shown.values() for one in env.get(method, ()))
    ]
    zero = f" At 0 throughout, and drawn on one another: {listed(level, MOST_METHODS)}." if len(level) > 1 else ""
    return Picture(name=name, figure=figure, caption=f"{caption} {SEEDS}{zero}"), room


def having(groups: Grouped, found: Mapping[str, Traces]) -> Grouped:
    """Keep the runs of environments and methods of which there are traces."""
    return {env: {method: groups[env][method] for method in traces} for env, traces in found.items()}
