"""The first screen of a report: which method is best, by how much, and what to be cautious about."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from monotau.report.comparison import ComparableSet, RunComparison, budgets
from monotau.report.formatting import (
    format_estimate,
    format_number,
    format_range,
    name_list,
    plural,
)
from monotau.report.page import Notify, Picture, Section, Table
from monotau.report.plotting import (
    LINE_COLOURS,
    MAX_INTERVALS,
    WIDE,
    LineStyle,
    Panel,
    add_legend,
    label,
    label_steps,
    method_entries,
    method_styles,
    new_figure,
    plot_curves,
    use_thousands,
)
from monotau.report.sections.curves import (
    STEPS,
    aggregate_caption,
    aggregate_labels,
    aggregate_panel,
    env_caption,
    env_panel,
    headline_sets,
)
from monotau.results.read import RunRecord, State
from monotau.results.statistics import Sample, interquartile_mean, mean
from monotau.results.summary import Estimate, estimate

FEW_SEEDS = 5
"""Bootstrap intervals of fewer runs are unreliable."""

MAX_RANKED = 30
"""Methods in the ranking; the table of aggregate scores has all of them."""


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Scores of methods with the learning curves that lead to them."""

    name: str
    """Name of the figure's files."""
    panel: Panel
    scores: Mapping[str, Estimate]
    """Score of each method by last evaluation, the best first."""
    unit: str
    """Appended to scores in text."""
    xlabel: str
    ylabel: str
    score_label: str
    caption: str


def overview_sections(comparison: RunComparison, notify: Notify) -> list[Section]:
    """Return the summary: a ranking with learning curves, then cautions and the states of the runs."""
    notify("summary")
    rankings = find_rankings(comparison, notify)
    states = Counter(run.state for run in comparison.runs)
    counts = ", ".join(f"{states[state]} {state}" for state in get_args(State) if states[state])
    answers = [describe_ranking(ranking) for ranking in rankings]
    text = " ".join([*answers, f"{plural(len(comparison.runs), 'run')}: {counts}."])
    pictures = [
        Picture(name=ranking.name, figure=draw_ranking(comparison, ranking), caption=_caption(ranking))
        for ranking in rankings
    ]
    tables = [_method_table(comparison), *_unfinished_table(comparison), *_warning_table(comparison)]
    return [Section(title="Summary", text=text, pictures=pictures, warnings=cautions(comparison), tables=tables)]


def _caption(ranking: Ranking) -> str:
    if len(ranking.scores) <= MAX_INTERVALS:
        return ranking.caption
    ranked = f" and the best {MAX_RANKED} ranked" if len(ranking.scores) > MAX_RANKED else ""
    return f"{ranking.caption} Curves of the best {MAX_INTERVALS} methods are shown{ranked}."


def find_rankings(comparison: RunComparison, notify: Notify) -> list[Ranking]:
    """Return the rankings of the first screen, one for each group of environments.

    A report on a single environment ranks raw returns, which need no normalisation.
    """
    if len(comparison.envs) == 1 and not any(group.reference == "human" for group in comparison.groups):
        return [_rank_env(comparison, comparison.envs[0])]
    return [_rank_set(comparison, chosen, notify) for chosen in headline_sets(comparison)]


def _rank_env(comparison: RunComparison, env: str) -> Ranking:
    panel, _ = env_panel(comparison, env)
    scores = {
        method: estimate(mean, Sample.of([comparison.scores(method, env)])) for method in comparison.methods_in(env)
    }
    caption = f"Left: {env_caption(comparison, [panel])} Right: mean return of the last evaluations"
    return Ranking(
        name="overview",
        panel=panel,
        scores=_best_first(scores),
        unit="",
        xlabel=STEPS,
        ylabel="return of an episode",
        score_label="return of an episode",
        caption=f"{caption}, with 95 % bootstrap intervals over seeds.",
    )


def _rank_set(comparison: RunComparison, chosen: ComparableSet, notify: Notify) -> Ranking:
    panel, missing = aggregate_panel(comparison, chosen, notify)
    xlabel, ylabel = aggregate_labels(comparison, chosen)
    scores = {
        method: _in_percent(estimate(interquartile_mean, comparison.sample(chosen, method)))
        for method in chosen.methods
    }
    caption = f"Left: {aggregate_caption(comparison, chosen, missing)} Right: the same of the last evaluations"
    return Ranking(
        name=f"overview-{chosen.group.slug}",
        panel=panel,
        scores=_best_first(scores),
        unit=" %",
        xlabel=xlabel,
        ylabel=ylabel,
        score_label="IQM of normalised scores (%)",
        caption=f"{caption}, with 95 % bootstrap intervals over seeds.",
    )


