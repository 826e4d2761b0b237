"""The exploration bonus over training, and what the syncs of the target network do to it."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from monotau.report.choosing import Grouped, drawn_methods, grouped, left_out, looks, slug, wrapped
from monotau.report.figures import new_figure
from monotau.report.reading import ReportedRun
from monotau.report.sections import Picture, Section
from monotau.report.traces import SEEDS, Traces, add_methods, having, plot_traces, traces_by_env, training_lines

MOST_ENVS = 4
MOST_TICKS = 40
"""Syncs that can still be told apart on an axis."""
ZOOMED_SYNCS = 10
POINTS_FOR_A_TOOTH = 3
"""Logged numbers between two syncs without which a saw-tooth cannot be seen."""


def bonus_section(runs: Sequence[ReportedRun], everyone: Sequence[str], tell: Callable[[str], None]) -> list[Section]:
    """Show the mean bonus of each method that has one, with the syncs of the target network."""
    groups = grouped(runs)
    found = traces_by_env(groups, "bonus_mean", training_lines)
    if not found:
        return []
    pictures, room = [], left_out("environments", [*found][MOST_ENVS:])
    for env in [*found][:MOST_ENVS]:
        tell(f"bonus over training: {env}")
        picture, rest = _draw(env, found[env], groups, everyone)
        pictures.append(picture)
        room += left_out(f"in {env}, methods", rest)
    text = (
        "The bonus before its weight, averaged over the states acted upon, over their actions and over the steps since "
        "the line before. A bonus that measures how far a predictor is from the target network rises with each sync of "
        "that network, also where nothing is new."
    )
    return [Section(title="Bonus over training", text=text + room, pictures=pictures)]


def _draw(env: str, traces: Traces, groups: Grouped, everyone: Sequence[str]) -> tuple[Picture, list[str]]:
    drawn, rest = drawn_methods(having(groups, {env: traces}))
    styles = looks(drawn, everyone)
    shown = {method: traces[method] for method in drawn}
    last = max(trace.steps[-1] for ones in shown.values() for trace in ones)
    syncs = sync_steps([run for method in drawn for run in groups[env][method]], last)
    window = _window(syncs, shown) if len(syncs) > MOST_TICKS else None
    figure, axes = new_figure(10.0 if window else 7.4, 3.3, 2 if window else 1)
    plot_traces(axes[0], shown, styles)
    axes[0].set_title(wrapped(env, 60), fontsize="medium")
    axes[0].set(ylabel="bonus, in units of return", xlim=(0, None), ylim=(0, None))
    about = _about(syncs, window is not None)
    if window:
        low, high = window
        inside = {method: [trace.within(low, high) for trace in ones] for method, ones in shown.items()}
        told = {method: [trace for trace in ones if len(trace.steps)] for method, ones in inside.items()}
        plot_traces(axes[1], told, styles)
        _mark(axes[1], syncs[(syncs >= low) & (syncs <= high)], whole=True)
        axes[1].set_title(f"{ZOOMED_SYNCS} syncs in the middle of training", fontsize="medium")
        axes[1].set(xlim=window, ylim=(0, None))
    elif len(syncs) <= MOST_TICKS:
        _mark(axes[0], syncs, whole=False)
    add_methods(figure, styles)
    caption = f"Mean bonus in {env}. {about} {SEEDS}"
    return Picture(name=f"bonus-{slug(env)}", figure=figure, caption=caption), rest


def sync_steps(runs: Sequence[ReportedRun], last: float | int) -> Float[np.ndarray, " n"]:
    """Return the steps up to the last at which target networks were synced; none if the runs differ in that."""
    rules = {(run.settings.get("update.sync_every_steps"), run.settings.get("replay.warmup_steps")) for run in runs}
    period, warmup = rules.pop() if len(rules) == 1 else (None, None)
    if type(period) is not int or type(warmup) is not int or period < 1:
        return np.zeros(0)
    first = max(1, -(-warmup // period))
    return period * np.arange(first, last // period + 1, dtype=np.float64)


def _window(syncs: Float[np.ndarray, " n"], traces: Traces) -> tuple[float, float] | None:
    """Return the steps around the syncs in the middle, if anything is logged often enough to see what they do."""
    start = len(syncs) // 2 - ZOOMED_SYNCS // 2
    low, high = float(syncs[start]), float(syncs[start + ZOOMED_SYNCS])
    points = max(len(trace.within(low, high).steps) for ones in traces.values() for trace in ones)
    return (low, high) if points >= POINTS_FOR_A_TOOTH * ZOOMED_SYNCS else None


def _about(syncs: Float[np.ndarray, " n"], zoomed: bool) -> str:
    if not len(syncs):
        return "Syncs are not marked: there were none, or the methods differ in them."
    if zoomed:
        return "Right: a part of the same, with syncs of the target network as dotted lines."
    if len(syncs) <= MOST_TICKS:
        return "Short marks below the axis: syncs of the target network."
    return f"The {len(syncs)} syncs of the target network are too many to mark, and too close for what was logged."


def _mark(ax: Axes, syncs: Float[np.ndarray, " n"], *, whole: bool) -> None:
    """Mark syncs by dotted lines over the whole height, or by short marks below the axis, where no line runs."""
    ax.vlines(
        syncs,
        0 if whole else -0.018,
        1 if whole else 0,
        transform=ax.get_xaxis_transform(),
        color="0.35",
        linewidth=0.9,
        clip_on=whole,
        linestyle=":" if whole else "-",
    )
