"""What an audit says on one agent: means over states with intervals, calibration, and verdicts on its claims."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from monotau.audit.claims import ActionReturns, Verdict, discoveries, judge, strong_claims
from monotau.audit.curves import Curve
from monotau.audit.measures import LEVELS, Measures, measure, shares_below
from monotau.config.parse import build
from monotau.errors import ConfigError
from monotau.results.summary import Estimate
from monotau.runs.files import read_json
from monotau.seeding import numpy_stream

FORMAT = 1
"""Version of audit.json."""
RESAMPLES = 2_000
LEVEL = 0.95
FEWEST = 5
"""Fewer episodes or claims have no interval: resamples of so few resemble each other too much."""
NEGLIGIBLE = 0.01
"""Returns whose standard deviation is a smaller share of their size are no unit for errors."""
CLAIM_SHARES = ("refuted", "reversed", "confirmed", "undecided")
BINS = 20
"""Bars of the histogram of fractions."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One audited action of a state."""

    state: int
    """Number of the state."""
    episode: int
    """Number of the episode it was visited in."""
    step: int
    """Its step in that episode."""
    action: int
    greedy: bool
    """Whether the agent takes this action."""
    crossing: float
    curve: Curve
    returns: Float[np.ndarray, " R"]
    steps: Int[np.ndarray, " R"]
    measured: bool
    """Whether the returns of all rollouts are known."""


@dataclass(frozen=True, kw_only=True)
class AuditSummary:
    """The numbers of one audit, as audit.json has them."""

    directory: str
    method: str
    env: str
    seed: int
    head: str
    gamma: float
    reward_clip: float
    audit_seed: int
    states: int
    episodes: int
    pairs: int
    unmeasured: int
    """Pairs left out because a rollout was truncated while rewards still counted."""
    rollouts: int
    actions: str
    rollout_steps: float
    """Mean length of the rollouts."""
    return_spread: float
    """Standard deviation of all returns of the audit, the unit of relative numbers."""
    claims: int
    """Number of strong claims that were tested."""
    measures: dict[str, tuple[float, ...]]
    """Value and ends of the 95 % interval of each measure."""
    levels: tuple[float, ...]
    shares: tuple[float, ...]
    """Share of the returns below the learned quantile of each level."""
    shares_low: tuple[float, ...]
    shares_high: tuple[float, ...]
    pit: tuple[float, ...]
    """Share of the returns in each part of the learned distribution, from its lowest twentieth to its highest."""
    pit_count: int
    """Number of returns in that histogram."""

    def estimate(self, name: str) -> Estimate:
        """Return a measure with its interval, if it has one."""
        return _estimate(name, self.measures[name], [self])


@dataclass(frozen=True, kw_only=True)
class AgentAudit:
    """A summary with everything it was computed from."""

    summary: AuditSummary
    pairs: Sequence[Pair]
    """The measured pairs."""
    found: Sequence[Measures]
    """Their measures."""
    verdicts: Sequence[Verdict]
    replicates: Mapping[str, Float[np.ndarray, " n"]] = field(repr=False)
    """Bootstrap replicates of each measure, to join agents."""


MEASURES = {
    "w1": "W1 to the returns",
    "noise": "W1 by chance",
    "w1_excess": "W1 above chance",
    "w1_relative": "W1 above chance, in spreads",
    "bias": "bias of the mean",
    "bias_excess": "error of the mean",
    "cvar_error": "bias of CVaR(0.1)",
    "cvar_excess": "error of CVaR(0.1)",
    "spread_error": "bias of the spread",
    "spread_excess": "error of the spread",
    "calibration_error": "calibration error",
    "inconsistent": "inconsistent actions",
    "crossing": "crossing",
    "refuted": "claims refuted",
    "reversed": "claims reversed",
    "confirmed": "claims confirmed",
    "undecided": "claims undecided",
}
"""The measures of a summary, as tables name them."""


