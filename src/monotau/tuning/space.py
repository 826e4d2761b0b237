"""The table of the settings that `monotau tune` searches, each around its default."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, final

from monotau.results.read import flatten_settings

Range = list[Any]
"""Plain form of what a setting may be: the words `log`, low and high, or the word `choice` and all values."""


@final
@dataclass(frozen=True, kw_only=True)
class Dimension:
    """A setting that is searched. It has either `factors` or `choices`."""

    setting: str
    """Its path, such as optimiser.learning_rate."""
    factors: tuple[float, float] | None = None
    """Lowest and highest multiple of the default, between which values are drawn on a logarithmic scale."""
    multiples: tuple[float, ...] = ()
    """Multiples of the default, which are the only values."""
    choices: tuple[int, ...] = ()
    """The only values, apart from the default."""
    not_with: tuple[str, ...] = ()
    """Explorers for which the setting is not searched."""

    def range_around(self, default: Any) -> Range | None:
        """Return what the setting may be, or None if its default leaves nothing to search."""
        if not default:  # None, or an epsilon of 0 that turns something off
            return None
        if self.factors is not None:
            low, high = self.factors
            return ["log", low * default, high * default]
        values = {default, *self.choices, *(max(1, round(factor * default)) for factor in self.multiples)}
        return ["choice", *sorted(values)]


SPACE: Sequence[Dimension] = (
    Dimension(setting="optimiser.learning_rate", factors=(0.1, 10.0)),
    # The bonuses of these explorers are backed up one step at a time.
    Dimension(setting="n_step", choices=(1, 3, 5, 10), not_with=("deep-dpe", "rnd", "pe-dqn")),
    Dimension(setting="update.batch_size", choices=(16, 32, 64, 128)),
    Dimension(setting="update.every_steps", choices=(1, 2, 4, 8)),
    Dimension(setting="head.hidden", multiples=(0.5, 1.0, 2.0)),
    Dimension(setting="torso.width", multiples=(0.5, 1.0, 2.0)),
    Dimension(setting="epsilon.end", factors=(0.1, 4.0)),
    Dimension(setting="explorer.c", factors=(0.1, 10.0)),
)


def searched(config: Mapping[str, Any], fixed: Mapping[str, Any]) -> dict[str, Range]:
    """Return what each setting of SPACE may be that these settings have and the user did not fix."""
    defaults, given = dict(flatten_settings(config)), dict(flatten_settings(fixed))
    found: dict[str, Range] = {}
    for dimension in SPACE:
        if dimension.setting in given or defaults["explorer.kind"] in dimension.not_with:
            continue
        allowed = dimension.range_around(defaults.get(dimension.setting))
        if allowed is not None:
            found[dimension.setting] = allowed
    return found


def defaults_of(config: Mapping[str, Any], space: Mapping[str, Range]) -> dict[str, Any]:
    """Return the values of the searched settings in these settings."""
    flat = dict(flatten_settings(config))
    return {setting: flat[setting] for setting in space}


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by their paths as nested mappings, the form of a settings file."""
    plain: dict[str, Any] = {}
    for path, value in values.items():
        *sections, name = path.split(".")
        reduce(lambda place, section: place.setdefault(section, {}), sections, plain)[name] = value
    return plain
