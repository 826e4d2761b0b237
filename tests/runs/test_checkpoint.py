"""Checkpoints: a generation is complete or absent, stores only new steps, and is used only if it verifies."""

import errno
import shutil

import numpy as np
import pytest
from benchmarks.endings import contents

from monotau.agent import Agent
from monotau.config.resolve import resolve
from monotau.errors import StorageFault
from monotau.runs import checkpoint
from monotau.runs.checkpoint import Checkpoints
from monotau.runs.files import read_json
from monotau.runs.manifest import generations, newest_agent
from monotau.runs.metrics import Log
from monotau.runs.progress import Display
from tests.support.disk_faults import DISK_OPERATIONS, Crash, fail_at
from tests.support.small_runs import SHORT, SMALL, short_run


@pytest.fixture(autouse=True)
def logs():
    """Close every log that a test opens."""
    opened = []

    def log(*arguments):
        opened.append(Log(*arguments))
        return opened[-1]

    yield log
    for each in opened:
        each.close()


def trained(log, directory, preset="dqn", iterations=2):
    """Return checkpoints, agent and training of a run whose iterations are saved, except for the last."""
    resolved = short_run(preset)
    directory.mkdir()
    agent = Agent.of(resolved)
    training = agent.start_training(log(directory), Display(None))
    checkpoints = Checkpoints(directory, resolved.config)
    for iteration in range(iterations):
        training.iterate(10**6)
        if iteration < iterations - 1:
            checkpoints.save(agent, training, 1.5)
    return checkpoints, agent, training


def restored(log, directory, preset="dqn"):
    """Return the same, restored from disk."""
    resolved = short_run(preset)
    agent = Agent.of(resolved)
    checkpoints = Checkpoints(directory, resolved.config)
    warnings = checkpoints.find()
    training = agent.start_training(log(directory, checkpoints.manifest.logs), Display(None))
    checkpoints.restore(agent, training)
    return checkpoints, agent, training, warnings


def everything(agent, training):
    """Return all numbers of a run as bytes."""
    state = {name: tensor.numpy().tobytes() for name, tensor in agent.networks.state().items()}
    for optimiser in agent.networks.optimisers():
        state |= {key: tensor.numpy().tobytes() for key, tensor in optimiser.state().items()}
    rows = training.replay.rows(np.zeros_like(training.replay.span.end))
    state |= {name: b"".join(piece.tobytes() for piece in pieces) for name, pieces in rows.items()}
    return state | {"counts": (training.step, training.iteration, training.updates), "lines": training.log.lines}


@pytest.mark.parametrize("error", [Crash(), OSError(errno.ENOSPC, "No space left on device")], ids=["cut", "full"])
@pytest.mark.parametrize("touch", DISK_OPERATIONS)
def test_a_save_that_fails_at_any_disk_operation_leaves_the_old_or_the_new_generation(
    touch, error, logs, tmp_path, monkeypatch
):
    checkpoints, agent, training = trained(logs, tmp_path / "run", iterations=4)
    new = everything(agent, training)
    shutil.copytree(tmp_path / "run", tmp_path / "old")
    _, *old, _ = restored(logs, tmp_path / "old")
    old = everything(*old)
    assert old != new
    seen, count = [], 0
    while True:
        shutil.copytree(tmp_path / "run", tmp_path / str(count))
        here = Checkpoints(tmp_path / str(count), training.config)
        here.find()
        here._ends = dict(checkpoints._ends)
        failed = False
        with monkeypatch.context() as patch:
            fail_at(patch, touch, count, error)
            try:
                here.save(agent, training, 2.0)
            except (Crash, OSError):
                failed = True
        _, *found, warnings = restored(logs, tmp_path / str(count))
        assert warnings == []
        seen.append("new" if everything(*found) == new else "old")
        assert everything(*found) == (new if seen[-1] == "new" else old)
        assert f"checkpoint is {tmp_path / str(count) / 'checkpoints'}/0000000" in here.last_good
        if not failed:
            break
        count += 1
    assert seen[-1] == "new"
    assert seen == sorted(
        seen, reverse=True
    )  # up to some operation the old generation remains, and from then on the new one is there
    assert count >= {"write": 15, "fsync": 10, "replace": 6}.get(touch, 1)


def test_the_size_of_a_checkpoint_grows_with_new_steps_and_not_with_the_replay(logs, tmp_path):
    checkpoints, agent, training = trained(logs, tmp_path / "run", iterations=2)
    home = tmp_path / "run" / "checkpoints" / "replay"
    (first,) = home.iterdir()
    before = first.stat()
    checkpoints.save(agent, training, 1.0)
    sizes = [path.stat().st_size for path in sorted(home.iterdir())]
    assert len(sizes) == 2
    assert sizes[0] == pytest.approx(sizes[1], rel=0.1)
    assert first.stat() == before


