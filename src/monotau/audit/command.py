"""The command `monotau audit`."""

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from monotau.agent import Agent
from monotau.audit.page import PARTS, Audited, check_output, plain, write_page
from monotau.audit.parts import Part, pairs_of, parts_of, read_part, run_parts
from monotau.audit.rollouts import ActionChoice, StateAudit, check_learns_distribution
from monotau.audit.snapshots import snapshots_of
from monotau.audit.summary import summarise
from monotau.config.command_line import IMPORTS
from monotau.config.imports import import_parts
from monotau.envs.action_names import action_names
from monotau.errors import ConfigError, StorageFault, check_least
from monotau.machine import cores
from monotau.report.formatting import format_number, plural
from monotau.report.page import PAGE
from monotau.runs.agent_files import check_env, find_agent, read_about, unmade
from monotau.runs.files import read_json, write_bytes, write_json
from monotau.runs.layout import AGENT, AUDIT, CONFIG
from monotau.runs.process import locked, stoppable

LEAST_ROLLOUTS = 8
MOST_RETURNS = 10_000_000
"""Largest product of states and rollouts, all of whose returns are held in memory."""


@dataclass(frozen=True, kw_only=True)
class AuditCommand:
    """Measure how true the learned return distributions of agents are, in states that they visit.

    Each state is restored many times, and the agent plays on from there. An interrupted audit continues where it
    stopped; the same command gives the same numbers.
    """

    directories: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR...", help_behavior_hint="(required)")
    ]
    """Run directories, or directories that Agent.save wrote. An unfinished run is audited at its last checkpoint."""
    states: int = 64
    """States to audit, two of each episode."""
    rollouts: int = 64
    """Returns to measure for each audited action of a state."""
    actions: ActionChoice = "all"
    """Actions to audit in each state: all, or greedy, which is faster but tests no claims."""
    seed: int = 0
    """Seed of the episodes, the rollouts and the tests."""
    jobs: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Processes; by default one for each core."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Output directory; by default the directory audit in DIR, if there is only one DIR."""
    best: bool = False
    """Audit the agents as of their best evaluations instead of the last ones."""
    env: Annotated[str | None, tyro.conf.arg(metavar="ID")] = None
    """Environment of all agents; needed only for ids of the form 'package.module:Env-v0', which import your code."""
    imports: Annotated[tuple[str, ...], IMPORTS, tyro.conf.UseAppendAction] = ()
    """Module with parts or environments of your own that the agents need; can be repeated."""
    beyond_truncation: bool = False
    """Continue rollouts when the environment itself truncates them; only for environments that allow steps after it."""


@dataclass(frozen=True, kw_only=True)
class _Subject:
    """An agent to audit."""

    given: Path
    agent: Agent
    method: str
    parts: Sequence[Part]


def audit(given: AuditCommand, console: Console) -> None:
    """Audit agents, write the results and print a line for each."""
    given = replace(given, directories=tuple({path.resolve(): path for path in given.directories}.values()))
    check_options(given)
    out = given.out or given.directories[0] / "audit"
    check_output(out)
    import_parts(*given.imports)
    subjects = _named([_subject(directory, given) for directory in given.directories])
    for env in {str(subject.agent.config.env): subject.agent.envs for subject in subjects}.values():
        if env is not None:
            snapshots_of(env)
    try:
        (out / PARTS).mkdir(parents=True, exist_ok=True)
        with locked(out, "the output directory"), stoppable():
            _audit(given, subjects, out, console)
    except OSError as error:
        raise StorageFault(f"{out} cannot be written to: {error}.") from None


def check_options(given: AuditCommand) -> None:
    """Raise for options that are out of range."""
    if not given.directories:
        raise ConfigError("no DIR is given: name run directories, or directories that Agent.save wrote.")
    check_least("--", given, states=1, rollouts=LEAST_ROLLOUTS, seed=0)
    if given.jobs is not None:
        check_least("--", given, jobs=1)
    if given.states * given.rollouts > MOST_RETURNS:
        raise ConfigError(
            f"--states is {given.states} and --rollouts {given.rollouts}, but their product must be at most "
            f"{MOST_RETURNS:,d}."
        )
    if given.out is None and len(given.directories) > 1:
        raise ConfigError(
            f"--out is required with {len(given.directories)} directories: it holds the page on all of them."
        )


