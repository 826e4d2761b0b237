"""Tables of scores: aggregates in the layout of Table 1 of the NDQFN paper, and every environment."""

from collections.abc import Mapping, Sequence

import numpy as np

from monotau.envs.games import game_of
from monotau.report.comparison import ComparableSet, EnvGroup, RunComparison, budgets
from monotau.report.formatting import format_estimate, format_number, format_range, name_list
from monotau.report.page import Notify, Section, Table
from monotau.results.published import games_of, normalised, published, quoted
from monotau.results.read import Measure, RunRecord
from monotau.results.statistics import RESAMPLES, Sample, games_above, interquartile_mean, mean, median
from monotau.results.summary import estimate
from monotau.results.tables import QUOTED, warning

INTERVALS = (
    f"In brackets: 95 % intervals of a bootstrap over seeds within each environment ({RESAMPLES:,d} resamples); - if "
    "an environment has a single seed."
)

MEASURES: Mapping[Measure, str] = {
    "last": "score of a run: its last evaluation",
    "best": "score of a run: its best evaluation, which is biased upwards as a maximum",
}


def aggregate_score_sections(comparison: RunComparison, notify: Notify) -> list[Section]:
    """Return the section with aggregate scores, one table for each comparable set and measure."""
    notify("aggregate scores")
    tables = [_aggregates(comparison, chosen, measure) for chosen in comparison.sets for measure in MEASURES]
    if any(_has_paper_games(comparison, chosen) for chosen in comparison.sets):
        rows = [[row.method, f"{row.mean}", f"{row.median}", f"{row.above_human}"] for row in quoted()]
        columns = ("method", "mean", "median", "> human")
        tables.append(Table(caption=f"For comparison: {QUOTED}.", columns=columns, rows=rows))
    groups = {chosen.group.name: chosen.group for chosen in comparison.sets}
    text = "\n\n".join([*(f"{group.name}: {group.about}" for group in groups.values()), INTERVALS])
    if any(group.reference == "human" for group in groups.values()):
        text += f"\n\n{warning()}"
    none = "No run has an evaluation that can be normalised, so there are no aggregates."
    return [Section(title="Aggregate scores", text=text if tables else none, tables=tables)]


def _aggregates(comparison: RunComparison, chosen: ComparableSet, measure: Measure) -> Table:
    human = chosen.group.reference == "human"
    rows = []
    for method in chosen.methods:
        sample = comparison.sample(chosen, method, measure)
        wins = f"{_wins(comparison, chosen, method, measure)}"
        above = format_estimate(estimate(games_above, sample)) if human else wins
        runs = [run for env in chosen.envs for run in comparison.cells[method, env]]
        aggregates = [
            format_estimate(estimate(statistic, sample), 100.0) for statistic in (mean, median, interquartile_mean)
        ]
        rows.append([method, *aggregates, above, f"{len(chosen.envs)}", format_range(sample.runs), *_training(runs)])
    rows += _published(comparison, chosen) if human and measure == "best" else []
    columns = (
        "method",
        "mean %",
        "median %",
        "IQM %",
        "> human" if human else "best in",
        "environments",
        "seeds",
        "unfinished",
        "steps",
    )
    caption = f"{chosen.title} ({name_list(chosen.envs)}); {MEASURES[measure]}."
    return Table(caption=caption, columns=columns, rows=rows)


def _wins(comparison: RunComparison, chosen: ComparableSet, method: str, measure: Measure) -> int:
    """Count the environments in which no method of the report has a higher mean score."""
    means = [
        {other: np.mean(comparison.scores(other, env, measure)) for other in comparison.methods_in(env)}
        for env in chosen.envs
    ]
    return sum(bool(each[method] >= max(each.values())) for each in means)


def _training(runs: Sequence[RunRecord]) -> tuple[str, str]:
    """Return the number of unfinished runs, and the training budget."""
    return f"{sum(run.state == 'unfinished' for run in runs) or ''}", format_range(budgets(runs))


def _games(comparison: RunComparison, envs: Sequence[str]) -> list[str]:
    games = (game_of(comparison.runs_in(env)[0].settings["env.id"]) for env in envs)
    return [game for game in games if game]


def _published(comparison: RunComparison, chosen: ComparableSet) -> list[list[str]]:
    """Return published results under the same protocol that cover all games of a set."""
    protocol, games, rows = comparison.protocol_of(chosen.envs[0]), _games(comparison, chosen.envs), []
    for source in published():
        if source.protocol == protocol and all(game in source.scores for game in games):
            sample = Sample.of([[normalised(game, source.scores[game], comparison.constants)] for game in games])
            aggregates = [
                format_number(100 * float(statistic(sample))) for statistic in (mean, median, interquartile_mean)
            ]
            above = format_number(float(games_above(sample)))
            name = f"{source.algorithm} ({source.origin})"
            rows.append([name, *aggregates, above, f"{len(games)}", "", "", "published"])
    return rows


def _has_paper_games(comparison: RunComparison, chosen: ComparableSet) -> bool:
    """Whether a set has the games and the protocol of the paper's table."""
    games = {*_games(comparison, chosen.envs)}
    return comparison.protocol_of(chosen.envs[0]) == "noop" and games == {*games_of("atari55")}


def env_score_sections(comparison: RunComparison, notify: Notify) -> list[Section]:
    """Return the section with one row for each environment and method."""
    notify("scores by environment")
    if not comparison.groups:
        return []
    tables = [_env_scores(comparison, group) for group in comparison.groups]
    text = (
        "Mean undiscounted returns over seeds. Last is the last evaluation of a run, best is its best evaluation, "
        f"which is biased upwards as a maximum. {INTERVALS}"
    )
    return [Section(title="Scores by environment", text=text, tables=tables)]


def _env_scores(comparison: RunComparison, group: EnvGroup) -> Table:
    rows = []
    for env in sorted({*group.scales, *group.unscaled}):
        scale = group.scales.get(env)
        for method in comparison.methods_in(env):
            runs = comparison.cells[method, env]
            last, best = (estimate(mean, Sample.of([comparison.scores(method, env, each)])) for each in MEASURES)
            percent = "-" if scale is None else format_number(100 * scale.normalise(last.value))
            random = comparison.random_return(env) if scale is None else scale.random
            cells = [
                format_number(random),
                format_number(scale and scale.reference),
                format_estimate(last),
                format_estimate(best),
                percent,
            ]
            rows.append([env, method, *cells, f"{len(runs)}", *_training(runs)])
    columns = (
        "environment",
        "method",
        "random",
        group.reference,
        "last",
        "best",
        "last, %",
        "seeds",
        "unfinished",
        "steps",
    )
    notes = "".join(f" {env} has no scale: {reason}." for env, reason in group.unscaled.items())
    return Table(caption=f"{group.name}.{notes}", columns=columns, rows=rows)
