"""Return distributions: what every head returns and everybody else talks to."""

from monotau.distributions.base import Distribution, Segments
from monotau.distributions.categorical import Categorical
from monotau.distributions.diracs import Diracs
from monotau.distributions.piecewise import PiecewiseLinear, uniform_support
from monotau.distributions.point import Point
from monotau.distributions.risk import MEAN, RISKS, Risk

__all__ = [
    "MEAN",
    "RISKS",
    "Categorical",
    "Diracs",
    "Distribution",
    "PiecewiseLinear",
    "Point",
    "Risk",
    "Segments",
    "uniform_support",
]
