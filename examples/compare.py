"""Compare presets over several seeds, and write a report.

    python examples/compare.py --steps 10000 --seeds 2

Every run is trained into a directory of its own. The script may be stopped and started again: finished runs are not
repeated, and an interrupted one resumes. For larger grids use `monotau suite`, which runs several processes at once.
"""

import argparse
from pathlib import Path

import numpy as np

from monotau import train_agent
from monotau.cli import main as monotau

PRESETS = ("ndqfn", "iqn-star", "dqn")


def main() -> None:
    """Train the grid, print a table and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("runs/compare"))
    given = parser.parse_args()
    for preset in PRESETS:
        scores = []
        for seed in range(given.seeds):
            run = given.out / f"{preset}_seed{seed}"
            agent = train_agent("CartPole-v1", run, preset, seed, steps=given.steps, verbose=False)
            scores.append(np.mean(agent.evaluate(given.episodes).returns))
        print(f"{preset:>10s}: {np.mean(scores):6.1f} (seeds: {', '.join(f'{score:.1f}' for score in scores)})")
    monotau(["report", str(given.out), "--out", f"{given.out}-report"])


if __name__ == "__main__":
    main()