def test_the_last_two_generations_are_kept_and_rows_that_neither_needs_are_deleted(logs, tmp_path):
    checkpoints, agent, training = trained(logs, tmp_path / "run", iterations=6)
    checkpoints.save(agent, training, 1.0)
    home = tmp_path / "run" / "checkpoints"
    assert [path.name for path in generations(home)] == ["00000006", "00000005"]
    assert (home / "LATEST").read_text() == "00000006\n"
    segments = {path.name for path in (home / "replay").iterdir()}
    needed = {name for path in generations(home) for name in read_json(path / "manifest.json")["segments"]}
    assert segments == needed
    assert "00000001.safetensors" not in segments  # 150 of the 360 written steps are kept
    _, *found, _ = restored(logs, tmp_path / "run")
    assert everything(*found) == everything(agent, training)


def test_many_segments_are_joined_into_one(logs, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "MOST_SEGMENTS", 2)
    checkpoints, agent, training = trained(logs, tmp_path / "run", iterations=4)
    checkpoints.save(agent, training, 1.0)
    assert len(checkpoints.manifest.segments) <= 2
    _, *found, _ = restored(logs, tmp_path / "run")
    assert everything(*found) == everything(agent, training)


def test_the_newest_generation_is_used_even_if_the_pointer_still_names_the_old_one(logs, tmp_path):
    checkpoints, agent, training = trained(logs, tmp_path / "run", iterations=3)
    checkpoints.save(agent, training, 1.0)
    (tmp_path / "run" / "checkpoints" / "LATEST").write_text("00000002\n")
    found, _, _, warnings = restored(logs, tmp_path / "run")
    assert (found.manifest.iteration, warnings) == (3, [])
    assert (tmp_path / "run" / "checkpoints" / "LATEST").read_text() == "00000003\n"  # the pointer is updated now


@pytest.mark.parametrize("text", ["00000009\n", "noise", "", "../../etc"])
def test_a_pointer_to_an_impossible_generation_is_reported(text, logs, tmp_path):
    trained(logs, tmp_path / "run", iterations=3)
    (tmp_path / "run" / "checkpoints" / "LATEST").write_text(text)
    found, _, _, warnings = restored(logs, tmp_path / "run")
    assert found.manifest.iteration == 2
    assert "LATEST names" in warnings[0]
    assert "the newest checkpoint that can be used is 00000002" in warnings[0]


def test_no_file_is_touched_if_no_generation_verifies(logs, tmp_path):
    trained(logs, tmp_path / "run", iterations=3)
    home = tmp_path / "run" / "checkpoints"
    for path in generations(home):
        (path / "manifest.json").write_text("{}")
    before = contents(home)
    with pytest.raises(StorageFault, match=r"no checkpoint in \S+ can be used \(00000002: .*has the schema None"):
        Checkpoints(tmp_path / "run", short_run().config).find()
    assert contents(home) == before


def test_a_generation_with_other_settings_or_from_another_directory_is_not_used(logs, tmp_path):
    trained(logs, tmp_path / "run", iterations=2)
    with pytest.raises(StorageFault, match=r"manifest\.json belongs to another run"):
        Checkpoints(tmp_path / "run", short_run("ndqfn").config).find()
    home = tmp_path / "run" / "checkpoints"
    (home / "00000001").rename(home / "00000007")
    with pytest.raises(StorageFault, match=r"00000007.*manifest\.json belongs to another run"):
        Checkpoints(tmp_path / "run", short_run().config).find()


def test_an_undamaged_generation_that_does_not_fit_is_refused(logs, tmp_path):
    trained(logs, tmp_path / "run", iterations=2)
    resolved = resolve("dqn", SMALL | {"head": {"hidden": 9}}, SHORT)
    agent = Agent.of(resolved)
    checkpoints = Checkpoints(tmp_path / "run", short_run().config)
    checkpoints.find()
    with pytest.raises(
        StorageFault,
        match=r"00000001 is undamaged, but does not match this run: .*weights\.safetensors does not match",
    ):
        checkpoints.restore(agent, agent.start_training(Log(), Display(None)))


def test_an_unfinished_run_provides_the_agent_of_its_newest_complete_checkpoint(logs, tmp_path):
    assert newest_agent(tmp_path) == (None, [])
    trained(logs, tmp_path / "run", iterations=4)
    newest, damages = newest_agent(tmp_path / "run")
    assert (newest.name, damages) == ("00000003", [])
    (newest / "weights.safetensors").write_bytes(b"")
    older, damages = newest_agent(tmp_path / "run")
    assert older.name == "00000002"
    assert "checkpoint 00000003 is not used: " in damages[0]
    (older / "manifest.json").unlink()
    assert newest_agent(tmp_path / "run")[0] is None
