"""Prioritised replay against a list of priorities that is searched in full, and by worked examples."""

import math

import numpy as np
import pytest
import torch

from monotau.errors import ConfigError, Divergence
from monotau.replay import REPLAYS, Layout, Newest, Prioritized, Replay
from tests.support.naive_replay import GAMES, layout, make, random_game, step

HUGE = 1e12


def play(replay, numbers, **end):
    """Add an episode of one step for each number; a step that terminates is a valid start at once."""
    for number in numbers:
        replay.add(step([number], **(end or {"terminated": True})))


def leaves_seen(replay, size=2_000):
    """What the weights of a batch tell of the leaves: those of each frame, as multiples of the smallest; beta is 1."""
    batch = replay.sample(size, np.random.default_rng(0))
    frames = batch.observations[:, -1].tolist()
    return {frame: 1 / weight for frame, weight in sorted(zip(frames, batch.weights.tolist(), strict=True))}


def binomial_bound(draws, shares, chance=1e-9):
    """How far a count may be from what is expected (Bernstein), also where that is a single draw or none.

    Thousands of counts are compared, so the chance for each is small. Strata only make counts vary less.
    """
    log = math.log(2 / chance)
    return log / 3 + np.sqrt(log**2 / 9 + 2 * log * draws * shares * (1 - shares))


@pytest.mark.parametrize("size", [1, 7, 32, 500])
@pytest.mark.parametrize("game", GAMES, ids=lambda game: f"{game['lanes']} lanes, alpha {game['alpha']}")
def test_draws_are_as_frequent_as_those_of_an_exhaustive_search(game, size):
    for seed in range(3):
        replay, twin = random_game(seed, **game)
        rng = np.random.default_rng(seed + 100)
        rounds = 1_500 if size <= 32 else 100
        draws = rounds * size
        counts = np.bincount(np.concatenate([replay.draw(size, rng) for _ in range(rounds)]), minlength=twin.ring.slots)
        shares = twin.shares()
        assert counts.sum() == draws
        assert counts[shares == 0].sum() == 0
        assert (abs(counts - draws * shares) <= binomial_bound(draws, shares)).all()


@pytest.mark.parametrize("share", [0.5, 0.99, 1 - 1 / HUGE])
def test_draws_stay_proportional_if_most_of_the_mass_cannot_be_drawn(share):
    """The newest steps are not complete yet; in the last case only a look at all that is stored finds the others."""
    replay = make(n_step=3, alpha=1.0)
    play(replay, range(4))
    losses = np.array([1.0, 2.0, 3.0, 6.0])
    replay.update(np.arange(4), np.array([1.0, 1.0, 1.0, 12 * share / (1 - share) / 3]))
    for t in range(3):
        replay.add(step([9], first=t == 0))
    replay.update(np.arange(4), losses)
    counts = np.bincount(replay.draw(6_000, np.random.default_rng(0)), minlength=7)
    assert counts[4:].sum() == 0
    assert (abs(counts[:4] - 500 * losses) <= 4 * np.sqrt(500 * losses * (1 - losses / 12))).all()


