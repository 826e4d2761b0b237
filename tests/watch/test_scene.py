"""What is shown is what the agent predicts and does."""

import numpy as np
import pytest

from monotau.distributions import Risk
from monotau.envs.probes import TimeLimit
from monotau.errors import ConfigError
from monotau.watch.scene import FRACTIONS, TAUS, Player, Prediction, densities
from tests.support.envs import MaskedEnv, allowed_at
from tests.support.watched import knowing_agent, tiny_agent


@pytest.fixture(scope="module")
def agent():
    return tiny_agent()


def moments(player, seed=0, most=600):
    shown = [player.start(seed)]
    while not shown[-1].ended and len(shown) < most:
        shown.append(player.advance())
    return shown


def test_a_moment_holds_the_predictions_of_the_agent(agent):
    player = Player(agent)
    shown, observation = player.start(3), None
    observation = player._stack[0, 0]
    thought, returns = shown.thought, agent.distribution(observation)
    np.testing.assert_allclose(thought.quantiles, agent.quantiles(observation, TAUS.tolist()).numpy(), rtol=1e-6)
    np.testing.assert_allclose(thought.means, returns.mean().numpy(), rtol=1e-6)
    np.testing.assert_allclose(thought.cvars, returns.cvar(0.1).numpy(), rtol=1e-6)
    np.testing.assert_allclose(thought.bonuses, agent.bonus(observation).numpy(), rtol=1e-6)
    assert thought.action == thought.best == int(agent.predict(observation)[0])


def test_the_episode_of_a_seed_is_always_the_same_and_acts_as_predict_does(agent):
    player = Player(agent)
    one, other = moments(player, 5), moments(player, 5)
    assert [m.discounted for m in one] == [m.discounted for m in other]
    assert [m.thought.action for m in one[:-1]] == [m.thought.action for m in other[:-1]]
    assert len(moments(player, 6)) != len(one) or moments(player, 6)[0].expected != one[0].expected


def test_returns_are_summed_raw_and_discounted_as_they_are_learned():
    agent = tiny_agent(TimeLimit, gamma=0.5, replay={"reward_clip": 0.25})
    last = moments(Player(agent))[-1]
    assert last.ended == "truncated"
    assert last.step == last.score == TimeLimit.STEPS
    assert last.discounted == pytest.approx(0.25 * sum(0.5**step for step in range(TimeLimit.STEPS)))
    assert last.thought is None
    assert last.expected != last.discounted  # what follows the time limit is predicted


def test_the_return_at_the_end_of_an_episode_needs_no_prediction(agent):
    shown = moments(Player(agent))
    assert shown[-1].ended == "terminated"
    assert shown[-1].expected == shown[-1].discounted
    assert shown[0].expected == shown[0].start.mean == shown[-1].start.mean
    assert shown[3].expected == pytest.approx(
        shown[3].discounted + agent.config.gamma**3 * shown[3].thought.means[shown[3].thought.action]
    )


def test_the_risk_measure_changes_the_choice_in_the_same_state():
    player = Player(knowing_agent())
    assert player.start(0).thought.action == 0
    choices = {}
    for kind in ("cvar", "upper-cvar"):
        player.risk = Risk(kind, 0.25)
        choices[kind] = player.think_again().thought.action
    assert choices == {"cvar": 0, "upper-cvar": 1}
    assert player.think_again().thought.scores == pytest.approx([0.105, 2.0])
    assert player.think_again().thought.cvars == pytest.approx([-0.095, -2.0])  # of the worst 10 %, still


def test_epsilon_draws_random_actions_among_the_allowed_ones():
    player = Player(tiny_agent(MaskedEnv), epsilon=1.0)
    seen = {0: set(), 1: set()}
    for seed in range(30):
        for step, moment in enumerate(moments(player, seed)[:-1]):
            seen[step].add(moment.thought.action)
            again = player.think_again().thought
            assert again is None or again.action == player._luck[1]  # thinking again does not draw again
    assert seen == {step: {a for a, allowed in enumerate(allowed_at(step)) if allowed} for step in range(2)}


def test_forbidden_actions_are_never_chosen():
    player = Player(tiny_agent(MaskedEnv))
    for moment in moments(player)[:-1]:
        assert allowed_at(moment.step)[moment.thought.action]
        assert moment.thought.allowed.tolist() == allowed_at(moment.step)


def test_frames_are_stacked():
    agent = tiny_agent("CartPole-v1", env_settings={"frame_stack": 3})
    player = Player(agent)
    first = player.start(0)
    assert (player._stack[0, :2] == 0).all()
    player.advance()
    assert (player._stack[0, 0] == 0).all()
    assert (player._stack[0, 1] != 0).all()
    assert first.thought.quantiles.shape == (2, FRACTIONS)


def test_an_explorer_without_a_bonus_shows_none():
    assert Player(tiny_agent(preset="ndqfn")).start(0).thought.bonuses is None


def test_nothing_can_be_shown_before_the_start(agent):
    player = Player(agent)
    with pytest.raises(ValueError, match="there is no episode to continue"):
        player.advance()
    with pytest.raises(ValueError, match="there is no episode to think about"):
        player.think_again()
    with pytest.raises(ConfigError, match="the seed is -1, but must be from 0 to 2147483647"):
        player.start(-1)


def test_a_prediction_knows_where_a_return_falls():
    prediction = Prediction(0.5, TAUS.copy())
    assert prediction.interval == pytest.approx((0.05, 0.95))
    assert prediction.share_below(0.25) == pytest.approx(0.25)
    assert (prediction.share_below(-1.0), prediction.share_below(2.0)) == (0, 1)


def test_densities_sum_to_one_and_lie_where_the_quantiles_are():
    normal = np.sort(np.random.default_rng(0).normal(2.0, 0.5, FRACTIONS))
    crossing, steps = normal[::-1], np.repeat([0.0, 4.0], FRACTIONS // 2)
    low, high, masses = densities(np.stack([normal, crossing, steps]))
    assert masses.sum(axis=1) == pytest.approx([1, 1, 1])
    levels = low + (np.arange(masses.shape[1]) + 0.5) / masses.shape[1] * (high - low)
    assert masses @ levels == pytest.approx([normal.mean(), normal.mean(), 2.0], abs=0.06)
    np.testing.assert_array_equal(masses[0], masses[1])
    assert masses[2][np.abs(levels) < 0.5].sum() == pytest.approx(0.5, abs=0.02)
    assert masses[2][np.abs(levels - 2) < 0.5].sum() < 0.02


def test_a_certain_return_has_a_density_too():
    low, high, masses = densities(np.full((1, FRACTIONS), 3.0))
    assert low < 3 < high
    assert masses.sum() == pytest.approx(1)
