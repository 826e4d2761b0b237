"""Health checks of a run in training: rules on its log lines, each of which warns once and suggests a remedy."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from monotau.config.schema import Config
from monotau.networks.heads.c51 import C51
from monotau.networks.heads.hl_gauss import HlGauss
from monotau.networks.heads.ndqfn import CurveConfig

STRETCH = 3
"""Consecutive train lines on which a rule must hold, because a single one may be chance."""

FEWEST_UPDATES = 500
"""No rule applies before: the numbers would describe the initial weights more than what was learned."""

SAME_VALUE = 1e-4
"""Values that differ by less than this share of the size of returns count as equal."""

DEAD_SHARE = 0.99
"""Share of dead features or increments from which a network counts as dead."""

CLIPPED_SHARE = 0.2
"""Share of the targets' probability mass that may be clipped without a warning."""

OVERSHOOT = 1.0
"""How far outside the support a target's mean may lie without a warning, in half-widths of the support."""

Line = Mapping[str, Any]
"""A log line of kind train."""

Check = Callable[[Config, Sequence[Line]], str | None]


class Finding(NamedTuple):
    """A problem that a rule found: the rule's name and the warning."""

    rule: str
    text: str


def findings(config: Config, trains: Sequence[Line], reported: Collection[str]) -> list[Finding]:
    """Return the new problems that the train lines show; `reported` are the rules that have warned before.

    All input comes from the log, so that a resumed run does not repeat its warnings.
    """
    stretch = trains[-STRETCH:]
    if len(stretch) < STRETCH or stretch[0].get("updates", 0) < FEWEST_UPDATES:
        return []
    found: dict[str, str] = {}
    for rule, (check, causes) in RULES.items():
        known = {*reported, *found}
        if rule not in known and known.isdisjoint(causes) and (text := check(config, trains)):
            found[rule] = text
    return [Finding(rule, text) for rule, text in found.items()]


def _dead_features(config: Config, trains: Sequence[Line]) -> str | None:
    if not (shares := _all(trains, "dead_features", lambda share: share >= DEAD_SHARE)):
        return None
    return (
        f"the network is dead: {shares[-1]:.2%} of its features are zero in every sampled state (dead_features, "
        f"{STRETCH} log lines in a row), so it cannot distinguish states; {_restart_advice(config)}."
    )


def _one_value(config: Config, trains: Sequence[Line]) -> str | None:
    if not _all(trains, "q_contrast", lambda contrast: contrast <= SAME_VALUE):
        return None
    q_mean, q_std = (trains[-1].get(name) or 0.0 for name in ("q_mean", "q_std"))
    return (
        f"every state has the same predicted value (q_std {q_std:.2g} around a q_mean of {q_mean:.4g}, {STRETCH} log "
        "lines in a row): unless that is true, the network no longer distinguishes states; "
        f"{_restart_advice(config)}."
    )


def _dead_increments(config: Config, trains: Sequence[Line]) -> str | None:
    shares = _all(trains, "dead_increments", lambda share: share >= DEAD_SHARE)
    # If all episodes have the same return, a single return is the true distribution.
    if not shares or len({line["return_mean"] for line in trains if line.get("return_mean") is not None}) < 2:
        return None
    relu = isinstance(config.head, CurveConfig) and config.head.increment == "relu"
    remedy = "head.increment scaled, which cannot die, or " if relu else ""
    return (
        f"the head predicts a single return although episodes differ: {shares[-1]:.2%} of its increments are zero in "
        f"every sampled state (dead_increments, {STRETCH} log lines in a row); unless returns are deterministic, "
        f"start again with {remedy}a lower optimiser.learning_rate (now {config.optimiser.learning_rate:g})."
    )


def _out_of_reach(config: Config, trains: Sequence[Line]) -> str | None:
    if shares := _all(trains, "clipped", lambda share: share > CLIPPED_SHARE):
        symptom = f"{shares[-1]:.0%} of the targets' probability mass is clipped (clipped"
    elif distances := _all(trains, "overshoot", lambda distance: distance > OVERSHOOT):
        symptom = f"the mean of a target lies {distances[-1]:.3g} half-widths outside the support (overshoot"
    else:
        return None
    advice = _support_advice(config, trains)
    return f"returns exceed the head's support: {symptom}, {STRETCH} log lines in a row); {advice}."


def _support_advice(config: Config, trains: Sequence[Line]) -> str:
    """Say where the support lies in raw rewards, and how to make it enclose the returns."""
    if not isinstance(config.head, C51 | HlGauss):
        return "start again with a head.low and a head.high that enclose all discounted returns"
    low, high, unit = config.head.low, config.head.high, trains[-1].get("return_unit") or 1.0
    reach = (
        f"it is {low * unit:g} to {high * unit:g} in raw rewards: head.low {low:g} and head.high {high:g}, in units of"
    )
    if config.return_scale is None or unit == 1:
        return f"{reach} {unit:g}; start again with bounds that enclose all discounted returns"
    return f"{reach} return_scale ({unit:g}); start again without return_scale, or with bounds that enclose all returns"


RULES: Mapping[str, tuple[Check, Collection[str]]] = {
    "dead_features": (_dead_features, ()),
    "out_of_reach": (_out_of_reach, ()),
    "one_value": (_one_value, ("dead_features", "out_of_reach")),
    "dead_increments": (_dead_increments, ("dead_features", "one_value")),
}
"""Each rule with its possible causes: a rule stays silent once one of its causes was reported."""


def _all(trains: Sequence[Line], name: str, holds: Callable[[float], bool]) -> list[float]:
    """Return a field of the last lines if all of them have it and satisfy `holds`; else an empty list."""
    values = [line.get(name) for line in trains[-STRETCH:]]
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) and all(map(holds, known)) else []


def _restart_advice(config: Config) -> str:
    return (
        f"start again with a lower optimiser.learning_rate (now {config.optimiser.learning_rate:g}), another torso or "
        f"another seed (now {config.seed})"
    )
