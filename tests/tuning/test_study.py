"""Studies: trials with seeds of their own, pruning, resuming, and the best settings in the end."""

import io
import json
import math
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
import yaml
from optuna.trial import TrialState
from rich.console import Console

from monotau import Divergence
from monotau.results.read import read_run
from monotau.runs.files import read_json, write_json
from monotau.suites import pool
from monotau.suites.workers.local import Began, Outcome, Workers
from monotau.tuning import command, study
from monotau.tuning.command import TuneCommand, run_study, tune
from monotau.tuning.page import best_row, rows_of, write_study_page
from monotau.tuning.study import NUMBER, StudyRecord, numbered, objective, open_study, run_trial, start_study
from tests.support.commands import command_caller
from tests.support.small_runs import silent
from tests.support.suites import TINY_SUITE

COIN = "monotau/Coin-v0"
TINY = {name: value for name, value in TINY_SUITE["settings"].items() if name != "steps"} | {
    "iteration_steps": 10,
    "evaluation": {"episodes": 1},
}


class OwnWorkers(Workers):
    """Runs trials in this process, one at a time."""

    def __init__(self, out):
        self.out, self.events, self.ran = out, [], []

    room = True

    @property
    def busy(self):
        return bool(self.events)

    def start(self, track):
        self.ran.append(track.index)
        run_trial(self.out, track.index, silent())
        self.events += [(track, Began()), (track, Outcome(0))]

    def poll(self):
        events, self.events = self.events, []
        return events

    def stop(self):
        self.events.clear()


