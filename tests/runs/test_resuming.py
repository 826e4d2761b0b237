"""A run that is interrupted at any point resumes and ends like an uninterrupted one."""

import errno
import io
import shutil
from contextlib import nullcontext
from importlib.metadata import version

import gymnasium as gym
import numpy as np
import pytest
import torch
from benchmarks.endings import differences, end_of
from rich.console import Console

from monotau import train_agent
from monotau.config.presets import PRESETS
from monotau.errors import ConfigError, Divergence, StorageFault
from monotau.learning import agent_networks
from monotau.learning.train import Training
from monotau.runs import runner
from monotau.runs.checkpoint import Checkpoints
from monotau.runs.files import read_json
from monotau.runs.layout import EVENTS
from monotau.runs.manifest import generations
from monotau.runs.process import locked
from monotau.runs.runner import train_into
from monotau.runs.tensors import read_tensors
from tests.support.disk_faults import DISK_OPERATIONS, Crash, fail_at
from tests.support.envs import Frames
from tests.support.small_runs import SMALL, short_run, silent, skip_figures, train_undrawn
from tests.support.tensorboard import scalars


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    skip_figures(monkeypatch)


def told(directory, resolved):
    file = io.StringIO()
    train_into(directory, resolved, Console(file=file, width=500))
    return file.getvalue()


FAST = ("fqf", "rainbow", "ndqfn-dpe", "iqn-dltv")
"""Together these cover every kind of optimiser and replay, and the explorers of the paper."""


@pytest.mark.parametrize(
    "preset", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in PRESETS]
)
def test_a_run_interrupted_after_each_iteration_ends_like_an_uninterrupted_one(preset, tmp_path, monkeypatch):
    interrupt(short_run(preset, optimiser={"anneal": 0.1}), tmp_path, monkeypatch)
    weights = read_tensors(tmp_path / "cut" / "agent" / "weights.safetensors")
    assert weights["observations.batches"] > 50  # CartPole's speeds have no bounds
    unit, measured, _ = weights["returns.unit"].tolist()
    assert (unit != 1) == (preset not in ("ndqfn-deep-dpe", "ndqfn-rnd"))  # their unit is configured
    assert measured


@pytest.mark.parametrize("preset", ["ndqfn-dpe", pytest.param("rainbow", marks=pytest.mark.slow)])
def test_masks_survive_an_interruption(preset, tmp_path, monkeypatch):
    resolved = short_run(preset, env={"id": "monotau/Gate-v0"})
    assert resolved.config.env.action_masks == "use"
    interrupt(resolved, tmp_path, monkeypatch)


