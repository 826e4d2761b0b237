"""Figures drawn without a screen, and those of one run."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from monotau.runs.metrics import Line

# Okabe and Ito's palette: told apart by colour-blind readers too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
LINE_COLOURS = COLOURS[:-1]
"""All but yellow, which is faint on white."""
STYLES = ("-", (0, (5, 1.5)), "-.")


def new_figure(
    width: float | int, height: float | int, panels: int = 1, columns: int | None = None
) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels side by side, or in rows of some; no global state of matplotlib is touched."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    columns = columns or panels
    axes = [figure.add_subplot(-(-panels // columns), columns, number + 1) for number in range(panels)]
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(True, alpha=0.25, linewidth=0.6)
    return figure, axes


def draw_learning_curve(lines: Sequence[Line], title: str, path: Path) -> None:
    """Draw evaluation returns against steps, with their spread over episodes and the random policy as a reference."""
    evals = [line for line in lines if line["kind"] == "eval"]
    greedy = [line for line in evals if line["policy"] == "greedy"]
    random = [line for line in evals if line["policy"] == "random"]
    figure, (ax,) = new_figure(7.0, 4.2)
    steps = np.array([line["step"] for line in greedy])
    mean = np.array([line["return_mean"] for line in greedy])
    spread = np.array([line["return_std"] for line in greedy])
    ax.fill_between(steps, mean - spread, mean + spread, color=COLOURS[0], alpha=0.18, linewidth=0)
    ax.plot(steps, mean, "o-", color=COLOURS[0], markersize=3.5, label="evaluation (mean ± std over episodes)")
    if random:
        level = random[0]["return_mean"]
        ax.axhline(level, color=COLOURS[1], linestyle="--", label=f"random policy ({level:.4g})")
    ax.set(xlabel="training steps", ylabel="return of an episode", title=title)
    ax.set_xlim(left=0)
    ax.xaxis.set_major_formatter("{x:,.0f}")
    figure.legend(frameon=False, loc="outside lower center", ncols=2)  # below, where no curve can run through it
    figure.savefig(path, dpi=150)


def draw_quantile_functions(
    taus: Float[np.ndarray, " M"],
    quantiles: Float[np.ndarray, "A M"],
    means: Float[np.ndarray, " A"],
    title: str,
    path: Path,
) -> None:
    """Draw the learned quantile functions of the actions in one state, and each mean as a short dashed level."""
    figure, (ax,) = new_figure(7.0, 4.2)
    plot_quantile_functions(ax, taus, quantiles, means)
    ax.set_title(title)
    figure.savefig(path, dpi=150)


def plot_quantile_functions(
    ax: Axes, taus: Float[np.ndarray, " M"], quantiles: Float[np.ndarray, "A M"], means: Float[np.ndarray, " A"]
) -> None:
    """Plot one curve for each action into a panel; of more than can be told apart, those with the highest means."""
    kinds = [(colour, style) for style in STYLES for colour in COLOURS]
    best = np.argsort(-means, kind="stable")[: len(kinds)]
    for action, (colour, style) in zip(np.sort(best), kinds, strict=False):
        mean, label = means[action], f"action {action}, mean {means[action]:.4g}"
        ax.plot(taus, quantiles[action], color=colour, linestyle=style, linewidth=1.8, label=label)
        ax.axhline(mean, color=colour, linestyle=":", linewidth=1, alpha=0.7)
    ax.set(xlabel="fraction $\\tau$", ylabel="return quantile $F^{-1}(\\tau)$", xlim=(0, 1))
    ax.legend(frameon=False, fontsize="small", ncols=1 + len(best) // 10)
