"""The presets as parameters of tests that take each of them."""

from typing import Any

import pytest

from monotau.config.presets import PRESETS

RIVALS = ("ndqfn-rnd", "pqr", "bootstrapped-dqn", "pe-dqn")
"""Presets whose whole runs are slow tests; the fast tests of their explorers cover what is new in them."""


def presets() -> list[Any]:
    """Return all presets; rivals of DPE are marked as slow."""
    return [pytest.param(name, marks=pytest.mark.slow if name in RIVALS else ()) for name in PRESETS]
