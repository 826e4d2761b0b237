"""A suite, the grid of presets x overrides x environments x seeds in a settings file, and its cells."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, final

from monotau.config.parse import override, read_settings
from monotau.config.presets import PRESETS
from monotau.config.resolve import Resolved, resolve, with_kinds
from monotau.envs import EnvConfig
from monotau.envs.atari import default_protocol
from monotau.envs.games import GAME_SETS, id_of
from monotau.errors import ConfigError, brief, unknown_name
from monotau.runs.layout import directory_name
from monotau.suites.listing import BUILT_IN
from monotau.suites.scaling import check_scale, scaled

MOST_CELLS = 8_000
"""Limit on the size of a grid; a larger one is probably a mistake, or should be several suites."""

KEYS = ("about", "presets", "overrides", "envs", "seeds", "settings", "profile", "scale")
"""Keys of a suite file; the record that a suite writes beside its runs also has `cells`, which follow from these."""

Settings = Mapping[str, Any]


@final
@dataclass(frozen=True, kw_only=True)
class Method:
    """A preset with an override: one of the methods that a suite compares."""

    name: str
    """The preset, followed by the name of the override."""
    preset: str
    settings: Sequence[Settings]
    """Settings of the preset and of the override; later ones win."""


@final
@dataclass(frozen=True, kw_only=True)
class SuiteEnv:
    """An environment of a suite, with its own settings."""

    config: EnvConfig
    settings: Settings = field(default_factory=dict)


@final
@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run of a suite."""

    method: Method
    env: SuiteEnv
    seed: int

    @property
    def name(self) -> str:
        """The name of its run directory."""
        return directory_name(self.method.name, self.env.config.title, self.seed)

    def plain(self) -> dict[str, Any]:
        """Return the cell's entry in the record, which reports read."""
        return {"method": self.method.name, "env": self.env.config.title, "seed": self.seed}


@final
@dataclass(frozen=True, kw_only=True)
class Suite:
    """A grid of runs."""

    name: str
    plain: Settings
    """The contents of its file."""
    methods: Sequence[Method]
    envs: Sequence[SuiteEnv]
    seeds: Sequence[int]
    settings: Settings
    """Settings of all runs."""
    profile: str | None
    scale: float
    """Factor of budgets and schedules."""
    imports: Sequence[str] = ()
    """Modules that the user named on the command line."""

    @cached_property
    def cells(self) -> list[Cell]:
        """All runs, ordered by seed, so that an interrupted suite has compared all methods on some seeds."""
        grid = product(self.seeds, self.envs, self.methods)
        return [Cell(method=method, env=env, seed=seed) for seed, env, method in grid]

    def given(self, cell: Cell) -> list[object]:
        """Return everything that determines a cell's run; equal values mean equal runs."""
        layers = [self.settings, cell.env.settings, *cell.method.settings]
        return [cell.method.preset, cell.env.config, cell.seed, self.profile, self.scale, layers]

    def resolve(self, cell: Cell, threads: int | None = None) -> Resolved:
        """Resolve a cell's settings: suite, environment, preset and override, where later ones win."""
        env = cell.env.config
        given = (self.settings, cell.env.settings, *cell.method.settings)
        layers = [with_kinds(cell.method.preset, layer) for layer in given]
        own = {"seed": cell.seed, "env": {"id": env.id, "protocol": env.protocol, "kwargs": env.kwargs}}
        first: dict[str, Any] = {"imports": self.imports} | ({} if threads is None else {"threads": threads})
        resolved = resolve(cell.method.preset, first, *layers, own, profile=self.profile)
        if self.scale == 1:
            return resolved
        return Resolved(scaled(resolved.config, self.scale), resolved.envs)

    def record(self) -> dict[str, Any]:
        """Return the record that is written beside the runs: the suite and its cells."""
        own = {"about": self.plain.get("about", ""), "scale": self.scale}
        return {**self.plain, **own, "cells": {cell.name: cell.plain() for cell in self.cells}}


def read_suite(name: str, scale: float | None = None) -> Suite:
    """Return a built-in suite or one from a file; `scale` overrides the scale in the file."""
    path = Path(name)
    if path.suffix not in (".yaml", ".yml", ".json"):
        known = [found.stem for found in sorted(BUILT_IN.glob("*.yaml"))]
        if name not in known:
            raise ConfigError(f"{unknown_name('the suite', name, known)} A .yaml or .json file is allowed, too.")
        path = BUILT_IN / f"{name}.yaml"
    if not path.exists():
        raise ConfigError(f"the suite file {path} does not exist; `monotau list suites` shows the built-in suites.")
    try:
        return to_suite(path.stem, read_settings(path), scale)
    except ConfigError as error:
        raise error if str(path) in str(error) else ConfigError(f"{path}: {error}") from None


