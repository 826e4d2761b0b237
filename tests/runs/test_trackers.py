"""Trackers: they receive every line once with its step, continue a resumed run, and never end a training.

The trackers are fake modules that record how they are called; none of the real ones is needed.
"""

import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml

from monotau import ConfigError, train_agent
from monotau.runs import trackers
from monotau.runs.metrics import read_lines, scalars_of
from monotau.runs.trackers import TRACKERS, check_tracker
from tests.support.commands import command_caller
from tests.support.small_runs import skip_figures
from tests.support.suites import TINY_SUITE

COIN, SHORT = "monotau/Coin-v0", TINY_SUITE["settings"]


class FakeTracker:
    """One module for all three: runs by id, with what they were sent and how they ended."""

    def __init__(self) -> None:
        self.runs: dict[str, SimpleNamespace] = {}
        self.failing: Callable[[str], bool] = lambda action: False

    def run(self, key: str, **about: Any) -> SimpleNamespace:
        self.fail("init")
        run = self.runs.setdefault(key, SimpleNamespace(sent=[], ended=[], starts=0, about=about))
        run.starts += 1
        return run

    def fail(self, action: str) -> None:
        if self.failing(action):
            raise ConnectionError(f"no network for\n{action}")

    def wandb(self) -> dict[str, Any]:
        def init(**about: Any) -> SimpleNamespace:
            assert about["resume"] == "allow"
            run = self.run(about["id"], **about)

            def log(numbers: dict[str, Any]) -> None:
                self.fail("log")
                numbers = dict(numbers)
                run.sent.append((numbers.pop("step"), numbers))

            def define_metric(name: str, step_metric: str) -> None:
                assert (name, step_metric) == ("*", "step")

            return SimpleNamespace(
                log=log, define_metric=define_metric, finish=lambda exit_code: run.ended.append(exit_code)
            )

        return {"init": init}

    def trackio(self) -> dict[str, Any]:
        def init(**about: Any) -> SimpleNamespace:
            assert about["resume"] == "allow"
            run = self.run(about["name"], **about)

            def log(numbers: dict[str, Any], step: int) -> None:
                self.fail("log")
                run.sent.append((step, numbers))

            return SimpleNamespace(log=log, finish=lambda: run.ended.append("done"))

        return {"init": init}

    def mlflow(self) -> dict[str, Any]:
        fake = self

        class MlflowClient:
            def search_runs(self, experiments: list[str], filter_string: str) -> list[SimpleNamespace]:
                fake.fail("search")
                key = filter_string.removeprefix("tags.`monotau.run` = '").removesuffix("'")
                return [SimpleNamespace(info=SimpleNamespace(run_id=key))] if key in fake.runs else []

            def update_run(self, key: str, status: str) -> None:
                assert status == "RUNNING"
                fake.runs[key].starts += 1

            def create_run(self, experiment: str, tags: dict[str, str], run_name: str) -> SimpleNamespace:
                key = tags["monotau.run"]
                fake.run(key, project=experiment, name=run_name, config={})
                return SimpleNamespace(info=SimpleNamespace(run_id=key))

            def log_batch(self, key: str, metrics: Any = (), params: Any = ()) -> None:
                fake.fail("log")
                assert len(params) <= 100
                fake.runs[key].about["config"] |= dict(params)
                if metrics:
                    (step,) = {metric.step for metric in metrics}
                    fake.runs[key].sent.append((step, {metric.key: metric.value for metric in metrics}))

            def set_terminated(self, key: str, status: str) -> None:
                fake.runs[key].ended.append(status)

        def metric(key: str, value: float, timestamp: int, step: int) -> SimpleNamespace:
            return SimpleNamespace(key=key, value=value, step=step)

        entities = ModuleType("mlflow.entities")
        vars(entities).update(Metric=metric, Param=lambda key, value: (key, value))
        sys.modules["mlflow.entities"] = entities
        return {"MlflowClient": MlflowClient, "set_experiment": lambda name: SimpleNamespace(experiment_id=name)}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeTracker]:
    """All trackers, installed as fake modules."""
    skip_figures(monkeypatch)
    monkeypatch.setitem(sys.modules, "mlflow.entities", ModuleType("mlflow.entities"))
    made = FakeTracker()
    for name in TRACKERS:
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        vars(module).update(getattr(made, name)())
        monkeypatch.setitem(sys.modules, name, module)
    return made


