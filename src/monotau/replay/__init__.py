"""Experience replay: steps go in as they happen, n-step transitions come out."""

from monotau.replay.ring import ReplayConfig, Ring
from monotau.replay.transitions import Batch, Steps

__all__ = ["Batch", "ReplayConfig", "Ring", "Steps"]