def summarise(about: Mapping[str, Any], pairs: Sequence[Pair], seed: int) -> AgentAudit:
    """Compute all numbers of an audit; `about` has the fields that describe the agent and the audit.

    The mean gives every state the same weight. Intervals are percentiles of a bootstrap over episodes, because states
    of one episode resemble each other.
    """
    kept = [pair for pair in pairs if pair.measured]
    if not kept:
        raise ConfigError(
            f"{about['env']} truncates its episodes itself, in a rollout of every audited action, so no return is "
            "known; if it allows steps after that, use --beyond-truncation."
        )
    streams = [numpy_stream(seed, "audit measures", number) for number in range(len(kept))]
    found = [measure(pair.curve, pair.returns, rng) for pair, rng in zip(kept, streams, strict=True)]
    pits = np.stack([pair.curve.pit(pair.returns, rng) for pair, rng in zip(kept, streams, strict=True)])
    returns = np.concatenate([pair.returns for pair in kept])
    spread = float(returns.std())
    inconsistent = discoveries(np.array([each.p_value for each in found]))
    columns = {
        name: np.array([getattr(each, name) for each in found])
        for name in MEASURES
        if name in Measures.__dataclass_fields__
    }
    if spread > NEGLIGIBLE * np.abs(returns).mean():
        columns["w1_relative"] = columns["w1_excess"] / spread
    columns["inconsistent"] = inconsistent.astype(np.float64)
    columns["crossing"] = np.array([pair.crossing for pair in kept])
    resampling = Resampling([pair.episode for pair in kept], numpy_stream(seed, "audit bootstrap"))
    weights = 1 / np.array([sum(other.state == pair.state for other in kept) for pair in kept])
    drawn = {name: resampling.means(values, weights) for name, values in columns.items()}
    below = np.stack([resampling.means(share, weights) for share in shares_below(pits).T], axis=1)  # replicates L
    drawn["calibration_error"] = np.abs(below - LEVELS).mean(axis=1)
    verdicts = _verdicts(kept, found, spread, seed)
    drawn |= _claim_shares(verdicts, kept, resampling)
    low, high = interval_of(below[1:])
    summary = AuditSummary(
        **about,
        states=len({pair.state for pair in pairs}),
        episodes=len({pair.episode for pair in pairs}),
        pairs=len(pairs),
        unmeasured=len(pairs) - len(kept),
        rollout_steps=float(np.mean([pair.steps.mean() for pair in kept])),
        return_spread=spread,
        claims=len(verdicts),
        measures={name: _with_interval(drawn[name]) for name in MEASURES if name in drawn},
        levels=tuple(map(float, LEVELS)),
        shares=tuple(map(float, below[0])),
        shares_low=tuple(map(float, low)),
        shares_high=tuple(map(float, high)),
        pit=tuple(map(float, _histogram(pits, weights))),
        pit_count=pits.size,
    )
    return AgentAudit(summary=summary, pairs=kept, found=found, verdicts=verdicts, replicates=drawn)


def _with_interval(replicates: Float[np.ndarray, " n"]) -> tuple[float, float, float]:
    low, high = interval_of(replicates[1:])
    return float(replicates[0]), float(low), float(high)


def _histogram(pits: Float[np.ndarray, "P R"], weights: Float[np.ndarray, " P"]) -> Float[np.ndarray, " bins"]:
    counts, _ = np.histogram(pits, BINS, (0, 1), weights=np.broadcast_to(weights[:, None], pits.shape))
    return np.asarray(counts / counts.sum())


def interval_of(replicates: Float[np.ndarray, "n *shape"]) -> Float[np.ndarray, "2 *shape"]:
    """Return the ends of the 95 % percentile interval."""
    return np.asarray(np.quantile(replicates, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0))