def _in_percent(found: Estimate) -> Estimate:
    ends = found.interval
    return Estimate(value=100 * found.value, interval=None if ends is None else (100 * ends[0], 100 * ends[1]))


def _best_first(scores: Mapping[str, Estimate]) -> dict[str, Estimate]:
    return dict(sorted(scores.items(), key=lambda item: -item[1].value))


def describe_ranking(ranking: Ranking) -> str:
    """Say which methods come first and second, and whether their intervals overlap."""
    (first, best), *rest = ranking.scores.items()
    title = ranking.panel.title
    if not rest:
        return f"{title}: {first} scores {_text(best, ranking.unit)}."
    second, other = rest[0]
    tied = [first, *(method for method, found in rest if found.value == best.value)]
    if len(tied) > 1:
        names = name_list(tied, separator=" and " if len(tied) == 2 else ", ")
        return f"{title}: {names} tie with {_text(best, ranking.unit)}."
    verdict = "a single seed has no interval"
    if best.interval and other.interval:
        apart = best.interval[0] > other.interval[1]
        verdict = f"their intervals {'do not overlap' if apart else 'overlap'}"
    return (
        f"{title}: {first} ranks first with {_text(best, ranking.unit)}, {second} second with "
        f"{_text(other, ranking.unit)}; {verdict}."
    )


def _text(found: Estimate, unit: str) -> str:
    shown = format_estimate(found) if found.interval else format_number(found.value)
    return shown.replace(" [", f"{unit} [") if found.interval else f"{shown}{unit}"


def draw_ranking(comparison: RunComparison, ranking: Ranking) -> Figure:
    """Draw learning curves and the ranking of methods side by side, in the same colours."""
    methods = [*ranking.scores][:MAX_RANKED]
    drawn = methods[:MAX_INTERVALS]
    styles = method_styles(comparison.styled_methods)
    figure, (left, right) = new_figure(WIDE, max(3.6, 1.3 + 0.24 * len(methods)), 2, ratios=(3, 2))
    panel = Panel(
        title=ranking.panel.title,
        curves={method: curve for method, curve in ranking.panel.curves.items() if method in drawn},
        reference=ranking.panel.reference,
    )
    plot_curves(left, panel, styles, intervals=True)
    left.set_title(label(panel.title, 60, 2), fontsize="medium")
    left.set_ylabel(ranking.ylabel)
    if panel.reference:
        name, value = panel.reference
        left.annotate(
            name, (1, value), (-2, 3), xycoords=("axes fraction", "data"), textcoords="offset points", ha="right",
            fontsize=7, color="0.35",
        )  # fmt: skip
    label_steps(left, ranking.xlabel)
    _plot_ranking(right, ranking, methods, styles)
    if len(methods) > len(LINE_COLOURS):  # colours repeat, so the labels of the ranking do not identify the curves
        add_legend(figure, method_entries([*panel.curves], styles))
    return figure


def _plot_ranking(ax: Axes, ranking: Ranking, methods: Sequence[str], styles: Mapping[str, LineStyle]) -> None:
    for place, method in enumerate(methods):
        found, colour = ranking.scores[method], styles[method]["color"]
        if found.interval is not None:
            ax.plot(found.interval, [place, place], color=colour, linewidth=2.4, solid_capstyle="butt", alpha=0.75)
        ax.plot(found.value, place, "o", color=colour, markersize=6)
        end = max((found.value, *(found.interval or ())))
        ax.annotate(
            format_number(found.value), (end, place), (6, 0), textcoords="offset points", va="center", fontsize=8
        )
    ax.set_yticks(range(len(methods)), [label(method, 30, 2) for method in methods], fontsize=8)
    for text, method in zip(ax.get_yticklabels(), methods, strict=True):
        text.set_color(styles[method]["color"])
    ax.set_ylim(max(len(methods) - 0.4, 1.6), -0.6)  # the best on top
    ax.set_xlabel(ranking.score_label)
    ax.set_title("Ranking by last evaluation", fontsize="medium")
    ax.margins(x=0.16)
    ax.locator_params(axis="x", nbins=4)
    use_thousands(ax.xaxis)
    ax.grid(visible=False, axis="y")


