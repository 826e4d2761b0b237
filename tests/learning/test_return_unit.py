"""The unit of returns: how and when it is measured, and that the scale of rewards does not matter."""

import re

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.wrappers import TransformReward
from hypothesis import given
from hypothesis import strategies as st

from monotau.agent import Agent
from monotau.config.parse import override
from monotau.errors import ConfigError
from monotau.learning.return_unit import RETRY_STEPS, ReturnUnit, measure
from monotau.replay import Layout, Prioritized, Steps, Uniform
from monotau.replay.prioritized import PrioritizedReplay
from tests.support.small_runs import SMALL, briefly_learned

KINDS = {"uniform": Uniform, "prioritized": Prioritized}


def replay_of(rewards, kind="uniform", capacity=50):
    """Return a replay of one-step episodes."""
    layout = Layout(lanes=1, frame_shape=(), frame_dtype="float32", stack=1, n_step=1, gamma=0.9)
    replay = KINDS[kind](capacity_steps=capacity, warmup_steps=1).build(layout, horizon_steps=100)
    add(replay, rewards)
    return replay


def of_unit(unit):
    """Return a replay whose returns have that unit."""
    return replay_of([4 * unit])


def add(replay, rewards):
    yes, no, frame = np.ones(1, bool), np.zeros(1, bool), np.zeros(1, np.float32)
    for reward in rewards:
        replay.add(Steps(frame, yes, np.zeros(1, np.int64), np.array([float(reward)]), yes, no, frame))


def measured(*returns):
    return measure(np.array(returns, np.float64))


def test_the_unit_is_a_quarter_of_the_mean_deviation_of_returns_from_their_median():
    # A return of 0 does not count. The median of the others is 2; they deviate from it by 1, 0, 3, 4 and 0.
    assert measured(1, 2, 0, 5, -2, 2) == pytest.approx((1 + 0 + 3 + 4 + 0) / 5 / 4)


def test_nearly_equal_returns_count_as_deviating_by_a_tenth_of_their_size():
    assert measured(99, 100, 101) == pytest.approx(10 / 4)
    assert measured(-99, -100, -101) == pytest.approx(10 / 4)


@pytest.mark.parametrize("returns", [[5, 5, 5], [5, 5 + 1e-9, 5], [-5, 0, -5], [5]])
def test_returns_that_are_the_same_have_a_quarter_of_their_size_as_unit(returns):
    assert measured(*returns) == pytest.approx(5 / 4)


@pytest.mark.parametrize("returns", [[], [0.0, -0.0, 0.0]])
def test_there_is_no_unit_if_all_returns_are_zero(returns):
    assert measured(*returns) is None


@pytest.mark.filterwarnings("ignore:overflow")
def test_there_is_no_unit_if_returns_overflow():
    assert measured(1e308, 1e308) is None


NUMBERS = st.integers(-50, 50).map(float) | st.floats(1e-6, 1e6) | st.floats(-1e6, -1e-6)


@given(st.lists(NUMBERS, max_size=30), st.integers(-30, 30))
def test_returns_k_times_as_large_have_a_unit_k_times_as_large(numbers, power):
    """Factors are powers of two, which do not round, so that both results agree to the last bit."""
    returns, factor = np.array(numbers, np.float64), 2.0**power
    unit = measure(returns)
    assert measure(factor * returns) == (None if unit is None else factor * unit)


@pytest.mark.parametrize("kind", KINDS)
def test_the_unit_is_measured_again_as_long_as_all_rewards_are_zero(kind):
    unit, replay = ReturnUnit(None), replay_of([0, 0, 0], kind)
    unit.measure(replay, 10)
    assert (unit.value, unit.measured) == (1.0, False)
    add(replay, [4, 8])
    unit.measure(replay, 10 + RETRY_STEPS - 1)
    assert not unit.measured
    unit.measure(replay, 10 + RETRY_STEPS)
    assert (unit.value, unit.measured) == (0.5, True)


