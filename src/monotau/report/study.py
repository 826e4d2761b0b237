"""What a report compares: runs by method and environment, on scales on which environments can be put together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, get_args

import numpy as np

from monotau.envs.atari import PROTOCOLS
from monotau.envs.games import game_of
from monotau.errors import check_least, unknown_name
from monotau.report.reading import ReportedRun
from monotau.results.published import Constants, Protocol, references
from monotau.results.runs import Measure, departure
from monotau.results.statistics import Sample

BASELINES = ("iqn-star", "iqn", "qr-dqn", "dqn")
"""What others are measured against unless told otherwise, the first that there is."""


class Scale(NamedTuple):
    """Returns that are 0 and 1 in an environment."""

    random: float
    reference: float

    def of(self, score: float) -> float:
        """Return a score on this scale."""
        return (score - self.random) / (self.reference - self.random)


@dataclass(frozen=True, kw_only=True)
class Family:
    """Environments whose scores mean the same on their scales, and so may be put together."""

    name: str
    slug: str
    """Its name in names of files."""
    reference: str
    """What scores 1."""
    about: str
    """How scores are normalised, and by what constants."""
    scales: Mapping[str, Scale]
    """Of each environment."""
    unscaled: Mapping[str, str]
    """Environments without a scale, and why."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """Methods and the environments of one family that all of them have: what can be compared by one number."""

    family: Family
    methods: tuple[str, ...]
    envs: tuple[str, ...]

    @property
    def title(self) -> str:
        """The family, and how many environments of it."""
        return f"{self.family.name}, {len(self.envs)} environment{'s' if len(self.envs) > 1 else ''}"


@dataclass(frozen=True)
class Study:
    """All runs that were named, and those that can be compared."""

    runs: Sequence[ReportedRun]
    smooth: int = 10
    """Evaluations that a moving average is over; those at the end of a run are its score."""
    constants: Constants = "dqn_zoo"
    """Random and human scores of Atari games."""
    over: str | None = None
    """Method that others are measured against."""

    def __post_init__(self) -> None:
        """Refuse what cannot be drawn."""
        check_least("--", self, smooth=1)
        if self.over is not None and self.over not in self.methods:
            raise unknown_name("the method --over", self.over, self.methods)

    @cached_property
    def cells(self) -> Mapping[tuple[str, str], Sequence[ReportedRun]]:
        """Runs that count, by method and environment, in the order of their seeds."""
        cells: dict[tuple[str, str], list[ReportedRun]] = {}
        for run in self.runs:
            if run.counts:
                cells.setdefault((run.method, run.env), []).append(run)
        return {key: sorted(runs, key=lambda run: run.seed) for key, runs in cells.items()}

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """Methods that have a run that counts, by name."""
        return tuple(sorted({method for method, _ in self.cells}))

    @cached_property
    def envs(self) -> tuple[str, ...]:
        """Environments in which a run counts."""
        return tuple(sorted({env for _, env in self.cells}))

    def methods_in(self, env: str) -> list[str]:
        """Return the methods that have runs in an environment."""
        return [method for method in self.methods if (method, env) in self.cells]

    def runs_in(self, env: str) -> list[ReportedRun]:
        """Return all runs that count in an environment."""
        return [run for method in self.methods_in(env) for run in self.cells[method, env]]

    @cached_property
    def baseline(self) -> str | None:
        """The method that others are measured against; None without any method."""
        usual = (method for name in BASELINES for method in self.methods if method.split(",")[0] == name)
        return self.over or next(usual, next(iter(self.methods), None))

    def score(self, run: ReportedRun, measure: Measure = "last") -> float:
        """Return the mean of a run's last evaluations, as many as are smoothed over, or its best evaluation."""
        returns = [float(line["return_mean"]) for line in run.evaluations()]
        return max(returns) if measure == "best" else float(np.mean(returns[-self.smooth :]))

    def scores(self, method: str, env: str, measure: Measure = "last") -> list[float]:
        """Return the scores of a method's seeds in an environment."""
        return [self.score(run, measure) for run in self.cells[method, env]]

    def sample(self, block: Block, method: str, measure: Measure = "last") -> Sample:
        """Return the normalised scores of a method's seeds in the environments of a block."""
        return Sample.of(
            [[block.family.scales[env].of(score) for score in self.scores(method, env, measure)] for env in block.envs]
        )

    @cached_property
    def families(self) -> list[Family]:
        """The kinds of environments that there are, which are never mixed."""
        kinds: dict[Protocol | None, list[str]] = {}
        for env in self.envs:
            kinds.setdefault(self.protocol_of(env), []).append(env)
        atari = [self._atari(protocol, kinds[protocol]) for protocol in get_args(Protocol) if protocol in kinds]
        return [*atari, *([self._others(kinds[None])] if None in kinds else [])]

    def protocol_of(self, env: str) -> Protocol | None:
        """Return the protocol by which runs in an environment can be compared with a human's score, if all can."""
        settings = [run.settings for run in self.runs_in(env)]
        if game_of(settings[0]["env.id"]) is None or any(self.departures(env)):
            return None
        named = settings[0].get("env.protocol")
        return next((protocol for protocol in get_args(Protocol) if protocol == named), None)

    def departures(self, env: str) -> list[str]:
        """Say what makes the scores of runs in an environment no scores of its protocol."""
        found = (
            departure(run.settings.get("env.max_episode_steps"), run.settings.get("evaluation.epsilon"))
            for run in self.runs_in(env)
        )
        return sorted({reason for reason in found if reason})

    def _atari(self, protocol: Protocol, envs: Sequence[str]) -> Family:
        table = references(self.constants)
        games = {env: game_of(self.runs_in(env)[0].settings["env.id"]) for env in envs}
        pinball = table["video_pinball"].random
        return Family(
            name=f"Atari, protocol {protocol}",
            slug=f"atari-{protocol}",
            reference="human",
            about=(
                f"Human-normalised scores in percent: random play is 0 and the human 100, by the constants "
                f"{self.constants} (Video Pinball's random score: {pinball}). Protocol {protocol}: "
                f"{PROTOCOLS[protocol].about}."
            ),
            scales={env: Scale(*table[game]) for env, game in games.items() if game},
            unscaled={},
        )

    def _others(self, envs: Sequence[str]) -> Family:
        scales, unscaled = {}, {}
        for env in envs:
            random = self.random_return(env)
            best = max(float(np.mean(self.scores(method, env))) for method in self.methods_in(env))
            if random is None:
                unscaled[env] = "no run has measured random play"
            elif best <= random:
                unscaled[env] = "no method is better than random play"
            else:
                scales[env] = Scale(random, best)
        return Family(
            name="Environments without a human score",
            slug="others",
            reference="best method",
            about=(
                "Scores in percent of the way from random play, as the runs themselves have measured it, to the best "
                "method of this report in that environment. They are no human-normalised scores, and those of two "
                "reports must not be compared."
            ),
            scales=scales,
            unscaled=unscaled,
        )

    def random_return(self, env: str) -> float | None:
        """Return what random play earns in an environment, on average over the runs that count."""
        known = [value for run in self.runs_in(env) if (value := run.random_return()) is not None]
        return float(np.mean(known)) if known else None

    @cached_property
    def blocks(self) -> list[Block]:
        """Of each family, all methods on the environments they share, then those with the same larger set of them."""
        return [block for family in self.families for block in self._blocks(family)]

    def _blocks(self, family: Family) -> list[Block]:
        sets: dict[tuple[str, ...], list[str]] = {}
        for method in self.methods:
            envs = tuple(env for env in family.scales if (method, env) in self.cells)
            if envs:
                sets.setdefault(envs, []).append(method)
        present = tuple(method for method in self.methods if any(method in methods for methods in sets.values()))
        shared = tuple(env for env in family.scales if all(env in envs for envs in sets))
        whole = [Block(family=family, methods=present, envs=shared)] if shared else []
        return whole + [
            Block(family=family, methods=tuple(methods), envs=envs) for envs, methods in sets.items() if envs != shared
        ]

    @cached_property
    def compared(self) -> list[Block]:
        """The blocks worth a picture: those of several methods, or whatever there is."""
        return [block for block in self.blocks if len(block.methods) > 1] or self.blocks

    def budgets(self, runs: Sequence[ReportedRun]) -> list[int]:
        """Return the different numbers of steps that runs are to train."""
        return sorted({run.settings["steps"] for run in runs})