class Resampling:
    """A bootstrap that draws whole episodes with replacement."""

    def __init__(self, episodes: Sequence[int], rng: np.random.Generator) -> None:
        self.names, self._member = np.unique(episodes, return_inverse=True)
        count = len(self.names)
        drawn = rng.multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
        self._times = np.concatenate([np.ones((1, count)), drawn])  # the data themselves first

    def means(self, values: Float[np.ndarray, " P"], weights: Float[np.ndarray, " P"]) -> Float[np.ndarray, " n"]:
        """Return the weighted mean of all values, then that of each resample."""
        count = len(self.names)
        sums = np.bincount(self._member, values * weights, minlength=count)
        totals = np.bincount(self._member, weights, minlength=count)
        return self._ratio(sums, totals)

    def shares(self, episodes: Sequence[int], flags: Sequence[bool]) -> Float[np.ndarray, " n"]:
        """Return the share of flags that are set, in all episodes and in each resample; 0 if a resample has none."""
        member = np.searchsorted(self.names, episodes)
        sums = np.bincount(member, np.asarray(flags, np.float64), minlength=len(self.names))
        return self._ratio(sums, np.bincount(member, minlength=len(self.names)).astype(np.float64))

    def _ratio(self, sums: Float[np.ndarray, " E"], totals: Float[np.ndarray, " E"]) -> Float[np.ndarray, " n"]:
        return np.asarray((self._times @ sums) / np.maximum(self._times @ totals, 1e-300))


def _verdicts(pairs: Sequence[Pair], found: Sequence[Measures], scale: float, seed: int) -> list[Verdict]:
    states: dict[int, list[ActionReturns]] = {}
    for pair, each in zip(pairs, found, strict=True):
        own = ActionReturns(
            action=pair.action,
            mean=each.learned_mean,
            cvar=each.learned_cvar,
            spread=each.learned_spread,
            returns=pair.returns,
        )
        states.setdefault(pair.state, []).append(own)
    return judge(strong_claims([*states.values()]), scale, numpy_stream(seed, "audit claims"))


def _claim_shares(
    verdicts: Sequence[Verdict], pairs: Sequence[Pair], resampling: Resampling
) -> dict[str, Float[np.ndarray, " n"]]:
    if not verdicts:
        return {}
    # Claims number the states in the order of the pairs.
    by_place = [*{pair.state: pair.episode for pair in pairs}.values()]
    episodes = [by_place[verdict.claim.state] for verdict in verdicts]
    flags = {
        "refuted": [verdict.refuted for verdict in verdicts],
        "reversed": [verdict.reversed for verdict in verdicts],
        "confirmed": [verdict.confirmed for verdict in verdicts],
        "undecided": [not verdict.refuted and not verdict.confirmed for verdict in verdicts],
    }
    return {name: resampling.shares(episodes, values) for name, values in flags.items()}


def joined(audits: Sequence[AgentAudit], name: str) -> Estimate | None:
    """Return the mean of a measure over agents, with the interval over the episodes of all; None if one lacks it."""
    if not all(name in audit.replicates for audit in audits):
        return None
    replicates = np.mean([audit.replicates[name] for audit in audits], axis=0)
    return _estimate(name, _with_interval(replicates), [audit.summary for audit in audits])


def _estimate(name: str, found: tuple[float, ...], summaries: Sequence[AuditSummary]) -> Estimate:
    """Return a measure of agents, without its interval if they have too few episodes or claims."""
    value, low, high = found
    counts = [sum(each.episodes for each in summaries)]
    if name in CLAIM_SHARES:
        counts.append(sum(each.claims for each in summaries))
    return Estimate(value=value, interval=(low, high) if min(counts) >= FEWEST else None)


def read_summaries(path: Path) -> list[AuditSummary]:
    """Read an audit.json."""
    plain = read_json(path)
    if plain.get("format") != FORMAT or not isinstance(plain.get("agents"), list):
        raise ConfigError(f"{path} is not an audit of this version: its format must be {FORMAT}.")
    summaries = [build(AuditSummary, each, "audit") for each in plain["agents"]]
    for each in summaries:
        lengths = {len(each.levels), len(each.shares), len(each.shares_low), len(each.shares_high)}
        named = each.measures.keys() <= MEASURES.keys() and all(len(three) == 3 for three in each.measures.values())
        if len(lengths) != 1 or len(each.pit) != BINS or not named:
            raise ConfigError(f"{path} is not an audit of this version: its curves or measures do not fit together.")
    return summaries
