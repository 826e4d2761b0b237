"""Reading run directories: states, scores, method names, and damage that is reported instead of raised."""

import json

import pytest

from monotau.errors import ConfigError
from monotau.report.series import Series
from monotau.results.methods import differing_settings
from monotau.results.methods import read_methods as read_runs
from monotau.results.read import flatten_settings, read_progress, read_run
from monotau.results.summary import atari_run
from monotau.runs.process import locked
from tests.support.runs import evaluation, fake_run, plain_settings, write_atari_run, write_run


def states(runs):
    return {run.directory.name: run.state for run in runs}


def test_a_finished_run_is_read_in_full(tmp_path):
    write_run(tmp_path / "a", [30.0, 50.0, 40.0], config=plain_settings("iqn", seed=4, steps=3000))
    (run,) = read_runs([tmp_path])
    assert (run.state, run.method, run.env, run.seed, run.seconds) == ("finished", "iqn", "CartPole-v1", 4, 3600.0)
    assert [line["return_mean"] for line in run.evaluations()] == [30.0, 50.0, 40.0]
    assert run.random_return() == 20.0
    loss, bonus = (Series.of(run.training(), name) for name in ("loss", "bonus_mean"))
    assert (loss.steps.tolist(), loss.values.tolist()) == ([1000, 2000, 3000], [1.0, 0.5, 1 / 3])
    assert (bonus.steps.tolist(), bonus.values.tolist()) == ([], [])
    assert run.settings["head.kind"] == "iqn"
    assert run.step == 3000
    assert run.usable


def test_what_has_not_finished_is_told(tmp_path):
    write_run(tmp_path / "cut", [30.0], finished=False)
    write_run(tmp_path / "early", [], config=plain_settings(seed=1), random=None, finished=False)
    diverged = write_run(tmp_path / "diverged", [1.0], config=plain_settings(seed=2), finished=False)
    (diverged / "diagnosis.json").write_text("{}")
    runs = {run.directory.name: run for run in read_runs([tmp_path])}
    assert {run.state for run in runs.values()} == {"unfinished"}
    assert runs["cut"].usable
    assert not runs["early"].usable
    assert runs["early"].step == 0
    assert runs["cut"].reason == "interrupted"
    with locked(tmp_path / "cut"):
        assert read_runs([tmp_path / "cut"])[0].reason == "training now"
    assert runs["diverged"].reason == "learning diverged: see diagnosis.json in its directory"


def test_of_damaged_metrics_the_settings_still_say_whose_they_are(tmp_path):
    directory = write_run(tmp_path / "bad", [30.0], config=plain_settings("iqn-star", seed=4))
    (directory / "metrics.jsonl").write_text("x\n{}\n")
    (run,) = read_runs([tmp_path])
    assert (run.state, run.method, run.env, run.seed, run.lines) == ("damaged", "iqn-star", "CartPole-v1", 4, ())


