"""Learning curves: mean returns in each environment, and aggregates over environments."""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
from jaxtyping import Float

from monotau.report.comparison import ComparableSet, RunComparison, budgets
from monotau.report.formatting import batches, method_list, name_list, plural
from monotau.report.page import Notify, Picture, Section
from monotau.report.plotting import MAX_INTERVALS, Curve, Panel, draw_panels, method_styles
from monotau.results.read import RunRecord
from monotau.results.statistics import Sample, interquartile_mean, interval

MAX_PANELS = 12
"""Panels of one figure."""

MAX_POINTS = 60
"""Points of an aggregate curve; each requires a bootstrap."""

STEPS = "training steps"


def trailing_mean(values: Float[np.ndarray, " T"], window: int) -> Float[np.ndarray, " T"]:
    """Return the mean of each value and up to `window` - 1 values before it."""
    return np.array([values[max(0, end - window) : end].mean() for end in range(1, len(values) + 1)])


def smoothed(run: RunRecord, window: int) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
    """Return the steps of a run's evaluations, and the moving average of their returns."""
    lines = run.evaluations()
    returns = np.array([line["return_mean"] for line in lines], dtype=np.float64)
    return np.array([line["step"] for line in lines], dtype=np.float64), trailing_mean(returns, window)


def mean_curve(runs: Sequence[RunRecord], window: int) -> Curve | None:
    """Return the mean over seeds at the steps at which all of them were evaluated; None if there are none."""
    curves = [smoothed(run, window) for run in runs]
    shared = reduce(np.intersect1d, [steps for steps, _ in curves])
    if not shared.size:
        return None
    values = np.stack([values[np.isin(steps, shared)] for steps, values in curves])  # seeds T
    return Curve(
        steps=shared,
        values=values.mean(axis=0),
        # The bootstrap draws whole curves, which at each step equals a bootstrap of the mean over seeds.
        ends=interval(lambda drawn: values[drawn.values.astype(int)].mean(axis=-2), Sample.of([range(len(runs))])),
        seeds=len(runs),
        shortened=any(steps[-1] > shared[-1] for steps, _ in curves),
    )


def uses_budget_share(comparison: RunComparison, chosen: ComparableSet) -> bool:
    """Whether steps are shown as a share of the budget: budgets differ between environments, but not within one."""
    found = [budgets(run for method in chosen.methods for run in comparison.cells[method, env]) for env in chosen.envs]
    return all(len(each) == 1 for each in found) and len({each[0] for each in found}) > 1


def aggregate_curve(comparison: RunComparison, chosen: ComparableSet, method: str) -> Curve | None:
    """Return the interquartile mean of normalised scores over environments and seeds at steps that all runs cover.

    Between two evaluations, a run counts with the earlier one.
    """
    share = uses_budget_share(comparison, chosen)
    cells = [
        [_normalised(comparison, chosen, run, share=share) for run in comparison.cells[method, env]]
        for env in chosen.envs
    ]
    every = [steps for cell in cells for steps, _ in cell]
    first, last = max(steps[0] for steps in every), min(steps[-1] for steps in every)
    grid = np.unique(np.concatenate(every))
    grid = grid[(grid >= first) & (grid <= last)]
    if not grid.size:
        return None
    grid = grid[np.unique(np.linspace(0, grid.size - 1, MAX_POINTS).round().astype(int))]
    samples = [Sample.of([[_value_at(curve, step) for curve in cell] for cell in cells]) for step in grid]
    ends = [found for sample in samples if (found := interval(interquartile_mean, sample)) is not None]
    return Curve(
        steps=grid,
        values=np.array([float(interquartile_mean(sample)) for sample in samples]),
        ends=np.stack(ends, axis=-1) if ends else None,
        seeds=min(len(cell) for cell in cells),
        shortened=any(steps[-1] > last for steps in every),
    )


def _normalised(
    comparison: RunComparison, chosen: ComparableSet, run: RunRecord, *, share: bool
) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
    steps, values = smoothed(run, comparison.smooth)
    random, reference = chosen.group.scales[run.env]
    return steps * (100 / run.settings["steps"] if share else 1), (values - random) / (reference - random)


def _value_at(curve: tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]], step: float) -> float:
    steps, values = curve
    return float(values[np.searchsorted(steps, step, side="right") - 1])


def env_panel(comparison: RunComparison, env: str) -> tuple[Panel, list[str]]:
    """Return the learning curves in one environment, and notes on curves that are short or missing."""
    found = {
        method: mean_curve(comparison.cells[method, env], comparison.smooth) for method in comparison.methods_in(env)
    }
    curves = {method: curve for method, curve in found.items() if curve}
    notes = [
        f"{method} in {env} ends at step {curve.steps[-1]:,.0f}, with its shortest run."
        for method, curve in curves.items()
        if curve.shortened
    ]
    notes += [
        f"{method} in {env} has no curve: its seeds were never evaluated at the same step."
        for method in found
        if method not in curves
    ]
    random = comparison.random_return(env)
    return Panel(title=env, curves=curves, reference=None if random is None else ("random play", random)), notes


