"""Summaries of audits: means over states, intervals over episodes, and agents that are exact or wrong."""

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest

from monotau.audit.curves import Curve
from monotau.audit.page import plain
from monotau.audit.summary import Pair, Resampling, interval_of, joined, read_summaries, summarise
from monotau.errors import ConfigError
from monotau.report.sections.audit import cell
from monotau.results.summary import Estimate

ABOUT = {
    "directory": "runs/a",
    "method": "iqn",
    "env": "Normal-v0",
    "seed": 3,
    "head": "iqn",
    "gamma": 0.99,
    "reward_clip": 0.0,
    "audit_seed": 0,
    "rollouts": 32,
    "actions": "all",
}
NORMAL = Curve.of_values(np.linspace(-2.0, 2.0, 50))


def pairs(learned=lambda curve: curve, states=40, measured=lambda state: True, gap=1.0, per_episode=2):
    """Two actions in every state, whose true returns differ by a gap; `learned` turns the truth into a claim."""
    rng, found = np.random.default_rng(1), []
    for state in range(states):
        for action in range(2):
            true = Curve(NORMAL.edges, NORMAL.left + gap * action, NORMAL.right + gap * action)
            found.append(
                Pair(
                    state=state,
                    episode=state // per_episode,
                    step=state,
                    action=action,
                    greedy=action == 1,
                    crossing=0.1 * action,
                    curve=learned(true),
                    returns=true.draw((32,), rng),
                    steps=np.full(32, 7),
                    measured=measured(state),
                )
            )
    return found


def shifted(curve):
    return Curve(curve.edges, curve.left + 2, curve.right + 2)


def other_way(curve):
    """Claims that the worse action is better, by as much."""
    centre = curve.mean()
    return Curve(curve.edges, curve.left - 2 * centre, curve.right - 2 * centre)


def test_an_exact_agent_passes():
    summary = summarise(ABOUT, pairs(), seed=0).summary
    for name in ("w1_excess", "bias", "cvar_error", "spread_error"):
        _, low, high = summary.measures[name]
        assert low < 0.02
        assert high > -0.02
    assert summary.measures["inconsistent"][0] <= 0.05
    assert summary.measures["refuted"][0] == 0
    assert summary.measures["confirmed"][0] > 0.6
    assert summary.measures["calibration_error"][0] < 0.02
    assert summary.measures["crossing"][0] == pytest.approx(0.05)
    assert np.abs(np.array(summary.pit) - 0.05).max() < 4 * math.sqrt(0.05 * 0.95 / summary.pit_count)
    assert (summary.states, summary.episodes, summary.pairs, summary.claims) == (40, 20, 80, 20)
    assert (summary.unmeasured, summary.rollout_steps, summary.pit_count) == (0, 7.0, 80 * 32)
    assert sum(summary.measures[name][0] for name in ("refuted", "confirmed", "undecided")) == pytest.approx(1)


def test_an_agent_with_shifted_means_is_found():
    summary = summarise(ABOUT, pairs(shifted), seed=0).summary
    assert summary.measures["bias"][0] == pytest.approx(2, abs=0.1)
    assert summary.measures["bias"][1] > 1.9
    assert summary.measures["w1_relative"][0] == pytest.approx(summary.measures["w1_excess"][0] / summary.return_spread)
    assert summary.measures["inconsistent"][0] == 1
    assert summary.measures["refuted"][0] == 0  # both actions are too high by the same
    assert summary.measures["calibration_error"][0] > 0.25
    assert summary.shares[9] > 0.85  # returns below the learned median
    assert summary.pit[0] > 0.3


def test_an_agent_that_prefers_the_worse_action_is_refuted():
    audit = summarise(ABOUT, pairs(other_way, gap=2.0), seed=0)
    assert audit.summary.measures["refuted"][0] == 1
    assert audit.summary.measures["reversed"][0] > 0.9
    assert {verdict.claim.kind for verdict in audit.verdicts} == {"better", "safer"}


def test_states_count_equally_and_unmeasured_actions_are_left_out():
    mixed = pairs(states=4)
    del mixed[0]  # the first state keeps one action
    summary = summarise(ABOUT, mixed, seed=0)
    crossing = (0.1 + 3 * 0.05) / 4
    assert summary.summary.measures["crossing"][0] == pytest.approx(crossing)
    some = summarise(ABOUT, pairs(measured=lambda state: state % 2 == 0), seed=0)
    assert (some.summary.unmeasured, some.summary.pairs, len(some.pairs)) == (40, 80, 40)
    with pytest.raises(ConfigError, match=r"^Normal-v0 truncates its episodes itself, in a rollout of every audited"):
        summarise(ABOUT, pairs(measured=lambda state: False), seed=0)


