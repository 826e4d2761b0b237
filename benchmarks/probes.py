"""Measures how well each distributional head learns known return distributions, as the 1-Wasserstein distance to them.

One small network, budget and schedule for all; 32 knots, quantiles or fractions for each head, and a Huber loss narrow
enough (kappa 0.05) that its minimum is the true quantile function. `w1` compares fraction by fraction, as a quantile
function is read, at the estimates the agent acts on; `w1_sorted` puts them in order first, which forgives crossing.
Presets that differ in the explorer alone learn the same distributions and are left out, but for the paper's method.
"""

from dataclasses import asdict
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from benchmarks.cells import Cell, arguments, number, read_rows, run_cells
from monotau import Agent
from monotau.envs import register_own
from monotau.report.truth import distance_to

SEEDS = range(3)
STEPS, GAMMA, KAPPA, SIZE = 5_000, 0.9, 0.05, 32
WORLDS = ("Coin", "TwoStepCoin", "TwoSpreads", "TwoShapes")
SETTINGS: dict[str, Any] = {
    "gamma": GAMMA,
    "n_step": 1,
    "torso": {"width": 32, "layers": 1},
    "replay": {"capacity_steps": 5_000, "warmup_steps": 200},
    "update": {"batch_size": 32, "every_steps": 2, "sync_every_steps": 100},
    "optimiser": {"learning_rate": 2e-3, "epsilon": 1e-6},
    "epsilon": {"end": 0.5, "decay_steps": 0},
    "iteration_steps": 1_000,
    "log_every_steps": 10**9,
}
SAMPLED = {"online_fractions": SIZE, "target_fractions": SIZE, "action_fractions": SIZE, "kappa": KAPPA}
HEADS: dict[str, dict[str, Any]] = {
    "ndqfn": {"kappa": KAPPA},
    "ndqfn-dpe": {"kappa": KAPPA},
    "ndqfn-fqf": {"kappa": KAPPA},
    "iqn": SAMPLED,
    "incremental-iqn": SAMPLED,
    "implicit-sorted": SAMPLED,
    "fqf": {"kappa": KAPPA},
    "qr-dqn": {"quantiles": SIZE, "kappa": KAPPA},
    "nc-qr-dqn": {"quantiles": SIZE, "kappa": KAPPA},
    "c51": {"atoms": 51},
}


def measure(cell: Cell) -> Cell:
    """Train one preset in one world, and compare what it learned with the truth, over all states and actions."""
    torch.set_num_threads(1)
    register_own()
    name = f"monotau/{cell['world']}-v0"
    truths = gym.make(name).unwrapped.truth(GAMMA)  # type: ignore[attr-defined]
    returns = [value for outcomes in truths.values() for _, value in outcomes]
    head = {"hidden": 32} | HEADS[cell["preset"]]
    if cell["preset"] == "c51":
        head |= {"low": min(returns) - 0.5, "high": max(returns) + 0.5}
    agent = Agent(name, cell["preset"], cell["seed"], head=head, **SETTINGS).learn(STEPS)
    distance = distance_to(truths, agent)
    return {column: number(round(value, 5)) for column, value in asdict(distance).items()}


def main() -> None:
    """Run all presets, worlds and seeds, and print the means."""
    given = arguments(__doc__, "probes.csv").parse_args()
    cells = [
        {"preset": preset, "world": world, "seed": seed}
        for preset in given.only or HEADS
        for world in WORLDS
        for seed in SEEDS
    ]
    run_cells(measure, cells, given.out, given.jobs)
    rows = read_rows(given.out)
    for preset in HEADS:
        for world in WORLDS:
            mine = [row for row in rows if (row["preset"], row["world"]) == (preset, world)]
            means = {name: np.mean([float(row[name]) for row in mine]) for name in ("w1", "w1_sorted", "crossing")}
            print(f"{preset:16s} {world:12s} " + "  ".join(f"{name} {value:.4f}" for name, value in means.items()))


if __name__ == "__main__":
    main()
