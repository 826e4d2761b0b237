"""Distributional reinforcement learning with quantile functions that cannot cross."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from monotau.errors import ConfigError, Divergence, EnvironmentFault, StorageFault
from monotau.own_envs import register_own

if TYPE_CHECKING:
    from monotau.agent import Agent, Progress
    from monotau.api import train_agent
    from monotau.config.imports import import_parts
    from monotau.distributions import Categorical, Diracs, Distribution, PiecewiseLinear, Point, Risk
    from monotau.losses import quantile_huber

__version__ = version("monotau")

# What needs torch is imported when it is first used: `monotau --help` would take seconds else.
_LATER = {
    "Agent": "agent",
    "Progress": "agent",
    "import_parts": "config.imports",
    "train_agent": "api",
    "quantile_huber": "losses",
} | dict.fromkeys(("Categorical", "Diracs", "Distribution", "PiecewiseLinear", "Point", "Risk"), "distributions")

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
    "Progress",
    "Risk",
    "StorageFault",
    "__version__",
    "import_parts",
    "quantile_huber",
    "train_agent",
]

register_own()  # so that gymnasium.make knows our environments


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'monotau' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"monotau.{_LATER[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
