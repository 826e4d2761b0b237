"""Return distributions: what every head returns and everybody else talks to."""

from monotau.distributions.base import Distribution, Segments
from monotau.distributions.categorical import Categorical
from monotau.distributions.diracs import Diracs
from monotau.distributions.piecewise import PiecewiseLinear, uniform_support
from monotau.distributions.point import Point

__all__ = ["Categorical", "Diracs", "Distribution", "PiecewiseLinear", "Point", "Segments", "uniform_support"]
