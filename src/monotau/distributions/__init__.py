"""Return distributions: the output of every head, and the interface for explorers, losses and reports."""

from monotau.distributions.base import Distribution, Segments
from monotau.distributions.binned import Binned
from monotau.distributions.categorical import Categorical
from monotau.distributions.diracs import Diracs
from monotau.distributions.piecewise import PiecewiseLinear, uniform_support
from monotau.distributions.point import Point
from monotau.distributions.risk import MEAN, RISKS, Risk
from monotau.distributions.spline import Spline
from monotau.distributions.stepped import Anchor, Stepped, Support, cumulate

__all__ = [
    "MEAN",
    "RISKS",
    "Anchor",
    "Binned",
    "Categorical",
    "Diracs",
    "Distribution",
    "PiecewiseLinear",
    "Point",
    "Risk",
    "Segments",
    "Spline",
    "Stepped",
    "Support",
    "cumulate",
    "uniform_support",
]