def curve_sections(comparison: RunComparison, notify: Notify) -> list[Section]:
    """Return the section of learning curves, one panel for each environment."""
    panels, notes = [], []
    for env in comparison.envs:
        notify(f"learning curves in {env}")
        panel, found = env_panel(comparison, env)
        panels.append(panel)
        notes += found
    pictures = []
    for page, some in enumerate(batches(panels, MAX_PANELS), start=1):
        styles = method_styles(comparison.styled_methods)
        figure = draw_panels(some, styles, xlabel=STEPS, ylabel="return of an episode")
        caption = env_caption(comparison, some)
        pictures.append(Picture(name=f"curves-{page}", figure=figure, caption=caption))
    return [Section(title="Learning curves", text=" ".join(notes), pictures=pictures)] if pictures else []


def smoothing_note(comparison: RunComparison) -> str:
    """Say over how many evaluations curves are averaged, if over more than one."""
    if comparison.smooth == 1:
        return ""
    return f" Curves are moving averages over {comparison.smooth} evaluations (fewer at the start)."


def env_caption(comparison: RunComparison, panels: Sequence[Panel]) -> str:
    """Return the caption of learning curves in single environments."""
    seeds = {len(comparison.cells[method, panel.title]) for panel in panels for method in panel.curves}
    counted = f"{min(seeds)} to {max(seeds)} seeds" if len(seeds) > 1 else plural(max(seeds, default=0), "seed")
    bands = "bands are 95 % bootstrap intervals of the mean"
    if max(seeds, default=0) < 2:
        bands = "a single seed has no interval"
    elif len(comparison.methods) > MAX_INTERVALS:
        bands = f"intervals are drawn for up to {MAX_INTERVALS} methods"
    is_atari = any(panel.title.startswith("ALE/") for panel in panels)
    atari = " A step is one action of the agent: four frames on Atari." if is_atari else ""
    return (
        f"Mean evaluation return over {counted}; {bands}.{smoothing_note(comparison)} "
        f"A curve ends with its shortest run.{atari}"
    )


def aggregate_panel(comparison: RunComparison, chosen: ComparableSet, notify: Notify) -> tuple[Panel, list[str]]:
    """Return the aggregate learning curves of a set in percent, and the methods that have none."""
    curves, missing = {}, []
    for method in chosen.methods:
        notify(f"aggregate learning curve of {method}")
        curve = aggregate_curve(comparison, chosen, method)
        if curve is None:
            missing.append(method)
        else:
            ends = None if curve.ends is None else 100 * curve.ends
            curves[method] = replace(curve, values=100 * curve.values, ends=ends)
    return Panel(title=aggregate_title(chosen), curves=curves), missing


def aggregate_title(chosen: ComparableSet) -> str:
    """Return the title of an aggregate over the environments of a set."""
    title = f"Aggregate over {plural(len(chosen.envs), 'environment')}"
    return f"{chosen.group.name}: {title.lower()}" if chosen.group.reference == "human" else title


def aggregate_labels(comparison: RunComparison, chosen: ComparableSet) -> tuple[str, str]:
    """Return the labels of the horizontal and the vertical axis of aggregate learning curves."""
    share = uses_budget_share(comparison, chosen)
    return (
        "share of the training budget (%)" if share else STEPS,
        f"IQM of normalised scores (%)\n{scale_label(chosen)}",
    )


def aggregate_caption(comparison: RunComparison, chosen: ComparableSet, missing: Sequence[str]) -> str:
    """Return the caption of aggregate learning curves."""
    share = uses_budget_share(comparison, chosen)
    return (
        f"Interquartile mean of normalised scores over runs and environments ({name_list(chosen.envs)}). "
        f"{interval_note(chosen)}{smoothing_note(comparison)} A curve ends with its shortest run."
        + (" Budgets differ between environments, so steps are a share of the budget." if share else "")
        + (f" Runs of {method_list(missing)} have no step in common." if missing else "")
    )


def interval_note(chosen: ComparableSet) -> str:
    """Say what the bands of a figure are."""
    if len(chosen.methods) > MAX_INTERVALS:
        return f"Intervals are drawn for up to {MAX_INTERVALS} methods."
    return "Bands are pointwise 95 % bootstrap intervals; they require several seeds in every environment."


def scale_label(chosen: ComparableSet) -> str:
    """Say what the ends of the scale of normalised scores stand for."""
    return f"random play 0, {chosen.group.reference} 100"


def headline_sets(comparison: RunComparison) -> list[ComparableSet]:
    """Return the sets that the overview shows: the first of each group of environments."""
    return [*{chosen.group.name: chosen for chosen in reversed(comparison.drawn_sets)}.values()][::-1]


def aggregate_sections(comparison: RunComparison, notify: Notify) -> list[Section]:
    """Return the section of aggregate learning curves for the sets that the overview does not show."""
    pictures = []
    shown = headline_sets(comparison)
    for place, chosen in enumerate(comparison.drawn_sets, start=1):
        if chosen in shown:
            continue
        panel, missing = aggregate_panel(comparison, chosen, notify)
        if panel.curves:
            xlabel, ylabel = aggregate_labels(comparison, chosen)
            figure = draw_panels([panel], method_styles(comparison.styled_methods), xlabel=xlabel, ylabel=ylabel)
            caption = aggregate_caption(comparison, chosen, missing)
            pictures.append(Picture(name=f"iqm-{chosen.group.slug}-{place}", figure=figure, caption=caption))
    title = "Aggregate learning curves on more environments"
    return [Section(title=title, pictures=pictures)] if pictures else []