def interrupt(resolved, tmp_path, monkeypatch):
    """Interrupt a run after three of its iterations, and compare its end with that of a run without interruptions."""
    train_into(tmp_path / "whole", resolved, silent())
    real, cuts = runner.Training.evaluate, [1, 3, 4]

    def evaluate(training):
        if training.iteration in cuts:
            cuts.remove(training.iteration)
            raise Crash
        return real(training)

    monkeypatch.setattr(runner.Training, "evaluate", evaluate)
    while cuts:
        with pytest.raises(Crash):
            train_into(tmp_path / "cut", resolved, silent())
    assert "resuming from step 240" in told(tmp_path / "cut", resolved)
    assert differences(end_of(tmp_path / "whole"), end_of(tmp_path / "cut")) == []


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished run."""
    directory = tmp_path_factory.mktemp("whole") / "run"
    train_undrawn(directory, short_run())
    return directory


@pytest.mark.slow
@pytest.mark.parametrize("name", DISK_OPERATIONS)
def test_a_run_interrupted_at_any_disk_operation_resumes_from_the_old_or_the_new_state(
    name, whole, tmp_path, monkeypatch
):
    resolved, count, cuts = short_run(), 0, 0
    while True:
        directory = tmp_path / str(count)
        with monkeypatch.context() as patch:
            fail_at(patch, name, count, Crash())
            try:
                train_into(directory, resolved, silent())
            except Crash:
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


def test_a_damaged_generation_is_set_aside_and_written_again(tmp_path, monkeypatch):
    resolved = short_run()
    train_into(tmp_path / "whole", resolved, silent())
    shutil.copytree(tmp_path / "whole", tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    newest = generations(tmp_path / "run" / "checkpoints")[0]
    for path in (newest / "weights.safetensors", newest.parent / "replay" / f"{newest.name}.safetensors"):
        path.write_bytes(path.read_bytes()[:-1])
    text = told(tmp_path / "run", resolved)
    assert f"warning: checkpoint {newest.name} is not used: {newest}/weights.safetensors is damaged" in text
    assert "resuming from step 180" in text
    assert differences(end_of(tmp_path / "whole"), end_of(tmp_path / "run")) == []
    assert newest.with_name(f"{newest.name}.damaged").is_dir()


@pytest.mark.parametrize("at_first", [True, False])
def test_a_resumed_run_compiles_as_before_whatever_auto_would_choose_now(at_first, tmp_path, monkeypatch):
    compiled, real = [], runner.Training.evaluate
    monkeypatch.setattr(torch, "compile", lambda function, mode: compiled.append(function) or function)

    def crash(training):
        raise Crash

    for now, evaluate in ((at_first, crash), (not at_first, real)):
        monkeypatch.setattr(agent_networks, "settle_compile", lambda *_, now=now, **__: now)
        monkeypatch.setattr(runner.Training, "evaluate", evaluate)
        with pytest.raises(Crash) if evaluate is crash else nullcontext():
            text = told(tmp_path / "run", short_run())
    assert "resuming" in text
    assert ("compiling the update" in text) is at_first
    assert len(compiled) == (2 if at_first else 0)  # once at each start
    starts = read_json(tmp_path / "run" / "provenance.json")["starts"]
    assert [start["compiled"] for start in starts] == [at_first, at_first]


def test_another_version_resumes_with_a_warning(whole, tmp_path, monkeypatch):
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    monkeypatch.setattr(runner, "version", lambda name: "0.0.7")
    text = told(tmp_path / "run", short_run())
    assert (
        f"warning: monotau {version('monotau')} wrote the checkpoint and this is 0.0.7: the results may differ" in text
    )
    assert differences(end_of(whole), end_of(tmp_path / "run")) == []


def test_a_second_process_in_the_same_directory_is_refused_and_changes_nothing(tmp_path):
    (tmp_path / "run").mkdir()
    with locked(tmp_path / "run"), pytest.raises(ConfigError, match=r"process \d+ is training into the run directory"):
        train_into(tmp_path / "run", short_run(), silent())
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]
    train_into(tmp_path / "run", short_run(), silent())


def test_a_full_disk_stops_the_run_with_a_typed_error_and_the_same_command_resumes_it(whole, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        fail_at(patch, "fsync", 40, OSError(errno.ENOSPC, "No space left on device"))
        with pytest.raises(StorageFault, match=r"cannot be written to: .*No space left.*; the last good checkpoint is"):
            train_into(tmp_path / "run", short_run(), silent())
    train_into(tmp_path / "run", short_run(), silent())
    assert differences(end_of(whole), end_of(tmp_path / "run")) == []


def test_divergence_leaves_a_diagnosis_and_the_last_good_checkpoint(tmp_path, monkeypatch):
    real = Training.iterate

    def iterate(training, total):
        if training.iteration == 2:
            with torch.no_grad():
                next(training.networks.learner.online.parameters()).fill_(float("nan"))
        return real(training, total)

    monkeypatch.setattr(Training, "iterate", iterate)
    with pytest.raises(Divergence, match=r"the loss is nan .* See \S+diagnosis\.json; the last good .* would diverge"):
        train_into(tmp_path / "run", short_run(), silent())
    said = read_json(tmp_path / "run" / "diagnosis.json")
    assert (said["iteration"], said["step"] > 120, "the loss is nan" in said["error"]) == (2, True, True)
    assert said["batch"]["rewards"]["not_finite"] == 0
    assert 0 < said["batch"]["rewards"]["least"] <= said["batch"]["rewards"]["largest"] < 10
    bad = {name for name, numbers in said["weights"].items() if numbers["not_finite"]}
    assert len(bad) == 1
    assert said["last_lines"][-1]["step"] <= said["step"]
    found = Checkpoints(tmp_path / "run", short_run().config)
    assert (found.find(), found.manifest.iteration) == ([], 2)


def test_an_environment_of_your_own_is_trained_into_a_directory_and_resumed(tmp_path, monkeypatch):
    def train():
        return train_agent(Frames, tmp_path / "run", "dqn", 3, verbose=False, **(SMALL | {"head": {"hidden": 8}}))

    with monkeypatch.context() as patch:
        fail_at(patch, "fsync", 30, Crash())
        with pytest.raises(Crash):
            train()
    agent = train()
    assert agent.config.env.id == "Frames"
    again = train()  # it is finished
    assert torch.equal(agent.distribution([0.1, 0.2]).mean(), again.distribution([0.1, 0.2]).mean())
    again.learn(10)


class Unscaled(gym.Env):
    """Has unbounded observations and rewards far from 1, so that both are rescaled; episodes last five steps."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observe(), {}

    def step(self, action):
        self.steps += 1
        return self.observe(), 7.0, self.steps >= 5, False, {}

    def observe(self):
        return (100 * self.np_random.standard_normal(2)).astype(np.float32)