def to_suite(name: str, plain: Settings, scale: float | None = None) -> Suite:
    """Validate the plain values of a suite file and build the suite."""
    plain = {key: value for key, value in plain.items() if key != "cells"}
    for key in plain:
        if key not in KEYS:
            raise unknown_name("the key", key, KEYS)
    presets = _named_settings("presets", plain.get("presets"))
    for preset in presets:
        if preset not in PRESETS:
            raise unknown_name("the preset", preset, PRESETS)
    overrides = _named_settings("overrides", plain.get("overrides", {"": {}}))
    methods = [
        Method(name=f"{preset} {label}".strip(), preset=preset, settings=[settings, more])
        for (preset, settings), (label, more) in product(presets.items(), overrides.items())
    ]
    profile = plain.get("profile")
    if not isinstance(profile, str | None):
        raise ConfigError(f"profile is {brief(profile)}, but must be a name.")
    suite = Suite(
        name=name,
        plain=plain,
        methods=methods,
        envs=_envs(plain.get("envs")),
        seeds=_seeds(plain.get("seeds", 5)),
        settings=_mapping("settings", plain.get("settings", {})),
        profile=profile,
        scale=check_scale(plain.get("scale", 1.0) if scale is None else scale),
    )
    if len(suite.cells) > MOST_CELLS:
        raise ConfigError(f"the grid has {len(suite.cells)} runs, but may have at most {MOST_CELLS}.")
    if len({cell.name for cell in suite.cells}) < len(suite.cells):
        raise ConfigError("two runs of the grid have the same name: an env, a seed or an override is repeated.")
    return suite


def _named_settings(key: str, given: Any) -> dict[str, Settings]:
    """Convert a list of names, or a mapping of names to settings, to a mapping."""
    if isinstance(given, list) and given and all(isinstance(name, str) for name in given):
        if len(set(given)) < len(given):
            raise ConfigError(f"{key} is {brief(given)}, but no name may be repeated.")
        given = {name: {} for name in given}
    if not isinstance(given, Mapping) or not given:
        raise ConfigError(f"{key} is {brief(given)}, but must be a list of names, or a mapping of names to settings.")
    for name in given:
        if not re.fullmatch(r"[\w.=-]*", name, re.ASCII):
            raise ConfigError(
                f"{key} has the name {brief(name)}, but only letters, digits and - _ . = are allowed: it names files."
            )
    return {name: _mapping(f"{key}.{name}", value) for name, value in given.items()}


def _mapping(key: str, given: Any) -> Settings:
    if not isinstance(given, Mapping):
        raise ConfigError(f"{key} is {brief(given)}, but must be a mapping of settings.")
    env = given.get("env", {})
    if not isinstance(env, Mapping):
        raise ConfigError(f"{key}.env is {brief(env)}, but must be a mapping of settings; list environments in envs.")
    own = [name for name in ("seed", "preset", "profile") if name in given]
    own += [f"env.{name}" for name in ("id", "protocol", "kwargs") if name in env]
    for name in own:
        raise ConfigError(f"{key}.{name} is set, but the suite sets it for every run, by its keys {', '.join(KEYS)}.")
    return given


def _envs(given: Any) -> list[SuiteEnv]:
    if not isinstance(given, list) or not given:
        raise ConfigError(f"envs is {brief(given)}, but must be a list of ids, sets of games or mappings with an id.")
    return [env for entry in given for env in _env(entry)]


def _env(entry: Any) -> list[SuiteEnv]:
    """Return the environment of an entry, or the environments of a set of games."""
    if isinstance(entry, str) and entry in GAME_SETS:
        return [env for game in GAME_SETS[entry][1] for env in _env(id_of(game))]
    plain = {"id": entry} if isinstance(entry, str) else entry
    if not isinstance(plain, Mapping) or not isinstance(plain.get("id"), str):
        raise ConfigError(
            f"envs has {brief(entry)}, but an entry must be an id, a set of games or a mapping with an id."
        )
    for key in plain:
        if key not in ("id", "protocol", "kwargs", "settings"):
            raise unknown_name("the key of an env", key, ("id", "protocol", "kwargs", "settings"))
    made = {key: value for key, value in plain.items() if key != "settings"}
    config = override(EnvConfig(protocol=default_protocol(plain["id"])), made, {}, "env")
    return [SuiteEnv(config=config, settings=_mapping("settings", plain.get("settings", {})))]


def _seeds(given: Any) -> list[int]:
    if type(given) is int and 1 <= given <= MOST_CELLS:
        return list(range(given))
    if isinstance(given, list) and given and all(type(seed) is int and seed >= 0 for seed in given):
        return given
    raise ConfigError(
        f"seeds is {brief(given)}, but must be the number of seeds, from 1 to {MOST_CELLS}, or a list of non-negative "
        "whole numbers."
    )
