"""Tests the paper's claims on the runs of the small suites: prints the tables of docs/evidence.md.

A pair of methods is compared over the environments and seeds that both have: the probability that a run of one scores
above a run of the other (a tie is half), with a 95 % bootstrap interval over seeds within environments. `end` is the
mean of the last ten evaluations of a run, `whole` that of all of them, which is the area under its learning curve.
A claim that one is better is called confirmed if the interval lies above 50 %, and refuted if it lies below.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from monotau.report.comparison import RunComparison
from monotau.report.sections.solving import solved_at
from monotau.results.methods import read_methods
from monotau.results.read import RunRecord
from monotau.results.statistics import Sample, probability_of_improvement
from monotau.results.summary import Estimate, estimate

PAIRS = (
    ("ndqfn", "iqn-star"),
    ("ndqfn-dpe", "ndqfn"),
    ("ndqfn-dpe", "iqn-star"),
    ("ndqfn-dpe", "iqn-dpe"),
    ("ndqfn-dpe", "ndqfn-dltv"),
    ("ndqfn-dpe", "ndqfn-vpe"),
    ("iqn-star", "qr-dqn"),
    ("ndqfn dpe", "ndqfn epsilon-greedy"),
    ("iqn-star dpe", "iqn-star epsilon-greedy"),
    ("ndqfn dpe", "iqn-star dpe"),
    ("ndqfn dpe", "ndqfn dltv"),
    ("ndqfn dpe", "ndqfn value-based"),
    ("ndqfn deep-dpe", "ndqfn dpe"),
)
"""Pairs of which the first is claimed to be better; names with a space are from deep-sea-evidence."""

WHOLE = 10**9
"""More evaluations than any run has."""

ALL_WORLDS = "all worlds"


def mean_return(run: RunRecord, evaluations: int) -> float:
    """Return the mean over a run's last `evaluations` evaluations."""
    return float(np.mean([line["return_mean"] for line in run.evaluations()[-evaluations:]]))


def compared(
    comparison: RunComparison, one: str, other: str, evaluations: int = 10
) -> tuple[int, int, Estimate] | None:
    """Return the number of common environments and runs, and the probability that the first method is better."""
    cells = comparison.cells
    envs = [env for env in comparison.envs if (one, env) in cells and (other, env) in cells]
    if not envs:
        return None
    ours, theirs = (
        Sample.of([[mean_return(run, evaluations) for run in cells[method, env]] for env in envs])
        for method in (one, other)
    )
    return len(envs), min(sum(ours.runs), sum(theirs.runs)), estimate(probability_of_improvement, ours, theirs)


def verdict(found: Estimate) -> str:
    """Return the verdict on the claim that the first method is better."""
    if found.interval is None:
        return "one seed: nothing"
    low, high = found.interval
    return "confirmed" if low > 0.5 else "refuted" if high < 0.5 else "not confirmed"


def comparisons(runs: Sequence[RunRecord]) -> Iterator[list[str]]:
    """Yield a row for each pair and score."""
    comparison = RunComparison(runs)
    for name, evaluations in (("end", 10), ("whole", WHOLE)):
        for one, other in PAIRS:
            if found := compared(comparison, one, other, evaluations):
                envs, count, probability = found
                ends = (
                    ""
                    if probability.interval is None
                    else " [{:.0f}, {:.0f}]".format(*np.multiply(100, probability.interval))
                )
                shown = f"{100 * probability.value:.0f} %{ends}"
                yield [f"{one} over {other}", name, str(envs), str(count), shown, verdict(probability)]


def crossings(runs: Sequence[RunRecord]) -> Iterator[list[str]]:
    """Yield the minimum, mean and maximum share of decreasing quantiles over all evaluations of each method."""
    shares: dict[str, list[float]] = {}
    for run in runs:
        shares.setdefault(run.method, []).extend(
            line["crossing"] for line in run.evaluations() if line.get("crossing") is not None
        )
    for method, values in sorted(shares.items()):
        if values:
            cells = (f"{100 * number:.1f} %" for number in (min(values), float(np.mean(values)), max(values)))
            yield [method, str(len(values)), *cells]


def solved(runs: Sequence[RunRecord]) -> Iterator[list[str]]:
    """Yield how many runs solved Deep Sea for good, or ever did greedily, and when; for each size and overall."""
    groups: dict[tuple[str, str], list[RunRecord]] = {}
    for run in runs:
        if run.env.startswith("monotau/DeepSea") and run.state == "finished":
            for env in (ALL_WORLDS, run.env):
                groups.setdefault((env, run.method), []).append(run)
    for (env, method), some in sorted(groups.items()):
        steps = [step for step in map(solved_at, some) if step is not None]
        ever = sum(any(line["return_mean"] > 0.9 for line in run.evaluations()) for run in some)
        when = f"{np.median(steps):,.0f}" if steps else "-"
        yield [env, method, f"{len(steps)} of {len(some)}", f"{ever} of {len(some)}", when]


def print_table(title: str, columns: Sequence[str], rows: Iterator[list[str]]) -> None:
    """Print a Markdown table, if it has rows."""
    body = [*rows]
    if body:
        print(f"\n{title}\n")
        for row in (list(columns), ["---"] * len(columns), *body):
            print("| " + " | ".join(row) + " |")


def main() -> None:
    """Read runs and print all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="directories of suites")
    runs = [run for run in read_methods(parser.parse_args().runs) if run.usable]
    claims = ("claim", "score", "envs", "runs of each", "probability", "verdict")
    print_table("Probability of improvement", claims, comparisons(runs))
    print_table("Falls among changes", ("method", "evaluations", "least", "mean", "most"), crossings(runs))
    print_table("Deep Sea", ("environment", "method", "solved for good", "ever", "steps (median)"), solved(runs))


if __name__ == "__main__":
    main()
