"""Memory and speed of a replay of Atari frames, measured in separate processes."""

import json
import subprocess
import sys

import pytest

from monotau.replay import REPLAYS, Layout

# Runs in a child process, so that nothing else is resident, and without the shape checks of the tests.
FILL = """
import json, re, statistics, sys, time
import numpy as np
import monotau.runs.runner
from monotau.replay import REPLAYS, Layout, Steps

def resident(field="VmRSS"):
    with open("/proc/self/status") as file:
        return int(re.search(field + r":\\s+(\\d+) kB", file.read())[1]) * 1024

def median(rng):
    times = []
    for _ in range(200):
        start = time.perf_counter()
        replay.sample(32, rng)
        times.append(time.perf_counter() - start)
    return statistics.median(times)

kind, marks = sys.argv[1], [int(mark) for mark in sys.argv[2:]]
layout = Layout(lanes=1, frame_shape=(84, 84), frame_dtype="uint8", stack=4, n_step=3, gamma=0.99)
replay = REPLAYS[kind](capacity_steps=marks[-1], warmup_steps=1_000).build(layout, horizon_steps=10**6)
rng, false, rewards, found = np.random.default_rng(0), np.zeros(1, bool), np.ones(1), {}
base = resident()
for step in range(1, marks[-1] + 1):
    frame = np.frombuffer(rng.bytes(84 * 84), np.uint8).reshape(1, 84, 84)
    first, ends = np.array([step % 900 == 1]), np.array([step % 900 == 0])
    replay.add(Steps(frame, first, np.array([step % 18]), rewards, ends, false, frame))
    if step % 64 == 0 and replay.ready:
        replay.sample(32, rng)
    if step in marks:
        found[step] = resident()
print(json.dumps({
    "base": base, "resident": [found[mark] for mark in marks], "peak": resident("VmHWM"),
    "medians": [median(rng) for _ in range(8)],
}))
"""

MARKS = (100_000, 200_000)


@pytest.fixture(scope="module", params=sorted(REPLAYS))
def measured(request):
    words = [sys.executable, "-c", FILL, request.param, *map(str, MARKS)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return request.param, json.loads(done.stdout)


def full(kind, capacity):
    layout = Layout(lanes=1, frame_shape=(84, 84), frame_dtype="uint8", stack=4, n_step=3, gamma=0.99)
    return REPLAYS[kind](capacity_steps=capacity).memory(layout)


@pytest.mark.slow
def test_a_replay_grows_as_predicted(measured):
    kind, found = measured
    half, whole = found["resident"]
    a_step = (whole - half) / (MARKS[1] - MARKS[0])
    assert a_step == pytest.approx(full(kind, 10**6).total / 10**6, rel=0.02)
    assert whole - found["base"] == pytest.approx(full(kind, MARKS[1]).total, rel=0.02)
    assert found["peak"] <= whole + 50e6  # sampling does not need more memory, not even briefly


@pytest.mark.slow
def test_a_million_steps_take_eight_percent_more_than_their_frames(measured):
    kind, found = measured
    half, whole = found["resident"]
    million = whole + (whole - half) / (MARKS[1] - MARKS[0]) * (10**6 - MARKS[1])
    frames = full(kind, 10**6).frames
    assert frames <= 7.1e9
    assert million <= 1.08 * frames


@pytest.mark.slow
def test_a_batch_of_stacks_is_sampled_within_a_millisecond(measured):
    assert min(measured[1]["medians"]) < 1e-3


RESUME = """
import re, sys
from pathlib import Path
import numpy as np
import monotau.runs.runner
from monotau.replay import Layout, Steps, Uniform
from monotau.runs.tensors import stored_arrays, write_arrays

def resident(field):
    with open("/proc/self/status") as file:
        return int(re.search(field + r":\\s+(\\d+) kB", file.read())[1]) * 1024

layout = Layout(lanes=1, frame_shape=(84, 84), frame_dtype="uint8", stack=4, n_step=3, gamma=0.99)
path, slots = Path(sys.argv[1]), 40_000
if sys.argv[2] == "write":
    columns = {"frames": np.ones((slots, 84, 84), np.uint8), "actions": np.zeros(slots, np.int32)}
    columns |= {"rewards": np.zeros(slots, np.float64), "flags": np.ones(slots, np.uint8)}
    columns |= {"first": np.zeros(1, np.int64), "end": np.full(1, slots)}
    write_arrays(path, {name: [array] for name, array in columns.items()})
else:
    base = resident("VmRSS")
    replay = Uniform(capacity_steps=slots).build(layout, horizon_steps=1)
    with stored_arrays(path) as rows:
        replay.put_back(rows)
    assert len(replay) == slots
    print(resident("VmHWM") - base)
"""


@pytest.mark.slow
def test_restoring_a_replay_holds_its_rows_in_memory_once(tmp_path):
    for action in ("write", "read"):
        words = [sys.executable, "-c", RESUME, str(tmp_path / "rows"), action]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert int(done.stdout) <= full("uniform", 40_000).total + 40e6
