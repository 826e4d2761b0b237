"""Human-normalised Atari scores by algorithm and protocol: aggregates with bootstrap intervals, and comparisons."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from types import MappingProxyType
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float

from monotau.config.presets import PRESETS
from monotau.envs.games import game_of
from monotau.errors import ConfigError, brief
from monotau.results.published import Protocol, Published, games_of, normalised
from monotau.results.read import Measure, RunRecord
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
"""Aggregates of each row, in the order of the table."""

TAUS = np.linspace(0.0, 8.0, 33)
"""Normalised scores at which performance profiles are evaluated; 1 is the human."""

EVALUATION_EPSILON = 0.001
"""Share of random actions in the evaluations of the Atari protocols."""


@dataclass(frozen=True, kw_only=True)
class AtariRun:
    """The scores of one run on an Atari game under a protocol with published results."""

    directory: Path
    preset: str
    """The preset, followed by the profile if that is neither `atari` nor the preset's own."""
    protocol: Protocol
    game: str
    seed: int
    best: float
    """Mean return of the best evaluation."""
    last: float
    """Mean return of the last evaluation."""
    step: int
    """Training steps at the last evaluation."""
    finished: bool


def atari_run(run: RunRecord) -> AtariRun:
    """Return the scores of a run; raise a ConfigError that says why if they cannot be compared with published ones."""
    if run.state == "damaged":
        raise ConfigError(run.reason)
    settings = run.settings
    game = game_of(settings["env.id"])
    if game is None:
        raise ConfigError(f"{settings['env.id']} is not one of the 57 Atari games")
    named = settings.get("env.protocol", "none")
    protocol = next((known for known in get_args(Protocol) if known == named), None)
    if protocol is None:
        raise ConfigError(
            f"env.protocol is {brief(named)}, and only {' and '.join(get_args(Protocol))} can be compared"
        )
    if (reason := protocol_violation(run)) is not None:
        raise ConfigError(reason)
    evaluations = run.evaluations()
    if not evaluations:
        raise ConfigError("it has no evaluation yet")
    preset, profile = settings["preset"], settings.get("profile")
    usual = PRESETS[preset].atari_profile if preset in PRESETS else None
    return AtariRun(
        directory=run.directory,
        preset=preset if profile in (None, "atari", usual) else f"{preset} {profile}",
        protocol=protocol,
        game=game,
        seed=run.seed,
        best=run.score("best"),
        last=run.score("last"),
        step=evaluations[-1]["step"],
        finished=run.state == "finished",
    )


def protocol_violation(run: RunRecord) -> str | None:
    """Say which setting of a run makes its scores incomparable with those of its Atari protocol, if any."""
    limit, epsilon = run.settings.get("env.max_episode_steps"), run.settings.get("evaluation.epsilon")
    if limit:
        return f"episodes were truncated after {brief(limit)} steps (env.max_episode_steps)"
    if epsilon not in (None, EVALUATION_EPSILON):
        return f"evaluation.epsilon is {brief(epsilon)}, and scores are compared at {EVALUATION_EPSILON}"
    return None


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A statistic with its 95 % interval; without one if a game has a single run."""

    value: float
    interval: tuple[float, float] | None


@dataclass(frozen=True, kw_only=True)
class Row:
    """The results of one algorithm under one protocol."""

    name: str
    """Name of the algorithm, or preset of the runs."""
    protocol: Protocol
    measure: Measure | Literal["published"]
    """Which score of a run is meant."""
    origin: str
    """Where the scores come from."""
    raw: Mapping[str, tuple[float, ...]]
    """Raw scores of the runs of each game."""
    missing: tuple[str, ...]
    """Games of the set without a score, which the aggregates do not cover."""
    sample: Sample
    """Human-normalised scores, in the order of `raw`."""
    aggregates: Mapping[str, Estimate]
    unfinished: int = 0
    """Number of unfinished runs, which count with their evaluations so far."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Probability that a run of one row scores higher than a run of another, on the games that both have."""

    one: Row
    other: Row
    games: int
    probability: Estimate


def published_row(source: Published, constants: str, games: str) -> Row | None:
    """Return the row of a published result; it has one score for each game, so it has no intervals."""
    scores = {game: (score,) for game, score in source.scores.items()}
    return _row(source.algorithm, source.protocol, "published", source.origin, scores, constants, games)


def run_rows(runs: Iterable[AtariRun], constants: str, games: str) -> list[Row]:
    """Return two rows for each preset and protocol: by last and by best evaluation."""
    measures: tuple[Measure, ...] = ("last", "best")
    rows = []
    for (preset, protocol), group in _group(run for run in runs if run.game in games_of(games)).items():
        for measure in measures:
            scores, unfinished = _raw_scores(group, measure), sum(not run.finished for run in group)
            row = _row(preset, protocol, measure, _training_length(group), scores, constants, games, unfinished)
            rows += [row] if row else []
    return rows


def _group(runs: Iterable[AtariRun]) -> dict[tuple[str, Protocol], list[AtariRun]]:
    """Group runs by preset and protocol; reject a game and seed that occur twice in a group."""
    groups: dict[tuple[str, Protocol], list[AtariRun]] = {}
    seen: dict[tuple[str, Protocol, str, int], Path] = {}
    for run in runs:
        key = (run.preset, run.protocol, run.game, run.seed)
        if key in seen:
            raise ConfigError(
                f"{seen[key]} and {run.directory} are both {run.preset} on {run.game} ({run.protocol}) with seed "
                f"{run.seed}; a seed counts once, so name only one of them."
            )
        seen[key] = run.directory
        groups.setdefault((run.preset, run.protocol), []).append(run)
    return groups


def _raw_scores(runs: Sequence[AtariRun], measure: Measure) -> dict[str, tuple[float, ...]]:
    """Return the raw scores of each game's runs in order of their seeds."""
    scores: dict[str, list[float]] = {}
    for run in sorted(runs, key=lambda run: (run.game, run.seed)):
        scores.setdefault(run.game, []).append(run.best if measure == "best" else run.last)
    return {game: tuple(values) for game, values in scores.items()}


def _training_length(group: Sequence[AtariRun]) -> str:
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
    """Return a statistic with its bootstrap interval."""
    ends = interval(statistic, *samples)
    return Estimate(
        value=float(statistic(*samples)), interval=None if ends is None else (float(ends[0]), float(ends[1]))
    )


def profile_of(row: Row) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, "2 T"] | None]:
    """Return the performance profile of a row at `TAUS` with its pointwise interval."""
    return performance_profile(row.sample, TAUS), interval(lambda drawn: performance_profile(drawn, TAUS), row.sample)


def compare(rows: Sequence[Row]) -> list[Comparison]:
    """Compare each row of runs with the rows before it: published ones, and runs scored by the same measure."""
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
    # Raw scores will do: normalisation does not change their order.
    ours, theirs = Sample.of([one.raw[game] for game in shared]), Sample.of([other.raw[game] for game in shared])
    return Comparison(
        one=one, other=other, games=len(shared), probability=estimate(probability_of_improvement, ours, theirs)
    )
