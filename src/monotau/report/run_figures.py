"""The figures that a run leaves in its directory: its learning curve, and its quantile functions in one state."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from monotau.agent import Agent
from monotau.learning.evaluate import Evaluation
from monotau.report.plotting import (
    COLOURS,
    DPI,
    REFERENCE,
    label,
    label_steps,
    new_figure,
    use_thousands,
)
from monotau.report.quantile_plots import plot_differences, plot_quantile_functions
from monotau.results.read import is_evaluation
from monotau.runs.metrics import Line

MAX_ACTIONS = 6
"""With more actions, a figure shows only the best ones and their differences to the greedy action."""


def draw_run_figures(directory: Path, lines: Sequence[Line], agent: Agent, evaluation: Evaluation) -> None:
    """Draw both figures of a run into its directory."""
    config = agent.config
    title = f"{config.preset} on {config.env.title}, seed {config.seed}"
    draw_learning_curve(lines, title, directory / "learning_curve.png")
    draw_state_quantiles(agent, evaluation, title, directory / "quantile_functions.png")


def draw_learning_curve(lines: Sequence[Line], title: str, path: Path) -> None:
    """Draw evaluation returns over training steps, with their spread over episodes and the return of random play."""
    evaluations = [line for line in lines if is_evaluation(line)]
    random = [line for line in lines if line["kind"] == "eval" and line["policy"] == "random"]
    figure, (ax,) = new_figure(7.0, 4.2)
    steps = np.array([line["step"] for line in evaluations])
    mean = np.array([line["return_mean"] for line in evaluations])
    spread = np.array([line["return_std"] for line in evaluations])
    ax.fill_between(steps, mean - spread, mean + spread, color=COLOURS[0], alpha=0.18, linewidth=0)
    ax.plot(steps, mean, "o-", color=COLOURS[0], markersize=3.5, label="evaluation (mean ± std over episodes)")
    if random:
        value = random[0]["return_mean"]
        ax.axhline(value, label=f"random policy ({value:.4g})", **REFERENCE)
    ax.set_title(label(title, 70))
    ax.set_ylabel("return of an episode")
    ax.set_xlim(left=0)
    label_steps(ax)
    use_thousands(ax.yaxis)
    figure.legend(frameon=False, loc="outside lower center", ncols=2)
    figure.savefig(path, dpi=DPI)


def draw_state_quantiles(agent: Agent, evaluation: Evaluation, title: str, path: Path) -> None:
    """Draw the quantile functions in the visited state in which the means of the actions differ most.

    With more than `MAX_ACTIONS` actions the quantile functions are too close to be told apart: the figure then shows
    that of the greedy action, and how those of the next best actions differ from it.
    """
    taus, quantiles = widest_state(agent, evaluation)
    order = np.argsort(-quantiles.mean(axis=-1), kind="stable")[:MAX_ACTIONS].tolist()
    if len(quantiles) <= MAX_ACTIONS:
        figure, (ax,) = new_figure(7.0, 4.2)
        plot_quantile_functions(ax, taus, quantiles, sorted(order))
    else:
        figure, (ax, right) = new_figure(9.6, 4.2, 2)
        plot_quantile_functions(ax, taus, quantiles, order[:1])
        ax.set_title("greedy action", fontsize="medium")
        plot_differences(right, taus, quantiles, order)
        right.set_title(f"next best of {len(quantiles)} actions", fontsize="medium")
    state = f"visited state with the largest difference between actions, of {len(evaluation.states)}"
    figure.suptitle(f"{label(title, 70)}\n{state}", fontsize="medium")
    figure.legend(frameon=False, loc="outside lower center", ncols=3, fontsize="small")
    figure.savefig(path, dpi=DPI)


def widest_state(agent: Agent, evaluation: Evaluation) -> tuple[Float[np.ndarray, " M"], Float[np.ndarray, "A M"]]:
    """Return fractions, and the quantiles of all actions in the state in which their means differ most."""
    network, device = agent.networks.evaluated, agent.networks.device
    taus = torch.linspace(0.001, 0.999, 500, device=device)
    widest: Tensor | None = None
    largest = -math.inf
    for state in evaluation.states:  # one at a time: with thousands of actions, all of them would need gigabytes
        curves = network.quantiles(torch.from_numpy(state[None]).to(device), taus)[0] * agent.unit  # A M
        means = curves.mean(dim=-1)
        difference = (means.max() - means.min()).item()
        if widest is None or difference > largest:
            widest, largest = curves, difference
    assert widest is not None  # noqa: S101  # every evaluation has visited a state
    return taus.cpu().numpy(), widest.cpu().numpy()
