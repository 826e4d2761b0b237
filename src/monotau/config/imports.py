"""Parts and environments outside the package: modules that the user names, and the tables of parts in them.

A module is imported only if the user names it, with `--import` or `import_parts`; files only record the names.
"""

import dataclasses
import importlib
import importlib.util
import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from types import ModuleType
from typing import Annotated, Any

import tyro

from monotau.config.command_line import IMPORTS
from monotau.config.presets import PRESETS, Preset
from monotau.config.schema import Config
from monotau.errors import ConfigError, brief, in_one_line
from monotau.explorers import EXPLORERS, ExplorerConfig
from monotau.networks import HEADS, TORSOS, HeadConfig, TorsoConfig
from monotau.replay import REPLAYS, ReplayConfig

GROUP = "monotau.parts"
"""The group of entry points by which an installed package offers a module under a name of its own."""

TABLES: Mapping[str, tuple[type, dict[str, Any]]] = {
    "HEADS": (HeadConfig, HEADS),
    "EXPLORERS": (ExplorerConfig, EXPLORERS),
    "TORSOS": (TorsoConfig, TORSOS),
    "REPLAYS": (ReplayConfig, REPLAYS),
    "PRESETS": (Preset, PRESETS),
}
"""The tables that a module may have: what their values are, and the package's table to which they are added."""

PARTS = {"head": "HEADS", "explorer": "EXPLORERS", "torso": "TORSOS", "replay": "REPLAYS"}
"""The tables of the parts in a run's settings."""

_imported: dict[str, ModuleType] = {}
"""The modules by the names that the user gave."""
_origins: dict[tuple[str, str], str] = {}
"""The name by which the user imported each part of their own, by table and name of the part."""


def import_parts(*names: str) -> None:
    """Import modules of your own, and add the parts in them to those of the package.

    A module may have any of the tables `HEADS`, `EXPLORERS`, `TORSOS`, `REPLAYS` and `PRESETS`: dictionaries from names
    to classes of settings, or to `Preset` objects. Then the names can be used in settings, as in
    `Agent(env, head="mine")`, and saved agents that have such parts can be loaded. A module may also just register
    environments with Gymnasium. Importing a module again has no effect.

    Args:
        *names: Modules such as `my_package.my_parts`, or names that an installed package declares in the entry-point
            group `monotau.parts`.

    Raises:
        ConfigError: A module cannot be imported, a table holds something else, or a name is already taken.

    Examples:
        >>> from monotau import import_parts
        >>> import_parts("monotau.networks.heads")  # its table HEADS holds only heads that are known already
    """
    for name in names:
        module = _import(name)
        found = {table: _read(name, module, table) for table in TABLES}  # before anything is added
        for table, entries in found.items():
            known = TABLES[table][1]
            _origins.update({(table, key): name for key in entries if key not in known})
            known.update(entries)
        _imported[name] = module


def is_imported(name: str) -> bool:
    """Whether the user has named a module, by its own name or by that of its entry point."""
    return name in _imported or any(module.__name__ == name for module in _imported.values())


def modules_behind(config: Config) -> set[str]:
    """Return the names of the imported modules that define the preset or a part of a run."""
    used = {"PRESETS": config.preset} | {
        table: next((kind for kind, entry in TABLES[table][1].items() if entry is type(getattr(config, part))), None)
        for part, table in PARTS.items()
    }
    return {_origins[table, kind] for table, kind in used.items() if kind is not None and (table, kind) in _origins}


def check_imported(names: Iterable[Any]) -> None:
    """Raise if settings name modules that the user has not imported."""
    missing = [str(name) for name in names if not is_imported(str(name))]
    if missing:
        raise ConfigError(f"the settings need {needed(missing)}")


def needed(missing: Iterable[str]) -> str:
    """Return a phrase for error messages that names modules and says how to import them."""
    names = [brief(name)[1:-1] for name in missing]
    flags, calls = " ".join(f"--import {name}" for name in names), ", ".join(map(repr, names))
    return (
        f"the module{'s' * (len(names) > 1)} {' and '.join(names)}, which must be named: pass {flags}, or in Python "
        f"call monotau.import_parts({calls}) first."
    )


def check_parts(preset: object, settings: Mapping[str, Any]) -> None:
    """Raise if saved settings have a part that is unknown here and were made with modules that are not imported."""
    recorded = settings.get("imports")
    missing = [name for name in recorded if not is_imported(str(name))] if isinstance(recorded, list) else []
    kinds = {"PRESETS": preset} | {
        table: part.get("kind") if isinstance(part := settings.get(name), Mapping) else None
        for name, table in PARTS.items()
    }
    if missing and any(isinstance(kind, str) and kind not in TABLES[table][1] for table, kind in kinds.items()):
        raise ConfigError(f"the settings need {needed(map(str, missing))}")


