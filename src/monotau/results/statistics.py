"""Aggregates of scores over games and runs, after Agarwal et al. (arXiv 2108.13264), with bootstrap intervals.

A statistic is a function of a `Sample`; for a resampled one it returns one value for each resample.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from jaxtyping import Bool, Float

from monotau.errors import ConfigError

RESAMPLES = 2000
LEVEL = 0.95


@final
@dataclass(frozen=True)
class Sample:
    """Normalised scores of runs on games. Games may have different numbers of runs but have equal weight."""

    values: Float[np.ndarray, "*R S"]
    """Scores of all runs, game by game; one row for each resample, if resampled."""
    runs: tuple[int, ...]
    """Number of runs of each game; they sum to S."""

    @staticmethod
    def of(scores: Sequence[Sequence[float | int]]) -> "Sample":
        """Build a sample from the scores of each game's runs."""
        runs = tuple(len(game) for game in scores)
        if not runs or 0 in runs:
            raise ConfigError(
                f"a sample has {runs} runs of its games, but needs at least one game and one run of each."
            )
        values = np.array([score for game in scores for score in game], dtype=np.float64)
        if not np.isfinite(values).all():
            raise ConfigError("a sample contains scores that are not finite.")
        return Sample(values, runs)

    @property
    def repeated(self) -> bool:
        """Whether every game has several runs, which an interval requires."""
        return min(self.runs) > 1

    def games(self) -> list[Float[np.ndarray, "*R N"]]:
        """Return the scores of each game."""
        return np.split(self.values, np.cumsum(self.runs)[:-1], axis=-1)

    def means(self) -> Float[np.ndarray, "*R G"]:
        """Return the mean score of each game."""
        return np.stack([game.mean(axis=-1) for game in self.games()], axis=-1)

    def resampled(self, resamples: int, rng: np.random.Generator) -> "Sample":
        """Draw runs with replacement within each game."""
        drawn = [game[rng.integers(game.size, size=(resamples, game.size))] for game in self.games()]
        return Sample(np.concatenate(drawn, axis=-1), self.runs)


def mean(sample: Sample) -> Float[np.ndarray, "*R"]:
    """Mean over games of their mean scores."""
    return np.asarray(sample.means().mean(axis=-1))


def median(sample: Sample) -> Float[np.ndarray, "*R"]:
    """Median over games of their mean scores."""
    return np.asarray(np.median(sample.means(), axis=-1))


def games_above(sample: Sample, score: float = 1.0) -> Float[np.ndarray, "*R"]:
    """Number of games whose mean score is above `score`."""
    return np.asarray((sample.means() > score).sum(axis=-1), dtype=np.float64)


def interquartile_mean(sample: Sample) -> Float[np.ndarray, "*R"]:
    """Mean of the middle half of all scores.

    If games have different numbers of runs, scores are weighted so that all games have the same weight. As in rliable,
    the number of scores cut at each end is rounded down.
    """
    common = math.lcm(*sample.runs)
    counts = np.repeat([common // runs for runs in sample.runs], sample.runs)  # S
    order = np.argsort(sample.values, axis=-1)
    total = common * len(sample.runs)
    cut = total // 4
    reached = np.clip(np.cumsum(counts[order], axis=-1), cut, total - cut)
    kept = np.diff(reached, axis=-1, prepend=cut)
    return np.asarray((np.take_along_axis(sample.values, order, axis=-1) * kept).sum(axis=-1) / (total - 2 * cut))


def optimality_gap(sample: Sample, score: float = 1.0) -> Float[np.ndarray, "*R"]:
    """Mean shortfall of scores below `score`; higher scores do not compensate for lower ones."""
    return np.asarray(score - mean(Sample(np.minimum(sample.values, score), sample.runs)))


def performance_profile(sample: Sample, taus: Float[np.ndarray, " T"]) -> Float[np.ndarray, "*R T"]:
    """Fraction of runs with a score above each tau."""
    shares = [mean(Sample((sample.values > tau).astype(np.float64), sample.runs)) for tau in taus]
    return np.stack(shares, axis=-1)


def probability_of_improvement(one: Sample, other: Sample) -> Float[np.ndarray, "*R"]:
    """Probability that a run of `one` scores above a run of `other` on a random game; a tie counts half.

    This is the Mann-Whitney U statistic of each game divided by its number of pairs, averaged over games.
    """
    if len(one.runs) != len(other.runs):
        raise ConfigError(
            f"the samples cover {len(one.runs)} and {len(other.runs)} games, but must cover the same games."
        )
    shares = []
    for ours, theirs in zip(one.games(), other.games(), strict=True):
        above: Bool[np.ndarray, "*R N M"] = ours[..., :, None] > theirs[..., None, :]
        tied: Bool[np.ndarray, "*R N M"] = ours[..., :, None] == theirs[..., None, :]
        shares.append((above + 0.5 * tied).mean(axis=(-2, -1)))
    return np.asarray(np.mean(shares, axis=0))


def interval(
    statistic: Callable[..., Float[np.ndarray, "..."]],
    *samples: Sample,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Float[np.ndarray, "2 ..."] | None:
    """Return the ends of the 95 % percentile interval of a bootstrap that resamples runs within each game.

    It measures the variation over seeds, not over games. Returns None unless every game has several runs.
    """
    if not all(sample.repeated for sample in samples):
        return None
    rng = np.random.default_rng(seed)
    drawn = statistic(*(sample.resampled(resamples, rng) for sample in samples))
    tail = (1 - LEVEL) / 2
    return np.asarray(np.quantile(drawn, [tail, 1 - tail], axis=0))
