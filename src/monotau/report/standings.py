"""Tables of scores: aggregates in the layout of the paper's Table 1, and every environment by itself."""

from collections.abc import Mapping, Sequence

import numpy as np

from monotau.envs.games import game_of
from monotau.report.cells import estimated, listed, number, span
from monotau.report.reading import ReportedRun
from monotau.report.sections import Section, Table, Tell
from monotau.report.study import Block, Family, Study
from monotau.results.published import games_of, normalised, published, quoted
from monotau.results.runs import Measure
from monotau.results.statistics import RESAMPLES, Sample, games_above, interquartile_mean, mean, median
from monotau.results.summary import estimate
from monotau.results.tables import QUOTED, warning

INTERVALS = (
    f"In brackets: 95 % intervals by a bootstrap over seeds within each environment ({RESAMPLES:,d} resamples); - "
    f"where an environment has a single seed."
)

MEASURES: Mapping[Measure, str] = {
    "last": "score of a run: the mean of its last {smooth} evaluations",
    "best": "score of a run: its best evaluation, which flatters, being a maximum",
}


def aggregate_sections(study: Study, tell: Tell) -> list[Section]:
    """Return the section with a table for each block and measure."""
    tell("aggregate scores")
    tables = [_aggregates(study, block, measure) for block in study.blocks for measure in MEASURES]
    if any(_paper_games(study, block) for block in study.blocks):
        rows = [[row.method, f"{row.mean}", f"{row.median}", f"{row.above_human}"] for row in quoted()]
        tables.append(Table(caption=f"For comparison: {QUOTED}.", columns=("", "mean", "median", "> human"), rows=rows))
    families = {block.family.name: block.family for block in study.blocks}
    text = "\n\n".join([*(f"{family.name}: {family.about}" for family in families.values()), INTERVALS])
    if any(family.reference == "human" for family in families.values()):
        text += f"\n\n{warning()}"
    none = "No run has an evaluation that could be normalised, so there is nothing to put together."
    return [Section(title="Aggregate scores", text=text if tables else none, tables=tables)]


def _aggregates(study: Study, block: Block, measure: Measure) -> Table:
    human = block.family.reference == "human"
    rows = []
    for method in block.methods:
        sample = study.sample(block, method, measure)
        above = estimated(estimate(games_above, sample)) if human else f"{_wins(study, block, method, measure)}"
        runs = [run for env in block.envs for run in study.cells[method, env]]
        figures = [estimated(estimate(statistic, sample), 100.0) for statistic in (mean, median, interquartile_mean)]
        rows.append([method, *figures, above, f"{len(block.envs)}", span(sample.runs), *_training(study, runs)])
    rows += _published(study, block) if human and measure == "best" else []
    columns = (
        "",
        "mean %",
        "median %",
        "IQM %",
        "> human" if human else "best in",
        "envs",
        "seeds",
        "unfinished",
        "steps",
    )
    caption = f"{block.title} ({listed(block.envs)}); {MEASURES[measure].format(smooth=study.smooth)}."
    return Table(caption=caption, columns=columns, rows=rows)


def _wins(study: Study, block: Block, method: str, measure: Measure) -> int:
    """Count the environments in which no method of the report is better."""
    means = [
        {other: np.mean(study.scores(other, env, measure)) for other in study.methods_in(env)} for env in block.envs
    ]
    return sum(bool(each[method] >= max(each.values())) for each in means)


def _training(study: Study, runs: Sequence[ReportedRun]) -> tuple[str, str]:
    """Return how many runs did not finish, and how many steps they are to train."""
    return f"{sum(run.state == 'unfinished' for run in runs) or ''}", span(study.budgets(runs))


def _games(study: Study, envs: Sequence[str]) -> list[str]:
    games = (game_of(study.runs_in(env)[0].settings["env.id"]) for env in envs)
    return [game for game in games if game]


def _published(study: Study, block: Block) -> list[list[str]]:
    """Return what others have published on the same games and protocol, where they have all of them."""
    protocol, games, rows = study.protocol_of(block.envs[0]), _games(study, block.envs), []
    for source in published():
        if source.protocol == protocol and all(game in source.scores for game in games):
            sample = Sample.of([[normalised(game, source.scores[game], study.constants)] for game in games])
            figures = [number(100 * float(statistic(sample))) for statistic in (mean, median, interquartile_mean)]
            above = number(float(games_above(sample)))
            rows.append(
                [f"{source.algorithm} ({source.origin})", *figures, above, f"{len(games)}", "", "", "published"]
            )
    return rows


def _paper_games(study: Study, block: Block) -> bool:
    """Whether a block has the games and the protocol of the paper's table."""
    return study.protocol_of(block.envs[0]) == "noop" and {*_games(study, block.envs)} == {*games_of("atari55")}


def env_sections(study: Study, tell: Tell) -> list[Section]:
    """Return the section with a table of each family, a row for each environment and method."""
    tell("scores by environment")
    if not study.families:
        return []
    tables = [_per_env(study, family) for family in study.families]
    text = (
        f"Returns on raw rewards. Last is the mean of a run's last {study.smooth} evaluations and best its best one, "
        f"which flatters, both on average over seeds. {INTERVALS}"
    )
    return [Section(title="Scores by environment", text=text, tables=tables)]


def _per_env(study: Study, family: Family) -> Table:
    rows = []
    for env in sorted({*family.scales, *family.unscaled}):
        scale = family.scales.get(env)
        for method in study.methods_in(env):
            runs = study.cells[method, env]
            last, best = (estimate(mean, Sample.of([study.scores(method, env, each)])) for each in MEASURES)
            percent = "-" if scale is None else number(100 * scale.of(last.value))
            random = study.random_return(env) if scale is None else scale.random
            cells = [number(random), number(scale and scale.reference), estimated(last), estimated(best), percent]
            rows.append([env, method, *cells, f"{len(runs)}", *_training(study, runs)])
    columns = (
        "environment",
        "method",
        "random",
        family.reference,
        "last",
        "best",
        "last, %",
        "seeds",
        "unfinished",
        "steps",
    )
    notes = "".join(f" {env} has no scale: {reason}." for env, reason in family.unscaled.items())
    return Table(caption=f"{family.name}.{notes}", columns=columns, rows=rows)
