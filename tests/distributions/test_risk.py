"""Risk measures: against dense sums over the fractions, by hand, and what is refused."""

import inspect
import math
import re
from functools import cache
from statistics import NormalDist
from typing import Any

import pytest
import torch
from torch import Tensor

from monotau.distributions import RISKS, Categorical, Diracs, Distribution, PiecewiseLinear, Point, Risk
from monotau.errors import ConfigError
from tests.support.naive_distributions import BATCH, LAYOUTS, exact, make

NORMAL = NormalDist()
MEASURES = [
    Risk("mean"),
    *(Risk(kind, alpha=alpha) for kind in ("cvar", "upper-cvar") for alpha in (0.03, 0.25, 0.8)),
    *(Risk(kind, eta=eta) for kind in ("wang", "power") for eta in (-2.0, -0.75, 0.3, 1.5)),
]
every_measure = pytest.mark.parametrize("risk", MEASURES, ids=lambda risk: "-".join(map(str, risk.line().values())))
every_layout = pytest.mark.parametrize("layout", LAYOUTS)

COIN = Diracs(torch.tensor([0.25, 0.75]), torch.tensor([[0.0, 1.0]]), torch.tensor([0.5, 0.5]))
THREE_ATOMS = Categorical(torch.tensor([0.0, 1.0, 5.0]), torch.tensor([[0.25, 0.5, 0.25]]))
SLOPE = PiecewiseLinear(torch.tensor([0.25, 0.75]), torch.tensor([[0.0, 1.0]]))
UNIFORM = PiecewiseLinear(
    torch.tensor([1e-12, 1 - 1e-12], dtype=torch.float64), torch.tensor([[0.0, 1.0]], dtype=torch.float64)
)


def beta(risk: Risk, tau: float) -> float:
    """The fraction at which the measure looks instead of tau."""
    match risk:
        case Risk("mean"):
            return tau
        case Risk("cvar", alpha):
            return alpha * tau
        case Risk("upper-cvar", alpha):
            return 1 - alpha + alpha * tau
        case Risk("wang", _, eta):
            return NORMAL.cdf(NORMAL.inv_cdf(tau) + eta)
        case Risk("power", _, eta):
            return tau ** (1 / (1 + eta)) if eta >= 0 else 1 - (1 - tau) ** (1 / (1 - eta))
    raise ValueError(risk)


@cache
def distorted(risk: Risk, points: int = 200_001) -> Tensor:
    return torch.tensor([beta(risk, (i + 0.5) / points) for i in range(points)], dtype=torch.float64)


