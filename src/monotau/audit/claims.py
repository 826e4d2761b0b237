"""Claims of an agent on two actions of one state, tested by permutation with control of false discoveries.

An agent claims that one action is better (a higher mean) or safer (a higher CVaR) than another, by a gap g. A claim is
refuted if the returns show a gap significantly below g / 2, and confirmed if they show one significantly above 0 and it
is not refuted.

The tests permute the returns of both actions, after those of one were shifted by the gap in question. Their statistic
is divided by its standard error, so the level is right for large samples even if the distributions differ in shape
(Chung and Romano 2013, doi 10.1214/13-AOS1090), and exactly right if they differ by a shift only. The mean is CVaR(1).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from monotau.audit.measures import ALPHA

PERMUTATIONS = 999
FALSE_DISCOVERIES = 0.05
"""Largest expected share of false ones among the claims that are found refuted, or confirmed."""
STRONG = 0.25
"""Share of the claims of each kind that count as strong: those with the largest gap relative to the learned spread."""
KINDS = {"better": 1.0, "safer": ALPHA}
"""Kinds of claims, with the share of worst returns whose mean is said to be higher."""


@dataclass(frozen=True, kw_only=True)
class ActionReturns:
    """One action of a state: what the agent claims, and what was measured."""

    action: int
    mean: float
    cvar: float
    spread: float
    returns: Float[np.ndarray, " R"]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One action is better or safer than another, by a gap."""

    state: int
    kind: str
    high: ActionReturns
    low: ActionReturns
    gap: float

    @property
    def strength(self) -> float:
        """The gap relative to the learned spread; infinite if there is no spread."""
        spread = math.sqrt((self.high.spread**2 + self.low.spread**2) / 2)
        return self.gap / spread if spread > 0 else math.inf


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the returns say on a claim."""

    claim: Claim
    p_refuted: float
    p_confirmed: float
    p_reversed: float
    refuted: bool
    confirmed: bool
    reversed: bool
    """Refuted, and the gap is significantly below 0: the other action is better or safer."""


def strong_claims(states: Sequence[Sequence[ActionReturns]]) -> list[Claim]:
    """Return the strongest claims of each kind, over all pairs of actions in all states."""
    chosen = []
    for kind in KINDS:
        claims = [
            _claim(place, kind, one, other)
            for place, actions in enumerate(states)
            for index, one in enumerate(actions)
            for other in actions[index + 1 :]
        ]
        claims = sorted((claim for claim in claims if claim.gap > 0), key=lambda claim: -claim.strength)
        chosen += claims[: math.ceil(STRONG * len(claims))]
    return chosen


def _claim(state: int, kind: str, one: ActionReturns, other: ActionReturns) -> Claim:
    gap = one.mean - other.mean if kind == "better" else one.cvar - other.cvar
    high, low = (one, other) if gap >= 0 else (other, one)
    return Claim(state=state, kind=kind, high=high, low=low, gap=abs(gap))


def judge(claims: Sequence[Claim], rng: np.random.Generator) -> list[Verdict]:
    """Test all claims of an agent."""
    if not claims:
        return []
    count = len(claims[0].high.returns)
    shuffled = rng.permuted(np.tile(np.arange(2 * count) < count, (PERMUTATIONS, 1)), axis=1)
    tests = {alpha: _Permutations(shuffled, alpha) for alpha in KINDS.values()}
    p_values = np.array([tests[KINDS[claim.kind]].p_values(claim) for claim in claims])  # claims 3
    found = np.stack([discoveries(column) for column in p_values.T], axis=1)
    return [
        Verdict(
            claim=claim,
            p_refuted=float(refuted),
            p_confirmed=float(confirmed),
            p_reversed=float(other_way),
            refuted=bool(is_refuted),
            confirmed=bool(is_confirmed and not is_refuted),
            reversed=bool(is_refuted and is_reversed),
        )
        for claim, (refuted, confirmed, other_way), (is_refuted, is_confirmed, is_reversed) in zip(
            claims, p_values, found, strict=True
        )
    ]


def discoveries(p_values: Float[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
    """Return which hypotheses the procedure of Benjamini and Hochberg (1995) rejects."""
    order = np.argsort(p_values)
    small = np.flatnonzero(p_values[order] <= FALSE_DISCOVERIES * np.arange(1, len(p_values) + 1) / len(p_values))
    rejected = np.zeros(len(p_values), np.bool_)
    if small.size:
        rejected[order[: small[-1] + 1]] = True
    return rejected


class _Tails:
    """For each way to choose some of the sorted values: the weights of the lowest share of those chosen."""

    def __init__(self, chosen: Bool[np.ndarray, "P N"], alpha: float) -> None:
        self.size = alpha * chosen[0].sum()
        self.alpha = alpha
        rank = chosen.cumsum(axis=1)
        self.weights = np.where(chosen, np.clip(self.size + 1 - rank, 0, 1), 0.0)
        self.last = (rank >= math.ceil(self.size)).argmax(axis=1)  # place of the highest value with any weight

    def estimates(self, values: Float[np.ndarray, " N"]) -> tuple[Float[np.ndarray, " P"], Float[np.ndarray, " P"]]:
        """Return CVaR and its squared standard error for each choice."""
        total, squares, border = self.weights @ values, self.weights @ values**2, values[self.last]
        count = self.size / self.alpha
        shortfall = (border * self.size - total) / count
        squared = (border**2 * self.size - 2 * border * total + squares) / count
        return total / self.size, np.maximum(squared - shortfall**2, 0) / (self.alpha**2 * count)


class _Permutations:
    """Permutation tests of differences in CVaR(alpha), with the same permutations for all claims."""

    def __init__(self, shuffled: Bool[np.ndarray, "P N"], alpha: float) -> None:
        self._alpha = alpha
        self._one, self._other = _Tails(shuffled, alpha), _Tails(~shuffled, alpha)

    def p_values(self, claim: Claim) -> tuple[float, float, float]:
        """Return the p-values of: the gap is below half of what is claimed; it is above 0; it is below 0."""
        observed, permuted = self._statistics(claim.high.returns - claim.gap / 2, claim.low.returns)
        refuted = (permuted <= observed).sum()
        observed, permuted = self._statistics(claim.high.returns, claim.low.returns)
        confirmed, other_way = (permuted >= observed).sum(), (permuted <= observed).sum()
        refuted, confirmed, other_way = ((1 + count) / (1 + len(permuted)) for count in (refuted, confirmed, other_way))
        return float(refuted), float(confirmed), float(other_way)

    def _statistics(
        self, high: Float[np.ndarray, " R"], low: Float[np.ndarray, " R"]
    ) -> tuple[float, Float[np.ndarray, " P"]]:
        """Return the standardised difference of the two samples, and that of each permutation."""
        pooled = np.concatenate([high, low])
        order = np.argsort(pooled, kind="stable")
        # Sums of squares lose their digits far from 0; the scale does not change the statistic.
        values = (pooled[order] - pooled.mean()) / (pooled.std() or 1.0)
        is_high = (order < len(high))[None]
        observed = _standardised(values, _Tails(is_high, self._alpha), _Tails(~is_high, self._alpha))
        return float(observed[0]), _standardised(values, self._one, self._other)


def _standardised(values: Float[np.ndarray, " N"], one: _Tails, other: _Tails) -> Float[np.ndarray, " P"]:
    (first, first_error), (second, second_error) = one.estimates(values), other.estimates(values)
    statistics = (first - second) / np.sqrt(first_error + second_error + 1e-12)
    return np.asarray(np.round(statistics, 9))  # sums in another order differ in the last digits, and are ties
