"""Curves against training steps: a method's mean return in one environment, and its aggregate over several."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from jaxtyping import Float

from monotau.report.reading import ReportedRun
from monotau.report.study import Block, Study
from monotau.results.statistics import Sample, interquartile_mean, interval

MOST_POINTS = 60
"""Of an aggregate curve: a bootstrap at each takes its time, and more cannot be seen."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A line and, if there are several seeds, its 95 % interval."""

    steps: Float[np.ndarray, " T"]
    values: Float[np.ndarray, " T"]
    ends: Float[np.ndarray, "2 T"] | None
    seeds: int
    shortened: bool
    """True if it ends where its shortest run does, and others have gone on."""


def trailing_mean(values: Float[np.ndarray, " T"], window: int) -> Float[np.ndarray, " T"]:
    """Return the mean of each value and those before it, a window in all, or fewer at the start."""
    return np.array([values[max(0, end - window) : end].mean() for end in range(1, len(values) + 1)])


def smoothed(run: ReportedRun, window: int) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
    """Return steps and moving averages of a run's evaluations."""
    lines = run.evaluations()
    returns = np.array([line["return_mean"] for line in lines], dtype=np.float64)
    return np.array([line["step"] for line in lines], dtype=np.float64), trailing_mean(returns, window)


def curve_of(runs: Sequence[ReportedRun], window: int) -> Curve | None:
    """Return the mean over seeds at the steps at which all have been evaluated; None if there are none."""
    tracks = [smoothed(run, window) for run in runs]
    shared = reduce(np.intersect1d, [steps for steps, _ in tracks])
    if not shared.size:
        return None
    values = np.stack([values[np.isin(steps, shared)] for steps, values in tracks])  # seeds T
    return Curve(
        steps=shared,
        values=values.mean(axis=0),
        # Whole curves are drawn, which at each step is the bootstrap of the mean over seeds.
        ends=interval(lambda drawn: values[drawn.values.astype(int)].mean(axis=-2), Sample.of([range(len(runs))])),
        seeds=len(runs),
        shortened=any(steps[-1] > shared[-1] for steps, _ in tracks),
    )


def by_share(study: Study, block: Block) -> bool:
    """Whether steps are told as a share of the budget: it differs between environments, and not between methods."""
    budgets = [
        study.budgets([run for method in block.methods for run in study.cells[method, env]]) for env in block.envs
    ]
    return all(len(each) == 1 for each in budgets) and len({each[0] for each in budgets}) > 1


def aggregate_curve(study: Study, block: Block, method: str) -> Curve | None:
    """Return the interquartile mean of normalised scores over environments and seeds, while all runs have some.

    Between its evaluations, a run counts with the last one.
    """
    share = by_share(study, block)
    tracks = [[_scaled(study, block, run, share=share) for run in study.cells[method, env]] for env in block.envs]
    every = [steps for cell in tracks for steps, _ in cell]
    first, last = max(steps[0] for steps in every), min(steps[-1] for steps in every)
    grid = np.unique(np.concatenate(every))
    grid = grid[(grid >= first) & (grid <= last)]
    if not grid.size:
        return None
    grid = grid[np.unique(np.linspace(0, grid.size - 1, MOST_POINTS).round().astype(int))]
    samples = [Sample.of([[_at(track, step) for track in cell] for cell in tracks]) for step in grid]
    ends = [found for sample in samples if (found := interval(interquartile_mean, sample)) is not None]
    return Curve(
        steps=grid,
        values=np.array([float(interquartile_mean(sample)) for sample in samples]),
        ends=np.stack(ends, axis=-1) if ends else None,
        seeds=min(len(cell) for cell in tracks),
        shortened=any(steps[-1] > last for steps in every),
    )


def _scaled(
    study: Study, block: Block, run: ReportedRun, *, share: bool
) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
    steps, values = smoothed(run, study.smooth)
    scale = block.family.scales[run.env]
    return steps * (100 / run.settings["steps"] if share else 1), (values - scale.random) / (
        scale.reference - scale.random
    )


def _at(track: tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]], step: float) -> float:
    steps, values = track
    return float(values[np.searchsorted(steps, step, side="right") - 1])
