"""Explore with a bonus where random actions do not help: DeepSea.

    python examples/exploration.py --episodes 300

In DeepSea of size N only one of 2^N action sequences finds the treasure, and every step towards it costs a little. The
script trains with three explorers and prints whether the greedy policy of each finds the treasure.
"""

import argparse

from monotau import Agent

PRESETS = {
    "ndqfn": "epsilon-greedy",
    "ndqfn-dpe": "distributional prediction error (DPE)",
    "ndqfn-deep-dpe": "DPE backed up through time",
}


def main() -> None:
    """Train with each explorer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--size", type=int, default=8)
    given = parser.parse_args()
    for preset, about in PRESETS.items():
        agent = Agent(
            "monotau/DeepSea-v0",
            preset,
            seed=1,
            env_settings={"kwargs": {"size": given.size, "mapping_seed": 1}},
            steps=given.episodes * given.size,  # schedules such as epsilon's decay follow from the length of the run
            replay={"warmup_steps": 10 * given.size},
            update={"every_steps": 1, "batch_size": 64},
        )
        agent.learn(agent.config.steps)
        best = agent.evaluate(1).line()["return_mean"]
        found = "finds" if isinstance(best, float) and best > 0.5 else "does not find"
        print(f"{preset:>15s} ({about}): the greedy policy {found} the treasure, return {best:.3f}")


if __name__ == "__main__":
    main()