def test_a_batch_takes_one_from_each_stratum():
    replay = make()
    play(replay, range(16))
    for seed in range(5):
        assert replay.draw(16, np.random.default_rng(seed)).tolist() == list(range(16))
        assert (replay.draw(4, np.random.default_rng(seed)) // 4).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("episodes", [3, 4, 5, 9, 11])
def test_the_final_slots_of_truncated_episodes_hold_no_mass(episodes):
    """Strata as many as steps then hold a step each, before and after the ring has gone round."""
    replay = make(capacity=9)
    play(replay, range(episodes), truncated=True)
    drawn = replay.sample(len(replay), np.random.default_rng(0)).observations[:, -1]
    assert sorted(drawn.tolist()) == list(range(episodes - len(replay), episodes))


def test_the_final_slots_of_a_cut_hold_no_mass():
    replay = make(capacity=9, lanes=1)
    for number in range(12):
        replay.add(step([number]))
        replay.cut(Newest(np.array([-1])))
        drawn = replay.sample(len(replay), np.random.default_rng(0)).observations[:, -1]
        assert sorted(drawn.tolist()) == list(range(number + 1 - len(replay), number + 1))


def test_leaves_follow_the_priorities():
    replay = make(alpha=0.5, beta_start=1.0)
    play(replay, range(4))
    replay.update(np.array([2, 0, 3, 1]), np.array([9.0, 1.0, 4.0, 16.0], np.float32))
    assert leaves_seen(replay) == pytest.approx({0: 1.0, 1: 4.0, 2: 3.0, 3: 2.0}, rel=1e-5)
    replay.update(np.array([1, 3, 1]), np.array([100.0, 25.0, 36.0], np.float32))
    assert leaves_seen(replay) == pytest.approx({0: 1.0, 1: 6.0, 2: 3.0, 3: 5.0}, rel=1e-5)


def test_a_new_step_has_the_largest_priority_so_far():
    replay = make(alpha=1.0, beta_start=1.0)
    play(replay, [0, 1])
    replay.update(np.array([0, 1]), np.array([0.25, 0.5]))
    play(replay, [2])  # 1, with which it starts
    assert leaves_seen(replay) == pytest.approx({0: 1.0, 1: 2.0, 2: 4.0}, rel=1e-5)
    replay.update(np.array([0]), np.array([4.0]))
    replay.update(np.array([0]), np.array([0.25]))
    play(replay, [3])  # 4, though no step has it any more
    assert leaves_seen(replay) == pytest.approx({0: 1.0, 1: 2.0, 2: 4.0, 3: 16.0}, rel=1e-5)


def test_a_slot_that_is_overwritten_has_the_priority_of_the_new_step():
    replay = make(capacity=5, alpha=1.0, beta_start=1.0)
    play(replay, range(5))
    replay.update(np.arange(5), np.full(5, 0.125))
    play(replay, [5, 6])
    assert leaves_seen(replay) == pytest.approx({2: 1.0, 3: 1.0, 4: 1.0, 5: 8.0, 6: 8.0}, rel=1e-4)


def test_a_step_with_zero_loss_can_still_be_drawn():
    replay = make(alpha=1.0, beta_start=1.0)
    play(replay, range(2))
    replay.update(np.array([0, 1]), np.array([0.0, 3e-6]))
    assert leaves_seen(replay) == pytest.approx({0: 1.0, 1: 4.0}, rel=1e-5)


def test_weights_are_those_worked_by_hand():
    replay = make(alpha=0.5, beta_start=0.5)
    play(replay, range(3))
    replay.update(np.arange(3), np.array([1.0, 16.0, 256.0]) - 1e-6)  # to the power of alpha: 1, 4, 16
    batch = replay.sample(64, np.random.default_rng(0))
    expected = np.array([1.0, 0.5, 0.25])[batch.observations[:, -1].numpy()]  # to the power of -1/2
    assert set(batch.observations[:, -1].tolist()) == {0, 1, 2}
    np.testing.assert_allclose(batch.weights.numpy(), expected, rtol=1e-6)
    assert batch.weights.dtype == torch.float32


def test_weights_are_those_of_the_paper():
    replay, twin = random_game(0, **GAMES[2])
    batch = replay.sample(32, np.random.default_rng(0))
    shares = twin.shares()
    weights = (np.count_nonzero(shares) * shares[batch.index]) ** -replay.beta
    np.testing.assert_allclose(batch.weights.numpy(), weights / weights.max(), rtol=1e-6)
    assert batch.weights.max() == 1.0
    assert batch.weights.min() < 0.9


def test_the_transitions_are_those_of_the_ring():
    replay, twin = random_game(1, **GAMES[2])
    batch = replay.sample(32, np.random.default_rng(0))
    plain = twin.ring.gather(batch.index)
    for name in ("observations", "actions", "rewards", "discounts", "next_observations"):
        assert torch.equal(getattr(batch, name), getattr(plain, name))
    assert len(replay) == len(twin.ring)


def test_beta_rises_in_a_straight_line_with_the_steps_added():
    replay = make(capacity=8, lanes=2, beta_start=0.4, beta_steps=10, horizon=1_000)
    betas = [replay.beta]
    for t in range(7):
        replay.add(step([t, t], truncated=True))
        betas.append(replay.beta)
    assert betas == pytest.approx([0.4, 0.52, 0.64, 0.76, 0.88, 1.0, 1.0, 1.0])


def test_without_steps_of_its_own_beta_rises_over_the_run():
    replay = make(beta_start=0.0, horizon=8)
    play(replay, range(6))
    assert replay.beta == 0.75


def test_sampling_changes_nothing():
    replay, _ = random_game(2, **GAMES[0])
    one, two = (replay.sample(8, np.random.default_rng(3)) for _ in range(2))
    assert one.index.tolist() == two.index.tolist()
    assert torch.equal(one.weights, two.weights)


@pytest.mark.parametrize("kind", REPLAYS)
def test_every_replay_keeps_the_contract(kind):
    config = REPLAYS[kind](capacity_steps=40, warmup_steps=6, reward_clip=1.0)
    replay = config.build(Layout(**layout(lanes=2, stack=2, n_step=2)), horizon_steps=100)
    assert isinstance(replay, Replay)
    assert (len(replay), replay.ready) == (0, False)
    for t in range(5):
        replay.add(step([t, 10 + t], first=t == 0))
        assert replay.ready == (t >= 4)  # two lanes; a stack, two steps and the frame after them
    replay.cut(Newest(np.array([5, 15])))
    assert len(replay) == 10
    batch = replay.sample(100, np.random.default_rng(0))
    assert set(batch.observations[:, -1].tolist()) == {*range(5), *range(10, 15)}
    assert batch.weights.tolist() == [1.0] * 100
    replay.update(batch.index, (batch.index + 1.0))
    weights = replay.sample(100, np.random.default_rng(0)).weights
    assert (weights < 1).any() == (replay.priority == "loss") == (kind == "prioritized")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"alpha": -0.1}, r"^replay\.alpha is -0.1, but must be a number from 0 to 1\.$"),
        ({"alpha": 1.1}, r"^replay\.alpha is 1.1, but must be a number from 0 to 1\.$"),
        ({"alpha": math.nan}, r"^replay\.alpha is nan, but must be a number from 0 to 1\.$"),
        ({"beta_start": -0.1}, r"^replay\.beta_start is -0.1, but must be a number from 0 to 1\.$"),
        ({"beta_start": 1.1}, r"^replay\.beta_start is 1.1, but must be a number from 0 to 1\.$"),
        ({"beta_steps": -1}, r"^replay\.beta_steps is -1, but must not be negative; 0 uses the steps of the run\.$"),
        ({"capacity_steps": 0}, r"^replay\.capacity_steps is 0, but must be at least 1"),
        ({"warmup_steps": 0}, r"^replay\.warmup_steps is 0, but must be between 1 and"),
        ({"reward_clip": -1.0}, r"^replay\.reward_clip is -1.0, but must be finite"),
    ],
)
def test_settings_that_cannot_work_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        Prioritized(**fields)


