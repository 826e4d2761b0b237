"""Claims of an agent on two actions of one state, tested by permutation with control of false discoveries.

An agent claims that one action is better (a higher mean) or safer (a higher CVaR) than another, by a gap g. A claim is
refuted if the returns show a gap significantly below g / 2, and confirmed if they show one significantly above 0 and it
is not refuted.

The tests permute the returns of both actions, after those of one were shifted by the gap in question. Their statistic
is divided by its standard error, so the level is right for large samples even if the distributions differ in shape
(Chung and Romano 2013, doi 10.1214/13-AOS1090), and exactly right if they differ by a shift only. The mean is CVaR(1).

If most returns are equal, a sample cannot rule out a rare return that it does not contain. A p-value is therefore at
least that of a normal test whose standard errors allow for one such return in each sample, at a distance of `scale`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from jaxtyping import Bool, Float

from monotau.audit.measures import ALPHA

PERMUTATIONS = 999
FALSE_DISCOVERIES = 0.05
"""Largest expected share of false ones among the claims that are found refuted, or confirmed."""
STRONG = 0.25
"""Share of the claims of each kind that count as strong: those with the largest gap relative to the learned spread."""
NORMAL = NormalDist()
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


def judge(claims: Sequence[Claim], scale: float, rng: np.random.Generator) -> list[Verdict]:
    """Test all claims of an agent; `scale` is the standard deviation of all of its returns."""
    if not claims:
        return []
    count = len(claims[0].high.returns)
    shuffled = rng.permuted(np.tile(np.arange(2 * count) < count, (PERMUTATIONS, 1)), axis=1)
    tests = {alpha: _Permutations(shuffled, alpha, scale) for alpha in KINDS.values()}
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

    def __init__(self, shuffled: Bool[np.ndarray, "P N"], alpha: float, scale: float) -> None:
        self._alpha, self._scale = alpha, scale
        self._one, self._other = _Tails(shuffled, alpha), _Tails(~shuffled, alpha)

    def p_values(self, claim: Claim) -> tuple[float, float, float]:
        """Return the p-values of: the gap is below half of what is claimed; it is above 0; it is below 0."""
        below_half, _ = self._tails(claim.high.returns - claim.gap / 2, claim.low.returns)
        below_zero, above_zero = self._tails(claim.high.returns, claim.low.returns)
        return below_half, above_zero, below_zero

    def _tails(self, high: Float[np.ndarray, " R"], low: Float[np.ndarray, " R"]) -> tuple[float, float]:
        """Return the p-values of: the first sample comes from lower returns than the second; from higher ones."""
        observed, permuted, normal = self._statistics(high, low)
        lower, higher = (
            (1 + int(count)) / (1 + len(permuted))
            for count in ((permuted <= observed).sum(), (permuted >= observed).sum())
        )
        return max(lower, NORMAL.cdf(normal)), max(higher, NORMAL.cdf(-normal))

    def _statistics(
        self, high: Float[np.ndarray, " R"], low: Float[np.ndarray, " R"]
    ) -> tuple[float, Float[np.ndarray, " P"], float]:
        """Return the standardised difference of the samples, that of each permutation, and one with larger errors."""
        pooled = np.concatenate([high, low])
        order = np.argsort(pooled, kind="stable")
        unit = float(pooled.std()) or 1.0
        # Sums of squares lose their digits far from 0; the unit does not change the statistic.
        values = (pooled[order] - pooled.mean()) / unit
        is_high = (order < len(high))[None]
        tails = _Tails(is_high, self._alpha), _Tails(~is_high, self._alpha)
        unseen = 2 * (self._scale / (unit * self._alpha * len(high))) ** 2
        observed, guarded = (_standardised(values, *tails, more) for more in (0.0, unseen))
        return float(observed[0]), _standardised(values, self._one, self._other), float(guarded[0])


def _standardised(
    values: Float[np.ndarray, " N"], one: _Tails, other: _Tails, more: float = 0.0
) -> Float[np.ndarray, " P"]:
    """Return differences in units of their standard errors, whose squares are larger by `more`."""
    (first, first_error), (second, second_error) = one.estimates(values), other.estimates(values)
    statistics = (first - second) / np.sqrt(first_error + second_error + more + 1e-12)
    return np.asarray(np.round(statistics, 9))  # sums in another order differ in the last digits, and are ties
