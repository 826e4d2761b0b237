"""Risk measures: they map a return distribution to the number that a policy maximises instead of the mean.

A distortion risk measure is the integral of F^-1(beta(tau)) over (0, 1), for a beta that rises from 0 to 1 (IQN,
Dabney et al. 2018, arXiv 1806.06923, Section 3.1). With w the inverse of beta, it equals the integral of F^-1 dw, where
w(u) is the total weight of the quantiles below u. Each end of each linear piece therefore has a weight, and the weights
sum to 1. Crossing quantile estimates are sorted first: as weighted outcomes they form a valid distribution.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from monotau.distributions.base import Distribution
from monotau.errors import ConfigError, unknown_name

RISKS = {
    "mean": "the expected return",
    "cvar": "the mean of the worst share alpha of the returns: avoids risk",
    "upper-cvar": "the mean of the best share alpha of the returns: seeks risk",
    "wang": "the mean after shifting the normal scores of all returns by eta: below 0 avoids risk, above 0 seeks it",
    "power": "the mean after bending the fractions of all returns by eta: below 0 avoids risk, above 0 seeks it",
}
"""Description of each measure."""

_PARAMETERS = {"cvar": ("alpha", 0.1), "upper-cvar": ("alpha", 0.1), "wang": ("eta", -0.75), "power": ("eta", -2.0)}
"""Parameter and default of each measure that has one; the defaults of eta are IQN's, which avoid risk."""


@dataclass(frozen=True)
class Risk:
    """A risk measure and its parameter.

    Args:
        kind: A name in `RISKS`: `mean`, `cvar`, `upper-cvar`, `wang` or `power`.
        alpha: Share of the returns that `cvar` and `upper-cvar` average; 0.1 by default.
        eta: Strength of `wang` (-0.75 by default) and `power` (-2): negative avoids risk, positive seeks it.

    Raises:
        ConfigError: The name is unknown, or the parameter is not allowed for this measure.

    Examples:
        >>> import torch
        >>> from monotau import Categorical, Risk
        >>> coin = Categorical(torch.tensor([-1.0, 1.0]), torch.tensor([[0.5, 0.5]]))
        >>> Risk("cvar", alpha=0.25).of(coin).tolist(), Risk("upper-cvar", alpha=0.25).of(coin).tolist()
        ([-1.0], [1.0])
        >>> bool(Risk("wang", eta=-0.75).of(coin) < coin.mean())
        True
    """

    kind: str = "mean"
    alpha: float | None = None
    eta: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or self.kind not in RISKS:
            raise unknown_name("risk", self.kind, RISKS)
        name, default = _PARAMETERS.get(self.kind, ("no parameter", 0.0))
        for other in {"alpha", "eta"} - {name}:
            if getattr(self, other) is not None:
                raise ConfigError(
                    f"risk {self.kind!r} takes {name}, but {other} is {getattr(self, other)!r}: alpha belongs to cvar "
                    "and upper-cvar, eta to wang and power."
                )
        if self.kind not in _PARAMETERS:
            return
        given = default if getattr(self, name) is None else getattr(self, name)
        value = float(given) if isinstance(given, Real) else math.nan
        if name == "alpha" and not 0 < value <= 1:
            share = "best" if self.kind == "upper-cvar" else "worst"
            raise ConfigError(
                f"risk {self.kind!r} needs alpha in (0, 1], the share of {share} returns to average, but alpha is "
                f"{given!r}."
            )
        if name == "eta" and not math.isfinite(value):
            raise ConfigError(
                f"risk {self.kind!r} needs a finite eta, below 0 to avoid risk and above 0 to seek it, but eta is "
                f"{given!r}."
            )
        object.__setattr__(self, name, value)

    def line(self) -> dict[str, float | int | str | None]:
        """Return name and parameter as a dictionary, for a log line of kind `eval`."""
        name, _ = _PARAMETERS.get(self.kind, ("", 0.0))
        return {"risk": self.kind} | ({name: self._parameter} if name else {})

    def of(self, distribution: Distribution) -> Float[Tensor, "*batch"]:
        """Compute the measure of each distribution; exact, except that `wang` on sloping pieces has an error of 1e-10.

        Args:
            distribution: Distributions of any kind.

        Returns:
            The measure `[*batch]`.
        """
        if self.kind == "mean":
            return distribution.mean()
        if self.kind == "cvar":
            return distribution.cvar(self._parameter)
        weight, average = _DISTORTIONS[self.kind]
        segments = distribution.ordered().segments()
        # In float64: weights are small differences, divided by widths that may be small too.
        edges = segments.edges.double()
        reached = weight(edges, self._parameter)
        if segments.left is segments.right:  # constant pieces: where in a piece its weight lies does not matter
            return (reached.diff(dim=-1).to(segments.left.dtype) * segments.left).sum(dim=-1)
        before, after = reached[..., :-1], reached[..., 1:]
        # Integration by parts: a line from left to right gives right w(b) - left w(a) - (right - left) * average of w.
        middle = average(edges, self._parameter).clamp(before, after)  # exceeds them only by rounding
        on_left, on_right = (middle - before).to(segments.left.dtype), (after - middle).to(segments.left.dtype)
        return (on_left * segments.left + on_right * segments.right).sum(dim=-1)

    @property
    def _parameter(self) -> float:
        return float(getattr(self, _PARAMETERS[self.kind][0]))


