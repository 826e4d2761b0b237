"""Counts the state-action pairs that DPE and epsilon-greedy visit in a grid world without rewards; prints JSON.

All runs use the same NDQFN head, schedule and seeds; only the explorer differs. After each half of the steps, the mean
bonus of the visited pairs is compared with that of the unvisited ones.
"""

import argparse
import json
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from monotau import Agent
from monotau.envs import Grid

STEPS, SIZE = 5_000, 15
BONUS_WEIGHT = 10.0  # without rewards, the bonus only has to exceed the noise of learned values
SETTINGS: dict[str, Any] = {
    "replay": {"kind": "uniform", "capacity_steps": 10_000, "warmup_steps": 200},
    "optimiser": {"learning_rate": 5e-4},
    # Bonuses are measured a few hundred steps after a sync, when the predictor has caught up with the new target.
    "update": {"batch_size": 32, "every_steps": 1, "sync": "copy", "sync_every_steps": 750},
    "iteration_steps": 1_000,
}


class Visits(gym.Wrapper):
    """Counts how often each action was taken in each state, and scales observations to a unit root mean square.

    Without scaling, a one-hot vector of 225 entries hardly changes the output of a newly initialised layer: the network
    cannot distinguish states, and what it learns in one it learns in all.
    """

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.observation_space = gym.spaces.Box(0, SIZE, (SIZE * SIZE,), np.float32)
        self.counts = np.zeros((SIZE * SIZE, 4), dtype=np.int64)
        self.state = 0

    def reset(self, **keywords: Any) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(**keywords)
        self.state = info["state"]
        return SIZE * observation, info

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        """Count the step."""
        self.counts[self.state, int(action)] += 1
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.state = info["state"]
        return SIZE * observation, reward, terminated, truncated, info


def explore(preset: str, seed: int, epsilon: float) -> dict[str, Any]:
    """Train without rewards; return the number of visited pairs and the mean bonus of visited and unvisited ones."""
    env = Visits(Grid(size=SIZE))
    schedule = {"start": 1.0, "end": epsilon, "decay_steps": 0}
    weight: dict[str, Any] = {"explorer": {"c": BONUS_WEIGHT}} if preset.endswith("dpe") else {}
    agent = Agent(env, preset, seed, epsilon=schedule, **SETTINGS, **weight)
    everywhere = SIZE * np.eye(SIZE * SIZE, dtype=np.float32)
    result: dict[str, Any] = {"pairs": 0}
    for part in (1, 2):
        agent.learn(STEPS // 2)
        if preset.endswith("dpe"):
            with torch.no_grad():
                bonus = agent.bonus(everywhere).numpy()
            visited = env.counts > 0
            result[f"bonus_visited_{part}"] = float(bonus[visited].mean())
            result[f"bonus_unvisited_{part}"] = float(bonus[~visited].mean()) if (~visited).any() else None
    return result | {"pairs": int((env.counts > 0).sum())}


def main() -> None:
    """Run all seeds and print one line of JSON for each, then a summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    torch.set_num_threads(1)
    arms = {
        "dpe, epsilon 0.01": ("ndqfn-dpe", 0.01),
        "epsilon-greedy 0.01": ("ndqfn", 0.01),
        "epsilon-greedy 0.1": ("ndqfn", 0.1),
    }
    summary: dict[str, Any] = {"benchmark": "exploration", "steps": STEPS, "pairs_in_all": 4 * SIZE * SIZE}
    for name, (preset, epsilon) in arms.items():
        runs = [explore(preset, seed, epsilon) for seed in seeds]
        for seed, run in zip(seeds, runs, strict=True):
            print(json.dumps({"arm": name, "seed": seed} | run), flush=True)
        summary[name] = {"pairs": [run["pairs"] for run in runs], "mean": float(np.mean([r["pairs"] for r in runs]))}
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
