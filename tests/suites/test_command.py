"""`monotau suite` from end to end: cells equal runs of `monotau train`, and no cell is lost or run twice."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from monotau import cli
from monotau.distributed import collector
from monotau.errors import ConfigError
from monotau.runs.process import locked
from monotau.suites import command as commands
from monotau.suites.command import SuiteCommand, run_suite
from monotau.suites.estimate import OTHER_FILES_BYTES, estimate_method
from monotau.suites.grid import read_suite
from tests.support.envs import registered_masked_env
from tests.support.small_runs import silent, skip_figures
from tests.support.suites import TINY_SUITE, learned_weights, output_of, suite_file, wait_for


@pytest.fixture(autouse=True)
def _undrawn(monkeypatch):
    skip_figures(monkeypatch)


@pytest.fixture
def in_this_process(monkeypatch):
    """Run cells in this process, one after another, because starting a process takes longer than a cell."""
    started: list[list[str]] = []

    class Here:
        def __init__(self, words, **_) -> None:
            started.append(words)
            try:
                cli.main(words[words.index("suite") :])
                self.code = 0
            except SystemExit as stop:
                self.code = stop.code
            self.pid = len(started)

        def poll(self):
            return self.code

    real = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda words, **how: (Here if "suite" in words else real)(words, **how))
    return started


def test_a_suite_is_run_once_and_its_runs_are_those_of_train(tmp_path, in_this_process, monkeypatch):
    file, out = suite_file(tmp_path), tmp_path / "out"
    monkeypatch.setattr(commands, "cores", lambda: 1)
    text = output_of(SuiteCommand(suite=file, out=out, jobs=9))
    assert "warning: 2 x 1 threads on 1 cores" in text
    assert "2 runs, 2 to do, 2 at once" in text
    assert "2 of 2 runs are finished" in text
    assert f"monotau report {out} --out {out / 'report'}" in text
    assert len(in_this_process) == 2
    cli.main(
        [
            "train",
            "dqn",
            "--config",
            str(out / "dqn_monotau-Coin-v0_seed0" / "config.json"),
            "--out",
            str(tmp_path / "alone"),
        ]
    )
    assert (tmp_path / "alone/agent/weights.safetensors").read_bytes() == learned_weights(out)[
        "dqn_monotau-Coin-v0_seed0"
    ]
    assert not (out / "dqn_monotau-Coin-v0_seed0" / "checkpoints").exists()
    record = json.loads((out / "suite.json").read_text())
    assert record["cells"]["ndqfn_monotau-Coin-v0_seed0"] == {"method": "ndqfn", "env": "monotau/Coin-v0", "seed": 0}
    before = learned_weights(out)
    assert "2 runs, 0 to do" in output_of(SuiteCommand(suite=file, out=out, jobs=2))
    assert len(in_this_process) == 2
    assert "3 of 3" not in text
    # A grown grid runs only its new cells; a grid with other settings is refused.
    assert "4 runs, 2 to do" in output_of(
        SuiteCommand(suite=suite_file(tmp_path, seeds=2), out=out, keep_checkpoints=True)
    )
    assert (out / "dqn_monotau-Coin-v0_seed1" / "checkpoints").exists()
    assert {name: learned_weights(out)[name] for name in before} == before
    # A shrunken grid names the runs that no longer belong to it.
    text = output_of(SuiteCommand(suite=suite_file(tmp_path, seeds=[1]), out=out))
    assert "not in this suite: dqn_monotau-Coin-v0_seed0, ndqfn_monotau-Coin-v0_seed0" in text
    other = suite_file(tmp_path, settings=TINY_SUITE["settings"] | {"gamma": 0.5})
    with pytest.raises(ConfigError, match=r"dqn_monotau-Coin-v0_seed\d holds another run: it differs in gamma"):
        output_of(SuiteCommand(suite=other, out=out))


def test_a_run_keeps_the_threads_it_began_with(tmp_path, in_this_process):
    file, out = suite_file(tmp_path, presets=["dqn"]), tmp_path / "out"
    output_of(SuiteCommand(suite=file, out=out, threads=2))
    config = json.loads((out / "dqn_monotau-Coin-v0_seed0/config.json").read_text())
    assert config["threads"] == 2
    (out / "suite.json").unlink()  # forces a look into the runs themselves
    assert "1 runs, 0 to do" in output_of(SuiteCommand(suite=file, out=out, threads=1))


def test_a_failed_run_is_reported_and_sets_the_exit_code(tmp_path, in_this_process, monkeypatch):
    def fail(*_, **__):
        raise ConfigError("it must not be")

    file, out = suite_file(tmp_path), tmp_path / "out"
    monkeypatch.setattr(commands, "run_cell", fail)
    console = Console(file=io.StringIO(), width=200)
    with pytest.raises(SystemExit) as stop:
        run_suite(SuiteCommand(suite=file, out=out), console)
    assert stop.value.code == 1
    assert "0 of 2 runs are finished" in console.file.getvalue()  # type: ignore[attr-defined]
    assert console.file.getvalue().count("failed dqn_monotau-Coin-v0_seed0: exit code 2") == 1  # type: ignore[attr-defined]


def test_a_single_cell_can_be_run_by_its_index(tmp_path):
    file, out = suite_file(tmp_path), tmp_path / "out"
    run_suite(SuiteCommand(suite=file, out=out, index=1, keep_checkpoints=True), silent())
    assert [*learned_weights(out)] == ["ndqfn_monotau-Coin-v0_seed0"]
    assert (out / "ndqfn_monotau-Coin-v0_seed0" / "checkpoints").exists()
    assert (out / "suite.json").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"index": 2}, "--index is 2, but the suite has 2 runs: 0 to 1"),
        ({"index": -1}, "--index is -1, but the suite has 2 runs"),
        ({"jobs": -1}, "--jobs is -1, but must be at least 0"),
        ({"retries": -2}, "--retries is -2, but must be at least 0"),
        ({"scale": 0.0}, "the scale is 0.0, but must be above 0"),
        ({"index": 0, "dry_run": True}, "--dry-run and --index are given, but only one of --dry-run, --index, --slurm"),
        ({"slurm": True, "dry_run": True}, "--dry-run and --slurm are given"),
    ],
)
def test_invalid_combinations_of_options_are_refused(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message):
        output_of(SuiteCommand(suite=suite_file(tmp_path), out=tmp_path / "out", **changes))
    assert not (tmp_path / "out").exists()


def test_more_runs_at_once_than_there_is_memory_for_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(commands, "available_bytes", lambda: 700_000_000)
    message = r"--jobs is 2, and runs need up to 0.4 GB each, but only 0.7 GB are available: use --jobs 1, or --force"
    with pytest.raises(ConfigError, match=message):
        output_of(SuiteCommand(suite=suite_file(tmp_path), out=tmp_path / "out", jobs=2))


def test_a_directory_that_cannot_be_made_is_reported_in_one_line(tmp_path):
    (tmp_path / "file").touch()
    for changes in ({}, {"index": 0}, {"slurm": True}):
        with pytest.raises(ConfigError, match=r"--out .*file/out.* cannot be created: Not a directory"):
            output_of(SuiteCommand(suite=suite_file(tmp_path), out=tmp_path / "file" / "out", **changes))


def test_settings_that_do_not_fit_are_refused_before_anything_starts(tmp_path):
    file = suite_file(tmp_path, presets={"dqn": {}, "ndqfn": {"head": {"knotts": 3}}})
    with pytest.raises(ConfigError, match=r"the setting 'head.knotts' is unknown. Did you mean 'head.knots'"):
        output_of(SuiteCommand(suite=file, out=tmp_path / "out"))
    file = suite_file(tmp_path, envs=["monotau/Coin-v0", "monotau/Con-v0"])
    with pytest.raises(ConfigError, match=r"env.id 'monotau/Con-v0' is unknown"):
        output_of(SuiteCommand(suite=file, out=tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_directory_that_is_something_else_is_refused(tmp_path):
    file = suite_file(tmp_path)
    with pytest.raises(ConfigError, match=r"mine.yaml, which is a file or a single run; a suite needs a directory"):
        output_of(SuiteCommand(suite=file, out=Path(file)))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").touch()
    with pytest.raises(ConfigError, match="which is a file or a single run"):
        output_of(SuiteCommand(suite=file, out=tmp_path / "run"))


def test_a_second_driver_is_refused(tmp_path):
    (tmp_path / "out").mkdir()
    console = Console(file=io.StringIO(), width=200)
    with (
        locked(tmp_path / "out"),
        pytest.raises(ConfigError, match=r"process \d+ is training into the suite's directory"),
    ):
        run_suite(SuiteCommand(suite=suite_file(tmp_path), out=tmp_path / "out"), console)
    assert "finished" not in console.file.getvalue()  # type: ignore[attr-defined]
    assert not (tmp_path / "out" / "suite.json").exists()


def test_a_dry_run_estimates_and_writes_nothing(tmp_path):
    text = output_of(
        SuiteCommand(suite=suite_file(tmp_path, seeds=3), out=tmp_path / "out", dry_run=True, jobs=3, scale=0.5)
    )
    assert not (tmp_path / "out").exists()
    assert "methods (2): dqn, ndqfn" in text
    assert "runs (6, 0 finished; scale 0.5), by their --index:" in text
    assert "   3  ndqfn_monotau-Coin-v0_seed1" in text
    rows = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if line.startswith(("dqn ", "ndqfn "))]
    assert [row[:3] for row in rows] == [["dqn", "3", "30"], ["ndqfn", "3", "30"]]
    for row in rows:
        rate, one = float(row[3].replace(",", "")), row[4]
        assert rate > 1
        assert one == "0:00" or 30 / rate >= 0.5
    assert "Extrapolated from a few updates of each method on this machine" in text


def test_the_trial_for_an_estimate_starts_no_actors(tmp_path, monkeypatch):
    monkeypatch.setattr(collector, "connected_for_actors", lambda *_: pytest.fail("actors were started"))
    settings = TINY_SUITE["settings"] | {"actors": 3, "actor": {"epsilon": 0.2}}
    text = output_of(SuiteCommand(suite=suite_file(tmp_path, settings=settings), out=tmp_path / "out", dry_run=True))
    assert "Extrapolated from a few updates of each method on this machine" in text


def test_the_trial_for_an_estimate_takes_allowed_actions_only(tmp_path):
    with registered_masked_env() as env_id:  # it raises for other actions
        suite = read_suite(suite_file(tmp_path, envs=[env_id]))
        assert estimate_method(suite, suite.methods[0], suite.cells, threads=1).disk_running > 0


def test_a_job_array_has_a_task_for_each_cell(tmp_path):
    out = tmp_path / "out"
    assert "6 tasks" in output_of(SuiteCommand(suite=suite_file(tmp_path, seeds=3), out=out, slurm=True, threads=4))
    script = (out / "suite.sbatch").read_text()
    assert "#SBATCH --array=0-5" in script
    assert "#SBATCH --cpus-per-task=4" in script
    assert "#SBATCH --mem=1G" in script
    subprocess.run(["bash", "-n", str(out / "suite.sbatch")], check=True)  # noqa: S607
    line = script.splitlines()[-1].replace("exec srun ", "").replace('"$SLURM_ARRAY_TASK_ID"', "4")
    assert line.endswith(f"-m monotau suite {out / 'suite.json'} --out {out} --threads 4 --index 4")
    assert len(read_suite(str(out / "suite.json")).cells) == 6


def test_every_process_of_a_suite_imports_the_modules_that_were_named(tmp_path, own_modules, monkeypatch):
    own_modules("my_things", "")
    started = []
    monkeypatch.setattr(
        commands, "drive", lambda suite, out, finished, workers, *_: started.append(workers._command(1))
    )
    given = SuiteCommand(suite=suite_file(tmp_path), out=tmp_path / "out", imports=("my_things",))
    output_of(given)
    assert started[0][-1:] == ["--import=my_things"]
    output_of(replace(given, slurm=True))
    assert " --import=my_things --index " in (tmp_path / "out" / "suite.sbatch").read_text()
    suite = replace(read_suite(given.suite), imports=given.imports)
    assert suite.resolve(suite.cells[0]).config.imports == ("my_things",)


def test_suites_are_listed_and_explained(capsys):
    cli.main(["list", "suites"])
    assert "paper-table1" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main(["suite", "--help"])
    assert "--dry-run" in capsys.readouterr().out


LONGER = TINY_SUITE["settings"] | {"steps": 3_000, "iteration_steps": 100}


@pytest.mark.slow
def test_an_interrupted_or_killed_driver_resumes_and_ends_the_same(tmp_path):
    file = suite_file(tmp_path, settings=LONGER, seeds=2)
    words = [sys.executable, "-m", "monotau", "suite", file, "--jobs", "2", "--out"]
    subprocess.run([*words, str(tmp_path / "whole")], check=True, capture_output=True)
    out = tmp_path / "cut"
    for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -9), (signal.SIGTERM, 143)):
        driver = subprocess.Popen([*words, str(out)], stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert driver.stdout is not None
        while not re.search("started|another process", driver.stdout.readline()):
            assert driver.poll() is None
        wait_for(lambda: len(list(out.glob("*/checkpoints/LATEST"))) > len(list(out.glob("*/result.json"))))
        time.sleep(0.5)
        os.kill(driver.pid, number)
        text, _ = driver.communicate(timeout=60)
        assert driver.returncode == code
        if number == signal.SIGINT:
            assert "the same command resumes" in text
    done = subprocess.run([*words, str(out)], check=True, capture_output=True, text=True)
    assert "4 of 4 runs are finished" in done.stdout
    assert learned_weights(out) == learned_weights(tmp_path / "whole")
    assert len(learned_weights(out)) == 4


def test_the_estimated_disk_space_is_close_to_what_a_run_leaves_behind(tmp_path):
    suite = read_suite(
        suite_file(tmp_path, presets=["ndqfn-dpe"], settings=TINY_SUITE["settings"] | {"head": {"hidden": 256}})
    )
    run_suite(SuiteCommand(suite=str(tmp_path / "mine.yaml"), out=tmp_path / "out", index=0), silent())
    left = sum(path.stat().st_size for path in (tmp_path / "out" / suite.cells[0].name).rglob("*") if path.is_file())
    estimated = estimate_method(suite, suite.methods[0], suite.cells, threads=1)
    assert left <= estimated.disk_finished <= left + OTHER_FILES_BYTES
    assert estimated.disk_running > estimated.disk_finished - OTHER_FILES_BYTES
