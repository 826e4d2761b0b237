"""The table of explorers. A new explorer is one file and one line here."""

from monotau.explorers.base import Explorer, ExplorerConfig
from monotau.explorers.bootstrapped import Bootstrapped
from monotau.explorers.deep_dpe import DeepDpe
from monotau.explorers.dltv import Dltv
from monotau.explorers.dpe import Dpe
from monotau.explorers.epsilon_greedy import EpsilonGreedy, EpsilonSchedule
from monotau.explorers.pe_dqn import PeDqn
from monotau.explorers.pqr import Pqr
from monotau.explorers.rnd import Rnd

EXPLORERS: dict[str, type[ExplorerConfig]] = {
    "epsilon-greedy": EpsilonGreedy,
    "dpe": Dpe,
    "deep-dpe": DeepDpe,
    "dltv": Dltv,
    "rnd": Rnd,
    "pqr": Pqr,
    "bootstrapped": Bootstrapped,
    "pe-dqn": PeDqn,
}

__all__ = [
    "EXPLORERS",
    "Bootstrapped",
    "DeepDpe",
    "Dltv",
    "Dpe",
    "EpsilonGreedy",
    "EpsilonSchedule",
    "Explorer",
    "ExplorerConfig",
    "PeDqn",
    "Pqr",
    "Rnd",
]