MEAN = Risk()
"""The default measure."""


def upper_weight(u: Float[Tensor, "*shared S1"], alpha: float) -> Float[Tensor, "*shared S1"]:
    """Return w of upper-cvar: 0 below 1 - alpha, then linear up to 1; beta(tau) = 1 - alpha (1 - tau)."""
    return (1 - (1 - u) / alpha).clamp_min(0)


def upper_average(edges: Float[Tensor, "*shared S1"], alpha: float) -> Float[Tensor, "*shared S"]:
    """Return the average of w over each piece."""
    return _slopes(upper_weight(edges, alpha).square() * alpha / 2, edges)


def power_weight(u: Float[Tensor, "*shared S1"], eta: float) -> Float[Tensor, "*shared S1"]:
    """Return w of power: u^(1+|eta|), or mirrored, 1 - (1-u)^(1+|eta|), for eta < 0.

    IQN's beta(tau) is tau^(1/(1+|eta|)), and 1 - (1-tau)^(1/(1+|eta|)) for eta < 0.
    """
    power = 1 + abs(eta)
    return u**power if eta >= 0 else 1 - (1 - u) ** power


def power_average(edges: Float[Tensor, "*shared S1"], eta: float) -> Float[Tensor, "*shared S"]:
    """Return the average of w over each piece."""
    power = 2 + abs(eta)
    return _slopes(edges**power / power if eta >= 0 else edges + (1 - edges) ** power / power, edges)


def _slopes(integral: Float[Tensor, "*shared S1"], edges: Float[Tensor, "*shared S1"]) -> Float[Tensor, "*shared S"]:
    """Return the average over each piece of the function with this antiderivative; 0 for pieces without width."""
    widths = edges.diff(dim=-1)
    return integral.diff(dim=-1) / torch.where(widths > 0, widths, 1)


def wang_weight(u: Float[Tensor, "*shared S1"], eta: float) -> Float[Tensor, "*shared S1"]:
    """Return w of wang: Phi(Phi^-1(u) - eta); beta(tau) = Phi(Phi^-1(tau) + eta)."""
    # The slope at the ends is 0 or infinite: gradients through them must not become 0 times infinity.
    inside = u.clamp(torch.finfo(u.dtype).tiny, 1 - torch.finfo(u.dtype).eps / 2)
    weight = torch.special.ndtr(torch.special.ndtri(inside) - eta)
    return torch.where(u <= 0, 0, torch.where(u >= 1, 1, weight))


_NODES, _NODE_WEIGHTS = (torch.from_numpy(numbers) for numbers in np.polynomial.legendre.leggauss(40))


def wang_average(edges: Float[Tensor, "*shared S1"], eta: float) -> Float[Tensor, "*shared S"]:
    """Return the average of w over each piece, by Gauss-Legendre quadrature over z = Phi^-1(u).

    Over u the integrand has infinite slopes at 0 and 1; over z it is Phi(z - eta) phi(z), smooth everywhere. The mass
    beyond |z| = 8, about 1e-15, is left out. With 40 nodes the error is 1e-10 even on a single piece from 0 to 1.
    """
    end = 8.0
    tail = math.erfc(end / math.sqrt(2)) / 2
    z = torch.special.ndtri(edges.clamp(tail, 1 - tail))[..., None]  # *shared S1 1
    nodes = (z[..., 1:, :] + z[..., :-1, :]) / 2 + (z[..., 1:, :] - z[..., :-1, :]) / 2 * _NODES.to(z.device)
    masses = (-nodes.square() / 2).exp() * _NODE_WEIGHTS.to(z.device)  # *shared S nodes
    average: Tensor = (torch.special.ndtr(nodes - eta) * masses).sum(dim=-1) / masses.sum(dim=-1)
    return average


Weigh = Callable[[Tensor, float], Tensor]
_DISTORTIONS: dict[str, tuple[Weigh, Weigh]] = {
    "upper-cvar": (upper_weight, upper_average),
    "power": (power_weight, power_average),
    "wang": (wang_weight, wang_average),
}
"""For each measure, w at given fractions and the average of w between neighbouring fractions."""
