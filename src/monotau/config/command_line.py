"""Parses a command line into a settings object, with one-line errors."""

import contextlib
import difflib
import io
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import Any

import tyro

from monotau.config.synonyms import SYNONYMS
from monotau.errors import ConfigError

IMPORTS = tyro.conf.arg(name="import", metavar="MODULE")
"""The annotation of the option --import, which can be repeated."""


def import_flags(modules: Iterable[str]) -> list[str]:
    """Return the options that name modules, for the command line of another process."""
    return [f"--import={name}" for name in modules]


def values_of(flag: str, words: Sequence[str]) -> list[str]:
    """Return all values of an option, which must be read before the others can be parsed."""
    values = []
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        name, equals, value = word.partition("=")
        if name == flag:
            values.append(value if equals else following)
            if not values[-1] or values[-1].startswith("--"):
                raise ConfigError(f"{flag} needs a value.")
    return values


def parse(
    what: type, words: list[str], program: str, default: Any = None, flags: Callable[[], list[str]] = list
) -> Any:
    """Parse with tyro and turn its error box into one line; `flags` lists the flags to suggest for an unknown one."""
    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            return tyro.cli(what, args=words, prog=program, default=default, config=(tyro.conf.SuppressFixed,))
    except SystemExit as stop:
        if stop.code != 2:
            raise
    plain = re.sub(r"\x1b\[[0-9;]*m", "", box.getvalue())  # tyro colours its output on a terminal
    inside = plain.partition("\n")[2]  # the first line is the box's title
    text = " ".join(re.sub(r"[─│╭╮╰╯]+|-{5,}", " ", inside).split()).partition(" For full helptext")[0]
    if match := re.search(r"Unrecognized options: ([^ ,]+)", text):
        known, meant = flags(), SYNONYMS.get(match[1].removeprefix("--").partition("=")[0].replace("-", "_"), "")
        flag = f"--{meant.replace('_', '-')}"
        near = [flag] if flag in known else difflib.get_close_matches(match[1], known, n=2)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise ConfigError(f"the option {match[1]!r} is unknown here.{hint} See {program} --help.")
    if match := re.search(r"Error parsing (--\S+): (.+?) Argument helptext: --\S+ (\[.+?\]+|\S+)", text):
        reason = match[2].rpartition("'>: ")[2]  # an optional value has one reason per type; the last counts
        if number := re.fullmatch(
            r"(?:invalid literal for int\(\) .*|could not convert string to float): ('.*')", reason
        ):
            wanted = "a whole number" if "int()" in reason else "a number"
            raise ConfigError(f"{match[1]} takes {wanted}, not {number[1]}. See {program} --help.")
        raise ConfigError(f"{match[1]} takes {match[3]}, but: {reason}. See {program} --help.")
    # What follows the name of a missing argument is its help text.
    text = re.sub(r"^(Missing from [^:]+: (?:--\S+ )?\S+) (.*?)(?: \(required\))?$", r"\1. \2", text)
    raise ConfigError(re.sub(r"^Error parsing settings(\.\w+)*: ", "", text))