def train(directory: Path, track: str, **more: Any) -> None:
    train_agent(COIN, directory, "dqn", track=track, verbose=more.pop("verbose", False), **SHORT, **more)


def numbers_in(directory: Path) -> list[tuple[int, dict[str, Any]]]:
    return [(line["step"], scalars_of(line)) for line in read_lines(directory / "metrics.jsonl")]


def interrupt(progress: Any) -> None:
    if progress.step == 40:
        raise KeyboardInterrupt


ENDS = {"wandb": [1, 0], "trackio": ["done", "done"], "mlflow": ["KILLED", "FINISHED"]}


@pytest.mark.parametrize("name", TRACKERS)
def test_a_tracker_continues_its_run_when_training_resumes(name, fake, tmp_path):
    seen: list[Any] = []
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", name, on_evaluation=interrupt, on_log=seen.append)
    train(tmp_path / "run", name, on_log=seen.append)
    (run,) = fake.runs.values()
    assert (run.starts, run.ended) == (2, ENDS[name])
    assert run.sent == [(line["step"], scalars_of(line)) for line in seen]
    steps = [step for step, _ in run.sent]
    assert (steps[0], steps[-1], steps.count(40)) == (0, 60, 3)  # the evaluation at step 40 is repeated
    assert run.about["project"] == "monotau"
    assert run.about["name"].startswith("run")
    assert str(run.about["config"].get("n_step")) == "1"


def test_runs_differ_in_their_ids(fake, tmp_path):
    train(tmp_path / "one", "wandb")
    train(tmp_path / "two", "wandb")
    assert len(fake.runs) == 2
    assert [run.sent for run in fake.runs.values()] == [numbers_in(tmp_path / name) for name in ("one", "two")]


@pytest.mark.parametrize("action", ["init", "log"])
def test_a_tracker_that_fails_is_reported_once_and_the_training_goes_on(action, fake, tmp_path, capsys):
    calls: list[str] = []

    def fails(here: str) -> bool:
        calls.append(here)
        return here == action

    fake.failing = fails
    train(tmp_path / "run", "wandb", verbose=True)
    said = capsys.readouterr().err
    assert said.count("warning: wandb failed and receives no more lines of this run: ConnectionError: no network") == 1
    assert calls.count(action) == 1
    assert (tmp_path / "run" / "result.json").exists()
    assert [run.ended for run in fake.runs.values()] == [[]] * len(fake.runs)


def test_a_run_that_fails_is_failed_in_the_tracker(fake, tmp_path):
    def fail(line: dict[str, Any]) -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        train(tmp_path / "run", "mlflow", on_log=fail)
    (run,) = fake.runs.values()
    assert run.ended == ["FAILED"]


def test_a_tracker_s_variables_name_the_project(fake, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    train(tmp_path / "run", "wandb")
    (run,) = fake.runs.values()
    assert run.about["project"] == "mine"


def test_an_unknown_or_missing_tracker_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"^track is 'mlflow', but mlflow is not installed: pip install 'monotau\["):
        train(tmp_path / "run", "mlflow")
    with pytest.raises(ConfigError, match=r"^track 'wandbb' is unknown\. Did you mean 'wandb'\? Allowed: mlflow, trac"):
        check_tracker("wandbb")
    assert list(tmp_path.iterdir()) == []


def test_commands_refuse_a_tracker_that_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(TINY_SUITE))
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    for words in (["train"], ["suite", "mine.yaml"]):
        code, out, err = command_caller(capsys, *words)("--track", "wandb")
        assert (code, out) == (2, "")
        assert err == "error: track is 'wandb', but wandb is not installed: pip install 'monotau[wandb]'.\n"
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


def test_each_run_of_a_suite_is_tracked(tmp_path, fake, capsys):
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(TINY_SUITE))
    call = command_caller(capsys, "suite", str(tmp_path / "mine.yaml"), "--out", str(tmp_path / "out"))
    assert call("--index", "0", "--track", "wandb")[0] == 0
    assert [run.about["name"] for run in fake.runs.values()] == ["dqn_monotau-Coin-v0_seed0"]
    assert call("--slurm", "--track", "wandb")[0] == 0
    assert "--track wandb" in (tmp_path / "out" / "suite.sbatch").read_text()
