"""The command `monotau tune`: search settings with trials in worker processes, and write the best ones and a page."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
import yaml
from rich.console import Console
from rich.markup import escape

from monotau.config.command_line import IMPORTS, import_flags
from monotau.config.imports import check_parts, import_parts
from monotau.config.parse import read_settings
from monotau.config.presets import DEFAULT_PRESET
from monotau.config.resolve import resolve, split_names, with_kinds
from monotau.errors import ConfigError, check_least
from monotau.machine import cores
from monotau.report.formatting import plural
from monotau.report.page import PAGE
from monotau.results.read import read_progress
from monotau.runs.files import write_bytes, write_json
from monotau.runs.layout import directory_name
from monotau.runs.process import locked, stoppable
from monotau.suites.board import line_printer
from monotau.suites.driving import run_shown
from monotau.suites.pool import Pool
from monotau.suites.track import Track
from monotau.suites.workers.local import LOGS, LocalWorkers, Workers, python_command
from monotau.tuning.page import Row, best_row, rows_of, write_study_page
from monotau.tuning.space import searched
from monotau.tuning.study import (
    STUDY,
    StudyRecord,
    numbered,
    require_optuna,
    run_trial,
    start_study,
    trial_directory,
)

BEST = "best.yaml"

RETRIES = 2
"""How many times a trial is restarted after it was killed or its environment failed."""


@dataclass(frozen=True, kw_only=True)
class TuneCommand:
    """Search for settings that learn an environment well, by default with one trial per core at a time.

    Repeat the same command to go on with a search that was interrupted, or with a larger --trials to extend it. It ends
    with best.yaml, a file for `monotau train --config`, and index.html, a page about all trials. Needs the extra tune.
    """

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
    """Gymnasium id of the environment, 'package.module:Env-v0' for your own."""
    trials: Annotated[int, tyro.conf.arg(metavar="N")] = 30
    """Trials in all; each is one training run."""
    preset: Annotated[str | None, tyro.conf.arg(metavar="PRESET")] = None
    """Algorithm, by default ndqfn-dpe; `monotau list presets` shows them."""
    steps: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Steps of each trial; by default those of `monotau train`."""
    seed: Annotated[int, tyro.conf.arg(metavar="S")] = 0
    """Seed of trial 0; trial K has the seed S + K."""
    config: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """YAML or JSON file of settings that all trials share; they are not searched."""
    imports: Annotated[tuple[str, ...], IMPORTS, tyro.conf.UseAppendAction] = ()
    """Module with parts or environments of your own (docs/extending.md); can be repeated."""
    jobs: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """Trials at once; 0 uses one per core."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Directory of the study; by default runs/tune-PRESET_ENV_seedS."""
    index: Annotated[int | None, tyro.conf.arg(metavar="K")] = None
    """Run only trial K of the study in --out, in this process; the command does this for each trial."""


