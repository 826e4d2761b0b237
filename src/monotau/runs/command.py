"""The commands `monotau train`, `monotau evaluate` and `monotau export`."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from monotau.agent import Agent
from monotau.config.command_line import IMPORTS, parse, values_of
from monotau.config.imports import check_parts, import_parts
from monotau.config.parse import parse_scalar, read_settings
from monotau.config.presets import DEFAULT_PRESET, PRESETS
from monotau.config.resolve import resolve, split_names, with_kinds
from monotau.config.schema import LOCAL, Config
from monotau.distributions import RISKS, Risk
from monotau.envs import EnvConfig
from monotau.errors import ConfigError, brief
from monotau.explorers import EXPLORERS
from monotau.networks import HEADS, TORSOS
from monotau.replay import REPLAYS
from monotau.runs.agent_files import find_agent, unmade
from monotau.runs.layout import AGENT, BEST_AGENT
from monotau.runs.process import stoppable
from monotau.runs.runner import default_directory, train_into

PARTS: Mapping[str, Mapping[str, type]] = {
    "head": HEADS,
    "explorer": EXPLORERS,
    "torso": TORSOS,
    "replay": REPLAYS,
}
"""The tables of the parts that a flag chooses by name."""


@dataclass(frozen=True, kw_only=True)
class _Train:
    """Train an agent into a run directory.

    An interrupted run resumes from its last checkpoint; a finished run is only reported.
    """

    preset: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PRESET")] = DEFAULT_PRESET
    """Algorithm; `monotau list presets` shows them."""
    env: Annotated[str, tyro.conf.arg(metavar="ID")] = "CartPole-v1"
    """Gymnasium id of the environment, 'package.module:Env-v0' for your own; `monotau list envs` shows some."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Run directory; by default runs/PRESET_ENV_seedS."""
    config: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """YAML or JSON file of settings, such as a run's config.json; flags override it."""
    imports: Annotated[tuple[str, ...], IMPORTS, tyro.conf.UseAppendAction] = ()
    """Module with parts or environments of your own (docs/extending.md); can be repeated."""
    profile: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Settings for a kind of environment; by default the observation space decides."""
    head: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Head to use in place of the preset's, with its own --head.* settings."""
    explorer: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Explorer to use in place of the preset's, with its own --explorer.* settings."""
    torso: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Torso to use in place of the default for the observations, with its own --torso.* settings."""
    replay: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Replay to use in place of the preset's, with its own --replay.* settings."""
    show: bool = False
    """Print all settings, in the format of a file for --config, and exit."""
    force: bool = False
    """Train even if the run seems to need more RAM than is available."""
    ray: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS")] = None
    """Where --actors run: local (this machine, the default), auto (its Ray cluster or RAY_ADDRESS) or host:port."""
    track: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """Also send the metrics to an experiment tracker: wandb, trackio or mlflow."""
    settings: Annotated[Config, tyro.conf.arg(name="")]


KWARGS = "--env.kwargs"

_OWN = tuple(field.name for field in fields(_Train))
"""Options of `monotau train` that are not settings of the run."""


@dataclass(frozen=True, kw_only=True)
class _Evaluate:
    """Evaluate a trained agent over whole episodes, and print the returns as JSON."""

    directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """A run directory, or one that Agent.save wrote. An unfinished run is evaluated at its last checkpoint."""
    best: bool = False
    """Use the agent as of the run's best evaluation instead of the last agent."""
    episodes: int = 20
    """Episodes to play."""
    env: Annotated[str | None, tyro.conf.arg(metavar="ID")] = None
    """Environment to play in, in place of the one that the agent was trained in."""
    imports: Annotated[tuple[str, ...], IMPORTS, tyro.conf.UseAppendAction] = ()
    """Module with parts or environments of your own that the agent needs; can be repeated."""
    risk: Annotated[str, tyro.conf.arg(metavar=f"{{{','.join(RISKS)}}}")] = "mean"
    """Risk measure to maximise: mean, mean of the worst (cvar) or best (upper-cvar) share, or a distorted mean."""
    alpha: Annotated[float | None, tyro.conf.arg(metavar="SHARE")] = None
    """Share of returns that --risk cvar or upper-cvar averages, in (0, 1]; by default 0.1."""
    eta: Annotated[float | None, tyro.conf.arg(metavar="NUMBER")] = None
    """Strength of --risk wang or power: negative avoids risk, positive seeks it; by default -0.75 and -2."""


