"""Converts plain values to frozen dataclasses of settings, strictly and with one-line errors."""

import dataclasses
import json
import math
import re
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import yaml

from monotau.config.plain import Kinds, table_of
from monotau.config.synonyms import SYNONYMS
from monotau.errors import ConfigError, brief, unknown_name

C = TypeVar("C")


def override(base: C, values: object, kinds: Kinds, path: str = "") -> C:
    """Return `base` with the plain `values` set; an unknown name, wrong type or bad value raises with its path."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{path or 'the settings'} must be a mapping of names to values, but got {brief(values)}.")
    values = dict(values)
    table = table_of(type(base), kinds)
    if table and "kind" in values:
        kind = _checked(values.pop("kind"), str, f"{path}.kind")
        if kind not in table:
            raise unknown_name(f"{path}.kind", kind, table)
        if table[kind] is not type(base):
            base = table[kind]()
    settings: Any = base
    hints = get_type_hints(type(settings))
    names = [field.name for field in dataclasses.fields(settings)]
    changes: dict[str, Any] = {}
    for name, value in values.items():
        here = f"{path}.{name}" if path else str(name)
        if name not in names:
            known = [f"{path}.{known}" if path else known for known in names]
            raise unknown_name("the setting", here, known, _as_written(SYNONYMS.get(str(name)), path))
        current = getattr(settings, name)
        if dataclasses.is_dataclass(current):
            changes[name] = override(current, value, kinds, here)
        else:
            changes[name] = _checked(value, hints[name], here)
    changed: C = dataclasses.replace(settings, **changes)
    return changed


def _as_written(setting: str | None, path: str) -> str | None:
    """Return a setting as the user would write it at this path, in Python or YAML: those of a section are nested."""
    section, dot, name = (setting or "").partition(".")
    return f"{section}={{'{name}': ...}}" if dot and section != path else setting


def build(cls: type[C], values: object, path: str = "") -> C:
    """Return a dataclass made of plain values, which must have all of its fields that have no default."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{path or 'the file'} must be a mapping of names to values, but got {brief(values)}.")
    kind: Any = cls
    names = {field.name: field.default is dataclasses.MISSING for field in dataclasses.fields(kind)}
    needed = {name for name, required in names.items() if required}
    if not needed <= values.keys() <= names.keys():
        raise ConfigError(
            f"{f'{path}: ' if path else ''}the fields are {', '.join(sorted(map(str, values)))}, but must be "
            f"{', '.join(sorted(names))}."
        )
    hints = get_type_hints(cls)
    prefix = f"{path}." if path else ""
    built: C = kind(**{name: _checked(value, hints[name], f"{prefix}{name}") for name, value in values.items()})
    return built


def _checked(value: Any, hint: Any, path: str) -> Any:
    """Return the value if it has the type of the hint; an int is accepted for a float and a list for a tuple."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return build(hint, value, path)
    if isinstance(value, np.generic):
        value = value.item()
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        if type(value) is bool and {"on", "off"} <= {*arguments}:  # YAML reads the words on and off as booleans
            value = "on" if value else "off"
        if _checked(value, str, path) not in arguments:
            raise unknown_name(path, value, arguments)
        return value
    if origin in (Union, types.UnionType):
        if type(value) is int and int not in arguments and float in arguments:
            return _checked(value, float, path)
        if type(value) not in arguments:
            options = ", ".join("null" if option is types.NoneType else option.__name__ for option in arguments)
            raise ConfigError(f"{path} is {brief(value)}, but must be one of: {options}.")
        return _checked(value, type(value), path)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{path} is {brief(value)}, but must be a list.")
        return tuple(_checked(item, arguments[0], f"{path}[{i}]") for i, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) and key.isidentifier() for key in value):
            raise ConfigError(f"{path} is {brief(value)}, but must be a mapping with identifiers as keys.")
        return {key: _checked(item, arguments[1], f"{path}.{key}") for key, item in value.items()}
    if hint in (int, float) and type(value) is int and not -(2**63) <= value < 2**63:
        raise ConfigError(f"{path} is {brief(value)}, but must be a number that fits in 64 bits.")
    if hint is float and type(value) is int:
        value = float(value)
    if type(value) is not hint:
        raise ConfigError(f"{path} is {brief(value)}, but must be {_NAMES[hint]}.")
    if hint is float and not math.isfinite(value):
        raise ConfigError(f"{path} is {value}, but must be a finite number.")
    return value


_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


class _StrictLoader(yaml.SafeLoader):
    """Safe YAML of plain values, without duplicate keys, in which 1e-4 is a number."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Refuse tags, which name types, and aliases, which let a small file expand without bound."""
        event: Any = self.peek_event()
        if event.anchor or getattr(event, "tag", None):
            line = event.start_mark.line + 1
            raise ConfigError(
                f"line {line} has an anchor, an alias or a tag (&, * or !), but settings are plain values."
            )
        return super().compose_node(parent, index)


def _unique(loader: _StrictLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    keys = [loader.construct_object(key, deep=True) for key, _ in node.value]
    _refuse_repeats(keys)
    return loader.construct_mapping(node, deep=True)


def _refuse_repeats(keys: list[Any]) -> None:
    seen: set[str] = set()
    for key in keys:
        if not isinstance(key, str):
            raise ConfigError(f"the key {brief(key)} is not a string.")
        if key in seen:
            raise ConfigError(f"the key {brief(key)} appears more than once.")
        seen.add(key)


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique)
_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)

LARGEST_FILE = 1_000_000
"""Size limit of a settings file in bytes; a larger file is a mistake."""


def read_settings(path: Path) -> dict[str, Any]:
    """Read a YAML or JSON file of settings; nothing in it is executed."""
    if path.suffix not in (".json", ".yaml", ".yml"):
        raise ConfigError(f"the settings file {path} must end in .json, .yaml or .yml.")
    try:
        with path.open("rb") as file:
            return parse_settings(path, file.read(LARGEST_FILE + 1))
    except OSError as error:
        raise ConfigError(f"the settings file {path} cannot be read: {_first_line(error)}.") from None


def parse_settings(path: Path, data: bytes) -> dict[str, Any]:
    """Parse the contents of a settings file into plain values."""
    if len(data) > LARGEST_FILE:
        raise ConfigError(f"{path} is larger than {LARGEST_FILE} bytes, the limit for a settings file.")
    try:
        text = data.decode("utf-8-sig")
        if path.suffix == ".json":
            plain = json.loads(text, object_pairs_hook=unique_pairs)
        else:
            plain = _StrictLoader(text).get_single_data()
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid {path.suffix[1:].upper()}: {_first_line(error)}.") from None
    if not isinstance(plain, dict):
        raise ConfigError(f"{path} must contain a mapping of settings, but contains {brief(plain)}.")
    return plain


def parse_scalar(name: str, text: str) -> Any:
    """Parse a value on the command line as in a YAML file: a number, true, false, null or text."""
    try:
        return _StrictLoader(text).get_single_data()
    except (ConfigError, ValueError, yaml.YAMLError, RecursionError):
        raise ConfigError(f"{name} is {brief(text)}, which is not a value in YAML; text may need quotes.") from None


def unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object and refuse duplicate keys."""
    _refuse_repeats([key for key, _ in pairs])
    return dict(pairs)


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200].rstrip(".")
