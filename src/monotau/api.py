"""`train_agent`: `monotau train` for Python programs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from monotau.agent import Agent, resolve_for
from monotau.config.presets import DEFAULT_PRESET
from monotau.distributed.connect import LOCAL
from monotau.envs import EnvSource
from monotau.runs.runner import train_into


def train_agent(
    env: str | EnvSource,
    out: str | Path,
    preset: str = DEFAULT_PRESET,
    seed: int = 0,
    *,
    profile: str | None = None,
    env_settings: Mapping[str, Any] | None = None,
    verbose: bool = True,
    force: bool = False,
    ray: str = LOCAL,
    **settings: Any,
) -> Agent:
    """Train an agent into a run directory, as `monotau train` does, and return it.

    The arguments are those of `Agent`; `steps=` sets the length of the run. A second call resumes an interrupted run or
    loads a finished one. A resumed run ends exactly as an uninterrupted one only if the environment keeps no state of
    its own across iterations, each of which starts with a seeded reset. `force` trains even if the machine seems to
    have too little memory. `ray` says where `actors` run: 'local', 'auto' or 'host:port'.
    """
    from monotau.report.run_figures import draw_run_figures  # matplotlib takes a second to import

    layer = settings | {"seed": seed, "env": dict(env_settings or {})}
    directory = Path(out)
    resolved = resolve_for(env, preset, layer, profile)
    train_into(directory, resolved, Console(stderr=True, quiet=not verbose), force, ray, draw_run_figures)
    return Agent.load(directory / "agent", env)