def test_statistics_of_observations_and_rewards_survive_an_interruption(tmp_path, monkeypatch):
    def train(name):
        return train_agent(Unscaled, tmp_path / name, "dqn", 3, verbose=False, **(SMALL | {"head": {"hidden": 8}}))

    whole = train("whole")
    with monkeypatch.context() as patch:
        fail_at(patch, "fsync", 30, Crash())
        with pytest.raises(Crash):
            train("cut")
    again = train("cut")
    assert again.unit == whole.unit > 1.5  # a quarter of the deviation of returns of one to five rewards
    assert again.networks.scaling.batches == whole.networks.scaling.batches
    assert 30 < 1 / again.networks.scaling.factor.min() < 300
    assert differences(end_of(tmp_path / "whole"), end_of(tmp_path / "cut")) == []


@pytest.mark.parametrize(
    "text", ["{", "{}", '{"random": 3, "final": {}}', '{"random": {}, "final": {"return_mean": "x"}}']
)
def test_an_edited_result_is_refused_and_written_again_once_it_is_deleted(text, whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / "result.json").write_text(text)
    with pytest.raises(ConfigError, match=r"result\.json is not what a run wrote \(.*\); remove it, and"):
        train_into(tmp_path / "run", short_run(), silent())
    (tmp_path / "run" / "result.json").unlink()
    train_into(tmp_path / "run", short_run(), silent())
    assert differences(end_of(whole), end_of(tmp_path / "run")) == []


def test_a_run_whose_metrics_lack_the_random_policy_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(Training, "evaluate_random", lambda training: None)
    with pytest.raises(StorageFault, match=r"metrics\.jsonl lacks the line of the random policy that every run starts"):
        train_into(tmp_path / "run", short_run(), silent())


def test_missing_checkpoints_are_reported(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    for path in generations(tmp_path / "run" / "checkpoints"):
        shutil.rmtree(path)
    with pytest.raises(StorageFault, match=r"LATEST exists, but no checkpoint does: restore them from a backup, or"):
        train_into(tmp_path / "run", short_run(), silent())
    (tmp_path / "run" / "checkpoints" / "LATEST").unlink()
    text = told(tmp_path / "run", short_run())
    assert "an earlier attempt at this run left no checkpoint; starting over" in text
    assert differences(end_of(whole), end_of(tmp_path / "run")) == []


def test_missing_tensorboard_events_are_written_again_from_the_metrics(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    (tmp_path / "run" / EVENTS).unlink()
    train_into(tmp_path / "run", short_run(), silent())
    assert scalars(tmp_path / "run").keys() == scalars(whole).keys()
