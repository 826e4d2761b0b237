"""Measures how well each distributional head learns known return distributions, as the 1-Wasserstein distance to them.

All heads use the same small network, budget and schedule, 32 knots, quantiles or fractions, and a kappa of 0.05, so
small that the minimum of the Huber loss is the true quantile function. `w1` compares the estimates that the agent
acts on fraction by fraction; `w1_sorted` sorts them first, which forgives crossing. Both are means over states and
actions, in units of return. `quantile_error` is the largest error at the fractions 0.01 to 0.99, and `cvar_error` that
of the mean of the worst tenth: both are maxima over states and actions, divided by the spread of the true distribution,
from its 0.01- to its 0.99-quantile. Next to a jump of the true quantile function (the coins), quantiles are off by
up to half of the spread even if W1 is small. Presets that differ only in the explorer learn the same distributions and
are left out, except for the paper's method; those that learn means only (dqn, hl-gauss) are left out too.
"""

from dataclasses import asdict, dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from benchmarks.cells import Cell, arguments, number, read_rows, run_cells
from monotau import Agent
from monotau.envs import register_own
from monotau.envs.probes import Outcomes, Truth
from monotau.report.sections.truth import distance_to


@dataclass(frozen=True, kw_only=True)
class World:
    """Training steps and discount of a probe environment."""

    steps: int = 5_000
    gamma: float = 0.9


SEEDS = range(3)
KAPPA, SIZE = 0.05, 32
WORLDS = {
    "Coin": World(),
    "TwoStepCoin": World(),
    "TwoSpreads": World(),
    "TwoShapes": World(),
    "LargeReturns": World(steps=10_000),
    "NegativeReturns": World(steps=10_000),
    "HeavyTail": World(steps=10_000),
    "LongChain": World(steps=30_000, gamma=0.99),  # values propagate back one state per sync of the target network
}
FRACTIONS, ALPHA = np.arange(1, 100) / 100, 0.1
SETTINGS: dict[str, Any] = {
    "n_step": 1,
    "torso": {"width": 32, "layers": 1},
    "replay": {"kind": "uniform", "capacity_steps": 5_000, "warmup_steps": 200},
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
    "nq-dqn": {"quantiles": SIZE, "kappa": KAPPA},
    "spl-dqn": {"bins": SIZE, "kappa": KAPPA},
    "c51": {"atoms": 51},
}


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Largest errors over all states and actions, divided by the spread of the true distribution."""

    quantile_error: float
    cvar_error: float


def errors_to(truth: Truth, agent: Agent) -> Errors:
    """Compare an agent's quantiles and CVaR with the true ones in every state and action."""
    quantile_errors, cvar_errors = [], []
    for state in dict.fromkeys(state for state, _ in truth):
        view = agent.distribution(state)
        quantiles = view.quantile(torch.as_tensor(FRACTIONS, dtype=torch.float32)).double().numpy()
        cvars = view.cvar(ALPHA).double().numpy()
        for action in range(len(cvars)):
            true = quantiles_of(truth[state, action], FRACTIONS)
            spread = true[-1] - true[0]
            quantile_errors.append(np.abs(quantiles[action] - true).max() / spread)
            cvar_errors.append(abs(cvars[action] - cvar_of(truth[state, action], ALPHA)) / spread)
    return Errors(quantile_error=float(max(quantile_errors)), cvar_error=float(max(cvar_errors)))


def quantiles_of(outcomes: Outcomes, taus: np.ndarray) -> np.ndarray:
    """Return the quantiles of discrete outcomes; at a jump, its midpoint."""
    pairs = sorted((value, probability) for probability, value in outcomes)
    values, ends = np.array([value for value, _ in pairs]), np.cumsum([probability for _, probability in pairs])
    rounding = 1e-9
    low, high = np.searchsorted(ends, taus - rounding), np.searchsorted(ends, taus + rounding)
    return np.asarray((values[low] + values[high.clip(max=len(values) - 1)]) / 2)


def cvar_of(outcomes: Outcomes, alpha: float) -> float:
    """Return the mean of the worst share alpha of discrete outcomes."""
    total, left = 0.0, alpha
    for value, probability in sorted((value, probability) for probability, value in outcomes):
        total += value * min(probability, left)
        left -= min(probability, left)
    return total / alpha


def measure(cell: Cell) -> Cell:
    """Train one preset in one probe environment, and compare its distributions with the true ones."""
    torch.set_num_threads(1)
    register_own()
    name, world = f"monotau/{cell['world']}-v0", WORLDS[cell["world"]]
    truths = gym.make(name).unwrapped.truth(world.gamma)  # type: ignore[attr-defined]
    returns = [value for outcomes in truths.values() for _, value in outcomes]
    head = {"hidden": 32} | HEADS[cell["preset"]]
    if cell["preset"] == "c51":
        head |= {"low": min(returns) - 0.5, "high": max(returns) + 0.5}
    unit = 1.0 if cell["preset"] == "c51" else None  # its support is in raw returns
    about: dict[str, Any] = {"head": head, "gamma": world.gamma, "steps": world.steps, "return_scale": unit}
    agent = Agent(name, cell["preset"], cell["seed"], **about, **SETTINGS)
    agent.learn(world.steps)
    found = asdict(distance_to(truths, agent)) | asdict(errors_to(truths, agent))
    return {column: number(round(value, 5)) for column, value in found.items()}


def main() -> None:
    """Run presets, worlds and seeds, and print the means."""
    parser = arguments(__doc__, "probes.csv")
    parser.add_argument("--worlds", nargs="+", default=list(WORLDS), choices=WORLDS, help="worlds to run")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS), help="seeds to run")
    given = parser.parse_args()
    cells = [
        {"preset": preset, "world": world, "seed": seed}
        for preset in given.only or HEADS
        for world in given.worlds
        for seed in given.seeds
    ]
    run_cells(measure, cells, given.out, given.jobs)
    rows = read_rows(given.out)
    for preset in HEADS:
        for world in WORLDS:
            mine = [row for row in rows if (row["preset"], row["world"]) == (preset, world)]
            if mine:
                print(f"{preset:16s} {world:16s} " + "  ".join(f"{name} {mean}" for name, mean in means(mine).items()))


def means(rows: list[dict[str, str]]) -> dict[str, str]:
    """Return the mean of each measure over the rows that have it."""
    found = {}
    for name in ("w1", "w1_sorted", "crossing", "quantile_error", "cvar_error"):
        values = [float(row[name]) for row in rows if row.get(name)]
        found[name] = f"{np.mean(values):.4f}" if values else "-"
    return found


if __name__ == "__main__":
    main()
