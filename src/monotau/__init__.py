"""Distributional reinforcement learning with quantile functions that cannot cross."""

from importlib.metadata import version

from monotau.agent import Agent
from monotau.api import train_agent
from monotau.distributions import Categorical, Diracs, Distribution, PiecewiseLinear, Point, Risk
from monotau.errors import ConfigError, Divergence, EnvironmentFault, StorageFault
from monotau.losses import quantile_huber

__version__ = version("monotau")

__all__ = [
    "Agent",
    "Categorical",
    "ConfigError",
    "Diracs",
    "Distribution",
    "Divergence",
    "EnvironmentFault",
    "PiecewiseLinear",
    "Point",
    "Risk",
    "StorageFault",
    "__version__",
    "quantile_huber",
    "train_agent",
]
