"""Trains on Taxi with its action masks and without, and compares the returns.

A mask excludes moves into walls, and pick-ups and drop-offs that cannot succeed. A row is one run, as in
`benchmarks.classic`; `masks` is the setting `env.action_masks`, and `random` the return of random play under it.
"""

from argparse import Namespace
from collections.abc import Sequence

import numpy as np

from benchmarks import classic
from benchmarks.cells import Cell, is_of, number, rows_of
from benchmarks.classic import of_presets
from monotau import Agent
from monotau.runs.metrics import Log
from monotau.runs.progress import Display

ENV = "Taxi-v4"
MASKS = ("use", "ignore")


def train(cell: Cell) -> Cell:
    """Train one preset with one seed, and return its scores and that of random play."""
    agent = Agent(cell["env"], cell["preset"], cell["seed"], env_settings={"action_masks": cell["masks"]})
    played = agent.start_training(Log(), Display(None)).evaluate_random()
    return {"random": number(float(np.mean(played.returns)))} | classic.train(cell)


def cells_of(given: Namespace) -> list[Cell]:
    """Return the requested runs, seed by seed, so that both ways have results early."""
    return [
        {"masks": masks, "preset": preset, "env": ENV, "seed": seed, "steps": given.steps, "until": ""}
        for seed in given.seeds
        for preset in given.preset
        for masks in MASKS
    ]


def table(rows: Sequence[dict[str, str]]) -> list[str]:
    """Return a line for each preset and way: the scores over seeds, and the returns of random play."""
    lines = [f"{'preset':16s} {'masks':7s} {'steps':>9s} {'seeds':>5s} {'random':>9s} {'mean':>9s} {'min':>9s}"]
    for preset, masks, steps in dict.fromkeys((row["preset"], row["masks"], row["steps"]) for row in rows):
        mine = [row for row in rows if is_of(row, {"preset": preset, "masks": masks, "steps": steps})]
        random, last3 = ([float(row[column]) for row in mine] for column in ("random", "last3"))
        lines.append(
            f"{preset:16s} {masks:7s} {int(steps):9,d} {len(mine):5d} {np.mean(random):9.2f} {np.mean(last3):9.2f} "
            f"{min(last3):9.2f}"
        )
    return lines


def main(argv: Sequence[str] | None = None) -> None:
    """Run the requested cells, and print their table."""
    given = of_presets(__doc__, "masks.csv", steps=100_000).parse_args(argv)
    print("\n".join(table(rows_of(train, cells_of(given), given.out, given.jobs))))


if __name__ == "__main__":
    main()
