"""One row for each algorithm and protocol: its aggregates, with intervals where there are seeds to draw from."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType
from typing import Literal

import numpy as np
from jaxtyping import Float

from monotau.results.published import Protocol, Published, games_of, normalised
from monotau.results.runs import Measure, Run, group_runs, scores_of
from monotau.results.statistics import (
    Sample,
    games_above,
    interquartile_mean,
    interval,
    mean,
    median,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
)

AGGREGATES: Mapping[str, Callable[[Sample], Float[np.ndarray, "*R"]]] = MappingProxyType(
    {
        "median": median,
        "iqm": interquartile_mean,
        "optimality_gap": optimality_gap,
        "above_human": games_above,
        "mean": mean,
    }
)
"""What is said of each row, the most telling first."""

TAUS = np.linspace(0.0, 8.0, 33)
"""Scores at which performance profiles are given; 1 is the human."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A number and, if there are several runs of every game, its 95 % interval."""

    value: float
    interval: tuple[float, float] | None


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one algorithm achieved under one protocol."""

    name: str
    """Algorithm, or the preset of runs."""
    protocol: Protocol
    measure: Measure | Literal["published"]
    """Which score of a run is meant."""
    origin: str
    """Where the scores come from."""
    raw: Mapping[str, tuple[float, ...]]
    """Raw scores of the runs of each game."""
    missing: tuple[str, ...]
    """Games of the set without a score; aggregates are then of the others only."""
    sample: Sample
    """Human-normalised scores, in the order of `raw`."""
    aggregates: Mapping[str, Estimate]
    unfinished: int = 0
    """Runs that count with what they have so far."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How likely a run of one row beats one of another, on the games that both have."""

    one: Row
    other: Row
    games: int
    probability: Estimate


def published_row(source: Published, constants: str, games: str) -> Row | None:
    """Return the row of a published result; with one score for each game it has no intervals."""
    scores = {game: (score,) for game, score in source.scores.items()}
    return _row(source.algorithm, source.protocol, "published", source.origin, scores, constants, games)


def run_rows(runs: Iterable[Run], constants: str, games: str) -> list[Row]:
    """Return two rows for each preset and protocol among the runs: by last and by best evaluation."""
    measures: tuple[Measure, ...] = ("last", "best")
    rows = []
    for (preset, protocol), group in group_runs(run for run in runs if run.game in games_of(games)).items():
        for measure in measures:
            scores, unfinished = scores_of(group, measure), sum(not run.finished for run in group)
            row = _row(preset, protocol, measure, _training(group), scores, constants, games, unfinished)
            rows += [row] if row else []
    return rows


def _training(group: Sequence[Run]) -> str:
    """Say how long the runs have trained: rows of different lengths are no match."""
    least, most = min(run.step for run in group), max(run.step for run in group)
    return f"runs of {least:,d} steps" if least == most else f"runs of {least:,d} to {most:,d} steps"


def _row(
    name: str,
    protocol: Protocol,
    measure: Measure | Literal["published"],
    origin: str,
    scores: Mapping[str, tuple[float, ...]],
    constants: str,
    games: str,
    unfinished: int = 0,
) -> Row | None:
    wanted = games_of(games)
    raw = {game: scores[game] for game in wanted if game in scores}
    if not raw:
        return None
    sample = Sample.of([[normalised(game, score, constants) for score in values] for game, values in raw.items()])
    return Row(
        name=name,
        protocol=protocol,
        measure=measure,
        origin=origin,
        raw=raw,
        missing=tuple(game for game in wanted if game not in scores),
        sample=sample,
        aggregates={key: estimate(statistic, sample) for key, statistic in AGGREGATES.items()},
        unfinished=unfinished,
    )


def estimate(statistic: Callable[..., Float[np.ndarray, "*R"]], *samples: Sample) -> Estimate:
    """Return a statistic with its interval."""
    ends = interval(statistic, *samples)
    return Estimate(
        value=float(statistic(*samples)), interval=None if ends is None else (float(ends[0]), float(ends[1]))
    )


def profile_of(row: Row) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, "2 T"] | None]:
    """Return the performance profile of a row at `TAUS`, and its interval at each."""
    return performance_profile(row.sample, TAUS), interval(lambda drawn: performance_profile(drawn, TAUS), row.sample)


def compare(rows: Sequence[Row]) -> list[Comparison]:
    """Compare each row of runs with those before it: published ones, and other runs by the same measure."""
    comparisons = (
        _comparison(one, other)
        for other, one in combinations(rows, 2)
        if one.protocol == other.protocol and one.measure != "published" and other.measure in (one.measure, "published")
    )
    return [comparison for comparison in comparisons if comparison]


def _comparison(one: Row, other: Row) -> Comparison | None:
    shared = [game for game in one.raw if game in other.raw]
    if not shared:
        return None
    # The order of raw scores is that of normalised ones, whatever the constants.
    ours, theirs = Sample.of([one.raw[game] for game in shared]), Sample.of([other.raw[game] for game in shared])
    return Comparison(
        one=one, other=other, games=len(shared), probability=estimate(probability_of_improvement, ours, theirs)
    )
