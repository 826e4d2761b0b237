"""The table of explorers. A new explorer is one file and one line here."""

from collections.abc import Mapping

from monotau.explorers.base import Explorer, ExplorerConfig
from monotau.explorers.dpe import Dpe
from monotau.explorers.epsilon_greedy import EpsilonGreedy, EpsilonSchedule

EXPLORERS: Mapping[str, type[ExplorerConfig]] = {"epsilon-greedy": EpsilonGreedy, "dpe": Dpe}

__all__ = ["EXPLORERS", "Dpe", "EpsilonGreedy", "EpsilonSchedule", "Explorer", "ExplorerConfig"]