def test_the_settings_are_those_of_the_paper():
    assert (Prioritized().alpha, Prioritized().beta_start, Prioritized().beta_steps) == (0.6, 0.4, 0)


@pytest.mark.parametrize("priority", ["loss", "td"])
def test_a_replay_reports_the_kind_of_its_priorities(priority):
    replay = Prioritized(priority=priority).build(Layout(**layout()), horizon_steps=100)
    assert replay.priority == priority


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_priority_that_is_not_finite_is_divergence(bad):
    replay = make(beta_start=1.0)
    play(replay, range(3))
    with pytest.raises(Divergence, match=f"the priority of a sampled transition became {bad}, but must be finite"):
        replay.update(np.arange(3), np.array([5.0, bad, 5.0], np.float32))
    assert leaves_seen(replay) == {0: 1.0, 1: 1.0, 2: 1.0}


def test_a_negative_priority_is_refused():
    replay = make(beta_start=1.0)
    play(replay, range(3))
    with pytest.raises(ValueError, match=r"A priority is -0.5, but must not be negative"):
        replay.update(np.arange(3), np.array([5.0, 5.0, -0.5]))
    assert leaves_seen(replay) == {0: 1.0, 1: 1.0, 2: 1.0}


def test_sampling_before_a_transition_is_complete_is_refused():
    replay = make(n_step=3)
    with pytest.raises(RuntimeError, match=r"The replay holds 0 steps; add steps until `ready` before sampling\."):
        replay.sample(1, np.random.default_rng(0))
    for t in range(3):
        replay.add(step([t], first=t == 0))
    with pytest.raises(RuntimeError, match="holds 3 steps, but no complete transition of 3 steps"):
        replay.sample(1, np.random.default_rng(0))
