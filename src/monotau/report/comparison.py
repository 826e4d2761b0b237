"""Decides what a report compares: runs by method and environment, and scales on which scores can be aggregated."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, get_args

import numpy as np

from monotau.envs.atari import PROTOCOLS
from monotau.envs.games import game_of
from monotau.errors import check_least, unknown_name
from monotau.networks import HEADS
from monotau.results.published import Constants, Protocol, references
from monotau.results.read import Measure, RunRecord
from monotau.results.statistics import Sample
from monotau.results.summary import protocol_violation

BASELINES = ("iqn-star", "iqn", "qr-dqn", "dqn")
"""The default baseline is the first of these that is present."""

MAX_METHODS = 12
"""Most lines that can be told apart in one panel."""

RunsByEnv = Mapping[str, Mapping[str, Sequence[RunRecord]]]
"""Runs by environment and method, in order of their seeds."""


class Scale(NamedTuple):
    """The returns that are mapped to 0 and 1 in an environment."""

    random: float
    reference: float

    def normalise(self, score: float) -> float:
        """Return a score on this scale."""
        return (score - self.random) / (self.reference - self.random)


@dataclass(frozen=True, kw_only=True)
class EnvGroup:
    """Environments whose normalised scores have the same meaning, so that they can be aggregated."""

    name: str
    slug: str
    """Name for files."""
    reference: str
    """What a normalised score of 1 stands for."""
    about: str
    """How scores are normalised, and by which constants."""
    scales: Mapping[str, Scale]
    """Scale of each environment."""
    unscaled: Mapping[str, str]
    """Environments without a scale, and the reason."""


@dataclass(frozen=True, kw_only=True)
class ComparableSet:
    """Methods, and the environments of one group in which all of them have runs."""

    group: EnvGroup
    methods: tuple[str, ...]
    envs: tuple[str, ...]

    @property
    def title(self) -> str:
        """Name of the group and number of environments."""
        return f"{self.group.name}, {len(self.envs)} environment{'s' if len(self.envs) > 1 else ''}"


@dataclass(frozen=True)
class RunComparison:
    """All runs of a report, and how they are compared."""

    runs: Sequence[RunRecord]
    smooth: int = 1
    """Window of the moving average of learning curves, in evaluations. Scores are not smoothed."""
    constants: Constants = "dqn_zoo"
    """Random and human scores of Atari games."""
    over: str | None = None
    """Baseline of the improvement figures."""

    def __post_init__(self) -> None:
        """Check the options."""
        check_least("--", self, smooth=1)
        if self.over is not None and self.over not in self.methods:
            raise unknown_name("the method --over", self.over, self.methods)

    @cached_property
    def cells(self) -> Mapping[tuple[str, str], Sequence[RunRecord]]:
        """Usable runs by method and environment, in order of their seeds."""
        cells: dict[tuple[str, str], list[RunRecord]] = {}
        for run in self.runs:
            if run.usable:
                cells.setdefault((run.method, run.env), []).append(run)
        return {key: sorted(runs, key=lambda run: run.seed) for key, runs in cells.items()}

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """Methods with a usable run, by name."""
        return tuple(sorted({method for method, _ in self.cells}))

    @cached_property
    def envs(self) -> tuple[str, ...]:
        """Environments with a usable run, by name."""
        return tuple(sorted({env for _, env in self.cells}))

    @cached_property
    def started(self) -> list[RunRecord]:
        """Runs that have started and are neither damaged nor repeated; some may lack an evaluation."""
        return [run for run in self.runs if run.state in ("finished", "unfinished")]

    @cached_property
    def styled_methods(self) -> tuple[str, ...]:
        """All methods that any figure may show, in the order that determines their line styles."""
        others = {run.method for run in self.started} - {*self.methods}
        return (*self.methods, *sorted(others))

    def methods_in(self, env: str) -> list[str]:
        """Return the methods with usable runs in an environment."""
        return [method for method in self.methods if (method, env) in self.cells]

    def runs_in(self, env: str) -> list[RunRecord]:
        """Return the usable runs in an environment."""
        return [run for method in self.methods_in(env) for run in self.cells[method, env]]

    @cached_property
    def baseline(self) -> str | None:
        """The method that others are compared with; None if there is no method."""
        usual = (method for name in BASELINES for method in self.methods if method.split(",")[0] == name)
        return self.over or next(usual, next(iter(self.methods), None))

    def scores(self, method: str, env: str, measure: Measure = "last") -> list[float]:
        """Return the scores of a method's seeds in an environment."""
        return [run.score(measure) for run in self.cells[method, env]]

    def sample(self, chosen: ComparableSet, method: str, measure: Measure = "last") -> Sample:
        """Return the normalised scores of a method's seeds in the environments of a set."""
        scales = chosen.group.scales
        return Sample.of(
            [[scales[env].normalise(score) for score in self.scores(method, env, measure)] for env in chosen.envs]
        )

    @cached_property
    def groups(self) -> list[EnvGroup]:
        """The environments in groups that are never aggregated together."""
        kinds: dict[Protocol | None, list[str]] = {}
        for env in self.envs:
            kinds.setdefault(self.protocol_of(env), []).append(env)
        atari = [self._atari_group(protocol, kinds[protocol]) for protocol in get_args(Protocol) if protocol in kinds]
        return [*atari, *([self._other_group(kinds[None])] if None in kinds else [])]

    def protocol_of(self, env: str) -> Protocol | None:
        """Return the Atari protocol that all runs in an environment follow, if any."""
        settings = [run.settings for run in self.runs_in(env)]
        if game_of(settings[0]["env.id"]) is None or self.protocol_violations(env):
            return None
        named = settings[0].get("env.protocol")
        return next((protocol for protocol in get_args(Protocol) if protocol == named), None)

    def protocol_violations(self, env: str) -> list[str]:
        """Return why runs in an environment cannot be compared with scores of its protocol."""
        return sorted({reason for run in self.runs_in(env) if (reason := protocol_violation(run))})

    def _atari_group(self, protocol: Protocol, envs: Sequence[str]) -> EnvGroup:
        table = references(self.constants)
        games = {env: game_of(self.runs_in(env)[0].settings["env.id"]) for env in envs}
        pinball = table["video_pinball"].random
        return EnvGroup(
            name=f"Atari, protocol {protocol}",
            slug=f"atari-{protocol}",
            reference="human",
            about=(
                f"Human-normalised scores in percent: random play is 0 and the human 100, by the constants "
                f"{self.constants} (random score of Video Pinball: {pinball}). Protocol {protocol}: "
                f"{PROTOCOLS[protocol].about}."
            ),
            scales={env: Scale(*table[game]) for env, game in games.items() if game},
            unscaled={},
        )

    def _other_group(self, envs: Sequence[str]) -> EnvGroup:
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
        return EnvGroup(
            name="Environments without a human score",
            slug="others",
            reference="best method",
            about=(
                "Scores in percent: random play, as measured by the runs, is 0 and the best method of this report in "
                "the environment is 100. These scores are not human-normalised and must not be compared across reports."
            ),
            scales=scales,
            unscaled=unscaled,
        )

    def random_return(self, env: str) -> float | None:
        """Return the mean return of random play in an environment over the usable runs."""
        known = [value for run in self.runs_in(env) if (value := run.random_return()) is not None]
        return float(np.mean(known)) if known else None

    @cached_property
    def sets(self) -> list[ComparableSet]:
        """For each group: all methods on the environments they share, then methods that share a larger set."""
        return [chosen for group in self.groups for chosen in self._sets(group)]

    def _sets(self, group: EnvGroup) -> list[ComparableSet]:
        by_envs: dict[tuple[str, ...], list[str]] = {}
        for method in self.methods:
            envs = tuple(env for env in group.scales if (method, env) in self.cells)
            if envs:
                by_envs.setdefault(envs, []).append(method)
        present = tuple(method for method in self.methods if any(method in methods for methods in by_envs.values()))
        shared = tuple(env for env in group.scales if all(env in envs for envs in by_envs))
        whole = [ComparableSet(group=group, methods=present, envs=shared)] if shared else []
        return whole + [
            ComparableSet(group=group, methods=tuple(methods), envs=envs)
            for envs, methods in by_envs.items()
            if envs != shared
        ]

    @cached_property
    def drawn_sets(self) -> list[ComparableSet]:
        """The sets that figures show: those with several methods, or all if there are none."""
        return [chosen for chosen in self.sets if len(chosen.methods) > 1] or self.sets


