"""Trains presets with their default settings on small control problems, and compares the returns with targets.

A row is one run: the mean of its last three evaluations (`last3`), the best, all of them, the final spread of values
over states (`q_std`: near 0, the network does not distinguish states), and seconds. With `--until` a run ends at the
first evaluation that reaches that return, and `reached` is its step. A target is met if the mean of `last3` over seeds
reaches it.

CartPole, solved within 60,000 steps: `--preset all --envs CartPole-v1 --steps 60000 --until 475 --seeds 20 21`.
"""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

import numpy as np
import torch

from benchmarks.cells import Cell, arguments, is_of, number, rows_of
from monotau import Agent
from monotau.config.presets import DEFAULT_PRESET, PRESETS

TARGETS = {
    "Acrobot-v1": -80.0,
    "MountainCar-v0": -120.0,
    "LunarLander-v3": 180.0,
    "FrozenLake8x8-v1": 0.6,
    "Taxi-v4": 7.0,
    "CliffWalking-v1": -15.0,
}
LAST = 3


def train(cell: Cell) -> Cell:
    """Train one preset in one environment with one seed, and return its scores."""
    return trained(cell)[1]


def trained(cell: Cell) -> tuple[Agent, Cell]:
    """Train one preset in one environment with one seed, and return the agent with its scores."""
    torch.set_num_threads(1)
    start, until = time.perf_counter(), float(cell["until"] or "inf")
    # Schedules span `steps` of the settings, so it must be the length of the run.
    masks = {"action_masks": cell["masks"]} if "masks" in cell else {}
    agent = Agent(cell["env"], cell["preset"], cell["seed"], steps=cell["steps"], env_settings=masks)
    between = agent.config.iteration_steps * agent.config.evaluation.every_iterations
    returns: list[float] = []
    while agent.steps < cell["steps"] and max(returns, default=-np.inf) < until:
        agent.learn(min(between, cell["steps"] - agent.steps), evaluated=True)
        returns = [float(line["return_mean"]) for line in agent.history if line["kind"] == "eval"]
    spreads = [line["q_std"] for line in agent.history if "q_std" in line]
    return agent, {
        "last3": number(float(np.mean(returns[-LAST:]))),
        "best": number(max(returns)),
        "reached": number(agent.steps if returns[-1] >= until else None),
        "evaluations": "|".join(number(value) for value in returns),
        "q_std": number(spreads[-1] if spreads else None),
        "seconds": number(round(time.perf_counter() - start)),
    }


def cells_of(given: Namespace) -> list[Cell]:
    """Return the requested runs, seed by seed, so that every environment has results early."""
    presets = list(PRESETS) if "all" in given.preset else given.preset
    return [
        {"preset": preset, "env": env, "seed": seed, "steps": given.steps, "until": number(given.until)}
        for seed in given.seeds
        for preset in presets
        for env in given.envs
    ]


def table(rows: Sequence[dict[str, str]]) -> list[str]:
    """Return a line for each preset and environment: the scores over seeds, and the target."""
    lines = [f"{'preset':16s} {'environment':18s} {'steps':>9s} {'seeds':>5s} {'mean':>9s} {'min':>9s} {'target':>7s}"]
    for preset, env, steps, until in dict.fromkeys(
        (row["preset"], row["env"], row["steps"], row["until"]) for row in rows
    ):
        wanted = {"preset": preset, "env": env, "steps": steps, "until": until}
        mine = [row for row in rows if is_of(row, wanted)]
        scores = [float(row["last3"]) for row in mine]
        line = f"{preset:16s} {env:18s} {int(steps):9,d} {len(mine):5d} {np.mean(scores):9.2f} {min(scores):9.2f}"
        if until:
            solved = [int(float(row["reached"])) for row in mine if row["reached"]]
            median = f", median after {np.median(solved):,.0f} steps" if solved else ""
            line += f" {float(until):7g} reached by {len(solved)} of {len(mine)}{median}"
        elif env in TARGETS:
            line += f" {TARGETS[env]:7g} {'met' if np.mean(scores) >= TARGETS[env] else 'not met'}"
        lines.append(line)
    return lines


def of_presets(about: str | None, out: str, *, steps: int, more: Sequence[str] = ()) -> ArgumentParser:
    """Make a parser with the options of all tables of presets; `more` are further names for --preset."""
    parser = arguments(about, out, only=False)
    parser.add_argument("--preset", nargs="+", default=[DEFAULT_PRESET], choices=[*PRESETS, *more], help="presets")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)), help="seeds")
    parser.add_argument("--steps", type=int, default=steps, help="steps per run")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the requested cells, and print their table."""
    parser = of_presets(__doc__, "classic.csv", steps=100_000, more=["all"])
    parser.add_argument("--envs", nargs="+", default=list(TARGETS), help="Gymnasium ids")
    parser.add_argument("--until", type=float, help="end a run at an evaluation that reaches this return")
    given = parser.parse_args(argv)
    print("\n".join(table(rows_of(train, cells_of(given), given.out, given.jobs))))


if __name__ == "__main__":
    main()