def test_the_unit_is_measured_again_when_the_number_of_steps_has_doubled():
    unit = ReturnUnit(None)
    unit.measure(of_unit(5), 100)
    unit.measure(of_unit(50), 199)
    assert unit.value == 5.0
    assert unit.measure(of_unit(50), 200) == pytest.approx(0.1)
    assert unit.value == 50.0
    unit.measure(of_unit(500), 399)
    assert unit.value == 50.0
    assert unit.measure(of_unit(0.5), 400) == pytest.approx(100)
    assert unit.value == 0.5


@pytest.mark.parametrize(("later", "expected"), [(9.9, 5.0), (10.1, 10.1), (2.6, 5.0), (2.4, 2.4)])
def test_a_unit_within_a_factor_of_two_is_kept(later, expected):
    unit = ReturnUnit(None)
    assert unit.measure(of_unit(5), 100) == 1  # there were no predictions in another unit yet
    unit.measure(of_unit(later), 200)
    assert unit.value == pytest.approx(expected)
    unit.measure(of_unit(1000), 300)
    assert unit.value == pytest.approx(expected)


def test_a_configured_unit_is_kept():
    unit = ReturnUnit(7.0)
    unit.measure(of_unit(500), 1000)
    assert (unit.value, unit.measured) == (7.0, True)
    agent = briefly_learned("dqn", return_scale=2)
    assert (agent.unit, agent.config.return_scale) == (2.0, 2.0)


def test_the_state_carries_over():
    one, other = ReturnUnit(None), ReturnUnit(None)
    one.measure(of_unit(3), 100)
    other.load_state(one.state())
    for unit in (one, other):
        unit.measure(of_unit(30), 150)
        assert (unit.value, unit.measured) == (3.0, True)
        unit.measure(of_unit(30), 200)
        assert unit.value == 30.0


LINEAR = ("dqn", "qr-dqn", "nc-qr-dqn", "iqn-star", "implicit-sorted", "fqf", "ndqfn-paper")
"""Presets whose predictions follow a new unit exactly; for the default head only the mean does."""


@pytest.mark.parametrize("preset", [*LINEAR, "ndqfn", "ndqfn-fqf", "incremental-iqn", "nq-dqn", "rainbow"])
def test_predictions_in_raw_rewards_do_not_change_with_the_unit(preset):
    noisy = {"noisy": True, "dueling": True} if preset in ("qr-dqn", "ndqfn") else {}
    agent = briefly_learned(preset, **noisy)
    states = np.random.default_rng(0).uniform(-0.2, 0.2, (16, 4)).astype(np.float32)
    before, unit = agent.distribution(states), agent.unit
    agent.networks.unit.measure = lambda replay, step: 0.25
    agent.networks.measure_returns(agent._training.replay, 100)
    agent.networks.unit.value = 4 * unit
    after = agent.distribution(states)
    if preset == "rainbow":  # C51's support is given in the unit, so its predictions scale with it
        torch.testing.assert_close(after.mean(), 4 * before.mean())
        return
    torch.testing.assert_close(after.mean(), before.mean())
    if preset in LINEAR:
        torch.testing.assert_close(after.curve(), before.curve())


@pytest.mark.parametrize("target", ["shared", "frozen"])
def test_bonuses_in_raw_rewards_do_not_change_with_the_unit(target):
    explorer = {"kind": "dpe", "target": target, "normalise": True}
    agent = briefly_learned("qr-dqn-dpe", explorer=explorer, epsilon={"start": 0.5})
    states = np.random.default_rng(0).uniform(-0.2, 0.2, (16, 4)).astype(np.float32)
    before, deviation, unit = agent.bonus(states), agent.networks.explorer.deviation, agent.unit
    agent.networks.unit.measure = lambda replay, step: 0.25
    agent.networks.measure_returns(agent._training.replay, 100)
    agent.networks.unit.value = 4 * unit
    torch.testing.assert_close(agent.bonus(states), before)
    assert agent.networks.explorer.deviation == pytest.approx(0.25 * deviation)


STRANGE = [(0.0, 1.0, 5.0), (-1.0, 1.0, 5.0), (float("nan"), 1.0, 5.0), (1.0, 1.0, float("nan"))]


