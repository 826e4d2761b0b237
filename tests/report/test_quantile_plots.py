"""Quantile functions of actions, as runs and agents plot them."""

import subprocess
import sys

import numpy as np
import pytest

from monotau import Agent
from monotau.errors import ConfigError
from monotau.report.plotting import new_figure
from monotau.report.quantile_plots import plot_differences, plot_quantile_functions
from tests.support.envs import Frames

SEEN = np.array([0.5, -0.5], np.float32)


def curves(ax):
    return [line for line in ax.get_lines() if line.get_label().startswith("action")]


def test_differences_by_hand():
    _, (ax,) = new_figure(7.0, 4.0)
    quantiles = np.array([[1.0, 2.0], [4.0, 8.0], [3.0, 9.0]])
    plot_differences(ax, np.array([0.25, 0.75]), quantiles, [1, 2, 0])
    zero, second, third = ax.get_lines()
    assert zero.get_ydata() == [0, 0]
    assert (second.get_ydata().tolist(), second.get_label()) == ([-1.0, 1.0], "action 2, mean difference +0")
    assert (third.get_ydata().tolist(), third.get_label()) == ([-3.0, -6.0], "action 0, mean difference -4.5")
    assert ax.get_ylabel() == "difference to action 1"


def test_each_action_has_its_own_colour():
    _, (ax,) = new_figure(7.0, 4.0)
    plot_quantile_functions(ax, np.array([0.1, 0.9]), np.arange(12.0).reshape(6, 2), range(6))
    assert len({line.get_color() for line in curves(ax)}) == 6
    assert curves(ax)[2].get_label() == "action 2, mean 4.5"


def test_an_agent_plots_every_action_its_mean_and_the_chosen_one():
    agent = Agent(lambda: Frames(actions=9, first_action=4), "ndqfn", return_scale=5.0)
    _, (ax,) = new_figure(7.0, 4.0)
    assert agent.plot_distribution(SEEN, ax, risk="cvar", alpha=0.2) is ax
    drawn, returns = curves(ax), agent.distribution(SEEN)
    assert len({(line.get_color(), line.get_linestyle()) for line in drawn}) == 9
    chosen = int(returns.cvar(0.2).argmax())
    assert [line.get_label() for line in drawn] == [
        f"action {4 + action}{' (chosen)' if action == chosen else ''}, mean {mean:.4g}"
        for action, mean in enumerate(returns.mean().tolist())
    ]
    np.testing.assert_allclose(drawn[3].get_ydata(), returns.quantile(drawn[3].get_xdata().tolist())[3], atol=1e-5)
    levels = [line.get_ydata()[0] for line in ax.get_lines() if line.get_linestyle() == ":"]
    np.testing.assert_allclose(levels, returns.mean())
    assert len(ax.get_legend().get_texts()) == 9


def test_an_agent_plots_into_a_figure_of_its_own(tmp_path):
    ax = Agent(Frames, "dqn").plot_distribution(SEEN)
    ax.figure.savefig(tmp_path / "returns.png")
    assert (tmp_path / "returns.png").stat().st_size > 1000


def test_a_batch_is_not_plotted():
    with pytest.raises(ConfigError, match=r"^observation is a batch of 2, but must be a single one to plot it\.$"):
        Agent(Frames, "dqn").plot_distribution(np.stack([SEEN, SEEN]))


def test_an_agent_imports_matplotlib_only_to_plot():
    code = "import sys, monotau.agent; print('matplotlib' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown == "False\n"
