"""Small settings, and training runs that take about a second."""

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from monotau.agent import Agent
from monotau.config.resolve import Resolved, resolve
from monotau.runs.runner import train_into

SMALL: dict[str, Any] = {
    "steps": 200,
    "iteration_steps": 100,
    "log_every_steps": 50,
    "torso": {"width": 8},
    "head": {"hidden": 8, "cosines": 8},
    "epsilon": {"end": 0.01, "decay_steps": 50},
    "replay": {"warmup_steps": 50, "capacity_steps": 500},
    "update": {"batch_size": 8, "every_steps": 2, "sync_every_steps": 60},
    "evaluation": {"episodes": 2},
}
"""Settings of a run that takes a second and still exercises every part of training."""

SMALL_FLAGS = [
    *("--steps", "100", "--iteration-steps", "100", "--log-every-steps", "50", "--torso.width", "8"),
    *("--head.hidden", "8", "--head.cosines", "8", "--replay.warmup-steps", "50", "--update.batch-size", "8"),
    *("--evaluation.episodes", "2"),
]
"""Command-line flags for an even shorter run."""


def small_run(preset: str = "ndqfn-dpe", env: str = "CartPole-v1", **settings: Any) -> Resolved:
    return resolve(preset, SMALL, {"env": {"id": env}}, settings)


SHORT: dict[str, Any] = {
    "steps": 240,
    "iteration_steps": 60,
    "log_every_steps": 25,
    "env": {"num_envs": 2},
    "replay": {"capacity_steps": 150, "warmup_steps": 20},
}
"""Settings of a run that fills everything a checkpoint stores.

It has two environments, its replay wraps around, and no iteration ends on a logged step.
"""


def short_run(preset: str = "dqn", **settings: Any) -> Resolved:
    return resolve(preset, SMALL | {"head": {"hidden": 8}}, SHORT, settings)


BRIEF = SMALL | {"head": {"hidden": 8}, "replay": {"warmup_steps": 20, "capacity_steps": 100}}


def briefly_learned(preset: str, env: str = "CartPole-v1", **settings: Any) -> Agent:
    """Return an agent that has taken forty steps; it learns during the last twenty."""
    return Agent(env, preset, **(BRIEF | settings)).learn(40)


def silent() -> Console:
    return Console(quiet=True)


def skip_figures(patch: pytest.MonkeyPatch) -> None:
    """Keep runs from drawing figures, which takes longer than the training itself."""
    patch.setattr("monotau.report.run_figures.draw_run_figures", lambda *_: None)


def train_undrawn(directory: Path, resolved: Resolved) -> None:
    """Train into a directory without drawing figures; module-scoped fixtures can use it."""
    train_into(directory, resolved, silent())
