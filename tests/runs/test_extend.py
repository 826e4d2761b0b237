"""Runs that go on with more steps than they were started with."""

import json
import shutil

import pytest
from benchmarks.endings import contents, differences, end_of

from monotau.agent import Agent
from monotau.config.resolve import resolve
from monotau.errors import ConfigError
from monotau.runs import extend, runner
from monotau.runs.extend import state_for
from monotau.runs.files import read_json, write_json
from monotau.runs.metrics import read_lines
from monotau.runs.runner import train_into
from tests.runs.test_runner import told
from tests.support.small_runs import short_run, silent, train_undrawn

FIXED = {"replay": {"capacity_steps": 150, "warmup_steps": 20}, "optimiser": {"anneal": 1.0}}
"""Settings that do not depend on the length of the run."""


def run_of(steps, **settings):
    return short_run(steps=steps, **(FIXED | settings))


@pytest.fixture(scope="module")
def longer(tmp_path_factory):
    """The directory of a run that was started with 240 steps."""
    directory = tmp_path_factory.mktemp("longer") / "run"
    train_undrawn(directory, run_of(240))
    return directory


@pytest.fixture
def shorter(tmp_path):
    """The directory of a run that ended after 120 steps."""
    train_undrawn(tmp_path / "run", run_of(120))
    return tmp_path / "run"


def test_an_extended_run_ends_bit_for_bit_as_one_of_the_full_length(longer, shorter):
    assert state_for(shorter, run_of(240)) == "shorter"
    text = told(shorter, run_of(240))
    assert "extending the run from 120 to 240 steps; it ends as a run of 240 steps does\n" in text
    assert "resuming from step 120" in text
    assert differences(end_of(longer), end_of(shorter)) == []
    assert read_json(shorter / "result.json")["steps"] == 240
    assert Agent.load(shorter).config.steps == 240
    assert "is finished already" in told(shorter, run_of(240))


def test_a_run_can_be_extended_again_and_before_it_has_finished(longer, shorter):
    (shorter / "result.json").unlink()
    told(shorter, run_of(180))
    told(shorter, run_of(240))
    assert [entry["steps"] for entry in read_json(shorter / "extensions.json")["earlier"]] == [120, 180]
    assert differences(end_of(longer), end_of(shorter)) == []


def test_the_message_names_every_schedule_that_follows_the_steps(tmp_path):
    def run(steps):
        return short_run("prioritized", steps=steps, env={"num_envs": 1}, optimiser={"anneal": 0.5})

    train_undrawn(tmp_path, run(100))
    text = told(tmp_path, run(200))
    assert (
        "it differs from a run of 200 steps because its first part had another value of: learning rate "
        "(optimiser.anneal), importance weights (replay.beta_steps), iteration_steps (the iteration at step 100 was "
        "cut short)\n"
    ) in text


def test_settings_that_a_profile_derives_from_the_steps_are_named(tmp_path):
    small = {"torso": {"width": 8}, "head": {"hidden": 8}, "update": {"batch_size": 8}, "evaluation": {"episodes": 1}}

    def run(steps):
        return resolve("dqn", small, {"steps": steps, "iteration_steps": 60, "log_every_steps": 30})

    train_undrawn(tmp_path, run(120))
    text = told(tmp_path, run(240))
    assert "another value of: epsilon.decay_steps, replay.warmup_steps, learning rate" in text
    assert read_json(tmp_path / "config.json") == run(240).config.to_plain()


def test_compiling_is_named_if_the_longer_run_would_compile(shorter, monkeypatch):
    monkeypatch.setattr(extend, "compiles", lambda config, device: config.steps > 120)
    assert "another value of: compile\n" in told(shorter, run_of(240))


def test_the_evaluation_at_the_earlier_end_stays_in_the_log(tmp_path):
    def run(steps):
        return run_of(steps, evaluation={"episodes": 2, "every_iterations": 3})

    train_undrawn(tmp_path, run(120))
    told(tmp_path, run(240))
    evaluated = [line["step"] for line in read_lines(tmp_path / "metrics.jsonl") if line.get("policy") == "greedy"]
    assert evaluated == [120, 180, 240]


