"""Every preset as a whole: it learns, is saved, is loaded unchanged, and stops if it diverges."""

import numpy as np
import pytest
import torch

from monotau import Agent, Divergence
from monotau.learning.evaluate import fine_crossing
from tests.support.presets import presets
from tests.support.small_runs import SMALL

FEW = {name: value for name, value in SMALL.items() if name != "head"} | {"head": {"hidden": 8}}
STATE = np.array([0.1, -0.2, 0.03, 0.4], np.float32)


@pytest.mark.parametrize("preset", presets())
def test_every_preset_learns_and_is_saved_and_loaded_unchanged(preset, tmp_path):
    agent = Agent("CartPole-v1", preset, **FEW).learn(120)
    line = [line for line in agent.history if line["kind"] == "train"][-1]
    assert np.isfinite(line["loss"])
    before = agent.distribution(STATE).curve()
    agent.predict(STATE, deterministic=False)
    assert torch.equal(agent.distribution(STATE).curve(), before)  # exploring leaves no noise in the weights
    agent.save(tmp_path / "agent")
    again = Agent.load(tmp_path / "agent")
    assert torch.equal(again.distribution(STATE).curve(), before)
    if line["bonus_mean"] is not None:
        assert torch.equal(again.bonus(STATE), agent.bonus(STATE))
    for risk in ("mean", "cvar", "upper-cvar", "wang", "power"):
        assert again.predict(STATE, risk=risk)[0] == agent.predict(STATE, risk=risk)[0]
    view = agent.distribution(STATE)
    assert (view.cvar(0.1) <= view.mean() + 1e-5).all()


@pytest.mark.parametrize(("rate", "match"), [(1e30, "the loss is|the weights became NaN"), (1e38, "may help")])
@pytest.mark.parametrize("preset", ["ndqfn", "c51", "prioritized"])
def test_a_diverging_run_is_stopped_before_its_next_log_line(preset, rate, match):
    settings = FEW | {"log_every_steps": 10_000, "iteration_steps": 120, "optimiser": {"learning_rate": rate}}
    with pytest.raises(Divergence, match=rf"{preset} on CartPole-v1, step .*({match})"):
        Agent("CartPole-v1", preset, **settings).learn(120)


def test_crossing_is_counted_among_changes_so_that_step_and_line_curves_compare():
    states = np.random.default_rng(0).standard_normal((5, 1, 4)).astype(np.float32)
    found = {
        name: fine_crossing(Agent("CartPole-v1", name, **FEW).networks.learner.online, states)
        for name in ("qr-dqn", "iqn", "ndqfn", "dqn")
    }
    assert found["qr-dqn"] == pytest.approx(0.5, abs=0.15)  # outputs of a random network fall as often as they rise
    assert found["iqn"] > 0.2
    assert found["ndqfn"] == found["dqn"] == 0
