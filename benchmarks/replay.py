"""Times prioritised replay with a million leaves: sampling and updating batches of 32; prints one line of JSON.

Frames are single bytes, because their content does not matter here. Every round runs each job once, so that background
load affects all of them.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import numpy as np

from monotau.replay import Layout, PrioritizedReplay, Steps
from monotau.replay.prioritized import Prioritized
from monotau.replay.sum_tree import SumTree

SLOTS, LANES, BATCH, WARM_UP = 1_000_000, 1_000, 32, 50


def filled_tree(rng: np.random.Generator) -> SumTree:
    """Return a tree with all leaves set."""
    tree = SumTree(SLOTS)
    tree.set(np.arange(SLOTS), rng.random(SLOTS))
    return tree


def filled_replay(rng: np.random.Generator) -> PrioritizedReplay:
    """Return a full replay with random priorities."""
    layout = Layout(lanes=LANES, frame_shape=(), frame_dtype="uint8", stack=4, n_step=3, gamma=0.99)
    replay = Prioritized(capacity_steps=SLOTS).build(layout, horizon_steps=SLOTS)
    frames, actions, rewards, no = (
        np.zeros(LANES, np.uint8),
        np.zeros(LANES, int),
        np.zeros(LANES),
        np.zeros(LANES, bool),
    )
    for step in range(SLOTS // LANES):
        replay.add(Steps(frames, no | (step % 500 == 0), actions, rewards, no | (step % 500 == 499), no, frames))
    replay.update(np.arange(SLOTS), rng.random(SLOTS))
    return replay


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000, help="timed rounds, each of which runs every job once")
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    tree, replay = filled_tree(rng), filled_replay(rng)

    def of_tree() -> None:
        index = tree.find((np.arange(BATCH) + rng.random(BATCH)) * (tree.total / BATCH))
        tree.set(index, rng.random(BATCH))

    def of_indices() -> None:
        replay.update(replay.draw(BATCH, rng), rng.random(BATCH))

    def of_batches() -> None:
        replay.update(replay.sample(BATCH, rng).index, rng.random(BATCH))

    jobs: dict[str, Callable[[], None]] = {
        "tree find + set": of_tree,
        "draw + update": of_indices,
        "sample + update": of_batches,
    }
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(arguments.rounds + WARM_UP):
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            if number >= WARM_UP:
                times[name].append(time.perf_counter() - start)
    print(
        json.dumps(
            {
                "benchmark": "replay",
                "leaves": SLOTS,
                "batch": BATCH,
                "rounds": arguments.rounds,
                "milliseconds": {name: round(1e3 * statistics.median(values), 4) for name, values in times.items()},
            }
        )
    )


if __name__ == "__main__":
    main()
