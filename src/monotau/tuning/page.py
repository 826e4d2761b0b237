"""The page of a study: its best trial, how the objective depends on the settings, and a table of all trials."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullFormatter

from monotau.report.formatting import format_number, plural
from monotau.report.page import Picture, Section, Table, write_page
from monotau.report.plotting import (
    COLOURS,
    REFERENCE,
    add_legend,
    label,
    new_figure,
    panel_figure,
    use_thousands,
)
from monotau.tuning.space import Range, defaults_of
from monotau.tuning.study import LAST, UNPRUNED_SHARE, UNPRUNED_TRIALS, StudyRecord, numbered

if TYPE_CHECKING:
    import optuna

STATES = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
"""Our words for Optuna's states of trials that have ended."""

MARKS: Mapping[str, dict[str, Any]] = {
    "complete": {"color": COLOURS[0], "marker": "o"},
    "pruned": {"color": "0.6", "marker": "x"},
}
"""How trials are drawn, by their state."""

FEWEST_FOR_IMPORTANCE = 10
"""Complete trials that an estimate of the importance of settings needs."""


@final
@dataclass(frozen=True, kw_only=True)
class Row:
    """A trial as the page shows it."""

    number: int
    state: str
    value: float | None
    """Objective at the end, or where the trial was pruned."""
    step: int
    """The last evaluated step."""
    values: Mapping[str, Any]
    """The searched settings."""


def rows_of(study: "optuna.Study") -> list[Row]:
    """Return the trials that have begun, by number."""
    return [
        Row(
            number=number,
            state=STATES.get(trial.state.name, "running"),
            value=trial.value if trial.state.is_finished() else None,
            step=max(trial.intermediate_values, default=0),
            values=trial.params,
        )
        for number, trial in sorted(numbered(study).items())
    ]


def best_row(rows: Sequence[Row]) -> Row | None:
    """Return the complete trial with the highest objective, the first of several."""
    return max((row for row in rows if row.state == "complete"), key=lambda row: row.value or 0.0, default=None)


def write_study_page(directory: Path, study: "optuna.Study", record: StudyRecord) -> None:
    """Write the page of a study and its figures into its directory."""
    rows, config = rows_of(study), record.config
    counts = ", ".join(
        f"{sum(row.state == state for row in rows)} {state}" for state in dict.fromkeys(row.state for row in rows)
    )
    title = f"Tuning {config['preset']} on {config['env']['id']}"
    about = f"{plural(len(rows), 'trial')} of {config['steps']:,d} steps: {counts}."
    write_page(directory, title, about, [*_sections(study, rows, record)])


def _sections(study: "optuna.Study", rows: Sequence[Row], record: StudyRecord) -> list[Section]:
    drawn, best = [row for row in rows if row.value is not None], best_row(rows)
    shares = _importances(study) if sum(row.state == "complete" for row in rows) >= FEWEST_FOR_IMPORTANCE else {}
    pictures = [
        Picture(name="history", figure=_history(drawn), caption="Objective of each trial, and the best one so far."),
        Picture(
            name="slices",
            figure=_slices(drawn, record),
            caption="Objective over each setting; the dotted line is its default.",
        ),
    ]
    if shares:
        caption = "Importance of each setting for reaching the better trials (PED-ANOVA); the shares add up to 1."
        pictures.append(Picture(name="importance", figure=_importance(shares), caption=caption))
    found = [Section(title="Best settings", text=_verdict(rows, record), tables=_best_table(best, record))]
    if drawn:
        few = "" if shares else f" The importance of settings is shown from {FEWEST_FOR_IMPORTANCE} complete trials on."
        text = f"The objective is the mean return of the last {LAST} evaluations.{few}"
        found.append(Section(title="Objective", text=text, pictures=pictures))
    found.append(Section(title="Trials", tables=[_trial_table(rows, record)]))
    found.append(Section(title="Searched settings", text=_method(), tables=[_space_table(record)]))
    return found


def _verdict(rows: Sequence[Row], record: StudyRecord) -> str:
    best, defaults = best_row(rows), defaults_of(record.config, record.space)
    if best is None:
        return "No trial is complete."
    text = f"Trial {best.number} is the best: its objective is {format_number(best.value)}."
    usual = next((row for row in rows if row.values == defaults and row.value is not None), None)
    if usual is not None and usual is not best:
        text += f" The defaults reached {format_number(usual.value)} (trial {usual.number}, {usual.state})."
    return (
        f"{text}\n\nThe best of several trials is partly luck: each trial is one run with a seed of its own. To "
        "measure the settings, train with other seeds: monotau train --config best.yaml --seed S."
    )


def _method() -> str:
    return (
        "Trials are chosen by Optuna's TPE sampler, after a first one with the defaults. After "
        f"{UNPRUNED_TRIALS} complete trials and {100 * UNPRUNED_SHARE:.0f} % of its steps, a trial ends early if its "
        "objective is below the median of earlier trials at the same step. It then counts as pruned."
    )


