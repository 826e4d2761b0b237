"""The table of replays: they store steps and sample n-step transitions."""

from monotau.replay.base import ALL_LANES, Layout, Priority, Replay, ReplayConfig, ReplayMemory, Span
from monotau.replay.prioritized import Prioritized, PrioritizedReplay
from monotau.replay.ring import Ring, Uniform
from monotau.replay.transitions import Batch, Newest, Steps, Written

REPLAYS: dict[str, type[ReplayConfig]] = {"uniform": Uniform, "prioritized": Prioritized}

__all__ = [
    "ALL_LANES",
    "REPLAYS",
    "Batch",
    "Layout",
    "Newest",
    "Prioritized",
    "PrioritizedReplay",
    "Priority",
    "Replay",
    "ReplayConfig",
    "ReplayMemory",
    "Ring",
    "Span",
    "Steps",
    "Uniform",
    "Written",
]
