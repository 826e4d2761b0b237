"""Aggregates of scores over games and runs, after Agarwal et al. (arXiv 2108.13264), with bootstrap intervals.

A statistic is a function of a `Sample`; of a resampled one it gives one value for each resample.
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
    """Scores of runs on games, where 1 is the human. Games may have different numbers of runs and weigh the same."""

    values: Float[np.ndarray, "*R S"]
    """Scores of all runs, game after game; one row for each resample, if there are any."""
    runs: tuple[int, ...]
    """Number of runs of each game; they sum to S."""

    @staticmethod
    def of(scores: Sequence[Sequence[float | int]]) -> "Sample":
        """Take the scores of each game's runs."""
        runs = tuple(len(game) for game in scores)
        if not runs or 0 in runs:
            raise ConfigError(f"a sample has {runs} runs of its games, but needs a game, and a run of each.")
        values = np.array([score for game in scores for score in game], dtype=np.float64)
        if not np.isfinite(values).all():
            raise ConfigError("a sample holds scores that are not finite numbers.")
        return Sample(values, runs)

    @property
    def repeated(self) -> bool:
        """True if every game has several runs, without which nothing is known of their spread."""
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
    """Number of games whose mean score is above this."""
    return np.asarray((sample.means() > score).sum(axis=-1), dtype=np.float64)


def interquartile_mean(sample: Sample) -> Float[np.ndarray, "*R"]:
    """Mean of the middle half of all scores.

    Where games have different numbers of runs, each score counts as often as gives all games the same number. As in
    rliable, the cut at each end is rounded down to whole scores.
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
    """How far scores fall short of this on average; what is beyond it does not make up for the rest."""
    return np.asarray(score - mean(Sample(np.minimum(sample.values, score), sample.runs)))


def performance_profile(sample: Sample, taus: Float[np.ndarray, " T"]) -> Float[np.ndarray, "*R T"]:
    """Share of runs that score above each tau."""
    shares = [mean(Sample((sample.values > tau).astype(np.float64), sample.runs)) for tau in taus]
    return np.stack(shares, axis=-1)


def probability_of_improvement(one: Sample, other: Sample) -> Float[np.ndarray, "*R"]:
    """Probability that a run of one scores above a run of the other on a game drawn at random; a tie is half.

    That is the Mann-Whitney statistic of each game over its number of pairs, averaged over games.
    """
    if len(one.runs) != len(other.runs):
        raise ConfigError(f"samples of {len(one.runs)} and {len(other.runs)} games are given; they must be the same.")
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
    """Return the ends of the 95 % percentile interval of a stratified bootstrap, which draws runs within each game.

    It says how the statistic would vary with other seeds on the same games; None unless every game has several.
    """
    if not all(sample.repeated for sample in samples):
        return None
    rng = np.random.default_rng(seed)
    drawn = statistic(*(sample.resampled(resamples, rng) for sample in samples))
    tail = (1 - LEVEL) / 2
    return np.asarray(np.quantile(drawn, [tail, 1 - tail], axis=0))