def _best_table(best: Row | None, record: StudyRecord) -> list[Table]:
    if best is None:
        return []
    defaults = defaults_of(record.config, record.space)
    rows = [[setting, _plain(best.values[setting]), _plain(defaults[setting])] for setting in record.space]
    return [Table(caption=f"Settings of trial {best.number}.", columns=("setting", "best", "default"), rows=rows)]


def _trial_table(rows: Sequence[Row], record: StudyRecord) -> Table:
    ordered = sorted(rows, key=lambda row: (row.state != "complete", -(row.value or 0.0)))
    cells = [
        [
            f"{row.number}",
            row.state,
            format_number(row.value),
            f"{row.step:,d}",
            f"{record.config['seed'] + row.number}",
            *(_plain(row.values.get(setting, "-")) for setting in record.space),
        ]
        for row in ordered
    ]
    columns = ("trial", "state", "objective", "step", "seed", *record.space)
    return Table(caption="All trials, the best complete ones first.", columns=columns, rows=cells)


def _space_table(record: StudyRecord) -> Table:
    rows = []
    for setting, (kind, *numbers) in record.space.items():
        shown = [_plain(number) for number in numbers]
        rows.append([setting, " to ".join(shown) + ", log scale" if kind == "log" else ", ".join(shown)])
    return Table(caption="The settings that were searched.", columns=("setting", "values"), rows=rows)


def _plain(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _history(rows: Sequence[Row]) -> Figure:
    figure, (ax,) = new_figure(7.4, 3.6)
    _scatter(ax, [row.number for row in rows], rows)
    complete = [row for row in rows if row.state == "complete"]
    best = [max(row.value or 0.0 for row in complete[: place + 1]) for place in range(len(complete))]
    ax.step([row.number for row in complete], best, where="post", color=COLOURS[1], linewidth=1.6)
    ax.set_xlabel("trial")
    ax.set_ylabel("objective")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    use_thousands(ax.yaxis)
    add_legend(figure, [*_entries(rows), ("best so far", Line2D([], [], color=COLOURS[1], linewidth=1.6))])
    return figure


def _slices(rows: Sequence[Row], record: StudyRecord) -> Figure:
    figure, axes = panel_figure(len(record.space), 2.5)
    defaults = defaults_of(record.config, record.space)
    for number, (ax, (setting, allowed)) in enumerate(zip(axes, record.space.items(), strict=True)):
        _slice(ax, rows, setting, allowed, defaults[setting])
        ax.set_title(label(setting, 34), fontsize="medium")
        if number % 3 == 0:
            ax.set_ylabel("objective")
    add_legend(figure, [*_entries(rows), ("default", Line2D([], [], **REFERENCE))])
    return figure


def _slice(ax: Axes, rows: Sequence[Row], setting: str, allowed: Range, default: Any) -> None:
    kind, *numbers = allowed
    if kind == "log":
        _scatter(ax, [row.values[setting] for row in rows], rows)
        ax.set_xscale("log")
        ax.set_xlim(*numbers)
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.axvline(default, **REFERENCE)
    else:
        _scatter(ax, [numbers.index(row.values[setting]) for row in rows], rows)
        ax.set_xticks(range(len(numbers)), [_plain(number) for number in numbers])
        ax.set_xlim(-0.5, len(numbers) - 0.5)
        ax.axvline(numbers.index(default), **REFERENCE)
    use_thousands(ax.yaxis)


def _importance(shares: Mapping[str, float]) -> Figure:
    figure, (ax,) = new_figure(7.4, 0.6 + 0.32 * len(shares))
    ordered = sorted(shares.items(), key=lambda item: item[1])
    ax.barh([label(setting) for setting, _ in ordered], [share for _, share in ordered], color=COLOURS[0], height=0.6)
    ax.set_xlabel("importance")
    ax.grid(False, axis="y")
    return figure


def _importances(study: "optuna.Study") -> Mapping[str, float]:
    """Return the share of each setting, or nothing if all trials are equally good."""
    import optuna

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna marks the evaluator as experimental
        try:
            return optuna.importance.get_param_importances(
                study, evaluator=optuna.importance.PedAnovaImportanceEvaluator()
            )
        except (RuntimeError, ValueError):
            return {}


def _scatter(ax: Axes, places: Sequence[float | int], rows: Sequence[Row]) -> None:
    for state, style in MARKS.items():
        points = [(place, row.value) for place, row in zip(places, rows, strict=True) if row.state == state]
        ax.plot(*zip(*points, strict=True) if points else ([], []), linestyle="none", markersize=5, **style)


def _entries(rows: Sequence[Row]) -> list[tuple[str, Line2D]]:
    shown = {row.state for row in rows}
    return [
        (state, Line2D([], [], linestyle="none", markersize=5, **style))
        for state, style in MARKS.items()
        if state in shown
    ]