@pytest.mark.parametrize("unit", STRANGE, ids=str)
def test_an_invalid_state_is_refused(unit):
    with pytest.raises(
        ConfigError, match=rf"^the unit of returns is {unit[0]}, due again at step {unit[2]}, but both must"
    ):
        ReturnUnit(None).load_state({"unit": torch.tensor(unit, dtype=torch.float64)})


@pytest.mark.parametrize("kind", KINDS)
def test_sampled_rewards_are_divided_by_the_unit_before_they_are_rounded(kind):
    large = 2.0**24 + 1  # float32 cannot represent it
    replay = replay_of([large] * 3, kind)
    assert replay.sample(4, np.random.default_rng(0), large).rewards.tolist() == [1.0] * 4
    assert replay.sample(4, np.random.default_rng(0)).rewards.tolist() == [2.0**24] * 4


@pytest.mark.parametrize("scale", [0.0, -1.0, 1e-300, 1e31, float("nan"), float("inf"), -float("inf")])
def test_an_invalid_return_scale_is_refused(scale):
    config = Agent("CartPole-v1", **SMALL).config
    with pytest.raises(ConfigError, match=rf"^return_scale is {re.escape(str(scale))}, but must be a finite number"):
        override(config, {"return_scale": scale}, {})


# With priorities, rounding would change draws sooner or later; powers of two avoid any rounding.
DECIMAL, BINARY = (1.0, 0.01, 100.0), (1.0, 2.0**-7, 2.0**7)
FACTORS = {"ndqfn-dpe": BINARY, "c51": BINARY, "ndqfn-dpe-paper": DECIMAL, "dqn": DECIMAL}
SETTINGS = SMALL | {
    "log_every_steps": 100,
    "head": {"hidden": 8},
    "replay": {"warmup_steps": 50, "capacity_steps": 1000},
    "update": {"batch_size": 8, "every_steps": 4, "sync_every_steps": 60},
}


def learned(preset: str, factor: float) -> Agent:
    """Return an agent after 600 steps of CartPole with scaled rewards."""
    env = TransformReward(gym.make("CartPole-v1"), lambda reward: factor * reward)
    return Agent(env, preset, 3, **SETTINGS).learn(600)


def actions_of(agent: Agent) -> np.ndarray:
    replay = agent._training.replay
    ring = replay._ring if isinstance(replay, PrioritizedReplay) else replay
    return ring._actions[:600]


@pytest.mark.parametrize(
    "preset", [pytest.param(name, marks=() if name == "ndqfn-dpe" else pytest.mark.slow) for name in FACTORS]
)
def test_the_size_of_rewards_does_not_matter(preset):
    """The actions are the same, and all reported values scale with the rewards."""
    agents = {factor: learned(preset, factor) for factor in FACTORS[preset]}
    plain = agents.pop(1.0)
    taken = actions_of(plain)
    assert 0 < taken.mean() < 1
    states = np.random.default_rng(0).uniform(-0.2, 0.2, (16, 4)).astype(np.float32)
    taus = torch.linspace(0.05, 0.95, 7)
    for factor, agent in agents.items():
        assert agent.unit == pytest.approx(factor * plain.unit, rel=1e-9)
        np.testing.assert_array_equal(actions_of(agent), taken)

        def as_large(scaled, unscaled, by=factor):
            torch.testing.assert_close(scaled, by * unscaled, rtol=1e-4, atol=1e-5 * by)

        as_large(agent.distribution(states).mean(), plain.distribution(states).mean())
        as_large(agent.distribution(states).quantile(taus), plain.distribution(states).quantile(taus))
        as_large(agent.quantiles(states, taus), plain.quantiles(states, taus))
        if "dpe" in preset:
            as_large(agent.bonus(states), plain.bonus(states))
        for line, other in zip(agent.history, plain.history, strict=True):
            names = ("q_mean", "q_std", "return_unit", "bonus_mean", "bonus_taken", "bonus_other")
            for name in names[: 6 if "dpe" in preset else 3]:
                if other.get(name) is not None:
                    assert line[name] == pytest.approx(factor * other[name], rel=1e-4, abs=1e-5 * factor), name
        assert plain.history[-1]["q_mean"] is not None
