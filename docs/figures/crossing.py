"""Draws the picture of the README: IQN's quantile functions cross, NDQFN's cannot. Trains both first (some minutes).

Both learn for the same number of steps on the same environment and seed. Of the states that evaluation visits, the one
in which IQN's curves fall most is shown for both: the worst case for IQN, which NDQFN passes without a fall.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from monotau import Agent
from monotau.report.plotting import new_figure
from monotau.report.quantile_plots import plot_quantile_functions


def falls(curves: torch.Tensor) -> torch.Tensor:
    """How far the curves of each state fall in all, relative to their spread: `[n, A, M] -> [n]`."""
    drops = -curves.diff(dim=-1).clamp_max(0).sum(dim=-1)
    return (drops / (curves.amax(dim=-1) - curves.amin(dim=-1))).amax(dim=-1)


def main() -> None:
    """Train, choose the state and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="MinAtar/Breakout-v1")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("crossing.png"))
    given = parser.parse_args()
    taus = torch.linspace(0.001, 0.999, 999)
    agents = {name: Agent(given.env, name, given.seed, verbose=True) for name in ("iqn-star", "ndqfn")}
    for agent in agents.values():
        agent.learn(given.steps)
    states = np.concatenate([agent.evaluate(5).states[:, -1] for agent in agents.values()])
    curves = {
        name: torch.cat([agent.quantiles(state[None], taus) for state in states]) for name, agent in agents.items()
    }
    worst = int(falls(curves["iqn-star"]).argmax())
    figure, axes = new_figure(10, 4, panels=2)
    for ax, (name, title) in zip(axes, (("iqn-star", "IQN"), ("ndqfn", "NDQFN")), strict=True):
        shown = curves[name][worst]
        share = (curves[name].diff(dim=-1) < 0).float().mean()
        plot_quantile_functions(ax, taus.numpy(), shown.numpy(), range(len(shown)))
        ax.legend(frameon=False, fontsize="small")
        ax.set_title(f"{title}: {share:.1%} of neighbouring quantiles decrease", fontsize="medium")
        print(f"{name}: {float(share):.4f} of neighbours decrease over {len(states)} states and all actions")
    low = min(ax.get_ylim()[0] for ax in axes)
    high = max(ax.get_ylim()[1] for ax in axes)
    for ax in axes:
        ax.set_ylim(low, high)
    figure.suptitle(f"Learned return distributions in one state of {given.env} after {given.steps:,d} steps")
    figure.savefig(given.out, dpi=150)


if __name__ == "__main__":
    main()
