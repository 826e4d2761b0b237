"""Interrupted Atari runs end like uninterrupted ones, and the cost of their checkpoints follows the new steps."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from benchmarks.endings import differences, end_of

from monotau.agent import Agent
from monotau.config.resolve import resolve
from monotau.replay import Newest, Steps
from monotau.runs import runner
from monotau.runs.checkpoint import Checkpoints
from monotau.runs.metrics import Log
from monotau.runs.progress import Display
from monotau.runs.runner import train_into
from tests.support.disk_faults import Crash
from tests.support.small_runs import silent, skip_figures, train_undrawn

pytest.importorskip("ale_py")

SETTINGS = {
    "steps": 240,
    "iteration_steps": 80,
    "log_every_steps": 60,
    "threads": 1,
    "torso": {"kind": "compact", "width": 8},
    "head": {"hidden": 8},
    "epsilon": {"decay_steps": 200},
    "replay": {"capacity_steps": 240, "warmup_steps": 40},
    "update": {"batch_size": 4, "every_steps": 8, "sync_every_steps": 40},
    "evaluation": {"every_iterations": 2, "episodes": 1, "steps": 60, "episode_cap_steps": 30},
}


def pong(protocol, num_envs, preset="ndqfn-dpe"):
    env = {"id": "ALE/Pong-v5", "protocol": protocol, "num_envs": num_envs}
    return resolve(preset, SETTINGS, {"env": env})


CELLS = [("noop", 1), ("noop", 4), ("sticky", 1), ("sticky", 4)]


@pytest.mark.parametrize(
    ("protocol", "num_envs"),
    [cell if cell == CELLS[3] else pytest.param(*cell, marks=pytest.mark.slow) for cell in CELLS],
)
def test_pong_interrupted_before_and_after_evaluations_ends_like_an_uninterrupted_run(
    protocol, num_envs, tmp_path, monkeypatch
):
    skip_figures(monkeypatch)
    resolved = pong(protocol, num_envs)
    train_into(tmp_path / "whole", resolved, silent())
    real, cuts = runner.Checkpoints.save, [1, 2]

    def save(checkpoints, agent, training, seconds):
        real(checkpoints, agent, training, seconds)
        if training.iteration in cuts:
            cuts.remove(training.iteration)
            raise Crash

    monkeypatch.setattr(runner.Checkpoints, "save", save)
    while cuts:
        with pytest.raises(Crash):
            train_into(tmp_path / "cut", resolved, silent())
    train_into(tmp_path / "cut", resolved, silent())
    end = end_of(tmp_path / "whole")
    assert differences(end, end_of(tmp_path / "cut")) == []
    assert [line["step"] for line in end["metrics"] if line["kind"] == "eval"] == [0, 160, 240]
    assert {line["protocol"] for line in end["metrics"]} == {protocol} == {end["result"]["protocol"]}


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "num_envs"), CELLS)
def test_pong_killed_three_times_ends_like_an_uninterrupted_run(protocol, num_envs, tmp_path):
    start = time.perf_counter()
    train_undrawn(tmp_path / "whole", pong(protocol, num_envs))
    # Kills come within the time that the whole run takes, so that they meet it at work on any machine.
    rng, seconds, kills = np.random.default_rng(0), 0.7 * (time.perf_counter() - start), 0
    child = (
        "import sys; from pathlib import Path\n"
        "from tests.runs.test_resuming_atari import pong; from tests.support.small_runs import train_undrawn\n"
        "train_undrawn(Path(sys.argv[1]), pong(sys.argv[2], int(sys.argv[3])))"
    )
    command = [sys.executable, "-c", child, str(tmp_path / "killed"), protocol, str(num_envs)]
    while kills < 3:
        process = subprocess.Popen(command)
        while not (tmp_path / "killed" / "config.json").exists() and process.poll() is None:
            time.sleep(0.01)
        time.sleep(rng.uniform(0, seconds))
        process.send_signal(signal.SIGKILL)
        if process.wait() == -signal.SIGKILL:
            kills += 1
        else:  # the run finished before it was killed
            assert process.returncode == 0
            break
    subprocess.run(command, check=True)
    assert kills >= 1
    assert differences(end_of(tmp_path / "whole"), end_of(tmp_path / "killed")) == []


@pytest.mark.slow
def test_the_cost_of_a_checkpoint_of_200_000_atari_steps_is_proportional_to_the_new_steps(tmp_path):
    settings = SETTINGS | {"replay": {"capacity_steps": 200_000, "warmup_steps": 1_000}}
    resolved = resolve("ndqfn-fast", settings, {"env": {"id": "ALE/Pong-v5", "num_envs": 4}})
    agent = Agent.of(resolved)
    log = Log(tmp_path)
    training = agent.start_training(log, Display(None))
    checkpoints = Checkpoints(tmp_path, resolved.config)
    rng, no = np.random.default_rng(0), np.zeros(4, bool)
    frames = rng.integers(0, 256, (64, 4, 84, 84), np.uint8)

    def saved_after(steps):
        """Return seconds and bytes of a checkpoint after so many further steps."""
        for step in range(steps // 4):
            at = frames[step % 64]
            training.replay.add(Steps(at, no | (step == 0), np.zeros(4, int), np.zeros(4), no, no, at))
        training.replay.cut(Newest(frames[0]))
        training.iteration, training.step = training.iteration + 1, training.step + steps
        os.sync()
        start = time.perf_counter()
        checkpoints.save(agent, training, 0.0)
        segment = tmp_path / "checkpoints" / "replay" / f"{training.iteration:08d}.safetensors"
        return time.perf_counter() - start, segment.stat().st_size

    whole, few, fewer = saved_after(199_000), saved_after(20_000), saved_after(2_000)
    log.close()
    print(f"\n199,000 steps {whole}, 20,000 steps {few}, 2,000 steps {fewer}: seconds and bytes")  # noqa: T201
    row = 84 * 84 + 9
    for (_, size), steps in ((whole, 199_000), (few, 20_000), (fewer, 2_000)):
        assert size == pytest.approx(
            (steps + 4) * row, abs=4_096
        )  # plus a last frame for each of 4 lanes, and the header
    assert few[0] < whole[0] / 3
    assert fewer[0] < whole[0] / 10
