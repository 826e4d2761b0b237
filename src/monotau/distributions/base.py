"""The contract of a return distribution, and the closed forms that all distributions share.

Every distribution here has a quantile function that is linear on finitely many segments of (0, 1): straight lines for
NDQFN, steps for Diracs, atoms and points. A distribution only has to list its segments. (A spline lists short chords
instead, and overrides what it computes exactly.) Mean, quantiles, Wasserstein
distance, CVaR and DLTV's variance are then exact integrals over the segments, for any two kinds of distribution. A
quantile function that decreases somewhere (IQN's may) is integrated as it is, except by risk measures: they sort it
first, because the worst returns are the lowest ones at whatever fraction they were estimated.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from monotau.errors import ConfigError, brief


class Segments(NamedTuple):
    """A quantile function that is linear between neighbouring edges.

    Attributes:
        edges: Fractions from 0 to 1 at which the pieces meet, shared (`[S + 1]`) or for each batch entry.
        left: Value of each piece at its left edge.
        right: Value of each piece at its right edge.

    Examples:
        >>> import torch
        >>> from monotau.distributions import Segments
        >>> ramp = Segments(torch.tensor([0.0, 0.5, 1.0]), torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 1.0]]))
        >>> ramp.widths.tolist()
        [0.5, 0.5]
    """

    edges: Float[Tensor, "*shared S1"]
    left: Float[Tensor, "*batch S"]
    right: Float[Tensor, "*batch S"]

    @property
    def widths(self) -> Float[Tensor, "*shared S"]:
        """Probability mass of each segment."""
        return self.edges.diff(dim=-1)

    def at(self, inside: Float[Tensor, "*batch M"], taus: Float[Tensor, "*batch M"]) -> Float[Tensor, "*batch M"]:
        """Evaluate at `taus` the lines of the segments that contain the fractions `inside`.

        Each result depends on its own fraction alone. Along a rising line it never decreases and never exceeds the
        line's end, rounding included.
        """
        edges = self.edges if self.edges.ndim == 1 else self.edges.expand(*inside.shape[:-1], -1).contiguous()
        index = torch.searchsorted(edges, inside.contiguous()).clamp(1, edges.shape[-1] - 1)
        if edges.ndim == 1:
            start, stop = edges[index - 1], edges[index]
        else:
            start, stop = edges.gather(-1, index - 1), edges.gather(-1, index)
        left, right = self.left.gather(-1, index - 1), self.right.gather(-1, index - 1)
        share = ((taus - start) / (stop - start).clamp_min(torch.finfo(taus.dtype).tiny)).clamp(0, 1)
        value = left + share * (right - left)
        passed = ((right >= left) & (value > right)) | ((right < left) & (value < right))
        return torch.where(passed, right, value)

    def over(self, edges: Float[Tensor, "*finer F1"]) -> "Segments":
        """Return the same function on a finer set of edges, one for each batch entry."""
        edges = edges.expand(*self.left.shape[:-1], -1)
        middle = (edges[..., 1:] + edges[..., :-1]) / 2
        return Segments(edges, self.at(middle, edges[..., :-1]), self.at(middle, edges[..., 1:]))


def absolute_integral(
    start: Float[Tensor, "*batch S"], stop: Float[Tensor, "*batch S"], widths: Float[Tensor, "*shared S"]
) -> Float[Tensor, "*batch S"]:
    """Integral of |line from start to stop| over each width; branch-free, without overflow or division by zero.

    With a = start / 2, b = stop / 2 and s = |a| + |b|, it is width * (s - 2 max(-ab, 0) / s): the trapezoid, corrected
    for a change of sign.
    """
    a, b = start / 2, stop / 2
    s = a.abs() + b.abs()
    share = b / s.clamp_min(torch.finfo(s.dtype).tiny)
    return widths * (s - 2 * (-a * share).clamp_min(0))


def averaged(values: Float[Tensor, "B A *K"], weights: Float[Tensor, "B A"]) -> Float[Tensor, "B *K"]:
    """Return the average over the actions, with weights that sum to 1 in each row."""
    return (values * weights.view(*weights.shape, *(1 for _ in values.shape[2:]))).sum(dim=1)


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal, entry by entry."""
    return one is other or (one.shape == other.shape and torch.equal(one, other))


SHOWN = 20
"""Largest batch whose numbers the repr shows."""


def _rounded(values: Float[Tensor, "*batch"]) -> str:
    """Return numbers as nested lists with four significant digits."""
    if values.ndim == 0:
        return f"{values.item():.4g}"
    return f"[{', '.join(_rounded(value) for value in values)}]"


