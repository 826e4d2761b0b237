"""Counts the episodes that each explorer needs to solve DeepSea, over sizes and seeds.

Solved means that a greedy rollout, without bonus, noise or random actions, collects the treasure five times in a row.
There is one rollout every ten episodes, and the first of the five counts. Network, replay and schedules are the same
for all explorers. An explorer that solved no seed of a size is not run on larger ones.
"""

import time
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from benchmarks.cells import Cell, arguments, number, read_rows, run_cells
from monotau import Agent
from monotau.envs.deep_sea import DeepSea

SEEDS = range(5)  # settings were tuned on seeds 100 to 102; the seed also sets which action goes right in each cell
SIZES = (6, 8, 10, 14, 20, 30)
MOST_EPISODES = {6: 500, 8: 500, 10: 500, 14: 1_000, 20: 2_000, 30: 2_000}
EVERY, IN_A_ROW = 10, 5

SETTINGS: dict[str, Any] = {
    "n_step": 1,
    "torso": {"width": 64},
    "head": {"hidden": 64, "knots": 9, "online_fractions": 8, "target_fractions": 8, "cosines": 16},
    "replay": {"kind": "uniform", "capacity_steps": 100_000, "warmup_steps": 64},
    "optimiser": {"learning_rate": 1e-3, "epsilon": 1e-8},
    "update": {"batch_size": 64, "every_steps": 1, "sync": "copy", "sync_every_steps": 100},
    "log_every_steps": 10**9,
    "iteration_steps": 10**9,
}
RANDOM = {"epsilon": {"start": 0.05, "end": 0.05, "decay_steps": 0}}
NOT_RANDOM = {"epsilon": {"start": 0.0, "end": 0.0, "decay_steps": 0}}
IN_REWARDS = {"return_scale": 1.0}  # as in the presets of explorers whose weights count in rewards
EXPLORERS: dict[str, dict[str, Any]] = {
    "deep-dpe": {"explorer": {"kind": "deep-dpe"}} | NOT_RANDOM,
    "rnd": {"explorer": {"kind": "rnd"}} | RANDOM | IN_REWARDS,
    "local rnd": {"explorer": {"kind": "rnd", "form": "local"}} | RANDOM | IN_REWARDS,
    "dpe": {"explorer": {"kind": "dpe", "c": 1.0}} | RANDOM,
    "value-based error": {"explorer": {"kind": "dpe", "error": "value", "c": 1.0}} | RANDOM,
    "dltv": {"explorer": {"kind": "dltv"}} | RANDOM,
    "bootstrapped": {"explorer": {"kind": "bootstrapped"}} | NOT_RANDOM | IN_REWARDS,
    "pe-dqn": {"explorer": {"kind": "pe-dqn"}} | NOT_RANDOM | IN_REWARDS,
    "pqr": {"explorer": {"kind": "pqr", "delta": 5e3}} | RANDOM,
    "noisy": {"explorer": {"kind": "epsilon-greedy"}, "noisy": True} | NOT_RANDOM,
    "epsilon-greedy": {"explorer": {"kind": "epsilon-greedy"}} | RANDOM,
}


class Search(gym.Wrapper):
    """Records the first episode that collected the treasure."""

    def __init__(self, env: DeepSea) -> None:
        super().__init__(env)
        self.episodes = 0
        self.found: int | None = None

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step."""
        outcome = self.env.step(action)
        self.episodes += outcome[2]
        if self.found is None and float(outcome[1]) > 0.5:
            self.found = self.episodes
        return outcome


def solve(cell: Cell) -> Cell:
    """Train one explorer on one environment, and return the episodes to find the treasure and to solve it."""
    torch.set_num_threads(1)
    size, start = cell["size"], time.perf_counter()
    world = DeepSea(size, mapping_seed=cell["seed"])
    search = Search(world)
    agent = Agent(search, "ndqfn", cell["seed"], **SETTINGS, **EXPLORERS[cell["explorer"]])
    row, episodes = 0, 0
    while row < IN_A_ROW and episodes < MOST_EPISODES[size]:
        episodes += EVERY
        agent.learn(size * EVERY)
        row = row + 1 if greedy_return(agent, world) > 0.9 else 0
    solved = episodes - EVERY * (IN_A_ROW - 1) if row == IN_A_ROW else None
    milliseconds = 1000 * (time.perf_counter() - start) / (episodes * size)
    return {
        "episodes_to_treasure": number(search.found),
        "episodes_to_solve": number(solved),
        "milliseconds_a_step": number(round(milliseconds, 2)),
    }


def greedy_return(agent: Agent, like: DeepSea) -> float:
    """Return the return of one greedy episode in a copy of the environment."""
    world = DeepSea(like.size)
    world.right_actions = like.right_actions
    observation, _ = world.reset()
    total, over = 0.0, False
    while not over:
        action, _ = agent.predict(observation)
        observation, reward, over, _, _ = world.step(int(action))
        total += reward
    return total


def main() -> None:
    """Run all explorers and seeds, one size after another."""
    parser = arguments(__doc__, "deep_sea.csv")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, choices=SIZES, help="sizes to run")
    given = parser.parse_args()
    for size in given.sizes:
        candidates = [name for name in given.only or EXPLORERS if solved_smaller(read_rows(given.out), name, size)]
        cells = [{"explorer": name, "size": size, "seed": seed} for name in candidates for seed in SEEDS]
        run_cells(solve, cells, given.out, given.jobs)
    summarise(given.out)


def solved_smaller(rows: list[dict[str, str]], explorer: str, size: int) -> bool:
    """Whether an explorer solved any seed of the next smaller size it was run on; True without such runs."""
    mine = [row for row in rows if row["explorer"] == explorer and int(row["size"]) < size]
    largest = max((int(row["size"]) for row in mine), default=None)
    return largest is None or any(row["episodes_to_solve"] for row in mine if int(row["size"]) == largest)


def summarise(path: Any) -> None:
    """Print the median number of episodes to solve; unsolved runs count as infinite."""
    rows = read_rows(path)
    for explorer in EXPLORERS:
        for size in SIZES:
            found = [
                row["episodes_to_solve"] for row in rows if (row["explorer"], row["size"]) == (explorer, str(size))
            ]
            if found:
                median = float(np.median([float(value) if value else np.inf for value in found]))
                print(f"{explorer:18s} {size:3d}  median {median:6.0f}  solved {sum(map(bool, found))} of {len(found)}")


if __name__ == "__main__":
    main()
