"""Claims on pairs of actions: the permutation tests against a twin, their level and power, and false discoveries."""

import math

import numpy as np
import pytest

from monotau.audit import claims
from monotau.audit.claims import ActionReturns, Claim, discoveries, judge, strong_claims
from monotau.audit.measures import cvar_of


def action(number, mean, spread, returns, cvar=None):
    return ActionReturns(
        action=number, mean=mean, cvar=mean if cvar is None else cvar, spread=spread, returns=np.asarray(returns, float)
    )


def test_the_strongest_quarter_of_the_claims_is_tested():
    nothing = np.zeros(4)
    states = [[action(0, 0.0, 1.0, nothing), action(1, gap, 1.0, nothing, cvar=-gap)] for gap in (1.0, 4.0, 2.0, 3.0)]
    chosen = strong_claims(states)
    assert [(claim.state, claim.kind, claim.high.action, claim.gap) for claim in chosen] == [
        (1, "better", 1, 4.0),
        (1, "safer", 0, 4.0),
    ]
    states = [[action(0, 0.0, 0.1, nothing), action(1, 0.5, 0.1, nothing)], *states]
    assert {claim.state for claim in strong_claims(states)} == {0, 2}  # 5 times the spread beats 4 times
    assert strong_claims([[action(0, 1.0, 1.0, nothing), action(1, 1.0, 1.0, nothing)]]) == []
    assert strong_claims([[action(0, 1.0, 0.0, nothing), action(1, 2.0, 0.0, nothing)]])[0].strength == math.inf


def naive_statistic(high, low, alpha):
    """The difference in CVaR over its standard error, which comes from the shortfalls below the border."""
    estimates = []
    for sample in (high, low):
        border = np.sort(sample)[math.ceil(alpha * len(sample)) - 1]
        shortfall = np.maximum(border - sample, 0)
        estimates.append((cvar_of(sample, alpha), shortfall.var() / alpha**2 / len(sample)))
    (one, first), (other, second) = estimates
    return (one - other) / math.sqrt(first + second)


@pytest.mark.parametrize("alpha", [1.0, 0.3])
def test_the_statistics_agree_with_a_twin(alpha):
    rng = np.random.default_rng(4)
    high, low = rng.normal(5, 1, 20), rng.exponential(2, 20)
    shuffled = rng.permuted(np.tile(np.arange(40) < 20, (6, 1)), axis=1)
    observed, permuted, guarded = claims._Permutations(shuffled, alpha, 0.0)._statistics(high, low)
    assert guarded == observed
    assert observed == pytest.approx(naive_statistic(high, low, alpha))
    pooled = np.sort(np.concatenate([high, low]))
    assert permuted == pytest.approx([naive_statistic(pooled[each], pooled[~each], alpha) for each in shuffled])


def test_false_discoveries_by_hand():
    """Benjamini and Hochberg: the fourth is below 4/5 of 5 %, so all before it are rejected too."""
    assert discoveries(np.array([0.039, 0.9, 0.038, 0.037, 0.001])).tolist() == [True, False, True, True, True]
    assert not discoveries(np.array([0.02, 0.5, 0.9])).any()


def verdicts(gap, difference, kind="better", spreads=(1.0, 1.0), count=40, rollouts=64, seed=0):
    """Verdicts on claims of a gap, where the returns are normal and differ by another one."""
    rng = np.random.default_rng(seed)
    some = [
        Claim(
            state=state,
            kind=kind,
            high=action(0, gap, spreads[0], difference + spreads[0] * rng.normal(size=rollouts)),
            low=action(1, 0.0, spreads[1], spreads[1] * rng.normal(size=rollouts)),
            gap=gap,
        )
        for state in range(count)
    ]
    return judge(some, 1.0, rng)


@pytest.mark.parametrize("kind", ["better", "safer"])
def test_true_claims_are_not_refuted(kind):
    """Under the null hypothesis, p-values are uniform: the true gap is just half of what is claimed."""
    found = verdicts(2.0, 1.0, kind, count=200)
    p_values = np.array([each.p_refuted for each in found])
    assert (p_values < 0.05).mean() == pytest.approx(0.05, abs=0.05)
    assert p_values.mean() == pytest.approx(0.5, abs=0.08)
    assert not any(each.refuted for each in verdicts(2.0, 2.0, kind))


def test_the_level_holds_if_the_shapes_differ():
    found = verdicts(2.0, 1.0, spreads=(3.0, 0.5), count=200)
    assert np.mean([each.p_refuted < 0.05 for each in found]) == pytest.approx(0.05, abs=0.05)


@pytest.mark.parametrize(("kind", "power"), [("better", 0.95), ("safer", 0.5)])
def test_claims_of_a_spread_between_equal_actions_are_refuted(kind, power):
    """The stated power is that of 64 rollouts, where the claimed gap is 1.5 standard deviations and the true gap 0."""
    found = verdicts(1.5, 0.0, kind, seed=2)
    assert np.mean([each.refuted for each in found]) >= power
    assert not any(each.confirmed or each.reversed for each in found)  # in 90 of 100 seeds


def test_claims_are_confirmed_reversed_or_left_open():
    assert all(each.confirmed and not each.refuted for each in verdicts(1.5, 1.5))
    assert all(each.refuted and each.reversed and not each.confirmed for each in verdicts(1.5, -1.5))
    exaggerated = verdicts(6.0, 1.5)
    assert all(each.refuted and not each.confirmed and not each.reversed for each in exaggerated)
    undecided = [not each.refuted and not each.confirmed for each in verdicts(0.2, 0.1, rollouts=8)]
    assert np.mean(undecided) > 0.9
    assert judge([], 1.0, np.random.default_rng(0)) == []


def test_equal_returns_decide_a_claim():
    def claim(high, low, gap):
        return Claim(
            state=0, kind="safer", high=action(0, gap, 0.0, [high] * 16), low=action(1, 0.0, 0.0, [low] * 16), gap=gap
        )

    some = [claim(3, 1, 2.0), claim(1, 3, 2.0), claim(1, 1, 2.0)]
    right, wrong, none = judge(some, 0.1, np.random.default_rng(0))
    assert (right.confirmed, right.refuted) == (True, False)
    assert (wrong.refuted, wrong.reversed) == (True, True)
    assert (none.refuted, none.reversed, none.confirmed) == (True, False, False)


@pytest.mark.parametrize(("kind", "unseen"), [("better", 1.0 / 64), ("safer", 1.0 / 6.4)])
def test_equal_returns_do_not_rule_out_a_rare_one(kind, unseen):
    """One return of a spread among 64 that were not seen moves the mean by 1/64, and CVaR(0.1) by 1/6.4."""

    def refuted(gap):
        zeros = [0.0] * 64
        claim = Claim(state=0, kind=kind, high=action(0, gap, 0.1, zeros), low=action(1, 0.0, 0.1, zeros), gap=gap)
        return judge([claim], 1.0, np.random.default_rng(0))[0].refuted

    needed = 2 * 1.645 * math.sqrt(2) * unseen  # at the level of 5 %
    assert refuted(1.01 * needed)
    assert not refuted(0.99 * needed)
