"""Learning in environments with a known answer: the whole learned distribution is right, not only its mean."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from monotau import Agent
from monotau.distributions import Diracs
from monotau.envs import register_own

TAUS = (torch.arange(100) + 0.5) / 100
SMALL = {
    "n_step": 1,
    "torso": {"width": 32, "layers": 1},
    "replay": {"capacity_steps": 4000, "warmup_steps": 200},
    "update": {"batch_size": 32, "every_steps": 2, "sync_every_steps": 100},
    "optimiser": {"learning_rate": 2e-3, "epsilon": 1e-6},
    "epsilon": {"end": 0.5, "decay_steps": 0},
    "iteration_steps": 1000,
}
SLOW = ("iqn-star", "ndqfn-dpe", "nq-dqn", "spl-dqn")
PRESETS = pytest.mark.parametrize("preset", ["ndqfn", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])


def train(env: str, preset: str, steps: int, kappa: float, gamma: float = 0.9, **settings) -> Agent:
    settings = {"head": {"hidden": 32, "kappa": kappa}} | SMALL | settings
    agent = Agent(env, preset, seed=1, gamma=gamma, **settings)
    return agent.learn(steps)


def truth(env: str, gamma: float):
    register_own()
    return gym.make(env).unwrapped.truth(gamma)


def huber_quantile(outcomes, tau: float, kappa: float) -> float:
    """Return the minimum of the quantile Huber loss, by bisection on its slope."""
    low, high = min(value for _, value in outcomes), max(value for _, value in outcomes)
    for _ in range(60):
        middle = (low + high) / 2
        slope = sum(p * abs(tau - (value < middle)) * np.clip(value - middle, -kappa, kappa) for p, value in outcomes)
        low, high = (middle, high) if slope > 0 else (low, middle)
    return low


def distance_to_loss_truth(agent: Agent, state: int, action: int, outcomes, kappa: float) -> float:
    """Return W1 between the learned curve and the curve that minimises the loss."""
    learned = agent.quantiles(state, TAUS)[action]
    expected = torch.tensor([huber_quantile(outcomes, float(tau), kappa) for tau in TAUS])
    return (learned - expected).abs().mean().item()


@PRESETS
def test_a_coin_is_learned_as_the_minimum_of_the_loss(preset):
    """With kappa = 1 the minimum below the median is -1 + tau/(1-tau), not -1."""
    agent = train("monotau/Coin-v0", preset, 3000, kappa=1.0, return_scale=1.0)
    for (state, action), outcomes in truth("monotau/Coin-v0", 0.9).items():
        assert huber_quantile(outcomes, 0.25, 1.0) == pytest.approx(-1 + 0.25 / 0.75)
        assert distance_to_loss_truth(agent, state, action, outcomes, 1.0) < 0.15


@PRESETS
def test_a_coin_is_learned_exactly_if_kappa_is_small(preset):
    agent = train("monotau/Coin-v0", preset, 3000, kappa=0.02)
    for (state, action), outcomes in truth("monotau/Coin-v0", 0.9).items():
        probabilities, values = (
            torch.tensor(column) for column in zip(*sorted(outcomes, key=lambda o: o[1]), strict=True)
        )
        exact = Diracs(probabilities.cumsum(0) - probabilities / 2, values, probabilities)
        learned = Diracs(TAUS, agent.quantiles(state, TAUS)[action], torch.full((100,), 0.01))
        assert learned.w1(exact) < 0.15


@PRESETS
def test_two_coins_in_a_row_are_a_sum_of_two(preset):
    """State 0 has the returns 1 + g, 1 - g, g - 1 and -1 - g, which only propagated distributions can give."""
    agent = train("monotau/TwoStepCoin-v0", preset, 5000, kappa=0.05)
    for (state, action), outcomes in truth("monotau/TwoStepCoin-v0", 0.9).items():
        assert distance_to_loss_truth(agent, state, action, outcomes, 0.05) < 0.25, (state, action)


@PRESETS
def test_two_actions_with_one_mean_and_different_spreads_are_distinguished(preset):
    agent = train("monotau/TwoSpreads-v0", preset, 4000, kappa=0.05)
    view = agent.distribution(0)
    narrow, wide = agent.quantiles(0, TAUS)
    assert abs(view.mean()[0]) < 0.2
    assert abs(view.mean()[1]) < 0.4
    assert (wide[90] - wide[10]) > 5 * (narrow[90] - narrow[10]).abs()
    assert view.cvar(0.25)[0] > view.cvar(0.25)[1] + 1
    assert [agent.predict(0, risk=risk, alpha=0.25)[0] for risk in ("cvar", "upper-cvar")] == [0, 1]
    for risk in ("wang", "power"):
        assert [agent.predict(0, risk=risk, eta=eta)[0] for eta in (-2.0, 2.0)] == [0, 1]


@PRESETS
def test_a_time_limit_does_not_end_the_return(preset):
    """A constant reward of 1 is worth 1/(1-0.9) = 10; treating the limit as an end would give 6.5 at most."""
    agent = train("monotau/TimeLimit-v0", preset, 4000, kappa=1.0, n_step=3)
    assert agent.distribution(0).mean().tolist() == pytest.approx([10] * agent.actions, rel=0.05)


@pytest.mark.parametrize("preset", ["ndqfn", "iqn-star", "iqn", "qr-dqn", "dqn", "ndqfn-deep-dpe"])
def test_a_target_values_a_state_by_its_allowed_actions_only(preset):
    """Beyond the gate the only allowed action costs 1; the other is never tried, and would be valued at about 0."""
    settings = {"head": {"hidden": 32}} if preset == "dqn" else {}
    agent = train("monotau/Gate-v0", preset, 1500, kappa=1.0, **settings)
    for (state, action), [(_, value)] in truth("monotau/Gate-v0", 0.9).items():
        assert agent.distribution(state).mean()[action].item() == pytest.approx(value, abs=0.15), (state, action)
    assert agent.distribution(1).mean()[1] > -0.5
    assert agent.predict(1, action_mask=[1, 0])[0] == 0


@pytest.mark.slow
def test_classification_learns_the_mean_and_claims_no_distribution():
    settings = {"hidden": 32, "bins": 51, "low": -3.0, "high": 3.0}
    agent = Agent(
        "monotau/TwoStepCoin-v0", "hl-gauss", seed=1, gamma=0.9, head=settings, return_scale=1.0, **SMALL
    ).learn(5000)
    for (state, action), outcomes in truth("monotau/TwoStepCoin-v0", 0.9).items():
        mean = sum(p * value for p, value in outcomes)
        assert agent.distribution(state).mean()[action].item() == pytest.approx(mean, abs=0.15), (state, action)
    torch.testing.assert_close(agent.distribution(0).cvar(0.1), agent.distribution(0).mean())


@PRESETS
def test_a_chain_is_walked_to_its_end(preset):
    agent = train("monotau/Chain-v0", preset, 2500, kappa=1.0)
    assert agent.evaluate(5).line()["return_mean"] == 1.0
