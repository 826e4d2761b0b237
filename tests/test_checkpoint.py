"""Checkpoints: a run that is cut off anywhere ends as if it had not been, and what is damaged is never used."""

import io
import os

import pytest
from benchmarks.endings import differences, end_of
from rich.console import Console

from monotau import run
from monotau.presets import PRESETS, resolve
from monotau.run import train_into
from tests.small_runs import SMALL, silent


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    for name in ("draw_learning_curve", "draw_most_telling_state"):
        monkeypatch.setattr(run, name, lambda *_: None)


def told(directory, resolved):
    file = io.StringIO()
    train_into(directory, resolved, Console(file=file, width=500))
    return file.getvalue()


class Cut(BaseException):
    """The end of a process, as far as one test can make it."""


def cut_at(monkeypatch, name, count):
    """Cut the run off when a function of the operating system is called for the count-th time."""
    real, calls = getattr(os, name), iter(range(count))

    def counted(*arguments, **keywords):
        if next(calls, None) is None:
            raise Cut
        return real(*arguments, **keywords)

    monkeypatch.setattr(os, name, counted)


# Two lanes, a capacity that is written over, and iterations that no line of kind train ends with.
SETTINGS = {
    "steps": 240,
    "iteration_steps": 60,
    "log_every_steps": 25,
    "env": {"num_envs": 2},
    "replay": {"capacity_steps": 150, "warmup_steps": 20},
}


def tiny(preset="ndqfn-dpe"):
    return resolve(preset, SMALL | {"head": {"hidden": 8}}, SETTINGS)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_run_cut_off_after_each_iteration_ends_as_if_it_had_not_been(preset, tmp_path, monkeypatch):
    resolved = tiny(preset)
    train_into(tmp_path / "whole", resolved, silent())
    real, cuts = run.Training.evaluate, [1, 3, 4]

    def evaluate(training):
        if training.iteration in cuts:
            cuts.remove(training.iteration)
            raise Cut
        return real(training)

    monkeypatch.setattr(run.Training, "evaluate", evaluate)
    while cuts:
        with pytest.raises(Cut):
            train_into(tmp_path / "cut", resolved, silent())
    assert "going on from step 240" in told(tmp_path / "cut", resolved)
    assert differences(end_of(tmp_path / "whole"), end_of(tmp_path / "cut")) == []


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished run, and its end."""
    directory = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        for name in ("draw_learning_curve", "draw_most_telling_state"):
            patch.setattr(run, name, lambda *_: None)
        train_into(directory, tiny(), silent())
    return directory


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fsync", "replace", "mkdir", "rmdir", "unlink"])
def test_a_run_cut_off_at_any_touch_of_the_disk_goes_on_from_the_old_or_the_new_state(
    name, whole, tmp_path, monkeypatch
):
    resolved, count, cuts = tiny(), 0, 0
    while True:
        directory = tmp_path / str(count)
        with monkeypatch.context() as patch:
            cut_at(patch, name, count)
            try:
                train_into(directory, resolved, silent())
            except Cut:
                cuts += 1
        if not directory.exists():
            count += 1
            continue
        text = told(directory, resolved)
        assert "warning" not in text
        assert differences(end_of(whole), end_of(directory)) == []
        if "is finished already" in text:
            break
        count += 1 if count < 15 else 7
    assert cuts >= {"fsync": 10, "replace": 10}.get(name, 1)
