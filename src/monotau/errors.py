"""What stops a run: settings, environments and numbers that cannot be used, and how that is worded."""

import difflib
import math
import reprlib
from collections.abc import Iterable


class ConfigError(ValueError):
    """A setting, name or file that cannot be used; found before anything is written."""


class MissingExtra(ConfigError):
    """A package that only some environments need is not installed."""


class EnvironmentFault(RuntimeError):
    """The environment handed back something that must not be learned from."""


class Divergence(RuntimeError):
    """Learning has left the finite numbers; what was learned since cannot be used."""


class StorageFault(RuntimeError):
    """The disk does not take what must be written, or has lost what was."""


def in_one_line(error: Exception) -> str:
    """Return type and text of what foreign code raised."""
    return f"{type(error).__name__}: {' '.join(str(error).split()) or 'no reason given'}"


def check_least(section: str, settings: object, **least: int) -> None:
    """Refuse settings, named with their least values, that are below them."""
    for name, bound in least.items():
        if getattr(settings, name) < bound:
            raise ConfigError(f"{section}{name} is {getattr(settings, name)}, but must be at least {bound}.")


def check_positive(section: str, settings: object, *names: str) -> None:
    """Refuse settings that are not positive finite numbers."""
    for name in names:
        value = getattr(settings, name)
        if not (math.isfinite(value) and value > 0):
            raise ConfigError(f"{section}{name} is {value}, but must be a positive number.")


def unknown_name(kind: str, given: object, allowed: Iterable[str]) -> ConfigError:
    """Return the error for a name that is not in a table, with the nearest names in it."""
    names = sorted(allowed)
    near = difflib.get_close_matches(str(given), names, n=2, cutoff=0.5)
    hint = f" Did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
    return ConfigError(f"{kind} {given!r} is unknown.{hint} Allowed: {', '.join(names) or 'none'}.")


_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = 80


def brief(value: object) -> str:
    """Return a value on one short line, however long or deep it is."""
    try:
        return " ".join(_BRIEF.repr(value).split())
    except ValueError:  # Python does not print whole numbers of thousands of digits
        return "a number of thousands of digits"
