"""Times one update on Atari-sized batches, as ratios between methods over interleaved rounds; prints JSON.

Fixed work: 84x84 stacks of 4, batch 32, 18 actions, the `nature` torso. Every round runs each method once, so that
background load affects all of them; ratios are of medians. Run nothing else on the machine.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from monotau.envs.spec import ObservationSpec
from monotau.explorers import Dpe, EpsilonGreedy, ExplorerConfig
from monotau.learning.learner import Learner
from monotau.machine import keep_freed_memory
from monotau.networks.compile import Compiler
from monotau.networks.factory import NetworkFactory
from monotau.networks.heads import HeadConfig
from monotau.networks.heads.iqn import Iqn
from monotau.networks.heads.ndqfn import Ndqfn
from monotau.networks.layers import Layers, Precision, multiplies_bf16
from monotau.networks.optimiser import OptimiserConfig
from monotau.networks.torsos.images import Nature
from monotau.replay import Ring, Steps, Uniform

FRAME = ObservationSpec(kind="image", shape=(84, 84), dtype="uint8", channels_last=False, scale=1 / 255, size=7056)
ACTIONS, BATCH = 18, 32


def filled_ring(steps: int) -> Ring:
    """Return a ring filled with steps of random frames."""
    ring = Ring(
        Uniform(capacity_steps=steps + 100, warmup_steps=1),
        lanes=1, frame_shape=(84, 84), frame_dtype="uint8", stack=4, n_step=3, gamma=0.99,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    no = np.zeros(1, bool)
    for step in range(steps):
        frame = rng.integers(0, 256, (1, 84, 84), dtype=np.uint8)
        action, reward = rng.integers(ACTIONS, size=1), rng.standard_normal(1).clip(-1, 1)
        ring.add(Steps(frame, no | (step % 500 == 0), action, reward, no | (step % 500 == 499), no, frame))
    return ring


def updater(
    head: HeadConfig, explorer: ExplorerConfig, precision: Precision, ring: Ring, *, compiled: bool = False
) -> Callable[[], None]:
    """Return a function that performs one update of the method on a fixed batch."""
    keep_freed_memory()  # as in training
    factory = NetworkFactory(
        FRAME,
        4,
        ACTIONS,
        Nature(),
        head,
        Layers(precision),
        OptimiserConfig(),
        seed=0,
        device=torch.device("cpu"),
        compiler=Compiler(wanted=compiled),
    )
    learner = Learner(factory, double_q=True, explorer=explorer)
    batch = ring.sample(BATCH, np.random.default_rng(1))
    generator = torch.Generator().manual_seed(2)

    def update() -> None:
        learner.update(batch, generator)
        learner.explorer.metrics()

    return update


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="timed rounds, each of which runs every method once")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compiled", action="store_true", help="add compiled updates; compiling takes minutes")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    ring = filled_ring(5000)
    rng = np.random.default_rng(3)
    iqn32 = Iqn(online_fractions=32, target_fractions=32, action_fractions=32)
    jobs: dict[str, Callable[[], object]] = {
        "iqn 32/32/32": updater(iqn32, EpsilonGreedy(), "fp32", ring),
        "iqn 64/64/32": updater(Iqn(), EpsilonGreedy(), "fp32", ring),
        "ndqfn": updater(Ndqfn(), EpsilonGreedy(), "fp32", ring),
        "ndqfn+dpe": updater(Ndqfn(), Dpe(), "fp32", ring),
        "ndqfn+dpe bf16": updater(Ndqfn(), Dpe(), "bf16", ring),
        "replay sample": lambda: ring.sample(BATCH, rng),
    }
    if arguments.compiled:
        jobs["ndqfn compiled"] = updater(Ndqfn(), EpsilonGreedy(), "fp32", ring, compiled=True)
        jobs["ndqfn+dpe compiled"] = updater(Ndqfn(), Dpe(), "fp32", ring, compiled=True)
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(arguments.rounds + 2):  # the first two rounds warm up
        for name, job in jobs.items():
            start = time.perf_counter()
            job()
            if number >= 2:
                times[name].append(time.perf_counter() - start)
    middle = {name: statistics.median(values) for name, values in times.items()}
    for name, seconds in middle.items():
        print(f"{name:18s} {1e3 * seconds:8.2f} ms  {1 / seconds:8.2f} per second")
    print(
        json.dumps(
            {
                "benchmark": "update",
                "rounds": arguments.rounds,
                "threads": arguments.threads,
                "milliseconds": {name: round(1e3 * seconds, 3) for name, seconds in middle.items()},
                "ndqfn / iqn 32/32/32": round(middle["ndqfn"] / middle["iqn 32/32/32"], 3),
                "ndqfn+dpe / iqn 64/64/32": round(middle["ndqfn+dpe"] / middle["iqn 64/64/32"], 3),
                "bf16 speed-up of ndqfn+dpe": round(middle["ndqfn+dpe"] / middle["ndqfn+dpe bf16"], 3),
                "replay sample / ndqfn": round(middle["replay sample"] / middle["ndqfn"], 5),
                "speed-up by compiling": {
                    name.removesuffix(" compiled"): round(middle[name.removesuffix(" compiled")] / seconds, 3)
                    for name, seconds in middle.items()
                    if name.endswith(" compiled")
                },
                "cpu has bf16 products": multiplies_bf16("cpu"),
            }
        )
    )


if __name__ == "__main__":
    main()