@pytest.fixture
def made(tmp_path, monkeypatch):
    """The directory of a new study of a tiny run, in the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pool, "POLL_SECONDS", 0.0)
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    out = tmp_path / "study"
    (out / "logs").mkdir(parents=True)
    record = command._record(given(), 1)
    write_json(out / "study.json", record.plain())
    return out, record


def given(**changes):
    settings = {"env": COIN, "preset": "dqn", "steps": 40, "seed": 5, "trials": 3, "config": Path("tiny.yaml")}
    return TuneCommand(**(settings | changes))


def told(out, trials, workers):
    file = io.StringIO()
    run_study(out, trials, workers, 1, Console(file=file, width=300))
    return file.getvalue()


def test_the_objective_is_the_mean_of_the_last_three_evaluations():
    lines = [{"return_mean": float(value)} for value in (100, 1, 2, 6)]
    assert objective(lines) == 3
    assert objective(lines[:2]) == 50.5


def test_a_study_ends_in_the_best_settings_and_a_page(made):
    out, record = made
    text = told(out, 3, workers := OwnWorkers(out))
    assert workers.ran == [0, 1, 2]
    trials = numbered(open_study(out, record))
    assert {trial.state for trial in trials.values()} == {TrialState.COMPLETE}
    runs = {number: read_run(study.trial_directory(out, number)) for number in range(3)}
    assert [run.seed for run in runs.values()] == [5, 6, 7]
    assert {number: trial.value for number, trial in trials.items()} == {
        number: objective(run.evaluations()) for number, run in runs.items()
    }
    # The first trial has the defaults, and each run has the settings of its trial.
    assert {name: runs[0].settings[name] for name in record.space} == study.defaults_of(record.config, record.space)
    assert all({name: run.settings[name] for name in record.space} == trials[n].params for n, run in runs.items())
    assert len({json.dumps(trial.params) for trial in trials.values()}) == 3
    best = max(trials, key=lambda number: trials[number].value)
    assert f"best: trial {best}, mean return" in text
    assert "monotau train --config" in text
    assert "--seed 8" in text
    shown = (out / "index.html").read_text()
    assert all(setting in shown for setting in record.space)
    assert sorted(path.name for path in (out / "figures").glob("*.png")) == ["history.png", "slices.png"]


def test_the_best_settings_are_a_file_that_trains_as_the_best_trial_did(made, capsys):
    out, record = made
    told(out, 2, OwnWorkers(out))
    best = best_row(rows_of(open_study(out, record)))
    code, shown, err = command_caller(capsys, "train", "--config", str(out / "best.yaml"), "--show")()
    assert (code, err) == (0, "")
    run = read_json(study.trial_directory(out, best.number) / "config.json")
    assert json.loads(shown) | {"seed": 0} == run | {"seed": 0}


def test_a_repeated_study_runs_only_what_is_missing(made):
    out, _ = made
    told(out, 1, OwnWorkers(out))
    before = (out / "trials" / "0000" / "metrics.jsonl").read_bytes()
    text = told(out, 2, workers := OwnWorkers(out))
    assert "2 trials of 40 steps, 1 to do" in text
    assert workers.ran == [1]
    assert (out / "trials" / "0000" / "metrics.jsonl").read_bytes() == before


def test_a_trial_that_was_interrupted_goes_on_with_its_settings(made, monkeypatch):
    out, record = made
    start_study(out, record)
    train_into = study.train_into

    def interrupted(directory, resolved, console, hooks):
        def stop(progress):
            hooks.on_evaluation(progress)
            if progress.step == 20:
                raise KeyboardInterrupt

        train_into(directory, resolved, console, hooks=type(hooks)(on_evaluation=stop))

    run_trial(out, 0, silent())
    monkeypatch.setattr(study, "train_into", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_trial(out, 1, silent())
    monkeypatch.undo()
    before = numbered(open_study(out, record))[1]
    assert before.state == TrialState.RUNNING
    assert set(before.intermediate_values) == {10, 20}
    run_trial(out, 1, silent())
    after = numbered(open_study(out, record))
    assert len(open_study(out, record).trials) == 2
    assert (after[1].state, after[1].params) == (TrialState.COMPLETE, before.params)
    assert set(after[1].intermediate_values) == {10, 20, 30, 40}
    starts = read_json(study.trial_directory(out, 1) / "provenance.json")["starts"]
    assert [start["step"] for start in starts] == [0, 20]
    run_trial(out, 1, silent())  # nothing is left to do
    assert not (study.trial_directory(out, 1) / "checkpoints").exists()


def test_a_poor_trial_is_pruned(made, monkeypatch):
    out, record = made
    opened = start_study(out, record)
    only = optuna.distributions.CategoricalDistribution
    for number in range(study.UNPRUNED_TRIALS):
        opened.add_trial(
            optuna.create_trial(
                value=1e6,
                params={name: allowed[1] for name, allowed in record.space.items()},
                distributions={name: only(allowed[1:]) for name, allowed in record.space.items()},
                intermediate_values=dict.fromkeys((10, 20, 30, 40), 1e6),
                user_attrs={NUMBER: 100 + number},
            )
        )
    monkeypatch.setattr(study, "_suggest", lambda trial, setting, allowed: allowed[-1])
    run_trial(out, 0, silent())
    (trial,) = (trial for number, trial in numbered(open_study(out, record)).items() if number == 0)
    assert trial.state == TrialState.PRUNED
    assert max(trial.intermediate_values) == 20  # not in the first 30 % of the steps
    run = read_run(study.trial_directory(out, 0))
    assert (run.state, run.step) == ("finished", 20)


def test_a_trial_that_diverges_is_recorded_and_not_repeated(made, monkeypatch):
    out, record = made

    def diverge(*_, **__):
        raise Divergence("the weights became NaN")

    monkeypatch.setattr(study, "train_into", diverge)
    text = told(out, 1, OwnWorkers(out))
    assert ": 1 trial of 40 steps, 1 to do" in text
    (trial,) = numbered(open_study(out, record)).values()
    assert (trial.state, trial.user_attrs["reason"]) == (TrialState.FAIL, "the weights became NaN")
    assert "best:" not in text
    assert not (out / "best.yaml").exists()
    told(out, 1, workers := OwnWorkers(out))
    assert workers.ran == []


class FailingWorkers(OwnWorkers):
    """Every process ends with a fault of the environment."""

    def start(self, track):
        (self.out / "logs" / f"{track.name}.log").write_text("error: the environment broke\n")
        self.events += [(track, Began()), (track, Outcome(1))]


def test_a_trial_that_fails_ends_the_study_with_an_exit_code(made):
    out, _ = made
    console = Console(file=io.StringIO(), width=300)
    with pytest.raises(SystemExit) as stop:
        run_study(out, 1, FailingWorkers(out), 1, console)
    assert stop.value.code == 1
    assert "failed trial-0000: the environment broke" in console.file.getvalue()
    assert "the same command goes on" in console.file.getvalue()


def filled(out, record, trials):
    """A study with invented results, good where the learning rate is."""
    for number in range(trials):
        opened = open_study(out, record, number)
        trial = opened.ask()
        trial.set_user_attr(NUMBER, number)
        values = {name: study._suggest(trial, name, allowed) for name, allowed in record.space.items()}
        value = -(math.log10(values["optimiser.learning_rate"] / 1e-3) ** 2)
        trial.report(value, 40)
        if number == 3:
            opened.tell(trial, state=TrialState.PRUNED)
        else:
            opened.tell(trial, value)
    return opened


def test_the_page_shows_which_settings_matter(made):
    out, record = made
    write_study_page(out, filled(out, record, 14), record)
    text = (out / "index.html").read_text()
    assert "14 trials of 40 steps: 13 complete, 1 pruned." in text
    assert f"Trial {best_row(rows_of(open_study(out, record))).number} is the best" in text
    assert {path.stem for path in (out / "figures").iterdir()} == {"history", "slices", "importance"}


REFUSED = [
    (["tune"], "Missing from monotau tune: ENV"),
    (["tune", "CartPol-v1"], "env.id 'CartPol-v1' is unknown. Did you mean 'CartPole-v1'"),
    (["tune", COIN, "--trials", "0"], "--trials is 0, but must be at least 1."),
    (["tune", COIN, "--jobs", "-1"], "--jobs is -1, but must be at least 0."),
    (["tune", COIN, "--preset", "dqnn"], "the preset 'dqnn' is unknown. Did you mean 'dqn'"),
    (["tune", COIN, "--steps", "0"], "steps is 0, but must be at least 1."),
    (["tune", COIN, "--config", "seed.yaml"], "seed.yaml sets seed, but monotau tune sets it for every trial."),
    (
        ["tune", COIN, "--preset", "dqn", "--config", "all.yaml"],
        "every setting that monotau tune could search is fixed",
    ),
    (["tune", COIN, "--out", "."], "--out is ., which is not empty and holds no study; use another one."),
    (["tune", COIN, "--out", "seed.yaml"], "--out is seed.yaml, which cannot be used: Not a directory."),
    (["tune", COIN, "--out", "seed.yaml/x"], "--out seed.yaml/x cannot be created: Not a directory."),
    (["tune", COIN, "--out", "new", "--index", "0"], "--index is 0, but new has no study with such a trial."),
]


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """Call the program with an error of the user; return the line that reports it."""
    monkeypatch.chdir(tmp_path)

    def refused(*words):
        before = sorted(tmp_path.rglob("*"))
        code, out, err = command_caller(capsys)(*words)
        assert (code, out, sorted(tmp_path.rglob("*"))) == (2, "", before)
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        return err

    return refused


@pytest.mark.parametrize(("words", "message"), REFUSED, ids=[" ".join(words)[:50] for words, _ in REFUSED])
def test_an_invalid_study_is_refused_in_one_line(words, message, refused, tmp_path):
    (tmp_path / "seed.yaml").write_text("seed: 3\n")
    everything = {
        "optimiser": {"learning_rate": 0.1}, "n_step": 1, "update": {"batch_size": 8, "every_steps": 1},
        "head": {"hidden": 8}, "torso": {"width": 8}, "epsilon": {"end": 0.1},
    }  # fmt: skip
    (tmp_path / "all.yaml").write_text(yaml.safe_dump(everything))
    assert message in refused(*words)


def test_another_study_s_directory_is_refused(made, refused):
    words = ("tune", COIN, "--preset", "dqn", "--config", "tiny.yaml", "--out", "study", "--seed", "5", "--steps")
    found = refused(*words, "50")
    assert "--out is study, which holds another study: it differs in config.replay.warmup_steps" not in found
    assert "config.steps (40 there, 50 here)" in found
    (made[0] / "study.json").write_text("{}")
    assert "study.json is not what monotau tune wrote; use another --out." in refused(*words, "40")


def test_optuna_is_an_extra(refused, monkeypatch):
    monkeypatch.setattr(study, "find_spec", lambda name: None)
    assert "Optuna is not installed, but monotau tune needs it: pip install 'monotau[tune]'." in refused("tune", COIN)


def test_the_command_starts_a_process_for_each_trial(made, monkeypatch):
    seen = {}

    def note(out, trials, workers, jobs, console):
        seen.update(words=workers._command(2), trials=trials, jobs=jobs)

    monkeypatch.setattr(command, "run_study", note)
    tune(given(out=made[0], jobs=2), silent())
    assert (seen["trials"], seen["jobs"]) == (3, 2)
    words = [sys.executable, "-m", "monotau", "tune", COIN, "--out", str(made[0]), "--trials", "3", "--seed", "5"]
    options = ["--preset", "dqn", "--steps", "40", "--config", "tiny.yaml", "--index", "2"]
    assert seen["words"] == words + options


def test_a_process_runs_its_trial(made):
    out, record = made
    start_study(out, record)
    tune(given(out=out, index=1), silent())
    assert set(numbered(open_study(out, record))) == {1}
    assert isinstance(StudyRecord.read(out).space, dict)


@pytest.mark.slow
def test_a_study_that_is_killed_goes_on(made):
    out, record = made
    words = [sys.executable, "-m", "monotau", "tune", COIN, "--preset", "dqn", "--steps", "40", "--seed", "5"]
    words += ["--config", "tiny.yaml", "--out", "study", "--jobs", "2", "--trials", "3"]
    process = subprocess.Popen(words, cwd=out.parent, start_new_session=True)
    while not (out / "trials").exists():
        assert process.poll() is None
    process.kill()
    process.wait()
    subprocess.run(words, cwd=out.parent, check=True)
    assert {trial.state for trial in numbered(open_study(out, record)).values()} == {TrialState.COMPLETE}
    assert (out / "best.yaml").exists()
