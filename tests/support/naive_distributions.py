"""Naive twins of the distributions: one batch entry at a time, in exact fractions, written from the definitions."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product

import torch
from torch import Tensor

from monotau.distributions import Categorical, Diracs, Distribution, PiecewiseLinear, Point

BATCH = (3, 2)
HALF = Fraction(1, 2)


@dataclass(frozen=True)
class Twin:
    """A quantile function, the fractions between which it is linear, and its estimates in the order of fractions."""

    quantile: Callable[[Fraction], Fraction]
    breaks: list[Fraction]
    estimates: list[Fraction]


def ramp_curve(knots: list[Fraction], values: list[Fraction]) -> Twin:
    """Return Delta_0 + sum of Delta_i * clip((tau - p_{i-1}) / (p_i - p_{i-1}), 0, 1)."""

    def quantile(tau: Fraction) -> Fraction:
        total = values[0]
        for i in range(1, len(knots)):
            ramp = (tau - knots[i - 1]) / (knots[i] - knots[i - 1])
            total += (values[i] - values[i - 1]) * min(max(ramp, Fraction(0)), Fraction(1))
        return total

    return Twin(quantile, knots, values)


def step_curve(steps: list[tuple[Fraction, Fraction]]) -> Twin:
    """Return the first value, in the order given, at which the summed weights reach tau; steps are (weight, value)."""
    breaks = [sum((weight for weight, _ in steps[: i + 1]), Fraction(0)) for i in range(len(steps))]

    def quantile(tau: Fraction) -> Fraction:
        for reached, (_, value) in zip(breaks, steps, strict=True):
            if reached >= tau:
                return value
        return steps[-1][1]

    return Twin(quantile, breaks, [value for _, value in steps])


def exact(tensor: Tensor, index: tuple[int, ...]) -> list[Fraction]:
    """Return one batch entry of a tensor, or the whole of a shared one."""
    return [Fraction(number) for number in (tensor if tensor.ndim == 1 else tensor[index]).tolist()]


def twin(distribution: Distribution, index: tuple[int, ...]) -> Twin:
    """Return the naive twin of one batch entry."""
    match distribution:
        case PiecewiseLinear(knots, values):
            return ramp_curve(exact(knots, index), exact(values, index))
        case Diracs(taus, values, weights):
            triples = zip(exact(taus, index), exact(weights, index), exact(values, index), strict=True)
            return step_curve([(weight, value) for _, weight, value in sorted(triples)])
        case Categorical(atoms, probs):
            return step_curve(list(zip(exact(probs, index), exact(atoms, index), strict=True)))
        case Point(value):
            return step_curve([(Fraction(1), Fraction(value[index].item()))])
    raise TypeError(type(distribution))


def lines(
    function: Callable[[Fraction], Fraction], breaks: list[Fraction], start: Fraction, stop: Fraction
) -> Iterator[tuple[Fraction, Fraction, Fraction]]:
    """Yield (width, left limit, right limit) of each line of `function` between start and stop."""
    edges = sorted({start, stop, *(point for point in breaks if start < point < stop)})
    for low, high in pairwise(edges):
        # Two points strictly inside fix the line, whatever happens at its ends.
        first, second = function((2 * low + high) / 3), function((low + 2 * high) / 3)
        yield high - low, 2 * first - second, 2 * second - first


def naive_integral(one: Twin, start: Fraction = Fraction(0), stop: Fraction = Fraction(1)) -> Fraction:
    return sum((width * (a + b) / 2 for width, a, b in lines(one.quantile, one.breaks, start, stop)), Fraction(0))


def naive_w1(one: Twin, two: Twin) -> Fraction:
    """Integrate |difference|; a line that changes its sign is two triangles."""
    total = Fraction(0)
    for width, a, b in lines(
        lambda tau: one.quantile(tau) - two.quantile(tau), one.breaks + two.breaks, Fraction(0), Fraction(1)
    ):
        if a * b >= 0:
            total += width * abs(a + b) / 2
        else:
            crossing = a / (a - b)
            total += width * crossing * abs(a) / 2 + width * (1 - crossing) * abs(b) / 2
    return total


def naive_upper_variance(one: Twin) -> Fraction:
    """Integrate the squared distance from the median by Simpson's rule, which is exact for squares of lines."""
    median = one.quantile(HALF)
    total = Fraction(0)
    for width, a, b in lines(one.quantile, one.breaks, HALF, Fraction(1)):
        middle = (a + b) / 2
        total += width * ((a - median) ** 2 + 4 * (middle - median) ** 2 + (b - median) ** 2) / 6
    return total


def naive_crossing(one: Twin) -> Fraction:
    falls = sum(after < before for before, after in pairwise(one.estimates))
    return Fraction(falls, max(len(one.estimates) - 1, 1))


def for_each_entry(function: Callable[[tuple[int, ...]], Fraction], batch: tuple[int, ...] = BATCH) -> Tensor:
    """Return a float64 tensor `[*batch]` of a naive result for each batch entry."""
    entries = [float(function(index)) for index in product(*(range(size) for size in batch))]
    return torch.tensor(entries, dtype=torch.float64).reshape(batch)


def shuffled(numbers: list[float], generator: torch.Generator, shape: tuple[int, ...]) -> Tensor:
    """Return the numbers in another order for each batch entry."""
    return torch.tensor(numbers, dtype=torch.float64)[torch.rand(*shape, len(numbers), generator=generator).argsort(-1)]


def make(layout: str, seed: int) -> Distribution:
    """Return random float64 distributions `[3, 2]` of a layout in LAYOUTS; sizes differ from one kind to the next.

    Edges are multiples of 1/32, so that they are exact, and a fraction can be asked exactly on one. Curves and Diracs
    are not sorted by value. The first atom always has mass, others may have none.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    kind, _, batched = layout.partition(" with batched ")
    if kind == "lines":
        values = normal(*BATCH, 5)
        if batched == "knots":
            places = torch.rand(*BATCH, 31, generator=generator).argsort(-1)[..., :5].sort(-1).values + 1
            return PiecewiseLinear(places.double() / 32, values)
        return PiecewiseLinear(torch.tensor([1, 7, 12, 19, 28], dtype=torch.float64) / 32, values)
    if kind == "diracs":
        taus, weights = [0.7, 0.1, 0.9, 0.4], [1 / 16, 3 / 16, 5 / 16, 7 / 16]
        taus_shape = BATCH if "taus" in batched else ()
        weights_shape = BATCH if "weights" in batched else ()
        return Diracs(
            shuffled(taus, generator, taus_shape), normal(*BATCH, 4), shuffled(weights, generator, weights_shape)
        )
    if kind == "categorical":
        atoms = normal(*(BATCH if batched == "atoms" else ()), 6).sort(-1).values
        rest = shuffled([0, 1 / 32, 4 / 32, 7 / 32, 11 / 32], generator, BATCH)
        return Categorical(atoms, torch.cat([torch.full((*BATCH, 1), 9 / 32, dtype=torch.float64), rest], dim=-1))
    return Point(normal(*BATCH))


LAYOUTS = (
    "lines",
    "lines with batched knots",
    "diracs",
    "diracs with batched taus",
    "diracs with batched weights",
    "diracs with batched taus and weights",
    "categorical",
    "categorical with batched atoms",
    "point",
)
