"""`train_agent`: `monotau train` for Python programs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from monotau.agent import Agent, Hooks, OnEvaluation, OnLog, resolve_for
from monotau.config.presets import DEFAULT_PRESET
from monotau.config.schema import LOCAL
from monotau.envs import EnvSource
from monotau.runs.files import to_path
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
    on_evaluation: OnEvaluation | None = None,
    on_log: OnLog | None = None,
    track: str | None = None,
    **settings: Any,
) -> Agent:
    """Train an agent into a run directory, as `monotau train` does, and return it.

    The run directory holds the settings, the metrics, checkpoints, figures and the agent. Called again with the same
    arguments, the function resumes a run that was interrupted, and returns the agent of a run that has finished. The
    resumed run ends bit for bit as if it had not been interrupted, provided that `reset(seed=...)` determines
    everything the environment does afterwards.

    Args:
        env: A Gymnasium id, an environment, or a callable that makes a new environment at each call.
        out: The run directory.
        preset: The algorithm; `monotau list presets` prints them all.
        seed: Seed of every random number of the run.
        profile: Settings for a kind of environment; by default the observation space decides.
        env_settings: Settings of the section `env`.
        verbose: Report progress on standard error.
        force: Train even if the run seems to need more RAM than is available.
        ray: Where the processes of `actors` run: `local`, `auto` or `host:port`.
        on_evaluation: Called with a `monotau.Progress` after each evaluation. It returns True to end the training
            here, and False or None to go on. A run that it ended counts as finished, and its result.json says so.
        on_log: Called with each new line of metrics.jsonl, a dictionary; a resumed run sends no line from before its
            checkpoint again.
        track: Send the log to an experiment tracker: `wandb`, `trackio` or `mlflow`.
        **settings: Any other setting by name, such as `steps=100_000` or `head={"hidden": 64}`.

    Returns:
        The agent as of the end of the run.

    Raises:
        ConfigError: A setting is not allowed, the directory holds another run, or the tracker is not installed. What a
            hook raises passes unchanged, and the run can be resumed.
        EnvironmentFault: The environment raised an exception or returned invalid data.
        Divergence: A loss, gradient or weight became NaN or infinite.
        StorageFault: The disk is full or cannot be written.

    Examples:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from monotau import train_agent
        >>> with TemporaryDirectory() as out:
        ...     agent = train_agent("CartPole-v1", out, "dqn", steps=100, evaluation={"episodes": 2}, verbose=False)
        ...     (Path(out) / "result.json").exists()
        True
        >>> agent.config.steps
        100
    """
    from monotau.report.run_figures import draw_run_figures  # matplotlib takes a second to import

    layer = settings | {"seed": seed, "env": dict(env_settings or {})}
    directory = to_path("out", out, "directory")
    hooks = Hooks(on_evaluation=on_evaluation, on_log=on_log)
    resolved = resolve_for(env, preset, layer, profile)
    console = Console(stderr=True, quiet=not verbose)
    train_into(directory, resolved, console, force, ray, draw_run_figures, hooks, track)
    return Agent.load(directory, env)