def test_a_run_killed_while_it_is_extended_goes_on_with_either_number_of_steps(longer, shorter, tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def kill(path, *_):
        real(path, *_)
        if len(written) >= survives:
            raise Killed
        written.append(path)

    real = extend.write_json
    monkeypatch.setattr(runner, "record_start", lambda *_, **__: (_ for _ in ()).throw(Killed))
    for survives in (0, 1, 2):  # killed after the digest, after the settings, and before training
        written = []
        directory = tmp_path / f"killed{survives}"
        shutil.copytree(shorter, directory)
        with monkeypatch.context() as patch:
            patch.setattr(extend, "write_json", kill)
            with pytest.raises(Killed):
                train_into(directory, run_of(240), silent())
    monkeypatch.undo()
    for number in (0, 1, 2):
        directory = tmp_path / f"killed{number}"
        if read_json(directory / "config.json")["steps"] == 120:
            shutil.copytree(directory, tmp_path / "back")
            told(tmp_path / "back", run_of(120))
            assert differences(end_of(shorter), end_of(tmp_path / "back")) == []
        told(directory, run_of(240))
        assert differences(end_of(longer), end_of(directory)) == []


def test_a_run_whose_checkpoints_were_removed_is_not_extended(shorter):
    shutil.rmtree(shorter / "checkpoints")
    before = contents(shorter)
    message = "ended after 120 steps and its checkpoints were removed, so it cannot go on to 240; use another directory"
    with pytest.raises(ConfigError, match=message):
        train_into(shorter, run_of(240), silent())
    assert contents(shorter) == before


@pytest.mark.parametrize("settings", [{"seed": 1}, {"n_step": 2}], ids=str)
def test_a_run_that_differs_in_more_than_its_steps_is_still_refused(settings, shorter):
    with pytest.raises(ConfigError, match=r"holds another run: it differs in .*steps \(120 there, 240 here\)"):
        train_into(shorter, run_of(240, **settings), silent())


def test_a_shorter_run_than_the_one_in_the_directory_is_refused(shorter):
    asked = r"but only 60 are asked for: ask for more, or use another directory\.$"
    with pytest.raises(ConfigError, match=rf"run has already trained 120 steps, {asked}"):
        train_into(shorter, run_of(60), silent())
    (shorter / "result.json").unlink()
    with pytest.raises(ConfigError, match=rf"run is to train 120 steps, {asked}"):
        train_into(shorter, run_of(60), silent())


@pytest.mark.parametrize("steps", [6_000, 24_000])
def test_settings_that_follow_from_the_steps_are_not_blamed(steps, tmp_path):
    def derived(steps, **settings):
        return resolve("dqn", {"steps": steps}, settings)

    write_json(tmp_path / "config.json", derived(12_000).config.to_plain())
    assert derived(steps).config.epsilon != derived(12_000).config.epsilon
    changed = rf"differs in gamma \(0\.99 there, 0\.5 here\), steps \(12000 there, {steps} here\); use"
    with pytest.raises(ConfigError, match=changed):
        state_for(tmp_path, derived(steps, gamma=0.5))


@pytest.mark.parametrize("steps", [None, "120", 0, True], ids=repr)
def test_settings_with_damaged_steps_belong_to_another_run(steps, shorter):
    held = read_json(shorter / "config.json")
    (shorter / "config.json").write_text(json.dumps(held | {"steps": steps}))
    with pytest.raises(ConfigError, match="holds another run"):
        state_for(shorter, run_of(240))


def test_damaged_records_of_earlier_lengths_are_ignored(shorter):
    (shorter / "extensions.json").write_text('{"earlier": [3, {"steps": "x"}, {"sha256": null}]}')
    assert extend.earlier_ends(shorter) == set()
    assert "is finished already" in told(shorter, run_of(120))