@dataclass(frozen=True, kw_only=True)
class _Export:
    """Write a trained agent as one graph, for ONNX Runtime or for torch, and print the name of the file.

    Inputs: observations, taus (fractions of the quantiles). Outputs: means, quantiles, risk, all in raw rewards.
    """

    directory: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """A run directory, or one that Agent.save wrote. An unfinished run is exported at its last checkpoint."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """File to write; by default agent.onnx, agent.pt2, best_agent.onnx or best_agent.pt2 in DIR."""
    format: Literal["onnx", "torch"] = "onnx"
    """onnx, or torch: a program for torch.export.load."""
    best: bool = False
    """Use the agent as of the run's best evaluation instead of the last agent."""
    imports: Annotated[tuple[str, ...], IMPORTS, tyro.conf.UseAppendAction] = ()
    """Module with parts of your own that the agent needs; can be repeated."""
    risk: Annotated[str, tyro.conf.arg(metavar=f"{{{','.join(RISKS)}}}")] = "cvar"
    """Risk measure of the output `risk`; wang can be exported to torch only."""
    alpha: Annotated[float | None, tyro.conf.arg(metavar="SHARE")] = None
    """Share of returns that --risk cvar or upper-cvar averages, in (0, 1]; by default 0.1."""
    eta: Annotated[float | None, tyro.conf.arg(metavar="NUMBER")] = None
    """Strength of --risk wang or power: negative avoids risk, positive seeks it; by default -0.75 and -2."""


def train(words: list[str], console: Console) -> None:
    """Train into a run directory, or show the settings."""
    # --head.kind, the name of the setting in a file, means the same as --head.
    words = [re.sub(rf"^--({'|'.join(PARTS)})\.kind(?==|$)", r"--\1", word) for word in words]
    kwargs, words = _split_kwargs(words)
    named, modules = _named_first(words), values_of("--import", words)
    import_parts(*modules)
    preset, profile, file = split_names(read_settings(Path(named["config"])) if "config" in named else {})
    check_parts(preset, file)
    preset, profile = named.get("preset") or preset or DEFAULT_PRESET, named.get("profile") or profile
    parts: dict[str, Any] = {name: {"kind": named[name]} for name in PARTS if name in named}
    if "env" in named:
        parts["env"] = {"id": named["env"]}
    if kwargs:
        parts["env"] = parts.get("env", {}) | {"kwargs": kwargs}
    if modules:
        parts["imports"] = modules
    resolved = resolve(preset, with_kinds(preset, file), parts, profile=profile)
    # Without the keyword arguments, for which the parser would make one option each.
    # Masks as they were asked for, not as found: only the help shows these values.
    masks = resolved.given["env"].get("action_masks", EnvConfig().action_masks)
    settings = replace(resolved.config, env=replace(resolved.config.env, kwargs={}, action_masks=masks))
    default = _Train(preset=preset, env=resolved.config.env.id, settings=settings)
    given = parse(_Train, words, "monotau train", default, lambda: _flags(default))
    if given.preset != preset:
        if given.preset not in PRESETS:
            raise ConfigError(
                f"{given.preset!r} is neither a preset nor the value of an option. See monotau train --help."
            )
        raise ConfigError(f"the preset {given.preset!r} must come first: monotau train {given.preset} ...")
    resolved = resolved.override(_given_flags(words, given.settings.to_plain()))
    if given.show:
        console.print(json.dumps(resolved.config.to_plain(), indent=2), markup=False, highlight=False, soft_wrap=True)
    else:
        if given.ray is not None and not resolved.config.actors:
            raise ConfigError(f"--ray is {given.ray}, but has no effect without --actors.")
        from monotau.report.run_figures import draw_run_figures  # matplotlib takes a second to import

        with stoppable():
            out = given.out or default_directory(resolved)
            train_into(out, resolved, console, given.force, given.ray or LOCAL, draw_run_figures, track=given.track)


def _named_first(words: list[str]) -> dict[str, str]:
    """Return the options that determine the defaults of all other settings, and so must be read first."""
    named = {"preset": words[0]} if words and not words[0].startswith("-") else {}
    for name in ("env", "config", "profile", *PARTS):
        if values := values_of(f"--{name}", words):
            named[name] = values[-1]
    return named


