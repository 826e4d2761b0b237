"""Writes the settings reference from the code: every setting of a run with its type, its default and its docstring.

The documentation site calls `render`; `python docs/settings_reference.py` prints the page.
"""

import ast
import dataclasses
import inspect
import json
import types
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple

from monotau.config.listing import ABOUT
from monotau.config.profiles import PROFILES
from monotau.config.schema import KINDS, Config
from monotau.config.synonyms import SYNONYMS

HEADER = """\
# Settings

This page is generated from the code. Every setting is

- a flag of `monotau train`: `--head.hidden 64`, `--n-step 1`, `--no-double-q`;
- an argument of `Agent` and `train_agent`: `head={"hidden": 64}, n_step=1, double_q=False`;
- a key of a YAML or JSON file for `--config`, in the layout of a run's `config.json`.

Where several of them set the same value, the later one wins: the default below, the
[profile](#profiles), the preset, the file, the flags or arguments. `monotau train PRESET --env ID --show` prints the
values that a run would use.
"""


class Setting(NamedTuple):
    """One setting."""

    name: str
    type: str
    default: str
    text: str


@cache
def field_docstrings(cls: type) -> Mapping[str, str]:
    """Return the string literal below each field of a dataclass, inherited fields included."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        (definition,) = ast.parse(inspect.cleandoc(inspect.getsource(base))).body
        assert isinstance(definition, ast.ClassDef)  # noqa: S101
        for field, below in zip(definition.body, definition.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
                and isinstance(below.value.value, str)
            ):
                found[field.target.id] = " ".join(below.value.value.split())
    return found


def type_name(hint: Any) -> str:
    """Return a type as a reader of the page would write it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return type_name(arguments[0])
    if origin is Literal:
        return " or ".join(f"`{argument}`" for argument in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(type_name(argument) for argument in arguments)
    if origin is tuple:
        return f"list of {type_name(arguments[0])}"
    if origin is dict:
        return "mapping"
    return "none" if hint is type(None) else str(hint.__name__)


def default_of(field: dataclasses.Field) -> str:
    """Return the default of a field as code."""
    value = field.default
    if field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    if value is dataclasses.MISSING:
        return ""
    if isinstance(value, bool) or value is None:
        return f"`{json.dumps(value)}`"
    if isinstance(value, int):
        return f"`{value:,}`".replace(",", "_")
    if isinstance(value, float):
        return f"`{value:g}`"
    return f"`{json.dumps(value)}`"


def settings_of(cls: type) -> Iterator[Setting]:
    """Return the settings of one section."""
    hints, texts = typing.get_type_hints(cls, include_extras=True), field_docstrings(cls)
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        if not dataclasses.is_dataclass(hint) and hint not in KINDS:
            yield Setting(field.name, type_name(hint), default_of(field), texts.get(field.name, ""))


def table(rows: list[Setting], prefix: str) -> list[str]:
    """Return a Markdown table."""
    if not rows:
        return ["No settings."]
    lines = ["| setting | type | default | |", "|---|---|---|---|"]
    for row in rows:
        cells = (f"`{prefix}{row.name}`", row.type, row.default, row.text)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return lines


def summary(cls: type) -> str:
    """Return the docstring of a section as one paragraph for each of its paragraphs."""
    text = inspect.getdoc(cls) or ""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def sections() -> Iterator[tuple[str, str, list[Setting]]]:
    """Return heading, introduction and settings of every section, in the order of `Config`."""
    own = ("preset", "profile", "imports")  # which have arguments of their own
    yield "The run", summary(Config), [row for row in settings_of(Config) if row.name not in own]
    for name, hint in typing.get_type_hints(Config).items():
        if hint in KINDS:
            for kind, cls in KINDS[hint].items():
                yield f"{name}: {kind}", summary(cls), list(settings_of(cls))
        elif dataclasses.is_dataclass(hint):
            assert isinstance(hint, type)  # noqa: S101
            yield name, summary(hint), list(settings_of(hint))


def flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Return nested settings as dotted names and values."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def profiles() -> Iterator[str]:
    """Return the lines of the section on profiles."""
    yield from ("## Profiles", "", "A profile sets what goes with the kind of observation, for every algorithm.", "")
    yield from (f"- `{name}`: {about}." for name, about in ABOUT["profiles"].items())
    rows = {name: dict(flat(profile.settings)) for name, profile in PROFILES.items()}
    yield from ("", "| setting | " + " | ".join(f"`{name}`" for name in rows) + " |", "|---" * (len(rows) + 1) + "|")
    for setting in dict.fromkeys(setting for row in rows.values() for setting in row):
        values = (
            f"{row[setting]:g}" if isinstance(row.get(setting), float) else row.get(setting) for row in rows.values()
        )
        cells = ("" if value is None else f"{value:,}" if isinstance(value, int) else str(value) for value in values)
        yield f"| `{setting}` | " + " | ".join(cells) + " |"
    for name, profile in PROFILES.items():
        notes = []
        if profile.warmup_share:
            notes.append(
                f"`replay.warmup_steps` is {profile.warmup_share:.0%} of the run's steps, at most the number above"
            )
        if profile.decay_share:
            notes.append(f"`epsilon.decay_steps` is {profile.decay_share:.0%} of the run's steps")
        parts = {"torso": profile.torso_settings, "head": profile.heads, "explorer": profile.explorers}
        for part, kinds in parts.items():
            for kind, settings in kinds.items():
                values = ", ".join(f"{key} {value}" for key, value in settings.items())
                notes.append(f"{part} `{kind}` has {values}")
        if notes:
            yield from ("", f"In `{name}`: " + "; ".join(notes) + ".")


def synonyms() -> Iterator[str]:
    """Return the lines of the section on names in other libraries."""
    yield from ("## Names in other libraries", "", "An unknown name of this table is answered with the setting here.")
    yield from ("Units may differ: `exploration_fraction`, for example, is a share of the run.", "")
    yield from ("| elsewhere | here |", "|---|---|")
    for here in dict.fromkeys(SYNONYMS.values()):
        yield f"| {', '.join(f'`{name}`' for name, path in SYNONYMS.items() if path == here)} | `{here}` |"


def render() -> str:
    """Return the page."""
    lines = [HEADER]
    for heading, introduction, rows in sections():
        part = heading.partition(":")[0]
        prefix = "" if heading == "The run" else f"{part}."
        lines += [f"## {heading}", "", introduction, "", *table(rows, prefix), ""]
    return "\n".join([*lines, *profiles(), "", *synonyms(), ""])


if __name__ == "__main__":
    print(render())