def budgets(runs: Iterable[RunRecord]) -> list[int]:
    """Return the different training lengths of runs, in steps."""
    return sorted({run.settings["steps"] for run in runs})


def group_by_env(runs: Sequence[RunRecord]) -> RunsByEnv:
    """Group runs by environment and method; environments with most methods come first."""
    envs: dict[str, dict[str, list[RunRecord]]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        envs.setdefault(run.env, {}).setdefault(run.method, []).append(run)
    order = {method: place for place, method in enumerate(dict.fromkeys(run.method for run in runs))}
    return {
        env: {method: methods[method] for method in sorted(methods, key=order.__getitem__)}
        for env, methods in sorted(envs.items(), key=lambda item: (-len(item[1]), item[0]))
    }


def learns_distribution(run: RunRecord) -> bool:
    """Whether a run learns return distributions and not only means; unknown heads are assumed to."""
    kind = HEADS.get(str(run.settings.get("head.kind")))
    return kind is None or kind().has_spread


def alternate_heads(first: Mapping[str, RunRecord]) -> list[str]:
    """Order methods, given with one run each, so that the first few have as many kinds of heads as possible."""
    seen: dict[str, int] = {}
    rounds = []
    for place, (method, run) in enumerate(first.items()):
        kind = str(run.settings.get("head.kind"))
        seen[kind] = seen.get(kind, 0) + 1
        rounds.append((seen[kind], place, method))
    return [method for _, _, method in sorted(rounds)]


def choose_methods(runs: RunsByEnv) -> tuple[list[str], list[str]]:
    """Return the methods that a figure has room for, and the others."""
    first = {method: some[0] for methods in runs.values() for method, some in methods.items()}
    order = alternate_heads(first)
    chosen = {*order[:MAX_METHODS]}
    return [method for method in first if method in chosen], order[MAX_METHODS:]
