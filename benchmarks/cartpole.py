"""Trains each preset on CartPole-v1 until an evaluation of 20 episodes reaches 475, or 60,000 steps are done.

Two of three seeds are to reach it, so the third is run only for presets whose first two did not both.
"""

import time
from collections import Counter

import torch

from benchmarks.cells import Cell, arguments, number, read_rows, run_cells
from monotau import Agent
from monotau.presets import PRESETS

SEEDS = (20, 21, 22)  # the settings of the profile were chosen on seeds 0 and 1
SOLVED, MOST_STEPS = 475, 60_000


def solve(cell: Cell) -> Cell:
    """Train one preset with one seed, and say when it was solved and how good it became."""
    torch.set_num_threads(1)
    start = time.perf_counter()
    agent = Agent("CartPole-v1", cell["preset"], cell["seed"], threads=1)
    returns: list[float] = []
    while agent.steps < MOST_STEPS and max(returns, default=0.0) < SOLVED:
        agent.learn(agent.config.iteration_steps, evaluated=True)
        returns.append(agent.history[-1]["return_mean"])
    solved = agent.steps if returns[-1] >= SOLVED else None
    seconds = time.perf_counter() - start
    return {"steps_to_475": number(solved), "best_return": number(max(returns)), "seconds": number(round(seconds))}


def main() -> None:
    """Run all presets and seeds."""
    given = arguments(__doc__, "cartpole.csv").parse_args()
    presets = given.only or list(PRESETS)
    run_cells(solve, [{"preset": name, "seed": seed} for seed in SEEDS[:2] for name in presets], given.out, given.jobs)
    solved = Counter(row["preset"] for row in read_rows(given.out) if row["steps_to_475"])
    open_ = [name for name in presets if solved[name] < 2]
    run_cells(solve, [{"preset": name, "seed": SEEDS[2]} for name in open_], given.out, given.jobs)


if __name__ == "__main__":
    main()
