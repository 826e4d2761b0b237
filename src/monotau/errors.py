"""The exceptions that stop a run, and checks that raise them with uniform messages."""

import difflib
import math
import reprlib
from collections.abc import Iterable


class ConfigError(ValueError):
    """A setting, name or file is invalid."""


class MissingExtra(ConfigError):
    """An optional package that the environment needs is not installed."""


class EnvironmentFault(RuntimeError):
    """The environment raised an exception or returned invalid data."""


class Divergence(RuntimeError):
    """A loss, gradient or weight became NaN or infinite."""


class StorageFault(RuntimeError):
    """The disk is full or cannot be written, or files of a run are missing or damaged."""


def in_one_line(error: BaseException) -> str:
    """Return the type of an exception, and its message if it has one, on one line."""
    return ": ".join(filter(None, (type(error).__name__, " ".join(str(error).split()))))


def check_least(section: str, settings: object, **least: int) -> None:
    """Raise for any setting below its minimum; the keyword arguments map names to minima."""
    for name, bound in least.items():
        if getattr(settings, name) < bound:
            raise ConfigError(f"{section}{name} is {getattr(settings, name)}, but must be at least {bound}.")


def check_positive(section: str, settings: object, *names: str) -> None:
    """Raise for any setting that is not a positive finite number."""
    for name in names:
        value = getattr(settings, name)
        if not (math.isfinite(value) and value > 0):
            raise ConfigError(f"{section}{name} is {value}, but must be a positive number.")


def check_not_negative(section: str, settings: object, *names: str) -> None:
    """Raise for any setting that is negative, infinite or NaN."""
    for name in names:
        value = getattr(settings, name)
        if not (math.isfinite(value) and value >= 0):
            raise ConfigError(f"{section}{name} is {value}, but must be finite and not negative.")


def check_share(section: str, settings: object, *names: str) -> None:
    """Raise for any setting that is not above 0 and at most 1."""
    for name in names:
        value = getattr(settings, name)
        if not 0 < value <= 1:
            raise ConfigError(f"{section}{name} is {value}, but must be above 0 and at most 1.")


def check_bounds(section: str, low: float, high: float, what: str) -> None:
    """Raise for settings `low` and `high` between which there is no finite range; `what` is limited to it."""
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ConfigError(
            f"{section}low and {section}high are {low} and {high}, but must be finite numbers, low below high: "
            f"the {what} cannot represent returns outside of them."
        )


def unknown_name(kind: str, given: object, allowed: Iterable[str], meant: str | None = None) -> ConfigError:
    """Return the error for a name that is not in a table, with what was meant or the closest names as a hint."""
    names = sorted(allowed)
    same = {name for name in names if name.lower() == str(given).lower()}  # in another case
    near = [meant if "{" in meant else repr(meant)] if meant else []
    near = near or [repr(name) for name in same or near_names(str(given), names)]
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return ConfigError(f"{kind} {given!r} is unknown.{hint} Allowed: {', '.join(names) or 'none'}.")


def near_names(given: str, names: Iterable[str]) -> list[str]:
    """Return up to two names that look like the given one, in whatever case it is written."""
    by_lower = {name.lower(): name for name in names}
    return [by_lower[near] for near in difflib.get_close_matches(given.lower(), by_lower, n=2, cutoff=0.5)]


_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = 80


def brief(value: object) -> str:
    """Return the repr of a value, abbreviated to one short line."""
    try:
        return " ".join(_BRIEF.repr(value).split())
    except ValueError:  # Python refuses to print integers with thousands of digits
        return "a number of thousands of digits"
