"""Numbers and lists as a reader sees them in tables and captions."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from monotau.results.summary import Estimate

T = TypeVar("T")


def number(value: float | None) -> str:
    """Return a return or score with the digits that mean something; a dash if it is not known."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def estimated(estimate: Estimate, factor: float = 1.0) -> str:
    """Return a number and its interval; of a single seed, a dash instead."""
    ends = [number(factor * end) for end in estimate.interval or ()]
    return f"{number(factor * estimate.value)} {f'[{ends[0]}, {ends[1]}]' if ends else '-'}"


def span(values: Iterable[int]) -> str:
    """Return one number, or the least and the largest of several."""
    known = sorted(values)
    least, most = known[0], known[-1]
    return f"{least:,d}" if least == most else f"{least:,d} to {most:,d}"


def several(count: int, thing: str) -> str:
    """Return a count with its noun: 1 seed, 3 seeds."""
    return f"{count:,d} {thing}" if count == 1 else f"{count:,d} {thing}s"


def listed(names: Sequence[str], most: int = 12, between: str = ", ") -> str:
    """Return names in a row, the first of many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return between.join(names[:most]) + more


def hours(seconds: float) -> str:
    """Return a time as one reads it."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def pages(items: Iterable[T], size: int) -> list[list[T]]:
    """Return items in lists of at most some."""
    held = [*items]
    return [held[start : start + size] for start in range(0, len(held), size)]
