"""`monotau report`: what it writes, what it refuses in one line, and reports of every odd kind."""

import csv
import re
import resource
import shutil
import subprocess
import sys

import pytest

from monotau.cli import main
from monotau.config.presets import PRESETS
from monotau.envs.games import GAME_SETS, id_of
from monotau.report.comparison import RunComparison
from monotau.report.sections.provenance import settings_sections
from monotau.results.methods import read_methods
from monotau.results.published import references
from tests.support.commands import command_caller
from tests.support.runs import plain_settings, write_run, write_runs


@pytest.fixture
def call(capsys):
    return command_caller(capsys, "report")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two methods with two seeds in two environments; an unfinished and a damaged run."""
    root = tmp_path_factory.mktemp("report") / "runs"
    write_runs(root, {name: {"A-v0": 50.0, "B-v0": 90.0} for name in ("iqn-star", "ndqfn")}, seeds=2, evaluations=4)
    write_run(root / "cut", [30.0], config=plain_settings("ndqfn", "A-v0", 7), finished=False)
    (write_run(root / "broken", [30.0]) / "config.json").write_text("{")
    return root


@pytest.fixture(scope="module")
def report(runs):
    """A report on them."""
    main(["report", str(runs), "--out", str(runs.parent / "out")])
    return runs.parent / "out"


def contents(directory):
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_report_of_several_methods(call, runs, report, tmp_path):
    out = tmp_path / "deep" / "out"
    code, said, errors = call(runs, "--out", out)
    assert (code, errors) == (0, "")
    assert said == f"{out / 'index.html'}: 10 runs, 2 of them unfinished or unusable; 7 figures\n"
    names = (
        "crossing",
        "curves-1",
        "dead-increments",
        "improvement-1",
        "overview-others",
        "probability-others-1",
        "profile-others-1",
    )
    figures = {f"figures/{name}.{ending}" for name in names for ending in ("png", "svg")}
    assert {*contents(out)} == {"index.html", "results.csv", "training.csv", "table.md", *figures}
    page = (out / "index.html").read_text()
    titles = re.findall("<h2>(.*)</h2>", page)
    assert titles == [
        "Summary",
        "Learning curves",
        "Aggregate scores",
        "Scores by environment",
        "Improvement over iqn-star",
        "Performance profiles",
        "Probability of improvement",
        "Quantile functions",
        "Crossing over training",
        "Dead increments",
        "Provenance",
        "Settings",
    ]
    assert "10 runs: 8 finished, 1 unfinished, 1 damaged." in page
    assert f"{runs / 'broken' / 'config.json'} is not valid JSON" in page
    assert "0123456789abcdef0123456789abcdef01234567" in page
    assert "iqn-star (4), ndqfn (5)" in page
    assert contents(report) == contents(out)  # the same runs give the same report


def test_results_in_long_form(report):
    rows = []
    for name in ("results.csv", "training.csv"):
        with (report / name).open() as file:
            rows += csv.DictReader(file)
    assert [*rows[0]] == ["method", "env", "protocol", "seed", "state", "step", "measure", "value"]
    own = [row for row in rows if (row["method"], row["env"], row["seed"]) == ("ndqfn", "A-v0", "7")]
    found = {(row["measure"], row["step"]): row["value"] for row in own}
    assert {row["state"] for row in own} == {"unfinished"}
    assert found["eval_return_mean", "20000"] == "30.0"
    assert found["eval_return_max", "20000"] == "32.0"
    assert found["random_return_mean", "0"] == "20.0"
    assert found["train_loss", "20000"] == "1.0"
    assert not any(measure == "train_bonus_mean" for measure, _ in found)  # null
    assert [row["value"] for row in rows if row["state"] == "damaged"] == ["", ""]


def test_an_earlier_report_is_written_over_and_its_figures_go(call, runs, report, tmp_path):
    out = shutil.copytree(report, tmp_path / "out")
    (out / "figures" / "mine.png").write_text("mine")
    one = runs / "iqn-star_A-v0_seed0"
    assert call(one, "--out", out)[0] == 0
    kept = sorted(path.name for path in (out / "figures").glob("*.png"))
    assert kept == [
        "crossing.png",
        "curves-1.png",
        "dead-increments.png",
        "mine.png",
        "overview.png",
        "profile-others-1.png",
    ]


@pytest.mark.parametrize("name", ["index.html", "notes.txt"])
def test_a_directory_with_something_else_is_refused(call, runs, tmp_path, name):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text("<html>mine</html>")
    code, _, errors = call(runs, "--out", tmp_path / "out")
    reason = "which is not empty and contains no report; name a new or an empty directory."
    assert (code, errors) == (2, f"error: --out is {tmp_path / 'out'}, {reason}\n")
    assert contents(tmp_path / "out") == {name: b"<html>mine</html>"}


def test_what_cannot_be_done_is_refused_in_one_line(call, runs, tmp_path):
    (tmp_path / "file").write_text("")
    for words, reason in [
        (["--out", tmp_path / "out"], "no RUNS are given"),
        ([runs], "--out"),
        ([tmp_path / "none", "--out", tmp_path / "out"], "is not a run directory and contains none"),
        ([runs, "--out", tmp_path / "file"], "which is not a directory"),
        ([runs, "--out", tmp_path / "out", "--over", "nobody"], "the method --over 'nobody' is unknown"),
        ([runs, "--out", tmp_path / "out", "--smooth", "0"], "--smooth is 0"),
    ]:
        code, _, errors = call(*words)
        assert code == 2
        assert reason in errors
        assert errors.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_disk_that_takes_nothing_is_told(call, runs, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, errors = call(runs / "iqn-star_A-v0_seed0", "--out", tmp_path / "file" / "out")
    assert code == 4
    assert "cannot be written to" in errors


def test_no_run_that_could_be_drawn(call, tmp_path):
    write_run(tmp_path / "runs" / "early", [], random=None, finished=False)
    (write_run(tmp_path / "runs" / "broken", [30.0]) / "metrics.jsonl").write_text("{\n{\n")
    code, said, _ = call(tmp_path / "runs", "--out", tmp_path / "out")
    assert code == 0
    assert "2 of them unfinished or unusable; 0 figures" in said
    assert "no evaluation yet" in (tmp_path / "out" / "table.md").read_text()


def test_hostile_names_are_drawn_and_written_as_text(call, tmp_path):
    config = plain_settings(env="A-v0") | {"preset": "<script>alert(1)</script>$\\frac|_"}
    write_run(tmp_path / "runs" / "a", [30.0, 40.0], config=config, starts=[{"commit": "<b>", "packages": 5}])
    write_run(tmp_path / "runs" / "b", [30.0, 40.0], config=plain_settings(env="A-v0"), starts=[])
    assert call(tmp_path / "runs", "--out", tmp_path / "out")[0] == 0
    page = (tmp_path / "out" / "index.html").read_text()
    assert "<script" not in page
    assert "<b>" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_methods_without_an_environment_in_common(call, tmp_path):
    levels = {"dqn": {"A-v0": 50.0}, "iqn": {"B-v0": 50.0}}
    write_runs(tmp_path / "runs", levels, seeds=1, evaluations=2)
    assert call(tmp_path / "runs", "--out", tmp_path / "out")[0] == 0
    page = (tmp_path / "out" / "index.html").read_text()
    assert "none is common to all" in page
    assert "dqn: no environment in common with iqn." in page
    assert "Probability of improvement" not in page


def test_settings_that_differ_are_told_apart_from_common_ones(tmp_path):
    write_run(tmp_path / "a", [30.0], config=plain_settings("ndqfn-dpe", "A-v0"))
    write_run(tmp_path / "b", [30.0], config=plain_settings("ndqfn-dpe", "B-v0", steps=5000))
    write_run(tmp_path / "c", [30.0], config=plain_settings("ndqfn-vpe", "A-v0") | {"threads": 7})
    (section,) = settings_sections(RunComparison(read_methods([tmp_path])), lambda what: None)
    between, by_env, common = (table.rows for table in section.tables)
    assert ["explorer.error", "distribution", "ndqfn-dpe (2)"] in between
    assert ["explorer.error", "value", "ndqfn-vpe (1)"] in between
    assert ["threads", "7", "ndqfn-vpe (1)"] in between
    assert ["steps", "5000", "B-v0"] in by_env
    assert ["gamma", "0.99"] in common


@pytest.mark.slow
def test_two_dozen_methods(call, tmp_path):
    levels = {method: {"A-v0": 40.0 + place, "B-v0": 50.0 - place} for place, method in enumerate([*PRESETS][:24])}
    write_runs(tmp_path / "runs", levels, seeds=2)
    code, said, _ = call(tmp_path / "runs", "--out", tmp_path / "out")
    assert code == 0
    assert "96 runs, all finished; 8 figures" in said


@pytest.mark.slow
def test_the_papers_games_by_three_methods(tmp_path):
    table, games = references(), GAME_SETS["atari55"][1]
    random = {id_of(game): table[game].random for game in games}
    levels = {
        method: {id_of(game): table[game].random + share * (table[game].human - table[game].random) for game in games}
        for method, share in (("iqn-star", 1.2), ("ndqfn", 1.3), ("ndqfn-dpe", 1.5))
    }
    write_runs(tmp_path / "runs", levels, random=random, steps=50_000_000, evaluations=100)
    # In a process of its own, as a user has it: here every call is checked, which takes several times as long.
    words = [sys.executable, "-m", "monotau", "report", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 60
    assert "495 runs, all finished; 12 figures" in said
    assert "as quoted (aggregates, not recomputed)" in (tmp_path / "out" / "table.md").read_text()


def test_the_likelier_method_is_named_first_with_its_probability(report):
    table = (report / "table.md").read_text().partition("## Probability of improvement")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| ")]
    assert rows[0] == ["method", "over", "probability, %"]
    for _, _, shown in rows[2:]:
        assert float(shown.split()[0]) >= 50
    assert rows[2:]
