"""A viewer finds the agent of a run in any state, loads newer ones, and reads its metrics."""

import json
import os
import shutil

import pytest

from monotau.errors import ConfigError
from monotau.runs.layout import AGENT, METRICS, RESULT
from monotau.runs.process import locked
from monotau.watch.source import MOST_POINTS, Source, curves_of
from tests.support.runs import evaluation, training
from tests.support.small_runs import short_run, train_undrawn
from tests.support.watched import tiny_agent


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs") / "finished"
    train_undrawn(directory, short_run(steps=120))
    return directory


@pytest.fixture
def unfinished(finished, tmp_path):
    """A copy of the run as it was before its last files were written."""
    directory = tmp_path / "unfinished"
    shutil.copytree(finished, directory)
    shutil.rmtree(directory / AGENT)
    (directory / RESULT).unlink()
    return directory


def weights(agent):
    return {name: tensor.tolist() for name, tensor in agent.networks.state().items()}


def test_the_agent_of_a_finished_run_is_loaded_once(finished):
    source = Source(finished)
    assert source.newer_agent().config.env.id == "CartPole-v1"
    assert source.newer_agent() is None
    assert not source.unfinished
    assert not source.training
    assert Source(finished, best=True).newer_agent() is not None


def test_an_unfinished_run_shows_its_newest_checkpoint_and_then_newer_ones(unfinished):
    home = unfinished / "checkpoints"
    newest = max(path for path in home.iterdir() if path.name.isdigit())
    held = unfinished / "held"
    newest.rename(held)
    source = Source(unfinished)
    assert source.unfinished
    older = weights(source.newer_agent())
    assert source.newer_agent() is None
    held.rename(newest)
    assert weights(source.newer_agent()) != older


def test_a_run_without_a_checkpoint_has_no_agent_yet(unfinished):
    shutil.rmtree(unfinished / "checkpoints")
    assert Source(unfinished).newer_agent() is None


def test_a_run_is_training_while_its_lock_is_held(unfinished):
    source = Source(unfinished)
    assert not source.training
    with locked(unfinished):
        assert source.training


def test_a_checkpoint_is_chosen_by_its_step(unfinished, finished):
    assert weights(Source(unfinished, checkpoint=60).newer_agent()) != weights(Source(finished).newer_agent())
    assert weights(Source(unfinished, checkpoint=120).newer_agent()) == weights(Source(finished).newer_agent())
    with pytest.raises(ConfigError, match="has no checkpoint of step 7: it has only 60, 120; a run keeps"):
        Source(unfinished, checkpoint=7).newer_agent()


def test_the_agent_that_plays_has_a_name(unfinished, finished, tmp_path):
    tiny_agent().save(tmp_path)
    names = []
    for source in (
        Source(unfinished),
        Source(unfinished, checkpoint=60),
        Source(finished),
        Source(finished, best=True),
        Source(tmp_path),
    ):
        assert source.newer_agent() is not None
        names.append(source.agent_name)
    assert names == ["checkpoint of step 120", "checkpoint of step 60", "last agent", "best agent", ""]


def test_a_saved_agent_can_be_watched(tmp_path):
    tiny_agent().save(tmp_path)
    source = Source(tmp_path)
    assert source.newer_agent() is not None
    assert not source.unfinished
    assert source.newer_curves() is None


def test_bad_directories_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"there is no run in .*nowhere: it is not a directory"):
        Source(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"there is no run in .*: it holds neither config\.json nor agent\.json"):
        Source(tmp_path)
    with pytest.raises(ConfigError, match="--best and --checkpoint 5 name two agents: use one of them"):
        Source(tmp_path, best=True, checkpoint=5)


def test_a_damaged_run_is_refused(unfinished):
    for path in (unfinished / "checkpoints").glob("*/weights.safetensors"):
        path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(ConfigError, match=r"there is no agent in .*weights\.safetensors"):
        Source(unfinished).newer_agent()


def test_curves_are_read_again_when_the_metrics_change(finished, tmp_path):
    source = Source(shutil.copytree(finished, tmp_path / "run"))
    curves = source.newer_curves()
    assert curves["return"]["eval.return_mean"][-1][0] == 120
    assert curves["dead_features"]["train.dead_features"]
    assert source.newer_curves() is None
    with open(source.directory / METRICS, "a") as file:
        file.write(json.dumps(evaluation(300, 7.0)) + "\n")
    source._next_reading = 0
    assert source.newer_curves()["return"]["eval.return_mean"][-1] == [300, 7.0]


def test_a_long_reading_is_not_repeated_soon(finished, tmp_path, monkeypatch):
    source = Source(shutil.copytree(finished, tmp_path / "run"))
    clock = iter([0.0, 2.0, 30.0, 41.9, 42.1, 42.2])
    monkeypatch.setattr("monotau.watch.source.time.monotonic", lambda: next(clock))
    assert source.newer_curves() is not None  # took two seconds
    os.utime(source.directory / METRICS, ns=(1, 1))
    assert source.newer_curves() is None
    assert source.newer_curves() is None
    assert source.newer_curves() is not None


def test_curves_leave_out_what_is_no_number_and_are_thinned_out():
    lines = [training(step, bonus_mean=step / 2, crossing=None, dead_features="x") for step in range(1001)]
    lines.append({"kind": "train", "step": None, "bonus_mean": 1.0})
    curves = curves_of(lines)
    points = curves["bonus"]["train.bonus_mean"]
    assert len(points) <= MOST_POINTS
    assert points[-1] == [1000, 500.0]
    assert curves["crossing"]["train.crossing"] == curves["dead_features"]["train.dead_features"] == []
