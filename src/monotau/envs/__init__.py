"""Environments: making them, the format of their observations, and test environments with known returns."""

from monotau.envs.catalog import list_envs
from monotau.envs.config import EnvConfig, EnvMaker
from monotau.envs.deep_sea import DeepSea
from monotau.envs.inventory import Inventory
from monotau.envs.make import EnvFactory, EnvSource
from monotau.envs.probes import Chain, Coin, Gate, Grid, Probe, TimeLimit, TwoShapes, TwoSpreads, TwoStepCoin
from monotau.envs.returns import HeavyTail, LargeReturns, LongChain, NegativeReturns
from monotau.envs.spec import ObservationSpec
from monotau.own_envs import register_own

__all__ = [
    "Chain",
    "Coin",
    "DeepSea",
    "EnvConfig",
    "EnvFactory",
    "EnvMaker",
    "EnvSource",
    "Gate",
    "Grid",
    "HeavyTail",
    "Inventory",
    "LargeReturns",
    "LongChain",
    "NegativeReturns",
    "ObservationSpec",
    "Probe",
    "TimeLimit",
    "TwoShapes",
    "TwoSpreads",
    "TwoStepCoin",
    "list_envs",
    "register_own",
]
