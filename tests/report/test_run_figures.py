"""The figures of a single run."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from monotau.agent import Agent
from monotau.learning.evaluate import Evaluation
from monotau.report import run_figures
from monotau.report.run_figures import (
    MAX_ACTIONS,
    draw_learning_curve,
    draw_state_quantiles,
)
from tests.support.envs import Frames
from tests.support.runs import evaluation, training


@pytest.fixture
def saved(monkeypatch):
    """The figures that are saved."""
    figures = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    return figures


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


@pytest.mark.parametrize(("actions", "panels"), [(3, 1), (MAX_ACTIONS, 1), (MAX_ACTIONS + 1, 2), (100, 2)])
def test_many_actions_are_drawn_as_differences_of_the_best_to_the_greedy_one(actions, panels, saved, tmp_path):
    agent = Agent(lambda: Frames(actions=actions), "qr-dqn", torso={"width": 8}, head={"hidden": 8})
    states = np.random.default_rng(5).standard_normal((4, 1, 2)).astype(np.float32)
    draw_state_quantiles(agent, Evaluation([0.0], [1], states), "a $title", tmp_path / "x.png")
    (figure,) = saved
    assert len(figure.axes) == panels
    shown = [int(text.split(",")[0].removeprefix("action ")) for text in legend(figure)]
    _, quantiles = run_figures.widest_state(agent, Evaluation([0.0], [1], states))
    order = np.argsort(-quantiles.mean(axis=-1), kind="stable").tolist()
    assert shown == (list(range(actions)) if panels == 1 else order[:MAX_ACTIONS])
    assert figure.get_suptitle().startswith("a \\$title\n")
    figure.draw_without_rendering()


def test_the_learning_curve_shows_evaluations_and_random_play_only(saved, tmp_path):
    lines = [evaluation(0, 7.0, "random"), training(50, return_mean=1e6), evaluation(100, 20.0), evaluation(200, 30.0)]
    draw_learning_curve(lines, "t", tmp_path / "x.png")
    (figure,) = saved
    curve, random = figure.axes[0].get_lines()
    assert (curve.get_xdata().tolist(), curve.get_ydata().tolist()) == ([100, 200], [20.0, 30.0])
    assert set(random.get_ydata()) == {7.0}
