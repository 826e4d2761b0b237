"""Metrics that runs log during training, as figures over training steps."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from monotau.report.comparison import MAX_METHODS, RunComparison, RunsByEnv, choose_methods
from monotau.report.formatting import method_list, omitted
from monotau.report.page import Picture
from monotau.report.plotting import (
    LineStyle,
    add_legend,
    label,
    label_steps,
    method_entries,
    method_styles,
    panel_columns,
    panel_figure,
)
from monotau.results.read import RunRecord
from monotau.runs.metrics import Line

MAX_ENVS = 6
MAX_POINTS = 200
"""Longer series are averaged over neighbouring points before they are drawn."""
SEEDS = "Thick lines are means over the seeds that reached a step, thin lines single seeds; long lines are averaged."


@dataclass(frozen=True)
class Series:
    """A metric of one run over training steps."""

    steps: Float[np.ndarray, " n"]
    values: Float[np.ndarray, " n"]

    @classmethod
    def of(cls, lines: Sequence[Line], name: str) -> "Series":
        """Take the metric from the lines in which it is a finite number."""
        known = [line for line in lines if type(line.get(name)) in (int, float) and math.isfinite(line[name])]
        return cls(
            np.array([line["step"] for line in known], dtype=np.float64),
            np.array([line[name] for line in known], dtype=np.float64),
        )

    def between(self, low: float | int, high: float | int) -> "Series":
        """Return the part from step `low` to step `high`."""
        inside = (self.steps >= low) & (self.steps <= high)
        return Series(self.steps[inside], self.values[inside])

    def thinned(self, most: int = MAX_POINTS) -> "Series":
        """Average over as many neighbouring points as leaves at most `most` points."""
        if len(self.steps) <= most:
            return self
        starts = np.arange(0, len(self.steps), -(-len(self.steps) // most))
        counts = np.diff(starts, append=len(self.steps))
        return Series(np.add.reduceat(self.steps, starts) / counts, np.add.reduceat(self.values, starts) / counts)


def mean_series(series: Sequence[Series]) -> Series:
    """Average, at each step, the series that have a value there."""
    steps, places = np.unique(np.concatenate([one.steps for one in series]), return_inverse=True)
    values = np.concatenate([one.values for one in series])
    return Series(steps, np.bincount(places, weights=values) / np.maximum(np.bincount(places), 1))


SeriesByMethod = Mapping[str, Sequence[Series]]
"""The series of each method's runs."""


def series_by_env(
    runs: RunsByEnv, name: str, lines: Callable[[RunRecord], Sequence[Line]]
) -> dict[str, SeriesByMethod]:
    """Collect a metric of all runs; environments and methods without it are left out."""
    found: dict[str, SeriesByMethod] = {}
    for env, methods in runs.items():
        series = {method: [Series.of(lines(run), name) for run in some] for method, some in methods.items()}
        nonempty = {method: [one for one in some if len(one.steps)] for method, some in series.items()}
        if any(nonempty.values()):
            found[env] = {method: some for method, some in nonempty.items() if some}
    return found


def plot_series(
    ax: Axes, series: SeriesByMethod, styles: Mapping[str, LineStyle], methods: Sequence[str], scale: float | int = 1
) -> None:
    """Plot the mean of each method over its seeds, and single seeds as thin lines if there are several."""
    for method in methods:
        some, style = series.get(method, ()), styles[method]
        for one in some if len(some) > 1 else ():
            thin = one.thinned()
            ax.plot(thin.steps, scale * thin.values, color=style["color"], linewidth=0.6, alpha=0.45)
        if some:
            mean = mean_series(some).thinned()
            point = {"marker": "o", "markevery": 1} if len(mean.steps) == 1 else {}
            ax.plot(mean.steps, scale * mean.values, linewidth=1.8, **style | point)
    label_steps(ax)


def draw_percentages(
    comparison: RunComparison,
    found: Mapping[str, SeriesByMethod],
    runs: RunsByEnv,
    *,
    ylabel: str,
    name: str,
    caption: str,
) -> tuple[Picture, str]:
    """Draw a fraction in percent, one panel for each environment; also return a note on what is not shown."""
    shown = {env: found[env] for env in [*found][:MAX_ENVS]}
    methods, rest = choose_methods(runs_with(runs, shown))
    styles = method_styles(comparison.styled_methods)
    figure, axes = panel_figure(len(shown), 2.9)
    for ax, (env, series) in zip(axes, shown.items(), strict=True):
        plot_series(ax, series, styles, methods, 100)
        top = max(1.0, ax.get_ylim()[1])
        ax.set_title(label(env, 34), fontsize="medium")
        ax.set(xlim=(0, None), ylim=(-0.03 * top, top))  # a line at 0 remains visible above the axis
    for ax in axes[:: panel_columns(len(shown))]:
        ax.set_ylabel(f"{ylabel} (%)")
    add_legend(figure, method_entries(methods, styles))
    note = omitted("environments", [*found][MAX_ENVS:]) + omitted("methods", rest)
    zero = [
        method
        for method in methods
        if not any(one.values.any() for series in shown.values() for one in series.get(method, ()))
    ]
    hidden = f" Always 0, so their lines coincide: {method_list(zero, MAX_METHODS)}." if len(zero) > 1 else ""
    return Picture(name=name, figure=figure, caption=f"{caption} {SEEDS}{hidden}"), note


def runs_with(runs: RunsByEnv, found: Mapping[str, SeriesByMethod]) -> RunsByEnv:
    """Return the runs of the environments and methods that have series."""
    return {env: {method: runs[env][method] for method in series} for env, series in found.items()}