def test_one_action_per_state_makes_no_claims():
    audit = summarise(ABOUT, [pair for pair in pairs() if pair.greedy], seed=0)
    assert audit.summary.claims == 0
    assert "refuted" not in audit.summary.measures
    assert joined([audit], "refuted") is None


def test_the_same_seed_gives_the_same_numbers():
    assert summarise(ABOUT, pairs(states=6), 4).summary == summarise(ABOUT, pairs(states=6), 4).summary
    assert summarise(ABOUT, pairs(states=6), 4).summary != summarise(ABOUT, pairs(states=6), 5).summary


def test_whole_episodes_are_resampled():
    """Within an episode values are equal, so the interval is that of four values, not of forty."""
    episodes, values = np.repeat(np.arange(4), 10), np.repeat([0.0, 1.0, 2.0, 3.0], 10)
    resampling = Resampling([*map(int, episodes)], np.random.default_rng(0))
    drawn = resampling.means(values, np.ones(40))
    assert drawn[0] == 1.5
    assert drawn[1:].std() == pytest.approx(math.sqrt(1.25 / 4), rel=0.05)
    shares = resampling.shares([0, 0, 3], [True, False, True])
    assert shares[0] == pytest.approx(2 / 3)
    low, high = interval_of(drawn[1:])
    assert (low, high) == (np.quantile(drawn[1:], 0.025), np.quantile(drawn[1:], 0.975))


def test_agents_are_joined_by_their_mean():
    one, other = (summarise(ABOUT, pairs(learned, states=8), seed=0) for learned in (lambda curve: curve, shifted))
    both = joined([one, other], "bias")
    assert both.value == pytest.approx((one.summary.measures["bias"][0] + other.summary.measures["bias"][0]) / 2)
    widths = [audit.summary.measures["bias"][2] - audit.summary.measures["bias"][1] for audit in (one, other)]
    assert both.interval[1] - both.interval[0] < max(widths)


def test_summaries_are_read_as_they_were_written(tmp_path):
    summary = summarise(ABOUT, pairs(states=4), seed=0).summary
    path = tmp_path / "audit.json"
    path.write_text(json.dumps(plain([summary])))
    assert read_summaries(path) == [summary]
    assert summary.estimate("bias").value == summary.measures["bias"][0]
    good = asdict(summary)
    for wrong, reason in [
        ({"format": 2, "agents": []}, "its format must be 1"),
        ({"format": 1, "agents": [good | {"pit": [0.5]}]}, "its curves or measures do not fit together"),
        ({"format": 1, "agents": [good | {"measures": {"bias": [1.0]}}]}, "do not fit together"),
        ({"format": 1, "agents": [good | {"seed": "x"}]}, "audit.seed is 'x', but must be a whole number"),
    ]:
        path.write_text(json.dumps(wrong))
        with pytest.raises(ConfigError, match=reason):
            read_summaries(path)


def test_a_negligible_spread_is_no_unit():
    far = [replace(pair, returns=1_000 + pair.returns) for pair in pairs(states=6)]
    audit = summarise(ABOUT, far, seed=0)
    assert "w1_relative" not in audit.summary.measures
    assert joined([audit], "w1_relative") is None
    constant = [replace(pair, returns=np.zeros(32)) for pair in pairs(states=6)]
    assert "w1_relative" not in summarise(ABOUT, constant, seed=0).summary.measures


def test_few_episodes_or_claims_have_no_interval():
    few, more = (summarise(ABOUT, pairs(states=states), seed=0) for states in (8, 10))
    assert [each.summary.episodes for each in (few, more)] == [4, 5]
    assert few.summary.estimate("bias").interval is None
    assert more.summary.estimate("bias").interval == more.summary.measures["bias"][1:]
    assert joined([few], "bias").interval is None
    assert joined([few, few], "bias").interval is not None
    assert replace(more.summary, claims=4).estimate("refuted").interval is None
    assert replace(more.summary, claims=5).estimate("refuted").interval is not None


def test_a_value_lies_within_the_interval_that_is_printed_beside_it():
    assert cell("crossing", Estimate(value=0.516, interval=(0.516, 0.5161))) == "51.6 [51.6, 51.6]"
    assert cell("bias", Estimate(value=0.0194, interval=(0.0194, 0.0239))) == "0.0194 [0.0194, 0.0239]"
    assert cell("bias", Estimate(value=-6.0, interval=None)) == "-6"
