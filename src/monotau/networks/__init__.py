"""Torsos that compute features, heads that predict return distributions, and networks made of one of each."""

from monotau.networks.heads import HEADS, Constants, Estimate, Head, HeadConfig, Role
from monotau.networks.network import Network
from monotau.networks.torsos import TORSOS, Torso, TorsoConfig, default_torso

__all__ = [
    "HEADS",
    "TORSOS",
    "Constants",
    "Estimate",
    "Head",
    "HeadConfig",
    "Network",
    "Role",
    "Torso",
    "TorsoConfig",
    "default_torso",
]
