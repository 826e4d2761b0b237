"""Quantile functions of the actions in one state, as runs and agents plot them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from monotau.report.plotting import LINE_COLOURS, method_styles


def plot_quantile_functions(
    ax: Axes,
    taus: Float[np.ndarray, " M"],
    quantiles: Float[np.ndarray, "A M"],
    actions: Sequence[int],
    *,
    means: Float[np.ndarray, " A"] | None = None,
    chosen: int | None = None,
    action_start: int = 0,
) -> None:
    """Plot the quantile functions of some actions, with their means as dotted lines, and mark the chosen action.

    Without `means`, the averages of the quantiles are shown. Labels count actions from `action_start`.
    """
    means = quantiles.mean(axis=-1) if means is None else means
    styles = method_styles([str(action) for action in actions])
    for action in actions:
        style, name = styles[str(action)], f"action {action + action_start}{' (chosen)' if action == chosen else ''}"
        width = 3.0 if action == chosen else 1.8
        ax.plot(taus, quantiles[action], linewidth=width, label=f"{name}, mean {means[action]:.4g}", **style)
        ax.axhline(means[action], color=style["color"], linestyle=":", linewidth=1, alpha=0.7)
    ax.set(xlabel="fraction $\\tau$", ylabel="return quantile $F^{-1}(\\tau)$", xlim=(0, 1))


def add_action_legend(ax: Axes, actions: int) -> None:
    """Add a legend: inside the axes if there are few actions, otherwise beside them, where it covers no curve."""
    columns = 1 + (actions - 1) // 18
    beside: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0), "ncols": columns}
    ax.legend(frameon=False, fontsize="small", **(beside if actions > 6 else {}))


def plot_differences(
    ax: Axes, taus: Float[np.ndarray, " M"], quantiles: Float[np.ndarray, "A M"], actions: Sequence[int]
) -> None:
    """Plot how the quantile functions of actions differ from that of the first one."""
    greedy, *others = actions
    ax.axhline(0, color=LINE_COLOURS[0], linewidth=1.8)
    for action, colour in zip(others, LINE_COLOURS[1:], strict=False):
        difference = quantiles[action] - quantiles[greedy]
        text = f"action {action}, mean difference {difference.mean():+.3g}"
        ax.plot(taus, difference, color=colour, linewidth=1.6, label=text)
    ax.set(xlabel="fraction $\\tau$", ylabel=f"difference to action {greedy}", xlim=(0, 1))
