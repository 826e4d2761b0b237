"""Reference data on Atari games: random and human scores, and published results.

The key of a game is the name of its ROM ("ms_pacman").
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

from monotau.envs.games import GAME_SETS
from monotau.errors import unknown_name

Constants = Literal["dqn_zoo", "table1"]
Protocol = Literal["noop", "sticky"]

TABLE1_RANDOM = MappingProxyType({"video_pinball": 0.0})
"""Random scores that differ from DQN Zoo's in the papers of Table 1."""


class Reference(NamedTuple):
    """Scores of random play and of a human on a game."""

    random: float
    human: float


@dataclass(frozen=True, kw_only=True)
class Published:
    """Published scores of one algorithm, one for each game."""

    algorithm: str
    protocol: Protocol
    origin: str
    """Paper or code, and the kind of score."""
    scores: Mapping[str, float]
    """Raw score of each game; some games may be missing."""


@dataclass(frozen=True, kw_only=True)
class Quoted:
    """A row of Table 1 of the NDQFN paper, in percent; the scores behind it are not public."""

    method: str
    mean: int
    median: int
    above_human: int


_DOPAMINE = "Dopamine's baselines, arXiv 1812.06110: mean return in training, last iteration"
_ORIGINS: Mapping[tuple[Protocol, str], tuple[str, str]] = {
    ("noop", "dqn"): ("DQN", "rerun in the C51 paper, arXiv 1707.06887: best agent"),
    ("noop", "c51"): ("C51", "arXiv 1707.06887: best agent"),
    ("noop", "qr_dqn"): ("QR-DQN", "QR-DQN-1 of arXiv 1710.10044: best agent"),
    ("noop", "iqn"): ("IQN", "arXiv 1806.06923: best agent"),
    ("noop", "rainbow"): ("Rainbow", "arXiv 1710.02298: best agent"),
    ("sticky", "dqn"): ("DQN", _DOPAMINE),
    ("sticky", "c51"): ("C51", _DOPAMINE),
    ("sticky", "iqn"): ("IQN", _DOPAMINE),
    ("sticky", "rainbow"): ("Rainbow", _DOPAMINE),
}
"""Name and origin of each column of noop.csv and sticky.csv."""


def _rows(name: str) -> list[dict[str, str]]:
    """Read a table of this package; lines that start with # name the source of its numbers."""
    text = (files("monotau.results") / "data" / f"{name}.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


@cache
def references(constants: str = "dqn_zoo") -> Mapping[str, Reference]:
    """Return the random and human score of each of the 57 games."""
    if constants not in get_args(Constants):
        raise unknown_name("the constants", constants, get_args(Constants))
    changed = TABLE1_RANDOM if constants == "table1" else {}
    return MappingProxyType(
        {
            row["game"]: Reference(changed.get(row["game"], float(row["random"])), float(row["human"]))
            for row in _rows("constants")
        }
    )


def games_of(name: str = "atari57") -> tuple[str, ...]:
    """Return the games of a set."""
    if name not in GAME_SETS:
        raise unknown_name("the set of games", name, GAME_SETS)
    return GAME_SETS[name][1]


def normalised(game: str, score: float, constants: str = "dqn_zoo") -> float:
    """Return a raw score on a scale where random play is 0 and the human is 1."""
    table = references(constants)
    if game not in table:
        raise unknown_name("the game", game, table)
    return (score - table[game].random) / (table[game].human - table[game].random)


@cache
def published() -> tuple[Published, ...]:
    """Return the published results, by protocol."""
    tables: dict[Protocol, list[dict[str, str]]] = {protocol: _rows(protocol) for protocol in get_args(Protocol)}
    return tuple(
        Published(
            algorithm=algorithm,
            protocol=protocol,
            origin=origin,
            scores=MappingProxyType({row["game"]: float(row[key]) for row in tables[protocol] if row[key]}),
        )
        for (protocol, key), (algorithm, origin) in _ORIGINS.items()
    )


@cache
def quoted() -> tuple[Quoted, ...]:
    """Return Table 1 of the NDQFN paper, which names 55 games but not the constants it used."""
    return tuple(
        Quoted(
            method=row["method"],
            mean=int(row["mean"]),
            median=int(row["median"]),
            above_human=int(row["above_human"]),
        )
        for row in _rows("paper_table1")
    )
