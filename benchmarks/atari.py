"""Times training end to end, by default on an Atari game: environment, acting, storing, sampling, learning, the rest.

The settings are the preset's, except that warm-up and replay have only a few thousand steps. Run nothing else on the
machine. The presets take turns in rounds, so that background load affects all of them; shares are over all rounds. The
start of an iteration is left out, because an iteration has tens of thousands of steps in practice but only hundreds
here. `--cpu` counts the CPU time of the process, which other processes change less. Prints a table and a line of JSON.
"""

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.progress import track

from monotau.agent import Agent
from monotau.config.resolve import resolve
from monotau.learning.rollout import Rollout
from monotau.networks.devices import torch_threads
from monotau.runs.metrics import Log
from monotau.runs.progress import Display

PARTS = ("env", "act", "store", "sample", "learn", "other")


class Timed:
    """A training run whose parts are timed."""

    def __init__(self, preset: str, game: str, steps: int, threads: int | None, clock: Callable[[], float]) -> None:
        small = {"warmup_steps": 1_000, "capacity_steps": 20_000}
        layer: dict[str, Any] = {
            "env": {"id": game},
            "replay": small,
            "iteration_steps": steps,
            "epsilon": {"end": 0.01, "decay_steps": 0},
        }
        self.resolved = resolve(preset, layer, {} if threads is None else {"threads": threads})
        agent = Agent.of(self.resolved)
        self.training, networks = agent.start_training(Log(), Display(None)), agent.networks
        self.clock, self.seconds = clock, defaultdict[str, float](float)
        self.steps = self.updates = 0
        policy, learner, replay = networks.exploration_policy, networks.learner, self.training.replay
        policy.explore = self._timed("act", policy.explore)  # type: ignore[method-assign]
        learner.update = self._timed("learn", learner.update)  # type: ignore[method-assign]
        learner.sync = self._timed("learn", learner.sync)  # type: ignore[method-assign]
        replay.add = self._timed("store", replay.add)  # type: ignore[method-assign]
        replay.sample = self._timed("sample", replay.sample)  # type: ignore[method-assign]
        replay.update = self._timed("sample", replay.update)  # type: ignore[method-assign]

    def _timed(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **keywords: Any) -> Any:
            start = self.clock()
            try:
                return call(*arguments, **keywords)
            finally:
                self.seconds[part] += self.clock() - start

        return timed

    def iterate(self) -> None:
        """Train for one iteration; time outside all parts counts as `other`."""
        start_up, step, before = Rollout.__init__, Rollout.step, sum(self.seconds.values())
        steps, updates = self.training.step, self.training.updates
        Rollout.__init__ = self._timed("start", start_up)  # type: ignore[method-assign]
        Rollout.step = self._timed("env", step)  # type: ignore[method-assign]
        start = self.clock()
        try:
            with torch_threads(self.resolved.config.threads):
                self.training.iterate(10**9)
        finally:
            Rollout.__init__, Rollout.step = start_up, step  # type: ignore[method-assign]
        whole = self.clock() - start
        self.seconds["other"] += whole - (sum(self.seconds.values()) - before)
        self.steps += self.training.step - steps
        self.updates += self.training.updates - updates

    def forget(self) -> None:
        """Reset the timers, after a warm-up."""
        self.seconds.clear()
        self.steps = self.updates = 0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("presets", nargs="*", default=["ndqfn", "ndqfn-dpe", "iqn", "ndqfn-fast", "ndqfn-dpe-fast"])
    parser.add_argument("--game", default="ALE/Pong-v5", help="id of a game, or of any other environment")
    parser.add_argument(
        "--steps", type=int, default=400, help="agent steps per round; a multiple of the number of environments"
    )
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument(
        "--threads", type=int, default=None, help="CPU threads instead of the preset's; 0 uses every core"
    )
    parser.add_argument("--cpu", action="store_true", help="CPU time instead of wall-clock time")
    arguments = parser.parse_args()
    clock = time.process_time if arguments.cpu else time.perf_counter
    jobs = {name: Timed(name, arguments.game, arguments.steps, arguments.threads, clock) for name in arguments.presets}
    console = Console(stderr=True)
    for job in track(jobs.values(), "warming up", console=console):
        while not job.training.replay.ready:
            job.iterate()
        job.forget()
    for _ in track(range(arguments.rounds), "rounds", console=console):
        for job in jobs.values():
            job.iterate()
    print(f"{'preset':16s} {'steps/s':>8s} {'updates/s':>9s}  " + " ".join(f"{part:>7s}" for part in PARTS))
    table = {}
    for name, job in jobs.items():
        whole = sum(job.seconds[part] for part in PARTS)
        shares = {part: job.seconds[part] / whole for part in PARTS}
        row = {"steps_per_second": job.steps / whole, "updates_per_second": job.updates / whole, "shares": shares}
        table[name] = row
        print(
            f"{name:16s} {job.steps / whole:8.1f} {job.updates / whole:9.2f}  "
            + " ".join(f"{100 * shares[part]:6.1f}%" for part in PARTS)
        )
    about = {"benchmark": "atari", "game": arguments.game, "rounds": arguments.rounds, "steps": arguments.steps}
    print(json.dumps(about | {"threads": arguments.threads, "presets": table}))


if __name__ == "__main__":
    main()