def _subject(directory: Path, given: AuditCommand) -> _Subject:
    place, notes = find_agent(directory, best=given.best)
    for note in notes:
        Console(stderr=True).print(escape(note), highlight=False, soft_wrap=True)
    config, _, weights = read_about(place)
    trained = config.env.id
    check_env(given.env, directory, trained)
    if (directory / CONFIG).exists() and (run := _env_of(read_json(directory / CONFIG))) != trained:
        raise ConfigError(f"the agent in {place} was trained on {trained}, but its run on {run}.")
    agent = Agent.load(place, given.env)
    if agent.envs is None:
        raise unmade(directory, agent.config.env)
    check_learns_distribution(agent)
    parts = parts_of(
        place,
        given.env,
        weights.sha256,
        given.states,
        rollouts=given.rollouts,
        actions=given.actions,
        seed=given.seed,
        beyond_truncation=given.beyond_truncation,
    )
    return _Subject(given=directory, agent=agent, method=agent.config.preset, parts=parts)


def _env_of(config: dict[str, Any]) -> Any:
    env = config.get("env")
    return env.get("id") if isinstance(env, dict) else None


def _named(subjects: Sequence[_Subject]) -> list[_Subject]:
    """Name agents by their directories where preset, environment and seed do not tell them apart."""

    def key(subject: _Subject) -> tuple[str, str, int]:
        config = subject.agent.config
        return config.preset, config.env.title, config.seed

    keys = [key(subject) for subject in subjects]
    return [
        replace(subject, method=f"{subject.method} ({subject.given.name})") if keys.count(key(subject)) > 1 else subject
        for subject in subjects
    ]


def _audit(given: AuditCommand, subjects: Sequence[_Subject], out: Path, console: Console) -> None:
    parts = {part.name: part for subject in subjects for part in subject.parts}
    done = {name: audits for name, part in parts.items() if (audits := read_part(out / PARTS / name, part)) is not None}
    missing = [part for name, part in parts.items() if name not in done]
    screen = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as progress:
        task = progress.add_task("states", total=sum(part.states for part in parts.values()))
        progress.advance(task, sum(len(audits) for audits in done.values()))
        for part, data in run_parts(missing, given.jobs or cores(), given.imports):
            write_bytes(out / PARTS / part.name, data)
            progress.advance(task, part.states)
        task = progress.add_task("agents", total=len(subjects))
        audited = []
        for subject in subjects:
            audited.append(_summarise(given, subject, [_read(out, part) for part in subject.parts]))
            progress.advance(task)
        progress.add_task("drawing", total=None)
        write_page(out, audited)
    for subject, each in zip(subjects, audited, strict=True):
        if (subject.given / AGENT).is_dir() and (subject.given / CONFIG).exists():
            write_json(subject.given / AUDIT, plain([each.audit.summary]))  # for `monotau report`
    for path in (out / PARTS).iterdir():
        if path.name not in parts:
            with suppress(OSError):
                os.unlink(path) if path.is_file() else shutil.rmtree(path)
    _print(audited, out, console)


def _read(out: Path, part: Part) -> list[StateAudit]:
    audits = read_part(out / PARTS / part.name, part)
    if audits is None:
        raise StorageFault(f"{out / PARTS / part.name} is damaged although it was just written.")
    return audits


def _summarise(given: AuditCommand, subject: _Subject, parts: Sequence[Sequence[StateAudit]]) -> Audited:
    config = subject.agent.config
    about = {
        "directory": str(subject.given),
        "method": subject.method,
        "env": config.env.title,
        "seed": config.seed,
        "head": str(config.to_plain()["head"]["kind"]),
        "gamma": config.gamma,
        "reward_clip": config.replay.reward_clip,
        "audit_seed": given.seed,
        "rollouts": given.rollouts,
        "actions": given.actions,
    }
    audits = [audit for part in parts for audit in part]
    pictures = {place: audit.picture for place, audit in enumerate(audits) if audit.picture is not None}
    names = action_names(subject.agent.env_factory())
    return Audited(summarise(about, pairs_of(parts), given.seed), names, pictures)


def _print(audited: Sequence[Audited], out: Path, console: Console) -> None:
    for each in audited:
        summary = each.audit.summary
        values = {name: three[0] for name, three in summary.measures.items()}
        claims = (
            f"{100 * values['refuted']:.0f} % of {plural(summary.claims, 'strong claim')} refuted"
            if "refuted" in values
            else "no claims tested"
        )
        spreads = f" ({format_number(values['w1_relative'])} spreads)" if "w1_relative" in values else ""
        console.print(
            f"{escape(str(summary.directory))}: W1 {format_number(values['w1_excess'])} above chance{spreads}, "
            f"calibration error {values['calibration_error']:.3f}, {claims}",
            highlight=False,
            soft_wrap=True,
        )
    console.print(escape(str(out / PAGE)), highlight=False, soft_wrap=True)
