"""Results of runs: reading them, human-normalised Atari scores, published results, and statistics."""

from monotau.results.published import Published, Quoted, games_of, normalised, published, quoted, references
from monotau.results.read import RunRecord, find_runs, read_run
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
from monotau.results.summary import (
    AtariRun,
    Comparison,
    Estimate,
    Row,
    atari_run,
    compare,
    profile_of,
    published_row,
    run_rows,
)

__all__ = [
    "AtariRun",
    "Comparison",
    "Estimate",
    "Published",
    "Quoted",
    "Row",
    "RunRecord",
    "Sample",
    "atari_run",
    "compare",
    "find_runs",
    "games_above",
    "games_of",
    "interquartile_mean",
    "interval",
    "mean",
    "median",
    "normalised",
    "optimality_gap",
    "performance_profile",
    "probability_of_improvement",
    "profile_of",
    "published",
    "published_row",
    "quoted",
    "read_run",
    "references",
    "run_rows",
]
