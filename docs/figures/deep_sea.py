"""Draws how many episodes each explorer needs on DeepSea, from results/deep_sea.csv."""

import argparse
import csv
from collections import defaultdict
from pathlib import Path

import numpy as np

from monotau.report.plotting import new_figure

ROOT = Path(__file__).parents[2]
COLOURS = {
    "deep-dpe": "#0072b2",
    "dpe": "#d55e00",
    "value-based error": "#e69f00",
    "dltv": "#009e73",
    "noisy": "#cc79a7",
    "epsilon-greedy": "#555555",
}


def main() -> None:
    """Read the table and draw the median over seeds; a median of unsolved runs is not drawn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", type=Path, default=ROOT / "results" / "deep_sea.csv")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("deep_sea.png"))
    given = parser.parse_args()
    found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    with given.table.open(newline="") as file:
        for row in csv.DictReader(file):
            found[row["explorer"]][int(row["size"])].append(float(row["episodes_to_solve"] or "inf"))
    figure, (axes,) = new_figure(7, 4, panels=1)
    for place, (explorer, colour) in enumerate(COLOURS.items()):
        sizes = sorted(found[explorer])
        medians = {size: float(np.median(found[explorer][size])) for size in sizes}
        drawn = [size for size in sizes if np.isfinite(medians[size])]
        axes.plot(drawn, [medians[size] for size in drawn], marker="o", color=colour, label=explorer, zorder=3)
        for size in sizes:
            runs = [run for run in found[explorer][size] if np.isfinite(run)]
            shift = size * (1 + 0.012 * (place - 2.5))
            axes.plot([shift] * len(runs), runs, ".", color=colour, alpha=0.5, markersize=4)
            if len(runs) < len(found[explorer][size]):
                label = f"{len(found[explorer][size]) - len(runs)} of {len(found[explorer][size])}"
                height = 1000 * 1.16**place
                axes.plot([shift], [height], "x", color=colour)
                axes.annotate(label, (shift, height), (5, -3), textcoords="offset points", fontsize=7, color=colour)
    axes.set(xscale="log", yscale="log", xlabel="size N of DeepSea", ylabel="episodes to solve (x: seeds unsolved)")
    ticks = sorted({size for sizes in found.values() for size in sizes})
    axes.set_xticks(ticks, [str(size) for size in ticks])
    axes.minorticks_off()
    axes.set_yticks([50, 100, 200, 500], ["50", "100", "200", "500"])
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    axes.set_title("Episodes until the greedy policy collects the treasure: median and 5 seeds", fontsize=10)
    figure.savefig(given.out, dpi=150)


if __name__ == "__main__":
    main()
