"""Converts frozen dataclasses of settings to plain values.

A part (a head, an explorer, a torso) is a dataclass chosen from a table; its plain form has its name under `kind`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

Kinds = Mapping[type, Mapping[str, type]]
"""The table of each abstract kind of part."""


def to_plain(settings: Any, kinds: Kinds) -> dict[str, Any]:
    """Return a settings object as nested dictionaries of plain values, each field written out."""
    plain: dict[str, Any] = {}
    table = table_of(type(settings), kinds)
    if table:
        plain["kind"] = kind_of(settings, kinds)
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            value = to_plain(value, kinds)
        elif isinstance(value, tuple):
            value = [to_plain(item, kinds) if dataclasses.is_dataclass(item) else item for item in value]
        elif isinstance(value, dict):
            value = dict(value)
        plain[field.name] = value
    return plain


def kind_of(part: Any, kinds: Kinds) -> str:
    """Return the name of a part in its table."""
    table = table_of(type(part), kinds) or {}
    return next(name for name, entry in table.items() if entry is type(part))


def table_of(cls: type, kinds: Kinds) -> Mapping[str, type] | None:
    """Return the table of the parts that a class belongs to."""
    return next((table for kind, table in kinds.items() if issubclass(cls, kind)), None)
