"""Measures the overhead of Ray for a suite, and the speed-up by actors with a slow environment; prints JSON.

    python -m benchmarks.cluster suites --steps 12000 --rounds 2
    python -m benchmarks.cluster actors --rounds 3

Suites: the same runs alternate between the local pool and a private Ray on this machine, two at a time. The whole
command is timed, including the start of Ray. Actors: an environment that sleeps 5 ms per step; steps per second are
measured between two log lines, without the start of the actors. Run nothing else on the machine.
"""

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from monotau import Agent
from monotau.suites.workers.local import python_command

ACTORS = (1, 2, 4, 8)
JOBS = 2


class Slow(gym.Env):
    """Sleeps in each step, like an environment that waits for a remote simulator; episodes have fifty steps."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    observation_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        self._steps = 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Sleep, then take a step."""
        time.sleep(self._seconds)
        self._steps += 1
        return self._observe(), float(action), self._steps == 50, False, {}

    def _observe(self) -> np.ndarray:
        return self.np_random.uniform(-1.0, 1.0, 4).astype(np.float32)


def steps_per_second(preset: str, actors: int, sleep: float, seconds: float) -> tuple[float, float]:
    """Return the training speed with a number of actors, without their start, and their lag in updates."""
    every = 128 * max(1, actors)
    steps = max(6, round(seconds * max(1, actors) / sleep / every)) * every
    settings: dict[str, Any] = {
        "update": {"every_steps": 16},
        "replay": {"warmup_steps": every, "capacity_steps": 50_000},
    }
    agent = Agent(
        partial(Slow, sleep), preset, actors=actors, iteration_steps=steps, log_every_steps=every, **settings
    ).learn(steps)
    lines = [line for line in agent.history if line["kind"] == "train"][2:]  # by then all actors have started
    rate = len(lines) / sum(1 / line["steps_per_second"] for line in lines)
    return rate, statistics.mean(line.get("lag_updates", 0.0) for line in lines)


def measure_actors(given: Namespace) -> None:
    """Measure and print the training speeds."""
    rates: dict[int, list[float]] = {actors: [] for actors in (0, *ACTORS)}
    lags: dict[int, float] = {}
    for _ in range(given.rounds):
        for actors, found in rates.items():
            rate, lags[actors] = steps_per_second(given.preset, actors, given.sleep, given.seconds)
            found.append(rate)
    means = {actors: statistics.median(found) for actors, found in rates.items()}
    line = {
        "benchmark": "actors",
        "preset": given.preset,
        "sleep_seconds": given.sleep,
        "rounds": given.rounds,
        "steps_per_second": {actors: round(mean, 1) for actors, mean in means.items()},
        "share_of_linear": {actors: round(means[actors] / means[1] / actors, 3) for actors in ACTORS},
        "lag_updates": {actors: round(lag, 1) for actors, lag in lags.items()},
    }
    print(json.dumps(line))


def timed_suite(file: Path, out: Path, *options: str) -> float:
    """Return the seconds that a suite takes, from the start of the command to its end."""
    start = time.perf_counter()
    words = ("suite", str(file), "--out", str(out), "--jobs", str(JOBS), "--threads", "1", *options)
    done = subprocess.run(python_command(*words), capture_output=True, text=True)  # noqa: S603  # our own program
    if done.returncode:
        sys.exit(done.stderr)
    return time.perf_counter() - start


def measure_suites(given: Namespace) -> None:
    """Measure and print the times of both pools."""
    home = Path(tempfile.mkdtemp())
    file = home / "suite.json"
    suite = {"presets": ["ndqfn"], "envs": ["CartPole-v1"], "seeds": list(range(given.runs))}
    file.write_text(json.dumps(suite | {"settings": {"steps": given.steps}}))
    times: dict[str, list[float]] = {"local": [], "ray": []}
    for number in range(given.rounds):
        for name, options in (("local", []), ("ray", ["--ray", "local"])):
            times[name].append(timed_suite(file, home / f"{name}{number}", *options))
    results = [json.loads(path.read_text()) for path in home.glob("*/*/result.json")]
    shutil.rmtree(home)
    ratios = [ray / local for ray, local in zip(times["ray"], times["local"], strict=True)]
    line = {
        "benchmark": "suites",
        "runs": given.runs,
        "at_once": JOBS,
        "seconds_of_a_run": round(statistics.mean(result["seconds"] for result in results), 1),
        "seconds": {name: [round(second, 1) for second in found] for name, found in times.items()},
        "overhead": round(statistics.median(ratios) - 1, 4),
    }
    print(json.dumps(line))


def main() -> None:
    """Run the requested benchmark."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("suites", "actors"))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--runs", type=int, default=4, help="number of runs in the suite")
    parser.add_argument("--steps", type=int, default=12_000, help="steps per run of the suite; about a minute")
    parser.add_argument("--preset", default="dqn", help="preset of the runs with actors")
    parser.add_argument("--sleep", type=float, default=0.005, help="seconds per step of the environment")
    parser.add_argument("--seconds", type=float, default=10.0, help="seconds of training for each number of actors")
    given = parser.parse_args()
    {"suites": measure_suites, "actors": measure_actors}[given.what](given)


if __name__ == "__main__":
    main()
