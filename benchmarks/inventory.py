"""Trains on the inventory problem with default settings, and compares learned return distributions with simulated ones.

A row is one run, as in `benchmarks.classic`. The shop stays open after the 100 days of an episode, so the learned
returns are those of an endless series of days. They are simulated under the agent's own greedy policy, from half the
capacity in stock on each weekday. `mean_error` and `cvar_error` are the largest differences over the weekdays, relative
to the simulated mean and CVaR(0.1).
"""

from argparse import Namespace
from collections.abc import Sequence

import numpy as np

from benchmarks import classic
from benchmarks.cells import Cell, is_of, number, rows_of
from benchmarks.classic import of_presets
from monotau import Agent
from monotau.envs import Inventory

ENV = "monotau/Inventory-v0"
LEVEL, BASE_STOCK = 30, 4_058
"""The best order-up-to level, in whole lots, and its return in an episode of 100 days (mean of 20,000 episodes)."""
ALPHA = 0.1
WEEK = len(Inventory.DEMAND)


def train(cell: Cell) -> Cell:
    """Train one preset with one seed, and return its scores and the errors of its distributions."""
    agent, scores = classic.trained(cell)
    stock, weekday = np.full(WEEK, Inventory.CAPACITY // 2), np.arange(WEEK)
    learned = agent.distribution(observations(stock, weekday))
    actions = agent.predict(observations(stock, weekday))[0]
    rows = np.arange(WEEK)
    returns = simulated(greedy_orders(agent), agent.config.gamma, seed=cell["seed"])
    mean = returns.mean(axis=1)
    cvar = np.sort(returns, axis=1)[:, : int(ALPHA * returns.shape[1])].mean(axis=1)
    mean_error = np.abs(learned.mean().numpy()[rows, actions] / mean - 1).max()
    cvar_error = np.abs(learned.cvar(ALPHA).numpy()[rows, actions] / cvar - 1).max()
    errors = {"mean_error": mean_error, "cvar_error": cvar_error, "true_mean": mean.mean(), "true_cvar": cvar.mean()}
    return scores | {name: number(float(value)) for name, value in errors.items()}


def observations(stock: np.ndarray, weekday: np.ndarray) -> np.ndarray:
    """Return the observations of these states."""
    return np.concatenate([stock[:, None], np.eye(WEEK)[weekday]], axis=1).astype(np.float32)


def greedy_orders(agent: Agent) -> np.ndarray:
    """Return the units that the agent orders, by stock and weekday."""
    stock, weekday = (grid.ravel() for grid in np.mgrid[: Inventory.CAPACITY + 1, :WEEK])
    return Inventory.LOT * np.asarray(agent.predict(observations(stock, weekday))[0]).reshape(-1, WEEK)


def simulated(orders: np.ndarray, gamma: float, *, seed: int, shops: int = 4_000, days: int = 1_200) -> np.ndarray:
    """Return discounted returns of endless play, for each weekday of the first day and each shop."""
    rng = np.random.default_rng(seed)
    stock = np.full((WEEK, shops), Inventory.CAPACITY // 2)
    returns = np.zeros((WEEK, shops))
    for day in range(days):
        weekday = (np.arange(WEEK) + day) % WEEK
        ordered = orders[stock, weekday[:, None]]
        demand = rng.poisson(np.asarray(Inventory.DEMAND)[weekday][:, None], stock.shape)
        sold = np.minimum(demand, stock)
        left = stock - sold
        costs = Inventory.DELIVERY * (ordered > 0) + Inventory.HANDLING * ordered + Inventory.HOLDING * left
        returns += gamma**day * (Inventory.MARGIN * sold - costs)
        stock = np.minimum(left + ordered, Inventory.CAPACITY)
    return returns


def cells_of(given: Namespace) -> list[Cell]:
    """Return the requested runs."""
    return [
        {"preset": preset, "env": ENV, "seed": seed, "steps": given.steps, "until": ""}
        for seed in given.seeds
        for preset in given.preset
    ]


def table(rows: Sequence[dict[str, str]]) -> list[str]:
    """Return a line for each preset: the scores over seeds, and the errors of the distributions."""
    lines = [
        f"{'preset':16s} {'steps':>9s} {'seeds':>5s} {'mean':>9s} {'min':>9s} {'mean error':>11s} {'CVaR error':>11s}"
    ]
    for preset, steps in dict.fromkeys((row["preset"], row["steps"]) for row in rows):
        mine = [row for row in rows if is_of(row, {"preset": preset, "steps": steps})]
        last3, means, cvars = ([float(row[name]) for row in mine] for name in ("last3", "mean_error", "cvar_error"))
        lines.append(
            f"{preset:16s} {int(steps):9,d} {len(mine):5d} {np.mean(last3):9.0f} {min(last3):9.0f} {max(means):11.1%} "
            f"{max(cvars):11.1%}"
        )
    return [
        *lines,
        f"ordering up to {LEVEL} units earns {BASE_STOCK:,d}; errors are the largest over seeds and weekdays",
    ]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the requested cells, and print their table."""
    given = of_presets(__doc__, "inventory.csv", steps=50_000).parse_args(argv)
    print("\n".join(table(rows_of(train, cells_of(given), given.out, given.jobs))))


if __name__ == "__main__":
    main()