def test_methods_that_differ_in_many_settings_are_numbered_and_missing_runs_are_of_their_siblings_method(tmp_path):
    for place, steps in (("one", 100), ("two", 200)):
        config = plain_settings("iqn-star", steps=steps, gamma=1 - 1 / steps, iteration_steps=steps // 4)
        write_run(tmp_path / place / "iqn", [30.0], config=config)
        cells = {
            name: {"method": "iqn", "env": "CartPole-v1", "seed": seed} for name, seed in (("iqn", 0), ("gone", 1))
        }
        (tmp_path / place / "suite.json").write_text(json.dumps({"cells": cells}))
    found = {str(run.directory.relative_to(tmp_path)): (run.method, run.state) for run in read_runs([tmp_path])}
    assert found == {
        "one/iqn": ("iqn, settings 1", "finished"),
        "one/gone": ("iqn, settings 1", "not started"),
        "two/iqn": ("iqn, settings 2", "finished"),
        "two/gone": ("iqn, settings 2", "not started"),
    }


def spoil_config(**changes):
    def spoil(directory):
        config = plain_settings()
        (directory / "config.json").write_text(json.dumps(config | changes))

    return spoil


def spoil(name, text):
    return lambda directory: (directory / name).write_text(text)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (spoil("config.json", "{"), "not valid JSON"),
        (lambda directory: (directory / "config.json").unlink(), "cannot be read"),
        (spoil("config.json", "{}"), "is not the configuration of a run: preset, seed, steps or env.id is missing"),
        (spoil_config(env=[]), "is not the configuration of a run"),
        (spoil_config(env={"id": 5}), "is not the configuration of a run"),
        (spoil_config(env={"id": "A-v1", "kwargs": 5}), "env.kwargs is 5, but must be a dict"),
        (spoil_config(env={"id": "A-v1", "protocol": 5}), "env.protocol is 5, but must be a str"),
        (spoil_config(seed="0"), "is not the configuration of a run"),
        (spoil_config(steps=0), "is not the configuration of a run"),
        (spoil_config(steps=True), "is not the configuration of a run"),
        (spoil_config(preset=None), "is not the configuration of a run"),
        (spoil("metrics.jsonl", "x\n{}\n"), "line 1 is not valid JSON"),
        (spoil("metrics.jsonl", '{"kind": "train"}\n'), "line 1: step is None, but must be an integer of at least 0"),
        (spoil("metrics.jsonl", '{"step": 1}\n'), "line 1: kind is None, but must be a string"),
        (spoil("metrics.jsonl", '{"step": -1, "kind": "train"}\n'), "line 1: step is -1, but must be"),
        (spoil("metrics.jsonl", '{"step": 1, "kind": "eval", "return_mean": NaN}\n'), "is nan, but must be a finite"),
        (spoil("metrics.jsonl", '{"step": 1, "kind": "eval", "return_mean": 1e300}\n'), "is 1e.300, but must"),
        (spoil("metrics.jsonl", f'{{"step": 1, "kind": "eval", "return_mean": {10**400}}}\n'), "is 1000.*, but must"),
        (spoil("metrics.jsonl", '{"step": 2, "kind": "train"}\n{"step": 1, "kind": "train"}\n'), "line 2: step is 1,"),
        (spoil("metrics.jsonl", '{"step": 9, "kind": "eval", "policy": "greedy", "return_mean": 1}\n'),
         r"has a result after 20000 steps, but the last evaluation in metrics.jsonl is at step 9\."),
        (spoil("metrics.jsonl", '{"step": 1, "kind": "warning", "text": 3}\n'), "line 1: text is 3, but must be"),
        (spoil("result.json", "{}"), "seconds is None, but must be a number"),
        (spoil("result.json", '{"seconds": "long"}'), "seconds is 'long', but must be a number"),
        (spoil("provenance.json", '{"starts": [1]}'), r"starts is \[1\], but must be a list of mappings"),
    ],
)  # fmt: skip
def test_a_damaged_run_says_why_and_spares_the_others(tmp_path, damage, reason):
    write_run(tmp_path / "good", [30.0], config=plain_settings(seed=1))
    damage(write_run(tmp_path / "bad", [30.0]))
    runs = {run.directory.name: run for run in read_runs([tmp_path])}
    assert states(runs.values()) == {"good": "finished", "bad": "damaged"}
    with pytest.raises(ConfigError, match=reason):
        raise ConfigError(runs["bad"].reason)
    assert "\n" not in runs["bad"].reason
    assert not runs["bad"].usable


def test_a_last_line_that_was_torn_is_no_damage(tmp_path):
    directory = write_run(tmp_path / "a", [30.0], finished=False)
    with (directory / "metrics.jsonl").open("a") as file:
        file.write('{"step": 99, "ki')
    assert states(read_runs([tmp_path])) == {"a": "unfinished"}


def test_settings_from_before_there_were_protocols_are_read(tmp_path):
    config = plain_settings()
    del config["env"]["protocol"], config["env"]["kwargs"]
    write_run(tmp_path / "old", [30.0], config=config)
    assert [(run.state, run.env) for run in read_runs([tmp_path])] == [("finished", "CartPole-v1")]


def test_runs_from_before_masks_are_of_the_same_method_as_runs_that_ignore_them(tmp_path):
    config = plain_settings()
    assert config["env"].pop("action_masks") == "ignore"
    write_run(tmp_path / "old", [30.0], config=config)
    write_run(tmp_path / "new", [30.0], config=plain_settings(seed=1))
    assert {run.method for run in read_runs([tmp_path])} == {"ndqfn"}


def test_of_the_same_seed_twice_the_finished_one_counts(tmp_path):
    write_run(tmp_path / "a", [30.0], finished=False)
    write_run(tmp_path / "b", [30.0])
    write_run(tmp_path / "c", [30.0])
    runs = {run.directory.name: run for run in read_runs([tmp_path])}
    assert states(runs.values()) == {"a": "repeated", "b": "finished", "c": "repeated"}
    assert runs["a"].reason == f"the same method, environment and seed as {tmp_path / 'b'}"


