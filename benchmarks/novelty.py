"""Measures whether DPE's bonus distinguishes sampled state-action pairs from unseen ones.

On a grid of one-hot states without rewards, a random half of the state-action pairs is sampled for a fixed number of
updates; then the mean bonus of the other half is divided by that of the sampled one. A ratio of 1 means that the bonus
carries no information. Prints one line for each seed, and the mean.

python -m benchmarks.novelty ndqfn-dpe --seeds 3 --set '{"explorer": {"kappa": 1.0}}' tries other settings.
"""

import argparse
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from monotau import Agent
from monotau.envs import Grid
from monotau.networks.devices import torch_threads
from monotau.replay import Batch
from monotau.seeding import numpy_stream, torch_stream

ACTIONS = len(Grid.MOVES)
DISCOUNT, BATCH = 0.97, 32


class Bonuses(NamedTuple):
    """Mean bonus of the pairs that were never sampled, and of those that were."""

    unseen: float
    seen: float

    @property
    def ratio(self) -> float:
        """Ratio of unseen to seen."""
        return self.unseen / self.seen


def reached(size: int) -> np.ndarray:
    """Return the cell that each action leads to from each cell: `[size * size, 4]`; a wall stops a move."""
    rows, columns = np.divmod(np.arange(size * size), size)
    ends = [
        np.clip(rows + down, 0, size - 1) * size + np.clip(columns + right, 0, size - 1) for down, right in Grid.MOVES
    ]
    return np.stack(ends, axis=1)


def measure(
    preset: str,
    seed: int,
    settings: Mapping[str, Any],
    *,
    size: int = 10,
    updates: int = 2_000,
    sync_every_updates: int = 100,
) -> Bonuses:
    """Train on half of the pairs and compare the bonuses."""
    agent = Agent("monotau/Grid-v0", preset, seed, env_settings={"kwargs": {"size": size}}, **settings)
    learner, explorer = agent.networks.learner, agent.networks.explorer
    rng, generator = numpy_stream(seed, "novelty"), torch_stream(seed, "novelty")
    pairs = rng.permutation(size * size * ACTIONS)
    seen, unseen = np.split(pairs, 2)
    ends, cells = reached(size), torch.eye(size * size)[:, None]
    for update in range(1, updates + 1):
        drawn = rng.choice(seen, BATCH)
        states, actions = np.divmod(drawn, ACTIONS)
        batch = Batch(
            observations=cells[states],
            actions=torch.from_numpy(actions),
            rewards=torch.zeros(BATCH),
            discounts=torch.full((BATCH,), DISCOUNT),
            next_observations=cells[ends[states, actions]],
            weights=torch.ones(BATCH),
            index=drawn,
        )
        learner.update(batch, generator)
        # Not at the end: right after a sync the predictor lags everywhere.
        if update % sync_every_updates == 0 and update < updates:
            learner.sync()
    with torch.no_grad():
        bonus = explorer.bonus(cells, None).flatten().numpy()
    return Bonuses(float(bonus[unseen].mean()), float(bonus[seen].mean()))


def main() -> None:
    """Measure all seeds and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", nargs="?", default="ndqfn-dpe")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds, from 0 (default: 3)")
    parser.add_argument("--size", type=int, default=10, help="side of the grid (default: 10)")
    parser.add_argument("--updates", type=int, default=2_000, help="default: 2000")
    parser.add_argument("--set", type=json.loads, default={}, help="settings, as JSON")
    given = parser.parse_args()
    ratios = []
    with torch_threads(1):
        for seed in range(given.seeds):
            found = measure(given.preset, seed, given.set, size=given.size, updates=given.updates)
            ratios.append(found.ratio)
            print(json.dumps({"seed": seed, "ratio": found.ratio} | found._asdict()), flush=True)
    print(json.dumps({"preset": given.preset, "seeds": given.seeds, "mean_ratio": float(np.mean(ratios))}))


if __name__ == "__main__":
    main()
