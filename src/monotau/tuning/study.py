"""A study: its record on disk, its storage, and one trial, which trains into a run directory of its own.

The files of a study are study.json (the settings of all trials and what is searched), journal.log (Optuna's record of
the trials) and one run directory for each trial. A trial has a number, which sets its seed and its directory, so that
one that was interrupted goes on with the same settings.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
from rich.console import Console

from monotau.agent import Hooks, Progress
from monotau.config.resolve import Resolved, resolve, split_names
from monotau.errors import ConfigError, Divergence, MissingExtra
from monotau.results.read import flatten_settings, read_run
from monotau.runs.files import read_json, temporary_path
from monotau.runs.layout import CHECKPOINTS, LOCK, differences
from monotau.runs.metrics import Line
from monotau.runs.runner import train_into
from monotau.seeding import stream_seed
from monotau.suites.workers.local import LOGS
from monotau.tuning.space import Range, defaults_of, nested

if TYPE_CHECKING:
    import optuna

STUDY, JOURNAL, TRIALS = "study.json", "journal.log", "trials"

LAST = 3
"""The objective is the mean return of so many last evaluations."""

UNPRUNED_TRIALS, UNPRUNED_SHARE = 5, 0.3
"""No trial is pruned before so many are complete, nor in this first share of its steps."""

NUMBER = "number"
"""Attribute of an Optuna trial that holds our number: Optuna counts in the order of starts."""


def require_optuna() -> None:
    """Raise MissingExtra if Optuna is not installed."""
    if find_spec("optuna") is None:
        raise MissingExtra("Optuna is not installed, but monotau tune needs it: pip install 'monotau[tune]'.")


def objective(evaluations: Sequence[Line]) -> float:
    """Return the mean return of the last evaluations."""
    return float(np.mean([line["return_mean"] for line in evaluations[-LAST:]]))


@final
@dataclass(frozen=True, kw_only=True)
class StudyRecord:
    """What all trials of a study share."""

    config: Mapping[str, Any]
    """All settings, with the lowest seed."""
    given: Mapping[str, Any]
    """The settings that the user fixed."""
    space: Mapping[str, Range]
    """What each searched setting may be."""

    def plain(self) -> dict[str, Any]:
        """Return the contents of study.json."""
        return {"config": dict(self.config), "given": dict(self.given), "space": dict(self.space)}

    @classmethod
    def read(cls, directory: Path) -> "StudyRecord":
        """Read the record of a study."""
        plain = read_json(directory / STUDY)
        if plain.keys() != {"config", "given", "space"} or not all(isinstance(part, dict) for part in plain.values()):
            raise ConfigError(f"{directory / STUDY} is not what monotau tune wrote; use another --out.")
        return cls(**plain)

    def check(self, directory: Path) -> None:
        """Raise if a directory holds anything other than this study; the number of threads does not matter."""
        try:
            if not directory.exists():
                return
            names = {path.name for path in directory.iterdir()}
        except OSError as error:
            raise ConfigError(f"--out is {directory}, which cannot be used: {error.strerror}.") from None
        if STUDY not in names:
            if names - {LOCK, LOGS, temporary_path(directory / STUDY).name}:  # a start that was killed leaves these
                raise ConfigError(f"--out is {directory}, which is not empty and holds no study; use another one.")
            return
        held, here = self.read(directory).plain(), self.plain()
        held["config"] |= {"threads": here["config"]["threads"]}
        if found := differences(held, here):
            more = " and more" if len(found) > 5 else ""
            raise ConfigError(
                f"--out is {directory}, which holds another study: it differs in {', '.join(found[:5])}{more}; use "
                "another directory."
            )

    def settings_of(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings that the user fixed with the values of a trial: a file for `monotau train --config`."""
        return nested({**dict(flatten_settings(self.given)), **values})

    def resolve(self, number: int, values: Mapping[str, Any]) -> Resolved:
        """Return the settings of a trial."""
        preset, profile, config = split_names(self.config)
        own = {"seed": config["seed"] + number}
        return resolve(str(preset), config, nested(values), own, profile=profile)


def open_study(directory: Path, record: StudyRecord, number: int = 0) -> "optuna.Study":
    """Open the study in a directory or make it; the number of the trial seeds the sampler."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    steps = record.config["steps"]
    return optuna.create_study(
        storage=JournalStorage(JournalFileBackend(str(directory / JOURNAL))),
        sampler=optuna.samplers.TPESampler(seed=stream_seed(record.config["seed"], "tuning", number) % 2**32),
        pruner=optuna.pruners.MedianPruner(
            n_startup_trials=UNPRUNED_TRIALS, n_warmup_steps=int(UNPRUNED_SHARE * steps)
        ),
        study_name="monotau",
        direction="maximize",
        load_if_exists=True,
    )


def start_study(directory: Path, record: StudyRecord) -> "optuna.Study":
    """Open a study whose first trial uses the defaults, so that there is something to compare with."""
    study = open_study(directory, record)
    if not study.get_trials(deepcopy=False):
        study.enqueue_trial(defaults_of(record.config, record.space))
    return study


def numbered(study: "optuna.Study") -> "dict[int, optuna.trial.FrozenTrial]":
    """Return the trials that have begun, by our numbers."""
    trials = study.get_trials(deepcopy=False)
    return {trial.user_attrs[NUMBER]: trial for trial in trials if NUMBER in trial.user_attrs}


def trial_directory(directory: Path, number: int) -> Path:
    """Return the run directory of a trial."""
    return directory / TRIALS / f"{number:04d}"


def run_trial(directory: Path, number: int, console: Console) -> None:
    """Run a trial to its end, or go on with one that was interrupted, and record what came of it."""
    import optuna
    from optuna.trial import TrialState

    record = StudyRecord.read(directory)
    study = open_study(directory, record, number)
    begun = numbered(study).get(number)
    if begun is not None and begun.state.is_finished():
        return
    trial = study.ask() if begun is None else optuna.trial.Trial(study, begun._trial_id)
    trial.set_user_attr(NUMBER, number)
    values = {setting: _suggest(trial, setting, allowed) for setting, allowed in record.space.items()}
    reported = {} if begun is None else begun.intermediate_values

    def on_evaluation(progress: Progress) -> bool:
        if progress.step not in reported:  # a resumed run repeats its last evaluation
            trial.report(objective(progress.evaluations), progress.step)
        return bool(trial.should_prune())  # the median is numpy's

    place = trial_directory(directory, number)
    try:
        train_into(place, record.resolve(number, values), console, hooks=Hooks(on_evaluation=on_evaluation))
    except Divergence as divergence:
        trial.set_user_attr("reason", str(divergence))
        study.tell(trial, state=TrialState.FAIL)
        return
    run = read_run(place)
    if run.result.get("stopped"):
        study.tell(trial, state=TrialState.PRUNED)
    else:
        study.tell(trial, objective(run.evaluations()))
    shutil.rmtree(place / CHECKPOINTS, ignore_errors=True)


def _suggest(trial: "optuna.Trial", setting: str, allowed: Range) -> Any:
    """Return the value of a setting in a trial, drawn if it has none yet."""
    kind, *numbers = allowed
    if kind == "log":
        return trial.suggest_float(setting, *numbers, log=True)
    return trial.suggest_categorical(setting, numbers)
