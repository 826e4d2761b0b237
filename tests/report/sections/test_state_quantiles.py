"""Quantile functions in fixed states, and the choice of states and actions to draw."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from monotau.agent import Agent
from monotau.learning.evaluate import falls_and_changes
from monotau.report.sections.quantiles import (
    MAX_CURVES,
    STATES,
    FractionSets,
    StateQuantiles,
    choose_actions,
    choose_state,
    decreasing_pieces,
    predict_quantiles,
    random_states,
)
from tests.support.envs import Frames, registered_masked_env

SMALL_HEAD = {"torso": {"width": 8}, "head": {"hidden": 8}}


def test_all_agents_of_an_environment_see_the_same_states():
    one = random_states(Agent("CartPole-v1", "ndqfn", 0, **SMALL_HEAD))
    stacked = random_states(
        Agent(
            "CartPole-v1",
            "iqn",
            5,
            env_settings={"frame_stack": 3, "num_envs": 2, "max_episode_steps": 3},
            **SMALL_HEAD,
        )
    )
    assert one.shape == (STATES, 1, 4)
    assert stacked.shape == (STATES, 3, 4)
    assert np.array_equal(one[:, -1], stacked[:, -1])


def test_a_state_that_comes_again_counts_once():
    assert len(random_states(Agent("monotau/TwoStepCoin-v0", "ndqfn", **SMALL_HEAD))) == 2
    with registered_masked_env() as env_id:  # it raises for actions that are not allowed
        assert len(random_states(Agent(env_id, "ndqfn", **SMALL_HEAD))) == 2


def test_many_actions_leave_room_for_few_states(monkeypatch):
    monkeypatch.setattr("monotau.report.sections.quantiles.EnvFactory", lambda config: agent.envs)
    agent = Agent(lambda: Frames(actions=MAX_CURVES // 3), "dqn", **SMALL_HEAD)
    assert len(random_states(agent)) == 3


@pytest.mark.parametrize(
    ("preset", "depends"), [("incremental-iqn", True), ("iqn", False), ("ndqfn", False), ("c51", False)]
)
def test_sets_are_asked_of_heads_whose_answer_depends_on_them(preset, depends):
    agent = Agent("monotau/TwoStepCoin-v0", preset, 2, **SMALL_HEAD)
    answers = predict_quantiles(agent)
    assert answers.curves.shape == (2, 2, 1001)
    assert (answers.sets is not None) == depends
    if answers.sets is not None:
        values = agent.quantiles(np.array([0, 1]), answers.sets.taus[1])
        torch.testing.assert_close(answers.sets.values[:, :, 1], values)
        assert answers.crossing == 0
        assert answers.crossing_between_sets > 0
        assert (answers.sets.taus.diff(dim=-1) >= 0).all()
    else:
        assert answers.crossing_between_sets == 0


def test_sets_are_put_together_in_the_order_of_fractions():
    sets = FractionSets(
        taus=torch.tensor([[0.1, 0.5, 0.9], [0.2, 0.3, 0.4]]), values=torch.arange(24.0).view(2, 2, 2, 3)
    )
    taus, values = sets.merged()
    assert taus.tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.9])
    assert values[0, 0].tolist() == [0, 3, 4, 5, 1, 2]
    assert values[1, 1].tolist() == [18, 21, 22, 23, 19, 20]
    answers = StateQuantiles(curves=torch.zeros(2, 2, 5), sets=sets)
    assert answers.crossing_between_sets == pytest.approx(1 / 5)


def test_falls_are_counted_among_changes():
    curves = torch.tensor([[[0.0, 1, 1, 0.5], [2, 2, 2, 2]], [[3, 2, 1, 5], [0, float("nan"), 0, 1]]])
    assert falls_and_changes(curves) == (5, 8)
    assert StateQuantiles(curves=curves).crossing == 5 / 8


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=30))
def test_every_falling_stretch_is_marked_and_no_other(values):
    taus, curve = np.linspace(0, 1, len(values)), np.array(values, dtype=float)
    across, up = decreasing_pieces(taus, curve)
    wanted = [
        pair
        for (tau, value), (next_tau, next_value) in pairwise(zip(taus, curve, strict=True))
        if next_value < value
        for pair in ((tau, value), (next_tau, next_value), (np.nan, np.nan))
    ]
    np.testing.assert_equal(np.stack([across, up], axis=1), np.array(wanted).reshape(-1, 2))


def test_the_state_that_falls_most_is_drawn():
    rising = torch.tensor([[[0.0, 1.0], [0, 1]], [[0, 1], [0, 1]], [[0, 9], [0, 0]]])  # 3 states, 2 actions
    falling = torch.tensor([[[0.0, 1.0], [0, 1]], [[1, 0], [3, 1]], [[0, 1], [2, 0]]])
    assert choose_state([rising]) == 2  # none falls, and means differ there only
    assert choose_state([rising, falling]) == 1
    assert choose_state([rising, torch.full((3, 2, 2), float("nan"))]) == 2


def test_the_actions_that_methods_rank_highest_are_drawn():
    one = torch.tensor([[5.0, 5], [1, 1], [4, 4], [0, 0]])
    other = torch.tensor([[0.0, 0], [100, 100], [300, 300], [200, 200]])
    assert choose_actions([one], 2).tolist() == [0, 2]
    assert choose_actions([one, other], 2).tolist() == [0, 2]
    assert choose_actions([one, other], 9).tolist() == [0, 1, 2, 3]
    assert choose_actions([other], 2).tolist() == [2, 3]