class Distribution(ABC):
    """A batch of return distributions: `[B, A]` as a head returns them, `[B]` after `take`.

    Explorers, losses, figures and the Python API use this interface only; they do not know which algorithm made the
    distribution. All results are exact and differentiable, and keep the shape of the batch.

    Examples:
        >>> import torch
        >>> from monotau import PiecewiseLinear, Point
        >>> uniform = PiecewiseLinear(torch.tensor([0.25, 0.75]), torch.tensor([[1.0, 3.0]]))
        >>> uniform.mean().tolist()
        [2.0]
        >>> uniform.w1(Point(torch.tensor([2.0]))).tolist()  # the distance between any two kinds
        [0.75]
    """

    def __repr__(self) -> str:
        """Show the shape of the batch, and of a small batch the means and the spread, instead of all tensors."""
        text = f"{type(self).__name__} of shape {[*self.batch_shape]}"
        if self.batch_shape.numel() > SHOWN:
            return f"<{text}>"
        low, high = self.quantile((0.05, 0.95)).unbind(-1)
        numbers = {"mean": self.mean(), "5 %": low, "95 %": high}
        return f"<{text}: {', '.join(f'{name} {_rounded(values)}' for name, values in numbers.items())}>"

    @property
    @abstractmethod
    def batch_shape(self) -> torch.Size:
        """Shape of the batch, `[B, A]` as a head returns it."""

    @abstractmethod
    def segments(self) -> Segments:
        """Return the quantile function as linear pieces."""

    @abstractmethod
    def curve(self) -> Float[Tensor, "*batch K"]:
        """Return the quantile estimates that the distribution holds, in the order of their fractions."""

    @abstractmethod
    def affine(self, scale: Float[Tensor, "*batch"], shift: Float[Tensor, "*batch"]) -> "Distribution":
        """Return the distribution of `shift + scale * Z`: with rewards and discounts, a Bellman target.

        Args:
            scale: Factors `[*batch]`, none negative.
            shift: Summands `[*batch]`.

        Returns:
            A distribution of the same kind.
        """

    @abstractmethod
    def map(self, function: Callable[[Tensor], Tensor]) -> "Distribution":
        """Apply a function to every batched tensor, for indexing or reshaping the batch.

        Args:
            function: Takes and returns a tensor whose last axis it leaves alone.

        Returns:
            A distribution of the same kind.
        """

    @abstractmethod
    def average(self, weights: Float[Tensor, "B A"]) -> "Distribution":
        """Average the distributions `[B, A]` over the actions: the return under a policy with these probabilities.

        Quantile functions are averaged fraction by fraction, as in M-IQN (arXiv 2007.14430), which keeps a quantile
        function of the same form; probabilities of fixed atoms are mixed. The mean is the average of the means in both.

        Args:
            weights: Probabilities of the actions `[B, A]`.

        Returns:
            Distributions `[B]` of the same kind.
        """

    def ordered(self) -> "Distribution":
        """Return the same distribution with its outcomes sorted; only crossing quantile estimates change."""
        return self

    def take(self, actions: Int[Tensor, " B"]) -> "Distribution":
        """Select one action in each row of the batch: `[B, A] -> [B]`.

        Args:
            actions: Index of an action for each row.

        Returns:
            The distributions `[B]` of these actions.

        Examples:
            >>> import torch
            >>> from monotau import Point
            >>> Point(torch.tensor([[1.0, 2.0], [3.0, 4.0]])).take(torch.tensor([1, 0])).mean().tolist()
            [2.0, 3.0]
        """
        rows = torch.arange(len(actions), device=actions.device)
        return self.map(lambda tensor: tensor[rows, actions])

    def rows(self, start: int, stop: int) -> "Distribution":
        """Select the rows of the batch from `start` up to, and without, `stop`."""
        return self.map(lambda tensor: tensor[start:stop])

    def mean(self) -> Float[Tensor, "*batch"]:
        """Compute the expected return: the integral of the quantile function over (0, 1).

        Returns:
            Means `[*batch]`.
        """
        segments = self.segments()
        return (segments.widths * (segments.left + segments.right) / 2).sum(dim=-1)

    def magnitude(self) -> Float[Tensor, "*batch"]:
        """Compute the expected absolute return E|Z|, which is the W1 distance to a return of 0.

        Returns:
            Expectations `[*batch]`.
        """
        segments = self.segments()
        return absolute_integral(segments.left, segments.right, segments.widths).sum(dim=-1)

    def outside(self, low: float, high: float) -> Float[Tensor, "*batch"]:
        """Compute the mass of the segments that leave [low, high]; exact for distributions made of steps.

        Args:
            low: Lower bound.
            high: Upper bound.

        Returns:
            Masses `[*batch]`, from 0 to 1.
        """
        segments = self.segments()
        out = (torch.minimum(segments.left, segments.right) < low) | (
            torch.maximum(segments.left, segments.right) > high
        )
        return (segments.widths * out).sum(dim=-1)

    def quantile(self, taus: float | Sequence[float] | Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Evaluate the quantile function.

        Args:
            taus: One fraction, a list of M, or a tensor `[M]`, shared by the batch, or `[*batch, M]`. Outside the
                support, the quantile at its nearest end is returned.

        Returns:
            Quantiles `[*batch, M]`, and `[*batch]` for one fraction.

        Raises:
            ConfigError: A number or a list has fractions outside [0, 1].

        Examples:
            >>> import torch
            >>> from monotau import PiecewiseLinear
            >>> uniform = PiecewiseLinear(torch.tensor([0.25, 0.75]), torch.tensor([[1.0, 3.0]]))
            >>> uniform.quantile([0.0, 0.5, 1.0]).tolist()
            [[1.0, 2.0, 3.0]]
            >>> uniform.quantile(0.5).tolist()
            [2.0]
        """
        if not isinstance(taus, Tensor):
            given, taus = taus, torch.tensor(taus, dtype=self.curve().dtype).to(self.curve().device)
            if not bool(((taus >= 0) & (taus <= 1)).all()):
                raise ConfigError(f"taus is {brief(given)}, but fractions must be from 0 to 1.")
        if not taus.ndim:
            return self.quantile(taus[None])[..., 0]
        return self._at(taus.expand(*self.batch_shape, taus.shape[-1]))

    def _at(self, taus: Float[Tensor, "*batch M"]) -> Float[Tensor, "*batch M"]:
        """Evaluate the quantile function at fractions of each batch entry."""
        return self.segments().at(taus, taus)

    def w1(self, other: "Distribution") -> Float[Tensor, "*batch"]:
        """Compute the 1-Wasserstein distance: the integral of |difference of the quantile functions|.

        Args:
            other: Distributions of any kind with the same batch shape.

        Returns:
            Distances `[*batch]`.
        """
        mine, theirs = self.segments(), other.segments()
        if not same(mine.edges, theirs.edges):
            batch = self.batch_shape
            both = torch.cat([mine.edges.expand(*batch, -1), theirs.edges.expand(*batch, -1)], dim=-1)
            edges = both.sort(dim=-1).values
            mine, theirs = mine.over(edges), theirs.over(edges)
        return absolute_integral(mine.left - theirs.left, mine.right - theirs.right, mine.widths).sum(dim=-1)

    def upper_variance(self) -> Float[Tensor, "*batch"]:
        """Compute DLTV's left truncated variance: the integral over (1/2, 1) of the squared distance to the median.

        Mavrin et al. 2019, arXiv 1905.06125.

        Returns:
            Variances `[*batch]`.
        """
        median = self.quantile([0.5])
        segments = self.segments()
        cut = segments.over(segments.edges.clamp_min(0.5))
        a, b = cut.left - median, cut.right - median
        return (cut.widths * (a * a + a * b + b * b) / 3).sum(dim=-1)

    def cvar(self, alpha: float) -> Float[Tensor, "*batch"]:
        """Compute the conditional value at risk: the mean of the worst share `alpha` of the returns.

        Args:
            alpha: Share of the returns, in (0, 1]; 1 gives the mean.

        Returns:
            CVaR `[*batch]`.

        Examples:
            >>> import torch
            >>> from monotau import PiecewiseLinear
            >>> uniform = PiecewiseLinear(torch.tensor([0.25, 0.75]), torch.tensor([[1.0, 3.0]]))
            >>> uniform.cvar(0.25).tolist(), uniform.cvar(1.0).tolist()
            ([1.0], [2.0])
        """
        if not 0 < alpha <= 1:
            raise ValueError(f"alpha is {alpha}, but must be in (0, 1]: it is the share of worst returns to average.")
        segments = self.ordered().segments()
        widths = segments.widths
        kept = (alpha - segments.edges[..., :-1]).clamp_min(0).minimum(widths)  # of each piece, its part below alpha
        share = kept / widths.clamp_min(torch.finfo(widths.dtype).tiny)
        return (kept * (segments.left + share * (segments.right - segments.left) / 2)).sum(dim=-1) / alpha

    def crossing(self) -> Float[Tensor, "*batch"]:
        """Compute the share of neighbouring quantile estimates that decrease.

        Returns:
            Shares `[*batch]`: 0 for a valid quantile function, up to 1.

        Examples:
            >>> import torch
            >>> from monotau import Diracs
            >>> taus, weights = torch.tensor([0.25, 0.75]), torch.tensor([0.5, 0.5])
            >>> Diracs(taus, torch.tensor([[1.0, 2.0], [2.0, 1.0]]), weights).crossing().tolist()
            [0.0, 1.0]
        """
        curve = self.curve()
        if curve.shape[-1] < 2:
            return curve.new_zeros(curve.shape[:-1])
        return (~(curve.diff(dim=-1) >= 0)).to(curve.dtype).mean(dim=-1)  # NaN counts as a decrease
