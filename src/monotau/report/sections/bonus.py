"""The exploration bonus over training, and its changes when the target network is synchronised."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from monotau.report.comparison import RunComparison, RunsByEnv, choose_methods, group_by_env
from monotau.report.formatting import file_name, omitted
from monotau.report.page import Notify, Picture, Section
from monotau.report.plotting import NARROW, WIDE, add_legend, label, method_entries, method_styles, new_figure
from monotau.report.series import SEEDS, SeriesByMethod, plot_series, runs_with, series_by_env
from monotau.results.read import RunRecord

MAX_ENVS = 4
MAX_MARKS = 40
"""Most syncs that can be told apart on an axis."""
ZOOMED_SYNCS = 10
POINTS_PER_SYNC = 3
"""Logged values between two syncs that are needed to see their effect."""


def bonus_sections(comparison: RunComparison, notify: Notify) -> list[Section]:
    """Return the section on the mean bonus of each method, with the syncs of the target network."""
    runs = group_by_env(comparison.started)
    found = series_by_env(runs, "bonus_mean", RunRecord.training)
    if not found:
        return []
    pictures, notes = [], omitted("environments", [*found][MAX_ENVS:])
    for env in [*found][:MAX_ENVS]:
        notify(f"bonus over training: {env}")
        picture, rest = _draw(comparison, env, found[env], runs)
        pictures.append(picture)
        notes += omitted(f"in {env}, methods", rest)
    text = (
        "The bonus before its weight, averaged over the visited states, their actions, and the steps since the "
        "previous log line. A bonus that measures the distance of a predictor to the target network rises with every "
        "sync of that network, even if nothing is novel."
    )
    return [Section(title="Bonus over training", text=text + notes, pictures=pictures)]


def _draw(comparison: RunComparison, env: str, series: SeriesByMethod, runs: RunsByEnv) -> tuple[Picture, list[str]]:
    methods, rest = choose_methods(runs_with(runs, {env: series}))
    styles = method_styles(comparison.styled_methods)
    shown = {method: series[method] for method in methods}
    last = max(one.steps[-1] for some in shown.values() for one in some)
    syncs = sync_steps([run for method in methods for run in runs[env][method]], last)
    window = _zoom(syncs, shown) if len(syncs) > MAX_MARKS else None
    figure, axes = new_figure(WIDE if window else NARROW, 3.3, 2 if window else 1)
    plot_series(axes[0], shown, styles, methods)
    axes[0].set_title(label(env, 60), fontsize="medium")
    axes[0].set(ylabel="bonus, in units of return", xlim=(0, None), ylim=(0, None))
    if window:
        low, high = window
        inside = {method: [one.between(low, high) for one in some] for method, some in shown.items()}
        nonempty = {method: [one for one in some if len(one.steps)] for method, some in inside.items()}
        plot_series(axes[1], nonempty, styles, methods)
        _mark(axes[1], syncs[(syncs >= low) & (syncs <= high)], full_height=True)
        axes[1].set_title(f"{ZOOMED_SYNCS} syncs in the middle of training", fontsize="medium")
        axes[1].set(xlim=window, ylim=(0, None))
    elif len(syncs) <= MAX_MARKS:
        _mark(axes[0], syncs, full_height=False)
    add_legend(figure, method_entries(methods, styles))
    caption = f"Mean bonus in {env}. {_describe(syncs, window is not None)} {SEEDS}"
    return Picture(name=f"bonus-{file_name(env)}", figure=figure, caption=caption), rest


def sync_steps(runs: Sequence[RunRecord], last: float | int) -> Float[np.ndarray, " n"]:
    """Return the steps at which the target networks were copied; none if they are averages, or the runs differ."""
    names = ("update.sync_every_steps", "replay.warmup_steps", "update.sync")
    rules = {tuple(run.settings.get(name) for name in names) for run in runs}
    period, warmup, how = rules.pop() if len(rules) == 1 else (None, None, None)
    if how == "average" or type(period) is not int or type(warmup) is not int or period < 1:
        return np.zeros(0)
    first = max(1, -(-warmup // period))
    return period * np.arange(first, last // period + 1, dtype=np.float64)


def _zoom(syncs: Float[np.ndarray, " n"], series: SeriesByMethod) -> tuple[float, float] | None:
    """Return the steps around the middle syncs, if values are logged often enough to see the effect of a sync."""
    start = len(syncs) // 2 - ZOOMED_SYNCS // 2
    low, high = float(syncs[start]), float(syncs[start + ZOOMED_SYNCS])
    points = max(len(one.between(low, high).steps) for some in series.values() for one in some)
    return (low, high) if points >= POINTS_PER_SYNC * ZOOMED_SYNCS else None


def _describe(syncs: Float[np.ndarray, " n"], zoomed: bool) -> str:
    if not len(syncs):
        return "No syncs are marked: the target network is an average, was never synced, or the methods differ in this."
    if zoomed:
        return "Right: a part of the left panel, with syncs of the target network as dotted lines."
    if len(syncs) <= MAX_MARKS:
        return "Ticks below the axis are syncs of the target network."
    return f"The {len(syncs)} syncs of the target network are too many to mark, and values are logged too rarely."


def _mark(ax: Axes, syncs: Float[np.ndarray, " n"], *, full_height: bool) -> None:
    """Mark syncs with dotted lines over the full height, or with ticks below the axis, where no curve runs."""
    ax.vlines(
        syncs,
        0 if full_height else -0.018,
        1 if full_height else 0,
        transform=ax.get_xaxis_transform(),
        color="0.35",
        linewidth=0.9,
        clip_on=full_height,
        linestyle=":" if full_height else "-",
    )