def _split_kwargs(words: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the keyword arguments after --env.kwargs, which may be repeated, and all other words.

    The environment cannot be made without them, so they are read before the settings.
    """
    kwargs: dict[str, Any] = {}
    others: list[str] = []
    pending: list[str] | None = None
    for word in (*words, "--"):
        flag, equals, first = word.partition("=")
        if word.startswith("--") and pending is not None:
            if not pending or len(pending) % 2:
                raise ConfigError(
                    f"{KWARGS} takes names and values in turn, but got: {' '.join(pending) or 'nothing'}. "
                    "See monotau train --help."
                )
            for name, text in zip(pending[::2], pending[1::2], strict=True):
                if name in kwargs:
                    raise ConfigError(f"{KWARGS} sets {brief(name)} more than once.")
                kwargs[name] = parse_scalar(f"{KWARGS} {name}", text)
            pending = None
        if flag == KWARGS:
            pending = [first] if equals else []
        elif pending is not None:
            pending.append(word)
        else:
            others.append(word)
    return kwargs, others[:-1]


def _given_flags(words: list[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that the command line sets; a profile may derive others from them."""
    given: dict[str, Any] = {}
    for word in words:
        if not word.startswith("--"):  # a value, such as ../runs
            continue
        *sections, name = word.removeprefix("--").partition("=")[0].replace("-", "_").split(".")
        source, target = settings, given
        for section in sections:
            source, target = source.get(section, {}), target.setdefault(section, {})
        for candidate in (name, name.removeprefix("no_")):
            if candidate in source and (sections or candidate not in _OWN):
                target[candidate] = source[candidate]
    return {name: value for name, value in given.items() if value != {}}


def _flags(given: _Train) -> list[str]:
    """Return the flags of `monotau train`."""
    own = [name for name in _OWN if name not in ("preset", "settings", "imports")] + ["import"]
    plain = given.settings.to_plain()
    top = [name for name, value in plain.items() if not isinstance(value, dict) and name not in _OWN]
    inner = [f"{part}.{name}" for part, values in plain.items() if isinstance(values, dict) for name in values]
    return [f"--{name.replace('_', '-')}" for name in own + top + inner if not name.endswith((".kind", ".id"))]


def evaluate(words: list[str], console: Console) -> None:
    """Evaluate an agent and print its returns."""
    given = parse(_Evaluate, words, "monotau evaluate")
    import_parts(*given.imports)
    risk = Risk(given.risk, given.alpha, given.eta)
    agent = _load(given.directory, given.env, best=given.best)
    if agent.envs is None:
        raise unmade(given.directory, agent.config.env)
    if given.episodes < 1:
        raise ConfigError(f"--episodes is {given.episodes}, but must be at least 1.")
    screen = Console(stderr=True)
    with Progress(console=screen, transient=True, disable=not screen.is_terminal) as progress:
        task = progress.add_task("episodes", total=given.episodes)
        played = agent.evaluate(
            given.episodes,
            lambda done: progress.update(task, completed=done),
            risk=given.risk,
            alpha=given.alpha,
            eta=given.eta,
        )
    about = {"env": agent.config.env.id, "protocol": agent.config.env.protocol}
    console.print(json.dumps(about | played.line() | risk.line(), indent=2), highlight=False)


def export(words: list[str], console: Console) -> None:
    """Write the graph of an agent and print where it is."""
    given = parse(_Export, words, "monotau export")
    import_parts(*given.imports)
    agent = _load(given.directory, None, best=given.best)
    name = f"{BEST_AGENT if given.best else AGENT}{'.onnx' if given.format == 'onnx' else '.pt2'}"
    path = given.out or given.directory / name
    write = agent.export_onnx if given.format == "onnx" else agent.export_torch
    write(path, risk=given.risk, alpha=given.alpha, eta=given.eta)
    console.print(str(path), markup=False, highlight=False, soft_wrap=True)


def _load(place: Path, env: str | None, *, best: bool) -> Agent:
    """Load the agent of a run or a saved one, and print what the user should know about it."""
    directory, notes = find_agent(place, best=best)
    for note in notes:
        Console(stderr=True).print(escape(note), highlight=False, soft_wrap=True)
    return Agent.load(directory, env)
