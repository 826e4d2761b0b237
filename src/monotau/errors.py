"""The two ways a user's input can be refused, and how the refusal is worded."""

import difflib
from collections.abc import Iterable


class ConfigError(ValueError):
    """A setting, name or file that cannot be used; found before anything is written."""


class EnvironmentFault(RuntimeError):
    """The environment handed back something that must not be learned from."""


def unknown_name(kind: str, given: object, allowed: Iterable[str]) -> ConfigError:
    """Return the error for a name that is not in a table, with the nearest names in it."""
    names = sorted(allowed)
    near = difflib.get_close_matches(str(given), names, n=2, cutoff=0.5)
    hint = f" Did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
    return ConfigError(f"{kind} {given!r} is unknown.{hint} Allowed: {', '.join(names)}.")
