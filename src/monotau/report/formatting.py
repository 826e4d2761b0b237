"""Formats numbers, names and lists for tables, captions and file names."""

import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

from monotau.results.summary import Estimate

T = TypeVar("T")


def format_number(value: float | None) -> str:
    """Return a return or score with three significant digits, or a dash if it is unknown."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def format_estimate(estimate: Estimate, factor: float = 1.0) -> str:
    """Return a number with its interval, or with a dash if there is a single seed."""
    ends = [format_number(factor * end) for end in estimate.interval or ()]
    return f"{format_number(factor * estimate.value)} {f'[{ends[0]}, {ends[1]}]' if ends else '-'}"


def format_range(values: Iterable[int]) -> str:
    """Return the smallest and the largest value, or the value if there is only one."""
    ordered = sorted(values)
    low, high = ordered[0], ordered[-1]
    return f"{low:,d}" if low == high else f"{low:,d} to {high:,d}"


def format_duration(seconds: float) -> str:
    """Return a duration in seconds, minutes or hours."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: 1 seed, 3 seeds."""
    return f"{count:,d} {noun}" if count == 1 else f"{count:,d} {noun}s"


def name_list(names: Sequence[str], most: int = 12, separator: str = ", ") -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return separator.join(names[:most]) + more


def method_list(names: Sequence[str], most: int = 5) -> str:
    """Return a list of methods, separated by semicolons because their names may contain commas."""
    return name_list(names, most, "; ")


def omitted(what: str, names: Sequence[str]) -> str:
    """Return a sentence that names what a figure has no room for, or nothing."""
    return f" Not shown for lack of space: {what} {method_list(names)}." if names else ""


def file_name(text: str) -> str:
    """Return text as part of a file name."""
    return re.sub(r"[^A-Za-z0-9.=]+", "-", text).strip("-")


def batches(items: Iterable[T], size: int) -> list[list[T]]:
    """Split items into lists of at most `size`."""
    held = [*items]
    return [held[start : start + size] for start in range(0, len(held), size)]
