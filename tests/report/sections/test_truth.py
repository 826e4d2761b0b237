"""The distance between learned and true return distributions."""

from itertools import pairwise

import pytest
import torch

from monotau.agent import Agent
from monotau.envs.probes import Gate, TwoStepCoin
from monotau.report.comparison import RunComparison
from monotau.report.sections.truth import TAUS, distance_to, knows_truth, true_quantiles, truth_sections
from monotau.results.methods import read_methods as read_runs
from tests.support.runs import fake_run, ignore
from tests.support.small_runs import SMALL, small_run, train_undrawn

COIN = "monotau/TwoStepCoin-v0"


def test_the_true_quantiles_of_outcomes():
    values = true_quantiles([(0.25, 3.0), (0.75, -1.0)])
    assert values.tolist() == [-1.0] * 750 + [3.0] * 250
    assert len(TAUS) == 1000
    assert float(values.mean()) == pytest.approx(0.25 * 3 - 0.75)


def test_the_distance_is_the_mean_over_states_and_actions():
    agent = Agent(COIN, "iqn", 3, torso={"width": 8}, head={"hidden": 8, "cosines": 8})
    truth = TwoStepCoin().truth(0.5)
    plain, ordered, falls = 0.0, 0.0, 0
    for (state, action), outcomes in truth.items():
        learned = [float(value) for value in agent.distribution(state).quantile(TAUS)[action]]
        true = []
        for probability, value in sorted(outcomes, key=lambda outcome: outcome[1]):
            true += [value] * round(1000 * probability)
        plain += sum(abs(one - other) for one, other in zip(learned, true, strict=True)) / 1000 / len(truth)
        ordered += sum(abs(one - other) for one, other in zip(sorted(learned), true, strict=True)) / 1000 / len(truth)
        curve = agent.quantiles(state, TAUS)[action].tolist()
        falls += sum(after < before for before, after in pairwise(curve))
    distance = distance_to(truth, agent)
    assert distance.w1 == pytest.approx(plain, rel=1e-5)
    assert distance.w1_sorted == pytest.approx(ordered, rel=1e-5)
    assert distance.crossing == pytest.approx(falls / 999 / len(truth), rel=1e-5)
    assert distance.w1_sorted < distance.w1
    assert len(truth) == 4


def test_only_allowed_actions_are_compared():
    agent, truth = Agent("monotau/Gate-v0", "dqn", 3, **(SMALL | {"head": {"hidden": 8}})), Gate().truth(0.5)
    means = [abs(agent.distribution(state).mean()[action].item() - o[0][1]) for (state, action), o in truth.items()]
    assert len(means) == 3
    assert distance_to(truth, agent).w1 == pytest.approx(sum(means) / 3, rel=1e-5)


@pytest.fixture(scope="module")
def coins(tmp_path_factory):
    home = tmp_path_factory.mktemp("coins")
    for name, settings in {"plain": {}, "again": {"seed": 1}, "clipped": {"replay": {"reward_clip": 1.0}}}.items():
        train_undrawn(home / name, small_run("ndqfn", COIN, **(SMALL | {"steps": 60} | settings)))
    return home


def test_every_finished_run_is_measured_or_named(coins):
    runs = read_runs([coins])
    (section,) = truth_sections(RunComparison(runs), ignore)
    (table,) = section.tables
    ((_, cell),) = table.rows
    agents = [Agent.load(coins / name / "agent") for name in ("plain", "again")]
    ones = sorted(distance_to(TwoStepCoin().truth(agent.config.gamma), agent).w1 for agent in agents)
    assert table.columns == ("method", COIN)
    assert cell == f"{sum(ones) / 2:.3f} ({ones[0]:.3f} to {ones[1]:.3f})"
    assert "Could not be measured: clipped (its rewards were clipped to 1, so its returns differ)." in section.text
    section.pictures[0].figure.draw_without_rendering()


def test_worlds_that_do_not_know_are_left_out():
    assert truth_sections(RunComparison([fake_run("dqn", ())]), ignore) == []
    known = [knows_truth(fake_run("dqn", (), f"monotau/{name}-v0")) for name in ("Coin", "Chain", "Grid", "DeepSea")]
    assert known == [True, True, False, False]


def test_returns_without_bound_are_not_measured(tmp_path):
    train_undrawn(tmp_path / "forever", small_run("ndqfn", "monotau/TimeLimit-v0", gamma=1.0, steps=60))
    (section,) = truth_sections(RunComparison(read_runs([tmp_path])), ignore)
    assert "forever (its returns are unbounded with gamma 1)" in section.text
    assert section.pictures == ()


def test_taus_are_midpoints():
    assert torch.equal(TAUS[[0, -1]], torch.tensor([0.0005, 0.9995]))