@every_measure
@every_layout
def test_a_measure_is_the_mean_of_quantiles_at_distorted_fractions(layout: str, risk: Risk) -> None:
    """Where a curve jumps, one of the 200,001 points may see the other side of it; along lines they are far closer."""
    distribution = make(layout, seed=31)
    expected = distribution.ordered().quantile(distorted(risk)).mean(dim=-1)
    tolerance = 1e-8 if layout.startswith("lines") else 2e-5
    torch.testing.assert_close(risk.of(distribution), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("eta", [-3.0, -0.75, 0.4, 2.0])
@pytest.mark.parametrize("layout", ["categorical", "categorical with batched atoms"])
def test_an_atom_weighs_as_much_as_the_weight_function_grows_over_it(layout: str, eta: float) -> None:
    """w(u), the inverse of beta, from the definitions: exact where the sums above are not."""
    distribution = make(layout, seed=32)
    assert isinstance(distribution, Categorical)

    def wang(u: float) -> float:
        return 0.0 if u <= 0 else 1.0 if u >= 1 else NORMAL.cdf(NORMAL.inv_cdf(u) - eta)

    def power(u: float) -> float:
        return u ** (1 + eta) if eta >= 0 else 1 - (1 - u) ** (1 - eta)

    for kind, w in (("wang", wang), ("power", power)):
        found = Risk(kind, eta=eta).of(distribution)
        for row in range(BATCH[0]):
            for action in range(BATCH[1]):
                total, reached = 0.0, 0.0
                atoms, probs = exact(distribution.atoms, (row, action)), exact(distribution.probs, (row, action))
                for atom, prob in zip(map(float, atoms), map(float, probs), strict=True):
                    total += atom * (w(reached + prob) - w(reached))
                    reached += prob
                assert found[row, action].item() == pytest.approx(total, abs=1e-12)


@pytest.mark.parametrize(
    ("risk", "distribution", "expected"),
    [
        (Risk("mean"), COIN, 1 / 2),
        (Risk("cvar", alpha=0.25), COIN, 0),  # the worst quarter is tails alone
        (Risk("cvar", alpha=0.75), COIN, 1 / 3),  # two quarters of tails, one of heads
        (Risk("upper-cvar", alpha=0.25), COIN, 1),
        (Risk("upper-cvar", alpha=0.75), COIN, 2 / 3),
        (Risk("power", eta=1.0), COIN, 3 / 4),  # w(u) = u^2: heads weigh 1 - 1/4
        (Risk("power", eta=-1.0), COIN, 1 / 4),  # w(u) = 1 - (1-u)^2
        (Risk("wang", eta=1.0), COIN, 0.8413447460685429),  # Phi(1)
        (Risk("wang", eta=-2.0), COIN, 0.022750131948179195),  # Phi(-2)
        (Risk("power", eta=1.0), THREE_ATOMS, 43 / 16),  # 1 * (9/16 - 1/16) + 5 * (1 - 9/16)
        (Risk("upper-cvar", alpha=0.5), THREE_ATOMS, 3),
        (Risk("power", eta=1.0), SLOPE, 35 / 48),  # integral of (2u - 1/2) 2u over (1/4, 3/4), and 1 - 9/16
        (Risk("power", eta=-1.0), SLOPE, 13 / 48),  # the same seen from the other end
        (Risk("upper-cvar", alpha=0.5), SLOPE, 7 / 8),  # 3/4 on average over (1/2, 3/4), then 1
        (Risk("power", eta=1.0), UNIFORM, 2 / 3),  # the mean of tau^(1/2)
        (Risk("power", eta=-3.0), UNIFORM, 1 / 5),
        (Risk("upper-cvar", alpha=0.2), UNIFORM, 0.9),
        (Risk("wang", eta=math.sqrt(2)), UNIFORM, 0.8413447460685429),  # the mean of Phi(z + eta) is Phi(eta/sqrt(2))
        (Risk("wang", eta=-2 * math.sqrt(2)), UNIFORM, 0.022750131948179195),
        (Risk("wang", eta=1.0), Point(torch.tensor([3.0])), 3),
    ],
    ids=str,
)
def test_measures_have_the_values_worked_out_on_paper(risk: Risk, distribution: Distribution, expected: float) -> None:
    tolerance = 1e-10 if distribution is UNIFORM else 1e-6
    assert risk.of(distribution).tolist() == [pytest.approx(expected, abs=tolerance)]


def test_estimates_that_cross_are_put_in_order_with_their_weights() -> None:
    """Outcomes 3, -1 and 1 with weights 0.2, 0.5 and 0.3 are a distribution, whatever fractions they stand at."""
    crossing = Diracs(torch.tensor([0.1, 0.5, 0.9]), torch.tensor([[3.0, -1.0, 1.0]]), torch.tensor([0.2, 0.5, 0.3]))
    ordered = crossing.ordered()
    assert ordered.values.tolist() == [[-1.0, 1.0, 3.0]]
    torch.testing.assert_close(ordered.weights, torch.tensor([[0.5, 0.3, 0.2]]))
    torch.testing.assert_close(ordered.taus, torch.tensor([[0.25, 0.65, 0.9]]))
    torch.testing.assert_close(ordered.mean(), crossing.mean())
    assert Risk("cvar", alpha=0.25).of(crossing).tolist() == [-1.0]
    assert crossing.cvar(0.625).item() == pytest.approx((-0.5 + 0.125) / 0.625)
    assert Risk("upper-cvar", alpha=0.2).of(crossing).item() == pytest.approx(3.0)
    assert Risk("power", eta=1.0).of(crossing).item() == pytest.approx(-0.25 + (0.64 - 0.25) + 3 * (1 - 0.64))


def test_a_falling_line_is_not_sorted() -> None:
    assert Risk("power", eta=1.0).of(PiecewiseLinear(SLOPE.knots, -SLOPE.values)).item() == pytest.approx(-35 / 48)


def test_each_measure_has_its_parameter_and_a_line_about_it() -> None:
    lines = [Risk(kind).line() for kind in RISKS]
    assert lines == [
        {"risk": "mean"},
        {"risk": "cvar", "alpha": 0.1},
        {"risk": "upper-cvar", "alpha": 0.1},
        {"risk": "wang", "eta": -0.75},
        {"risk": "power", "eta": -2.0},
    ]
    assert all(about and "\n" not in about for about in RISKS.values())


def unchecked(kind: Any, alpha: Any = None, eta: Any = None) -> None:
    """Make a measure as a user would, without the annotations that tests switch on."""
    risk = object.__new__(Risk)
    for name, value in (("kind", kind), ("alpha", alpha), ("eta", eta)):
        object.__setattr__(risk, name, value)
    inspect.unwrap(Risk.__post_init__)(risk)


BELONGS = "alpha belongs to cvar and upper-cvar, eta to wang and power."
REFUSED = [
    (("cvr",), "risk 'cvr' is unknown. Did you mean 'cvar'? Allowed: cvar, mean, power, upper-cvar, wang."),
    ((["cvar"],), "risk ['cvar'] is unknown."),
    (("mean", 0.1), f"risk 'mean' takes no parameter, but alpha is 0.1: {BELONGS}"),
    (("mean", None, 0.0), f"risk 'mean' takes no parameter, but eta is 0.0: {BELONGS}"),
    (("cvar", None, -0.75), f"risk 'cvar' takes alpha, but eta is -0.75: {BELONGS}"),
    (("upper-cvar", 0.1, 1.0), f"risk 'upper-cvar' takes alpha, but eta is 1.0: {BELONGS}"),
    (("wang", 0.1), f"risk 'wang' takes eta, but alpha is 0.1: {BELONGS}"),
    (("power", 0.1, -2.0), f"risk 'power' takes eta, but alpha is 0.1: {BELONGS}"),
    *(
        (
            ("cvar", alpha),
            f"risk 'cvar' needs alpha in (0, 1], the share of worst returns to average, but alpha is {alpha!r}.",
        )
        for alpha in (0.0, -0.1, 1.5, math.nan, "0.1")
    ),
    (
        ("upper-cvar", 2),
        "risk 'upper-cvar' needs alpha in (0, 1], the share of best returns to average, but alpha is 2.",
    ),
    *(
        (
            (kind, None, eta),
            f"risk '{kind}' needs a finite eta, below 0 to avoid risk and above 0 to seek it, but eta is {eta!r}.",
        )
        for kind in ("wang", "power")
        for eta in (math.nan, math.inf, -math.inf, "x")
    ),
]


@pytest.mark.parametrize(("words", "message"), REFUSED, ids=[str(words) for words, _ in REFUSED])
def test_an_invalid_measure_is_refused_in_one_line(words: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}"):
        unchecked(*words)


def test_integers_are_accepted_as_parameters() -> None:
    risk = object.__new__(Risk)
    inspect.unwrap(Risk.__init__)(risk, "power", None, -1)
    assert risk == Risk("power", eta=-1.0)
    assert isinstance(risk.eta, float)  # as it is written in JSON
