"""Whether a run that trains is still alive: rules on the lines it logs, each told once, with what to do."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from monotau.config.schema import Config
from monotau.networks.heads.c51 import C51
from monotau.networks.heads.ndqfn import CurveConfig

STRETCH = 3
"""Lines of kind train in a row over which a rule must hold: a single one may be chance."""

FEWEST_UPDATES = 500
"""Before, a network says more about its first weights than about what it learned."""

SAME = 1e-4
"""States whose values differ by less, relative to the size of returns, have one value."""

DEAD = 0.99
"""Share of features or increments at which nothing is left to learn with."""

CLIPPED = 0.2
"""Share of the targets' mass that may be cut off."""

OVERSHOOT = 1.0
"""How far outside the mean of a target may lie, in halves of the head's reach."""

Line = Mapping[str, Any]
"""A line of kind train."""

Told = Callable[[Config, Sequence[Line]], str | None]


class Finding(NamedTuple):
    """What a rule has found: its name, and what a person is told."""

    rule: str
    text: str


def findings(config: Config, trains: Sequence[Line], said: Collection[str]) -> list[Finding]:
    """Return what the lines of kind train show for the first time; `said` are the rules that were told before.

    Everything is read from the log, so that a run that goes on from a checkpoint does not repeat itself.
    """
    stretch = trains[-STRETCH:]
    if len(stretch) < STRETCH or stretch[0].get("updates", 0) < FEWEST_UPDATES:
        return []
    found: dict[str, str] = {}
    for rule, (told, causes) in RULES.items():
        known = {*said, *found}
        if rule not in known and known.isdisjoint(causes) and (text := told(config, trains)):
            found[rule] = text
    return [Finding(rule, text) for rule, text in found.items()]


def _dead_features(config: Config, trains: Sequence[Line]) -> str | None:
    if not (shares := _all(trains, "dead_features", lambda share: share >= DEAD)):
        return None
    return (
        f"the network is dead: {shares[-1]:.4g} of its features are zero in every replayed state (dead_features, "
        f"{STRETCH} log lines in a row), so that it cannot tell states apart; {_another_start(config)}."
    )


def _one_value(config: Config, trains: Sequence[Line]) -> str | None:
    if not _all(trains, "q_contrast", lambda contrast: contrast <= SAME):
        return None
    q_mean, q_std = (trains[-1].get(name) or 0.0 for name in ("q_mean", "q_std"))
    return (
        f"every state has the same value (q_std {q_std:.2g} around a q_mean of {q_mean:.4g}, {STRETCH} log lines in a "
        "row): unless all states are worth the same, the network has lost what tells them apart; "
        f"{_another_start(config)}."
    )


def _dead_increments(config: Config, trains: Sequence[Line]) -> str | None:
    shares = _all(trains, "dead_increments", lambda share: share >= DEAD)
    # Of a world in which every episode returns the same, a single return is the true distribution.
    if not shares or len({line["return_mean"] for line in trains if line.get("return_mean") is not None}) < 2:
        return None
    relu = isinstance(config.head, CurveConfig) and config.head.increment == "relu"
    remedy = "head.increment scaled, which cannot die, or " if relu else ""
    return (
        f"the head predicts a single return where episodes differ: {shares[-1]:.4g} of its increments are zero in "
        f"every replayed state (dead_increments, {STRETCH} log lines in a row); unless nothing is left to chance, "
        f"start again with {remedy}a lower optimiser.learning_rate (now {config.optimiser.learning_rate:g})."
    )


def _out_of_reach(config: Config, trains: Sequence[Line]) -> str | None:
    if shares := _all(trains, "clipped", lambda share: share > CLIPPED):
        what = f"{shares[-1]:.0%} of what it is to learn is cut off (clipped"
    elif distances := _all(trains, "overshoot", lambda distance: distance > OVERSHOOT):
        what = f"some targets lie {distances[-1]:.3g} times half its support outside of it (overshoot"
    else:
        return None
    now = f" (now {config.head.low:g} and {config.head.high:g})" if isinstance(config.head, C51) else ""
    return (
        f"returns are out of the head's reach: {what}, {STRETCH} log lines in a row); start again with a head.low and "
        f"a head.high{now} between which all discounted returns lie."
    )


RULES: Mapping[str, tuple[Told, Collection[str]]] = {
    "dead_features": (_dead_features, ()),
    "out_of_reach": (_out_of_reach, ()),
    "one_value": (_one_value, ("dead_features", "out_of_reach")),
    "dead_increments": (_dead_increments, ("dead_features", "one_value")),
}
"""Each rule with its causes: of what follows from something that was told nothing is said."""


def _all(trains: Sequence[Line], name: str, holds: Callable[[float], bool]) -> list[float]:
    """Return a number of the last lines, if each has it and all are so; else nothing."""
    values = [line.get(name) for line in trains[-STRETCH:]]
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) and all(map(holds, known)) else []


def _another_start(config: Config) -> str:
    return (
        f"start again with a lower optimiser.learning_rate (now {config.optimiser.learning_rate:g}), another torso or "
        f"another seed (now {config.seed})"
    )
