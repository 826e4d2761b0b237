"""Scores of the user's own runs, read from their directories."""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from monotau.config.presets import PRESETS
from monotau.envs.games import game_of
from monotau.errors import ConfigError, brief
from monotau.results.published import Protocol
from monotau.runs.files import read_json
from monotau.runs.layout import METRICS
from monotau.runs.metrics import read_lines

EVALUATION_EPSILON = 0.001

Measure = Literal["best", "last"]
"""Which of a run's evaluations is its score."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one run scored on its game."""

    directory: Path
    preset: str
    """With its profile, if that is not the paper's or the preset's own: those are other settings."""
    protocol: Protocol
    game: str
    seed: int
    best: float
    """Highest mean return of an evaluation. Being a maximum, it flatters."""
    last: float
    """Mean return of the last evaluation."""
    step: int
    """Training steps at the last evaluation."""
    finished: bool
    """False if it was cut off or still trains."""


def find_runs(paths: Iterable[Path]) -> list[Path]:
    """Return the run directories that are named, or are somewhere inside those that are; each once."""
    found: dict[Path, Path] = {}
    for path in paths:
        inside = sorted(_runs_in(path))
        if not inside:
            raise ConfigError(f"{path} is no run directory and holds none: there is no config.json.")
        for directory in inside:
            found.setdefault(directory.resolve(), directory)
    return list(found.values())


def _runs_in(path: Path) -> Iterable[Path]:
    for place, inner, names in os.walk(path):
        if "config.json" in names:
            inner.clear()  # a run holds no runs
            yield Path(place)


def read_run(directory: Path) -> Run | str:
    """Return what a run scored, or why it has no score to be compared; one that cannot be read is refused."""
    config = read_json(directory / "config.json")
    env = config.get("env")
    preset, profile, seed = config.get("preset"), config.get("profile"), config.get("seed")
    env_id = env.get("id") if isinstance(env, dict) else None
    if not isinstance(env, dict) or not isinstance(env_id, str) or not isinstance(preset, str) or type(seed) is not int:
        raise ConfigError(f"{directory / 'config.json'} is not a run's: it lacks a preset, a seed or env.id.")
    usual = PRESETS[preset].atari_profile if preset in PRESETS else None
    game = game_of(env_id)
    if game is None:
        return f"{env_id} is none of the 57 Atari games"
    named = env.get("protocol", "none")
    protocol = next((known for known in get_args(Protocol) if known == named), None)
    if protocol is None:
        return f"its env.protocol is {brief(named)}, and only {' and '.join(get_args(Protocol))} can be compared"
    evaluation = config.get("evaluation")
    epsilon = evaluation.get("epsilon") if isinstance(evaluation, dict) else None
    if (reason := departure(env.get("max_episode_steps"), epsilon)) is not None:
        return reason
    lines = read_lines(directory / METRICS) if (directory / METRICS).exists() else []
    evaluations = [line for line in lines if line.get("kind") == "eval" and line.get("policy") == "greedy"]
    if not evaluations:
        return "it has no evaluation yet"
    returns = [_number(line, "return_mean", directory) for line in evaluations]
    return Run(
        directory=directory,
        preset=preset if profile in (None, "atari", usual) else f"{preset} {profile}",
        protocol=protocol,
        game=game,
        seed=seed,
        best=max(returns),
        last=returns[-1],
        step=int(_number(evaluations[-1], "step", directory)),
        finished=(directory / "result.json").exists(),
    )


def departure(cut: object, epsilon: object) -> str | None:
    """Say what makes the scores of a run no scores of its protocol: env.max_episode_steps or evaluation.epsilon."""
    if cut:
        return f"its games were cut after {brief(cut)} steps (env.max_episode_steps), which no protocol does"
    if epsilon not in (None, EVALUATION_EPSILON):
        return f"its evaluation.epsilon is {brief(epsilon)}, and scores are compared at {EVALUATION_EPSILON}"
    return None


def _number(line: Mapping[str, Any], name: str, directory: Path) -> float:
    value: Any = line.get(name)
    try:
        if type(value) in (int, float) and math.isfinite(number := float(value)):
            return number
    except OverflowError:  # a whole number beyond all floats
        pass
    raise ConfigError(f"{directory / METRICS} has an evaluation whose {name} is {brief(value)}, not a number.")


def group_runs(runs: Iterable[Run]) -> dict[tuple[str, Protocol], list[Run]]:
    """Put together what differs in game and seed only; the same game and seed twice in a group is refused."""
    groups: dict[tuple[str, Protocol], list[Run]] = {}
    seen: dict[tuple[str, Protocol, str, int], Path] = {}
    for run in runs:
        key = (run.preset, run.protocol, run.game, run.seed)
        if key in seen:
            raise ConfigError(
                f"{seen[key]} and {run.directory} are both {run.preset} on {run.game} ({run.protocol}) with seed "
                f"{run.seed}; a seed counts once, so name only one of them."
            )
        seen[key] = run.directory
        groups.setdefault((run.preset, run.protocol), []).append(run)
    return groups


def scores_of(runs: Sequence[Run], measure: Measure) -> dict[str, tuple[float, ...]]:
    """Return the raw scores of each game's runs, in the order of their seeds."""
    scores: dict[str, list[float]] = {}
    for run in sorted(runs, key=lambda run: (run.game, run.seed)):
        scores.setdefault(run.game, []).append(run.best if measure == "best" else run.last)
    return {game: tuple(values) for game, values in scores.items()}