def tune(given: TuneCommand, console: Console) -> None:
    """Run the command."""
    require_optuna()
    check_least("--", given, trials=1, seed=0, jobs=0)
    jobs = min(given.jobs or cores(), given.trials)
    threads = max(1, cores() // jobs)
    import_parts(*given.imports)
    record = _record(given, threads)
    out = given.out or Path("runs") / directory_name(
        f"tune-{record.config['preset']}", record.config["env"]["id"], given.seed
    )
    record.check(out)
    if given.index is not None:
        if not 0 <= given.index < given.trials or not (out / STUDY).exists():
            raise ConfigError(f"--index is {given.index}, but {out} has no study with such a trial.")
        with stoppable():
            run_trial(out, given.index, console)
        return
    words = ["tune", given.env, "--out", str(out), "--trials", str(given.trials), "--seed", str(given.seed)]
    for flag, value in (("--preset", given.preset), ("--steps", given.steps), ("--config", given.config)):
        words += [] if value is None else [flag, str(value)]
    words += import_flags(given.imports)

    def command(index: int) -> list[str]:
        return python_command(*words, "--index", str(index))

    try:
        (out / LOGS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--out {out} cannot be created: {error.strerror}.") from None
    workers = LocalWorkers(command, logs=out / LOGS, jobs=jobs, threads=threads)
    with locked(out, "the study's directory"):
        if not (out / STUDY).exists():
            write_json(out / STUDY, record.plain())
        run_study(out, given.trials, workers, jobs, console)


def run_study(out: Path, trials: int, workers: Workers, jobs: int, console: Console) -> None:
    """Run the missing trials with these workers, and write what came of all; this process must hold the lock."""
    record, say = StudyRecord.read(out), line_printer(console)
    study = start_study(out, record)
    ended = {number for number, trial in numbered(study).items() if trial.state.is_finished()}
    tracks = [
        Track(
            index=number,
            name=f"trial-{number:04d}",
            directory=trial_directory(out, number),
            state="finished" if number in ended else "waiting",
            progress=read_progress(trial_directory(out, number)),
        )
        for number in range(trials)
    ]
    missing = sum(track.state == "waiting" for track in tracks)
    say(
        f"[bold]{record.config['preset']}[/] on [bold]{escape(record.config['env']['id'])}[/]: "
        f"{plural(trials, 'trial')} of {record.config['steps']:,d} steps, {missing} to do, {jobs} at once, "
        f"into {escape(str(out))}; searched: {', '.join(record.space)}"
    )
    try:
        run_shown(out.name, Pool(tracks, workers, out=out, retries=RETRIES), jobs, console)
    finally:
        rows = rows_of(study)
        if any(row.value is not None for row in rows):
            write_study_page(out, study, record)
        if (best := best_row(rows)) is not None:
            write_bytes(out / BEST, best_settings(best, rows, record).encode())
            say(f"best: trial {best.number}, mean return of its last evaluations {best.value:.4g}")
            settings, seed = escape(str(out / BEST)), _fresh_seed(record, rows)
            say(f"its settings: {settings}, all trials: {escape(str(out / PAGE))}")
            flags = "".join(f" {escape(flag)}" for flag in import_flags(record.config.get("imports", ())))
            say(f"to train with them: monotau train --config {settings} --seed {seed}{flags}")
        failed = [track for track in tracks if track.state == "failed"]
        for track in failed:
            say(f"[red]failed[/] {track.name}: {escape(track.reason)}")
        if any(track.state != "finished" for track in tracks):
            say("the same command goes on with the trials that are missing")
    if failed:
        raise SystemExit(1)


def best_settings(best: Row, rows: list[Row], record: StudyRecord) -> str:
    """Return the contents of best.yaml."""
    about = (
        f"# The best of {plural(len(rows), 'trial')} of monotau tune (trial {best.number}): the mean return of its "
        f"last evaluations is {best.value:.4g}.\n"
        f"# Use seeds from {_fresh_seed(record, rows)} on, which no trial has used.\n"
    )
    return about + yaml.safe_dump(record.settings_of(best.values), sort_keys=False)


def _fresh_seed(record: StudyRecord, rows: list[Row]) -> int:
    """Return the lowest seed that no trial has used."""
    return int(record.config["seed"]) + max(row.number for row in rows) + 1


def _record(given: TuneCommand, threads: int) -> StudyRecord:
    """Resolve the settings that all trials share; raise if they are invalid or leave nothing to search."""
    preset, profile, file = split_names(read_settings(given.config) if given.config else {})
    preset = given.preset or preset or DEFAULT_PRESET
    check_parts(preset, file)
    file = with_kinds(preset, file)
    for name in ("seed", "threads"):
        if name in file:
            raise ConfigError(f"{given.config} sets {name}, but monotau tune sets it for every trial.")
    env: Any = file.get("env", {})
    fixed = file | {"env": {**env, "id": given.env} if isinstance(env, dict) else env}
    fixed |= {} if given.steps is None else {"steps": given.steps}
    fixed |= {"imports": list(given.imports)} if given.imports else {}
    config = resolve(preset, fixed, {"seed": given.seed, "threads": threads}, profile=profile).config.to_plain()
    space = searched(config, fixed)
    if not space:
        raise ConfigError("every setting that monotau tune could search is fixed; remove one from --config.")
    names = {"preset": preset} | ({} if profile is None else {"profile": profile})
    return StudyRecord(config=config, given=names | fixed, space=space)
