"""Draws the two pictures of docs/architecture.md: the packages, and the way of a transition."""

import argparse
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

HERE = Path(__file__).parent
INK, GREY = "#222222", "#666666"
COMMANDS, RUNS, LOOP, PARTS, GROUND = "#f6dfc8", "#f3ecc2", "#cfe3f3", "#d5ebd8", "#e4e4e4"

TIERS: list[tuple[str, list[tuple[str, str]]]] = [
    (COMMANDS, [("cli", "the command line"), ("api", "train_agent")]),
    (COMMANDS, [("tuning", "the search for settings, with Optuna")]),
    (COMMANDS, [("suites", "grids of runs: local, Ray, Slurm"), ("watch", "live page and films")]),
    (COMMANDS, [("audit", "distributions against rollouts"), ("report", "one page about many runs")]),
    (
        RUNS,
        [
            ("runs", "run directory, checkpoints, metrics, agents on disk"),
            ("results", "scores of runs, statistics, published results"),
        ],
    ),
    (LOOP, [("agent", "the Python API"), ("distributed", "a collector on Ray actors")]),
    (LOOP, [("learning", "the loop: collector, rollout, policy, learner, evaluation")]),
    (LOOP, [("config", "settings, presets, profiles")]),
    (PARTS, [("explorers", "epsilon-greedy, DPE, deep DPE, DLTV"), ("replay", "ring buffer, priorities, n-step")]),
    (PARTS, [("networks", "torsos, heads, layers, optimiser")]),
    (
        GROUND,
        [
            ("distributions", "closed forms, risk"),
            ("losses", "quantile Huber, C51"),
            ("envs", "Gymnasium, Atari, probes"),
        ],
    ),
]
"""Packages from top to bottom; each imports those below it."""

WAY: list[list[tuple[str, str, str]]] = [
    [
        ("Environment", "envs/", GROUND),
        ("Rollout.step", "learning/rollout.py", LOOP),
        ("Collector.collect", "learning/collector.py", LOOP),
        ("Replay.add", "replay/ring.py", PARTS),
    ],
    [
        ("Policy.act", "learning/policy.py", LOOP),
        ("Explorer.learn", "explorers/dpe.py", PARTS),
        ("Learner.update", "learning/learner.py", LOOP),
        ("Replay.sample", "replay/ring.py", PARTS),
    ],
]


def blank(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a figure whose axes are measured in inches and not drawn."""
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.set_axis_off()
    return figure, axes


def box(axes: Axes, left: float, low: float, width: float, height: float, title: str, text: str, colour: str) -> None:
    """Draw a box with a title and a line below it."""
    shape = "round,pad=0,rounding_size=0.08"
    axes.add_patch(FancyBboxPatch((left, low), width, height, boxstyle=shape, facecolor=colour, edgecolor=GREY, lw=0.8))
    middle = left + width / 2
    axes.text(middle, low + 0.63 * height, title, ha="center", va="center", fontsize=11, weight="bold", color=INK)
    axes.text(middle, low + 0.27 * height, text, ha="center", va="center", fontsize=8, color=INK)


def arrow(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], text: str = "", above: float = 0.09
) -> None:
    """Draw an arrow with a word beside it."""
    axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=12, color=GREY, lw=1.2))
    middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
    if text and start[1] == end[1]:
        axes.text(middle[0], middle[1] + above, text, ha="center", va="bottom", fontsize=8, color=INK)
    elif text:
        axes.text(middle[0] + 0.1, middle[1], text, ha="left", va="center", fontsize=8, color=INK)


def draw_packages() -> Figure:
    """Draw the packages in tiers."""
    height, gap, left, width = 0.56, 0.17, 0.25, 7.1
    figure, axes = blank(8.3, len(TIERS) * (height + gap) + 0.75)
    low = len(TIERS) * (height + gap) + 0.45
    top = low
    for colour, packages in TIERS:
        low -= height
        share = (width - 0.15 * (len(packages) - 1)) / len(packages)
        for place, (name, text) in enumerate(packages):
            box(axes, left + place * (share + 0.15), low, share, height, name, text, colour)
        low -= gap
    axes.add_patch(
        FancyArrowPatch((7.75, top), (7.75, low + gap), arrowstyle="-|>", mutation_scale=16, color=INK, lw=1.5)
    )
    axes.text(7.95, (top + low) / 2, "imports point down", rotation=270, ha="center", va="center", fontsize=10)
    note = "Everything may import errors, seeding and machine. agent also uses the file modules of runs."
    axes.text(left, 0.22, note, fontsize=8, color=GREY, va="center")
    return figure


def draw_way() -> Figure:
    """Draw the way of a transition, from the environment to the gradient and back."""
    figure, axes = blank(10.4, 3.5)
    width, height, gap = 1.85, 0.72, 0.85
    rows = (2.35, 0.75)
    for row, boxes in zip(rows, WAY, strict=True):
        for place, (title, text, colour) in enumerate(boxes):
            box(axes, 0.25 + place * (width + gap), row, width, height, title, text, colour)
    lefts = [0.25 + place * (width + gap) for place in range(4)]
    upper, lower = (row + height / 2 for row in rows)
    for place, text in enumerate(("step", "Steps", "StepBatch")):
        arrow(axes, (lefts[place] + width, upper), (lefts[place + 1], upper), text)
    arrow(axes, (lefts[3] + width / 2, rows[0]), (lefts[3] + width / 2, rows[1] + height), "stored\nframes")
    arrow(axes, (lefts[3], lower), (lefts[2] + width, lower), "Batch")
    arrow(axes, (lefts[2], lower), (lefts[1] + width, lower), "Estimate")
    arrow(axes, (lefts[1], lower), (lefts[0] + width, lower), "scores")
    arrow(axes, (lefts[0] + width / 2, rows[1] + height), (lefts[0] + width / 2, rows[0]), "actions")
    # Priorities go back below the boxes, weights above them.
    back = "arc3,rad=-0.19"
    start, end = (lefts[2] + 0.7 * width, rows[1]), (lefts[3] + 0.3 * width, rows[1])
    axes.add_patch(
        FancyArrowPatch(
            start, end, connectionstyle="arc3,rad=0.3", arrowstyle="-|>", mutation_scale=12, color=GREY, lw=1.2
        )
    )
    axes.text((start[0] + end[0]) / 2, rows[1] - 0.42, "priorities", ha="center", fontsize=8, color=INK)
    start, end = (lefts[2] + 0.3 * width, rows[1]), (lefts[0] + 0.7 * width, rows[1])
    axes.add_patch(
        FancyArrowPatch(start, end, connectionstyle=back, arrowstyle="-|>", mutation_scale=12, color=GREY, lw=1.2)
    )
    axes.text((start[0] + end[0]) / 2, 0.06, "weights of the online network", ha="center", fontsize=8, color=INK)
    return figure


def main() -> None:
    """Draw both as SVG, and as PNG if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--png", action="store_true", help="PNG instead of SVG, to look at")
    given = parser.parse_args()
    mpl.rcParams["svg.hashsalt"] = "monotau"  # the same picture is the same file
    for name, figure in (("packages", draw_packages()), ("transition", draw_way())):
        if given.png:
            figure.savefig(given.out / f"{name}.png", dpi=110, facecolor="white")
        else:
            figure.savefig(given.out / f"{name}.svg", metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    main()
