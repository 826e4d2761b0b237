"""The presets as parameters of tests that take each of them."""

from typing import Any

import pytest

from monotau.config.presets import PRESETS

SLOW = ("ndqfn-rnd", "pqr", "bootstrapped-dqn", "pe-dqn", "nq-dqn", "hl-gauss")
"""Presets whose whole runs are slow tests; the fast tests of their heads and explorers cover what is new in them."""


def presets() -> list[Any]:
    """Return all presets, some of them marked as slow."""
    return [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in PRESETS]
