"""How far the learned distribution of one action lies from returns that were measured for it."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from monotau.audit.curves import Curve

ALPHA = 0.1
"""Share of the worst returns that CVaR averages."""
LEVELS = np.arange(1, 20) / 20
"""Fractions of the calibration curve."""
DRAWS = 499
"""Samples drawn from a learned distribution, to find what chance alone does."""
SPLITS = 16
"""Random splits of the returns into halves."""


def cvar_of(returns: Float[np.ndarray, "*batch R"], alpha: float = ALPHA) -> Float[np.ndarray, "*batch"]:
    """Return the mean of the lowest share of each sample; a return on the border counts in part."""
    count = alpha * returns.shape[-1]
    weights = np.clip(count - np.arange(returns.shape[-1]), 0, 1) / count
    return np.asarray(np.sort(returns, axis=-1) @ weights)


def noise_of(returns: Float[np.ndarray, " R"], rng: np.random.Generator) -> float:
    """Estimate how far R returns lie from the distribution they were drawn from, in W1.

    Two halves of R/2 returns each differ by about twice that.
    """
    half = len(returns) // 2
    shuffled = rng.permuted(np.tile(returns, (SPLITS, 1)), axis=1)
    one, other = np.sort(shuffled[:, :half], axis=1), np.sort(shuffled[:, half : 2 * half], axis=1)
    return float(np.abs(one - other).mean() / 2)


@dataclass(frozen=True, kw_only=True)
class Measures:
    """The comparison for one state and action. Errors are learned minus measured, in units of return.

    `cvar_error` and `spread_error` compare the R returns with R returns drawn from the learned distribution, because
    the CVaR and the standard deviation of a sample are biased. An excess is the size of an error minus the size that
    chance alone would give it: 0 on average for an exact distribution, and negative by chance.
    """

    learned_mean: float
    learned_cvar: float
    learned_spread: float
    mean: float
    cvar: float
    spread: float
    w1: float
    noise: float
    """W1 that is due to the number of returns, estimated from halves of them."""
    w1_excess: float
    bias: float
    cvar_error: float
    spread_error: float
    bias_excess: float
    cvar_excess: float
    spread_excess: float
    p_value: float
    """Probability of a W1 at least as large if the returns were drawn from the learned distribution."""


def measure(curve: Curve, returns: Float[np.ndarray, " R"], rng: np.random.Generator) -> Measures:
    """Compare a learned distribution with returns."""
    drawn = curve.draw((DRAWS, len(returns)), rng)
    w1, noise = float(curve.w1(returns)), noise_of(returns, rng)
    found = {"mean": returns.mean(), "cvar": cvar_of(returns), "spread": returns.std()}
    chance = {"mean": drawn.mean(axis=1), "cvar": cvar_of(drawn), "spread": drawn.std(axis=1)}
    expected = {name: values.mean() for name, values in chance.items()} | {"mean": curve.mean()}
    error = {name: float(expected[name] - found[name]) for name in found}
    excess = {name: abs(error[name]) - float(np.abs(chance[name] - expected[name]).mean()) for name in found}
    return Measures(
        learned_mean=curve.mean(),
        learned_cvar=curve.cvar(ALPHA),
        learned_spread=curve.spread(),
        mean=float(found["mean"]),
        cvar=float(found["cvar"]),
        spread=float(found["spread"]),
        w1=w1,
        noise=noise,
        w1_excess=w1 - noise,
        bias=error["mean"],
        cvar_error=error["cvar"],
        spread_error=error["spread"],
        bias_excess=excess["mean"],
        cvar_excess=excess["cvar"],
        spread_excess=excess["spread"],
        p_value=rank_p_value(w1, curve.w1(drawn), rng),
    )


def rank_p_value(observed: float, drawn: Float[np.ndarray, " n"], rng: np.random.Generator) -> float:
    """Return the p-value of a large observation among draws; ties are broken at random, so it is uniform."""
    near = 1e-9 * (1 + abs(observed))
    above, equal = (drawn > observed + near).sum(), (np.abs(drawn - observed) <= near).sum()
    return float((above + rng.random() * (equal + 1)) / (len(drawn) + 1))


def shares_below(pits: Float[np.ndarray, "*batch R"]) -> Float[np.ndarray, "*batch L"]:
    """Return the share of returns below the learned quantile of each of `LEVELS`."""
    return np.asarray((pits[..., None] <= LEVELS).mean(axis=-2))