def cautions(comparison: RunComparison) -> list[str]:
    """Return what limits the conclusions that can be drawn from a report."""
    found = []
    for env in comparison.envs:
        steps = {method: budgets(comparison.cells[method, env]) for method in comparison.methods_in(env)}
        if len({budget for each in steps.values() for budget in each}) > 1:
            listed = "; ".join(f"{method}: {format_range(each)} steps" for method, each in steps.items())
            found.append(
                f"Training budgets differ in {env}. {listed}. Its scores compare agents after different training."
            )
        if (reasons := comparison.protocol_violations(env)) and env.startswith("ALE/"):
            found.append(f"{env} is not human-normalised, because in some run {'; '.join(reasons)}.")
    for group in comparison.groups:
        sets = {
            method: [env for env in group.scales if (method, env) in comparison.cells]
            for method in comparison.methods
            if any((method, env) in comparison.cells for env in group.scales)
        }
        if len({*map(tuple, sets.values())}) > 1:
            shared = [env for env in group.scales if all(env in envs for envs in sets.values())]
            common = f"all have only {name_list(shared)}" if shared else "none is common to all"
            found.append(
                f"{group.name}: methods have runs in different environments, and {common}. Aggregates of all methods "
                "cover only those; methods that share a larger set have their own tables."
            )
        found += [f"{env} is not part of any aggregate: {reason}." for env, reason in group.unscaled.items()]
    usable = [run for run in comparison.runs if run.usable]
    if stopped := [run for run in usable if run.result.get("stopped")]:
        found.append(
            f"{plural(len(stopped), 'run')} ended early by a hook: the last evaluation is from earlier in training."
        )
    unfinished = [run for run in usable if run.state == "unfinished"]
    if unfinished:
        found.append(
            f"{plural(len(unfinished), 'run')} did not finish: the last evaluation is from earlier in training."
        )
    warned = [run for run in usable if run.warnings()]
    if warned:
        found.append(
            f"{plural(len(warned), 'run')} logged warnings about the network or its settings, listed below: "
            f"{count_by_method(warned)}."
        )
    single = [key for key, runs in comparison.cells.items() if len(runs) == 1]
    if single:
        found.append(
            f"{len(single)} of {plural(len(comparison.cells), 'pair')} of method and environment have a single seed: "
            "they have no interval, and chance alone can explain their differences."
        )
    few = [key for key, runs in comparison.cells.items() if 1 < len(runs) < FEW_SEEDS]
    if few:
        found.append(
            f"{len(few)} of {plural(len(comparison.cells), 'pair')} of method and environment have fewer than "
            f"{FEW_SEEDS} seeds: intervals of so few runs are often too narrow."
        )
    short = [run for run in usable if len(run.evaluations()) < 2 * comparison.smooth]
    if short and comparison.smooth > 1:
        found.append(
            f"{plural(len(short), 'run')} with fewer than {2 * comparison.smooth} evaluations: the moving average over "
            f"{comparison.smooth} spans more than half of the training; use a smaller --smooth."
        )
    return found


def count_by_method(runs: Sequence[RunRecord]) -> str:
    """Return the number of runs of each method."""
    counts = Counter(run.method for run in runs)
    return ", ".join(f"{method} ({count})" for method, count in sorted(counts.items()))


def _method_table(comparison: RunComparison) -> Table:
    rows = []
    for method in dict.fromkeys(run.method for run in comparison.runs):
        runs = [run for run in comparison.runs if run.method == method]
        states = Counter(run.state for run in runs)
        steps = [run.settings["steps"] for run in runs if run.settings]
        seeds = {run.seed for run in runs if run.seed >= 0}
        envs = {run.env for run in runs if run.env != "unknown"}
        counts = [f"{states[state]}" if states[state] else "" for state in get_args(State)]
        rows.append([method, f"{len(envs)}", f"{len(seeds)}", format_range(steps) if steps else "-", *counts])
    return Table(
        caption=(
            "Runs by method. Unfinished runs count with their evaluations so far; damaged and repeated runs and runs "
            "without an evaluation do not count."
        ),
        columns=("method", "environments", "seeds", "steps", *get_args(State)),
        rows=rows,
    )


def _unfinished_table(comparison: RunComparison) -> list[Table]:
    rows = [
        [
            str(run.directory),
            run.method,
            run.env,
            f"{run.seed}" if run.seed >= 0 else "-",
            run.state,
            f"{run.step:,d} of {run.settings['steps']:,d}" if run.settings else "-",
            _reason(run),
        ]
        for run in comparison.runs
        if run.state != "finished" or not run.usable
    ]
    columns = ("directory", "method", "environment", "seed", "state", "step", "reason")
    return [Table(caption="Runs that did not finish or do not count.", columns=columns, rows=rows)] if rows else []


def _reason(run: RunRecord) -> str:
    empty = "no evaluation yet" if run.state == "unfinished" and not run.usable else ""
    return ", ".join(part for part in (run.reason, empty) if part)


def _warning_table(comparison: RunComparison) -> list[Table]:
    rows = [
        [
            str(run.directory),
            run.method,
            run.env,
            f"{run.seed}",
            f"{line['step']:,d} of {run.settings['steps']:,d}",
            line["text"],
        ]
        for run in comparison.runs
        for line in run.warnings()
    ]
    columns = ("directory", "method", "environment", "seed", "step", "warning")
    return [Table(caption="Warnings logged during training.", columns=columns, rows=rows)] if rows else []