@dataclass(frozen=True, kw_only=True)
class ListCommand:
    """List what can be named on the command line."""

    table: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TABLE")]
    """What to list."""
    imports: Annotated[tuple[str, ...], IMPORTS, tyro.conf.UseAppendAction] = ()
    """Module with parts of your own; can be repeated."""


def list_parts(given: ListCommand) -> list[tuple[str, str]]:
    """Import modules, and return names and descriptions of the parts in them that belong to a table."""
    import_parts(*given.imports)
    found = [(key, name) for (table, key), name in _origins.items() if table.lower() == given.table]
    return [(key, f"{_about(TABLES[given.table.upper()][1][key])} ({name})".lstrip()) for key, name in found]


def _about(entry: Any) -> str:
    """Return the first line of the docstring of a part; presets have none."""
    return (inspect.getdoc(entry) or "").partition("\n")[0] if isinstance(entry, type) else ""


def _import(name: str) -> ModuleType:
    """Import a module by its name or by that of an entry point."""
    if not isinstance(name, str) or not re.fullmatch(r"[\w-]+(\.[\w-]+)*", name) or name.endswith(".py"):
        raise ConfigError(f"--import is {brief(name)}, but must be the name of a module, such as my_package.my_parts.")
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # the package that should contain it
        spec = None
    except ValueError:  # the main program has no spec
        raise ConfigError(f"--import is {brief(name)}, which cannot be imported: put the parts in a file.") from None
    entries = [] if spec else [*entry_points(group=GROUP, name=name)]
    if spec is None and not entries:
        offered = sorted({entry.name for entry in entry_points(group=GROUP)})
        raise ConfigError(
            f"--import is {brief(name)}, but there is neither a module of this name here nor an installed package that "
            f"offers it (offered: {', '.join(offered) or 'none'})."
        )
    try:
        return importlib.import_module(entries[0].value if entries else name)
    except (Exception, SystemExit) as error:  # the user's own code may raise anything
        raise ConfigError(f"--import {name} failed: {in_one_line(error)}") from error


def _read(name: str, module: ModuleType, table: str) -> Mapping[str, Any]:
    """Return the entries of a module's table, and raise if one is not what it must be."""
    entries: Any = getattr(module, table, {})
    base, known = TABLES[table]
    if not isinstance(entries, Mapping):
        raise ConfigError(f"{name}.{table} is {brief(entries)}, but must be a dictionary from names to parts.")
    for key, entry in entries.items():
        here = f"{name}.{table}[{brief(key)}]"
        if not isinstance(key, str) or not re.fullmatch(r"\w[\w.-]*", key, re.ASCII):
            raise ConfigError(f"{here}: a name may only have letters, digits and - _ . in it.")
        if key in known and known[key] is not entry:
            raise ConfigError(f"{here}: the name is already taken; use another one.")
        if base is Preset:
            _check_preset(here, entry, module)
        elif not (isinstance(entry, type) and issubclass(entry, base) and _is_frozen(entry)):
            raise ConfigError(f"{here} is {brief(entry)}, but must be a frozen dataclass derived from {base.__name__}.")
        else:
            _check_defaults(here, entry)
    return entries


def _is_frozen(cls: type) -> bool:
    """Whether a class itself, and not only one that it derives from, is a frozen dataclass."""
    parameters: Any = vars(cls).get("__dataclass_params__")
    return dataclasses.is_dataclass(cls) and parameters is not None and bool(parameters.frozen)


def _check_defaults(here: str, cls: type) -> None:
    try:
        cls()
    except Exception as error:  # a missing default, an abstract method, or a default that its own checks refuse
        raise ConfigError(f"{here} must work with its defaults alone, but raised {in_one_line(error)}") from error


def _check_preset(here: str, preset: Any, module: ModuleType) -> None:
    if not isinstance(preset, Preset):
        raise ConfigError(f"{here} is {brief(preset)}, but must be a monotau.config.presets.Preset.")
    for part in ("head", "explorer", "replay"):
        table, own = PARTS[part], getattr(preset, part)
        allowed = {*TABLES[table][1].values(), *getattr(module, table, {}).values()}
        if own is not None and type(own) not in allowed:
            raise ConfigError(f"{here} has the {part} {type(own).__name__}, which is missing in {table}.")