def test_a_directory_named_twice_is_one_run(tmp_path):
    write_run(tmp_path / "a", [30.0])
    assert states(read_runs([tmp_path, tmp_path / "a"])) == {"a": "finished"}


def test_runs_of_one_preset_with_other_settings_are_other_methods(tmp_path):
    for c in (0.1, 0.5):
        for seed in (0, 1):
            config = plain_settings("ndqfn-dpe", seed=seed, explorer={"c": c}) | {"threads": 1 + seed}
            config |= {"imports": ["my_parts"]} if seed else {}
            write_run(tmp_path / f"{c}-{seed}", [30.0], config=config)
    assert sorted({run.method for run in read_runs([tmp_path])}) == [
        "ndqfn-dpe, explorer.c 0.1",
        "ndqfn-dpe, explorer.c 0.5",
    ]


def test_what_differs_between_environments_makes_no_other_method(tmp_path):
    write_run(tmp_path / "a", [30.0], config=plain_settings(steps=100))
    write_run(tmp_path / "b", [30.0], config=plain_settings(env="Acrobot-v1", steps=200))
    assert {run.method for run in read_runs([tmp_path])} == {"ndqfn"}


def write_suite_file(directory, cells):
    directory.mkdir(exist_ok=True)
    (directory / "suite.json").write_text(json.dumps({"cells": cells}))


def test_a_suite_names_methods_and_runs_that_are_yet_to_come(tmp_path):
    cells = {name: {"method": "mine", "env": "CartPole-v1", "seed": seed} for seed, name in enumerate(("a", "b", "c"))}
    write_suite_file(tmp_path, cells)
    write_run(tmp_path / "a", [30.0])
    (write_run(tmp_path / "b", [30.0]) / "config.json").write_text("{")
    runs = {run.directory.name: run for run in read_runs([tmp_path])}
    assert states(runs.values()) == {"a": "finished", "b": "damaged", "c": "not started"}
    assert [(run.method, run.seed) for run in runs.values()] == [("mine", 0), ("mine", 1), ("mine", 2)]


def test_a_damaged_suite_is_told_and_its_runs_are_read(tmp_path):
    write_suite_file(tmp_path, {"a": {"method": 5}})
    write_run(tmp_path / "a", [30.0])
    runs = {run.directory.name: run for run in read_runs([tmp_path])}
    assert states(runs.values()) == {"suite.json": "damaged", "a": "finished"}
    assert "lacks cells with method, env and seed" in runs["suite.json"].reason
    assert runs["a"].method == "ndqfn"


def test_a_directory_without_runs_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="is not a run directory and contains none"):
        read_runs([tmp_path])


def test_each_directory_is_told_as_it_is_read(tmp_path):
    for name in ("b", "a"):
        write_run(tmp_path / name, [30.0])
    told = []
    read_runs([tmp_path], told.append)
    assert told == ["a", "b"]


def test_settings_by_path():
    assert dict(flatten_settings({"a": {"b": 1, "c": [2]}, "env": {"kwargs": {"x": 1}}})) == {
        "a.b": 1,
        "a.c": [2],
        "env.kwargs": {"x": 1},
    }
    assert differing_settings([]) == []


def test_random_play_is_no_evaluation_of_what_was_learned(tmp_path):
    directory = write_run(tmp_path / "a", [30.0], random=None, finished=False)
    (directory / "metrics.jsonl").write_text(json.dumps(evaluation(0, 9.0, "random")) + "\n")
    (run,) = read_runs([tmp_path])
    assert run.evaluations() == []
    assert run.random_return() == 9.0
    assert not run.usable


def test_the_score_of_a_run_is_its_last_evaluation_and_its_best_the_highest():
    lines = [evaluation(0, 99.0, "random"), evaluation(5, 1.0), evaluation(6, 9.0)]
    lines += [evaluation(7, 9.0), evaluation(8, 4.0)]
    run = fake_run("a", lines)
    assert (run.score(), run.score("last"), run.score("best")) == (4.0, 4.0, 9.0)
    with pytest.raises(ConfigError, match="has no evaluation yet, so it has no score"):
        fake_run("a", lines[:1]).score()


def test_scores_and_report_read_the_same_score(tmp_path):
    directory = write_atari_run(tmp_path / "a", [5.0, 20.0, 7.0])
    (reported,) = read_runs([tmp_path])
    scored = atari_run(read_run(directory))
    assert (scored.last, scored.best) == (reported.score("last"), reported.score("best")) == (7.0, 20.0)
    assert read_progress(directory).last_return == 7.0
