"""The ring by worked examples: folding, clipping, memory, uniform draws, and what it refuses."""

import math
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from monotau.errors import ConfigError
from monotau.replay import Batch, Layout, Newest, Ring, Steps, Uniform


def make_ring(
    *, capacity=64, warmup=1, clip=0.0, lanes=1, shape=(), dtype=np.float32, stack=1, n_step=1, gamma=0.5, **more
):
    config = Uniform(capacity_steps=capacity, warmup_steps=warmup, reward_clip=clip)
    sizes = {"lanes": lanes, "frame_shape": shape, "frame_dtype": dtype, "stack": stack}
    return Ring(config, **sizes, n_step=n_step, gamma=gamma, **more)


def step(
    frames, *, first=False, actions=0, rewards=0.0, terminated=False, truncated=False, final_frames=None, random=None
):
    frames = np.asarray(frames)
    lanes = len(frames)
    return Steps(
        frames=frames,
        first=np.broadcast_to(first, lanes),
        actions=np.broadcast_to(actions, lanes),
        rewards=np.broadcast_to(np.asarray(rewards, np.float64), lanes),
        terminated=np.broadcast_to(terminated, lanes),
        truncated=np.broadcast_to(truncated, lanes),
        final_frames=np.zeros_like(frames) if final_frames is None else np.asarray(final_frames, frames.dtype),
        random=None if random is None else np.broadcast_to(random, lanes),
    )


def frame(*numbers):
    return np.array(numbers, np.float32)


def all_valid(ring):
    index = np.arange(ring.slots)
    return index[ring.valid(index)]


def play_episode(ring, length, **end):
    for t in range(length):
        last = t == length - 1
        ring.add(step(frame(t + 1), first=t == 0, actions=t, rewards=2.0**t, **(end if last else {})))


def test_three_steps_fold_into_one_reward_and_one_discount():
    ring = make_ring(n_step=3, gamma=0.5)
    play_episode(ring, 5, truncated=True, final_frames=[9])
    batch = ring.gather(all_valid(ring))
    # Rewards 1 2 4 8 16: each step is worth twice the last and counts half, so a window of m steps sums to m * r_t.
    assert batch.rewards.tolist() == [3.0, 6.0, 12.0, 16.0, 16.0]
    assert batch.discounts.tolist() == [0.125, 0.125, 0.125, 0.25, 0.5]
    assert batch.observations[:, -1].tolist() == [1, 2, 3, 4, 5]
    assert batch.next_observations[:, -1].tolist() == [4, 5, 9, 9, 9]
    assert batch.actions.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("cut", "rewards", "discounts", "following"),
    [
        (False, [3.0, 6.0, 12.0, 16.0, 16.0], [0.125, 0.125, 0.125, 0.25, 0.5], [4, 5, 9, 9, 9]),
        # The random first action starts a transition of its own length; the random third action ends the first two.
        (True, [2.0, 2.0, 12.0, 16.0, 16.0], [0.25, 0.5, 0.125, 0.25, 0.5], [3, 3, 9, 9, 9]),
    ],
)
def test_transitions_end_before_the_next_random_action_if_asked_for(cut, rewards, discounts, following):
    ring = make_ring(n_step=3, gamma=0.5, cut_at_random=cut)
    for t in range(5):
        ends = {"truncated": True, "final_frames": [9]} if t == 4 else {}
        ring.add(step(frame(t + 1), first=t == 0, rewards=2.0**t, random=t in {0, 2}, **ends))
    batch = ring.gather(all_valid(ring))
    assert batch.rewards.tolist() == rewards
    assert batch.discounts.tolist() == discounts
    assert batch.next_observations[:, -1].tolist() == following


def test_a_termination_within_the_window_makes_the_discount_zero():
    ring = make_ring(n_step=3, gamma=0.5)
    play_episode(ring, 5, terminated=True)
    batch = ring.gather(all_valid(ring))
    assert batch.rewards.tolist() == [3.0, 6.0, 12.0, 16.0, 16.0]
    assert batch.discounts.tolist() == [0.125, 0.125, 0.0, 0.0, 0.0]
    assert batch.next_observations[:, -1].tolist() == [4, 5, 3, 4, 5]


def test_after_a_termination_comes_what_the_lane_saw_next():
    ring = make_ring(stack=2, n_step=2)
    for number, (first, terminated) in enumerate([(True, False), (False, True), (True, False), (False, True)], 1):
        ring.add(step(frame(number), first=first, terminated=terminated))
    batch = ring.gather(all_valid(ring))
    assert batch.discounts.tolist() == [0.0] * 4
    assert batch.next_observations[:2].tolist() == [[0, 3], [0, 3]]
    assert batch.next_observations[2:].tolist() == batch.observations[2:].tolist()  # nothing follows yet


def test_discounts_are_the_powers_of_gamma():
    ring = make_ring(n_step=4, gamma=0.99)
    play_episode(ring, 7, truncated=True)
    batch = ring.gather(all_valid(ring))
    np.testing.assert_allclose(batch.discounts.numpy(), [0.99**m for m in [4, 4, 4, 4, 3, 2, 1]], rtol=1e-7)
    np.testing.assert_allclose(batch.rewards[0].item(), 1 + 0.99 * 2 + 0.99**2 * 4 + 0.99**3 * 8, rtol=1e-7)


def test_a_termination_wins_over_a_truncation_and_takes_no_final_slot():
    ring = make_ring()
    ring.add(step(frame(1), first=True, terminated=True, truncated=True, final_frames=[9]))
    ring.add(step(frame(2), first=True, terminated=True))
    index = all_valid(ring)
    assert index.tolist() == [0, 1]
    assert ring.gather(index).discounts.tolist() == [0.0, 0.0]


def test_a_stack_has_zeros_before_the_first_frame_and_the_newest_last():
    ring = make_ring(stack=3)
    play_episode(ring, 3, terminated=True)
    play_episode(ring, 2, truncated=True, final_frames=[9])
    batch = ring.gather(all_valid(ring))
    assert batch.observations.tolist() == [[0, 0, 1], [0, 1, 2], [1, 2, 3], [0, 0, 1], [0, 1, 2]]
    assert batch.next_observations[3:].tolist() == [[0, 1, 2], [1, 2, 9]]


def test_a_life_loss_ends_the_window_but_not_the_stack():
    ring = make_ring(stack=2, n_step=2)
    ring.add(step(frame(1), first=True, rewards=1, terminated=True))
    ring.add(step(frame(2), rewards=1, terminated=True))
    batch = ring.gather(all_valid(ring))
    assert batch.rewards.tolist() == [1.0, 1.0]
    assert batch.observations.tolist() == [[0, 1], [1, 2]]


def test_a_cut_truncates_only_the_episodes_in_flight():
    ring = make_ring(lanes=2, n_step=2)
    ring.cut(Newest(frame(7, 7)))
    assert len(ring) == 0
    ring.add(step(frame(1, 2), first=True, terminated=[True, False]))
    ring.cut(Newest(frame(8, 9)))
    ring.cut(Newest(frame(8, 8)))
    batch = ring.gather(all_valid(ring))
    assert len(ring) == 2
    assert batch.discounts.tolist() == [0.0, 0.5]
    assert batch.next_observations[1].tolist() == [9]


def test_bool_frames_are_returned_as_they_were_stored():
    ring = make_ring(shape=(2,), dtype=np.bool_, stack=2)
    ring.add(step(np.array([[True, False]]), first=True))
    ring.add(step(np.array([[True, True]]), terminated=True))
    batch = ring.gather(all_valid(ring))
    assert batch.observations.dtype == torch.bool
    assert batch.observations.tolist() == [[[False, False], [True, False]], [[True, False], [True, True]]]


def test_rewards_are_clipped_only_when_asked():
    for clip, expected in [(0.0, [-5.0, 0.5, 3.0]), (1.0, [-1.0, 0.5, 1.0]), (2.0, [-2.0, 0.5, 2.0])]:
        ring = make_ring(clip=clip)
        for reward in [-5.0, 0.5, 3.0]:
            ring.add(step(frame(1), first=True, rewards=reward, terminated=True))
        assert ring.gather(all_valid(ring)).rewards.tolist() == expected


def test_a_sum_of_rewards_beyond_float32_is_infinite_without_a_warning():
    ring = make_ring(n_step=3, gamma=1.0)
    for t in range(5):
        ring.add(step(frame(t), first=t == 0, rewards=3e38))
    assert ring.gather(np.array([0])).rewards.tolist() == [math.inf]


def test_draws_are_uniform_over_the_valid_starts_of_all_lanes():
    ring = make_ring(lanes=3, capacity=60, stack=3, n_step=2)
    rng = np.random.default_rng(0)
    first = np.ones(3, np.bool_)
    for t in range(50):
        terminated, truncated = rng.random(3) < 0.1, rng.random(3) < 0.3
        ring.add(step(frame(t, t, t), first=first, terminated=terminated, truncated=truncated))
        first = terminated | truncated
    starts = all_valid(ring)
    draws = 60_000
    counts = np.bincount(ring.draw(draws, rng), minlength=ring.slots)
    assert set(np.flatnonzero(counts)) == set(starts.tolist())
    chi_square = ((counts[starts] - draws / len(starts)) ** 2 / (draws / len(starts))).sum()
    freedom = len(starts) - 1
    assert abs(chi_square - freedom) < 4 * math.sqrt(2 * freedom)


def test_draws_find_the_few_valid_starts_among_many_slots():
    ring = make_ring(lanes=64, capacity=64 * 8, n_step=4)
    ends = np.isin(np.arange(64), [7, 40])
    ring.add(step(np.zeros(64, np.float32), first=True))
    ring.add(step(np.zeros(64, np.float32), terminated=ends))
    counts = np.bincount(ring.draw(4_000, np.random.default_rng(0)), minlength=ring.slots)
    assert np.flatnonzero(counts).tolist() == [7 * 8, 7 * 8 + 1, 40 * 8, 40 * 8 + 1]
    assert abs(counts[counts > 0] - 1_000).max() < 4 * math.sqrt(750)


def test_the_same_generator_draws_the_same_batch():
    ring = make_ring()
    play_episode(ring, 20, truncated=True)
    one, two = (ring.sample(8, np.random.default_rng(3)) for _ in range(2))
    assert one.index.tolist() == two.index.tolist()
    assert torch.equal(one.observations, two.observations)


def test_a_batch_moves_to_a_device_as_a_whole():
    ring = make_ring()
    play_episode(ring, 5, truncated=True)
    moved = ring.sample(4, np.random.default_rng(0)).to(torch.device("meta"))
    tensors = [value for value in vars(moved).values() if isinstance(value, torch.Tensor)]
    assert isinstance(moved, Batch)
    assert len(tensors) == 6
    assert all(tensor.is_meta for tensor in tensors)


def test_the_ring_is_ready_after_the_warm_up_and_not_before():
    ring = make_ring(warmup=6, n_step=2)
    ready = []
    for t in range(8):
        ring.add(step(frame(t), first=t == 0))
        ready.append(ring.ready)
    assert ready == [False] * 5 + [True] * 3


def test_the_ring_is_not_ready_before_a_transition_is_complete():
    ring = make_ring(warmup=1, n_step=3)
    ring.add(step(frame(1), first=True))
    assert not ring.ready


def test_a_full_ring_is_ready_though_final_slots_keep_it_below_the_warm_up():
    ring = make_ring(capacity=8, warmup=8)
    for _ in range(4):
        assert not ring.ready
        ring.add(step(frame(1), first=True, truncated=True))
    assert len(ring) == 4
    assert ring.ready


def test_each_frame_is_stored_once():
    tracemalloc.start()
    try:
        make_ring(capacity=1_000, shape=(84, 84), dtype=np.uint8, stack=4, n_step=3)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    frames_bytes, others_bytes = 1_000 * 84 * 84, 1_000 * (4 + 8 + 1)
    assert frames_bytes + others_bytes <= peak_bytes < frames_bytes + others_bytes + 50_000


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
def test_memory_is_taken_only_as_the_ring_fills():
    def resident_pages():
        return int(Path("/proc/self/statm").read_text().split()[1])

    before = resident_pages()
    ring = make_ring(capacity=50_000, shape=(84, 84), dtype=np.uint8)
    assert ring.slots == 50_000
    assert resident_pages() - before < 50_000 * 84 * 84 / 4096 / 10


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"capacity_steps": 0}, "capacity_steps is 0, but must be at least 1"),
        ({"warmup_steps": 0}, "warmup_steps is 0, but must be between 1 and replay.capacity_steps \\(100000\\)"),
        ({"capacity_steps": 10, "warmup_steps": 11}, "warmup_steps is 11, .* learning never starts"),
        ({"reward_clip": -1.0}, "reward_clip is -1.0, but must be finite"),
        ({"reward_clip": math.nan}, "reward_clip is nan, but must be finite"),
        ({"reward_clip": math.inf}, "reward_clip is inf, but must be finite"),
    ],
)
def test_settings_that_cannot_work_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        Uniform(**fields)


def test_a_lane_too_short_for_one_transition_is_refused():
    with pytest.raises(ConfigError, match="capacity_steps is 15, but must be at least 16 for 2 lanes, a stack of 4"):
        make_ring(capacity=15, lanes=2, stack=4, n_step=3)
    assert make_ring(capacity=16, lanes=2, stack=4, n_step=3).slots == 16


@pytest.mark.parametrize("capacity", [10**16, 2**62])
def test_a_ring_larger_than_any_memory_is_refused(capacity):
    layout = Layout(lanes=1, frame_shape=(84, 84), frame_dtype="uint8", stack=4, n_step=1, gamma=0.9)
    with pytest.raises(ConfigError, match=rf"capacity_steps is {capacity}, but this machine lacks the memory for it"):
        Uniform(capacity_steps=capacity, warmup_steps=1).build(layout, horizon_steps=1)


def test_sampling_before_a_transition_is_complete_is_refused():
    ring = make_ring(n_step=3)
    with pytest.raises(RuntimeError, match="holds 0 steps, but no complete transition of 3 steps"):
        ring.sample(1, np.random.default_rng(0))
    for t in range(3):
        ring.add(step(frame(t), first=t == 0))
    with pytest.raises(RuntimeError, match="holds 3 steps, but no complete transition of 3 steps"):
        ring.sample(1, np.random.default_rng(0))


def test_a_new_episode_before_the_end_of_the_last_is_refused():
    ring = make_ring(lanes=2)
    ring.add(step(frame(1, 1), first=True))
    with pytest.raises(ValueError, match=r"Lanes \[1\] start an episode before the last one .* call cut first"):
        ring.add(step(frame(2, 2), first=[False, True]))


def test_frames_of_another_shape_or_type_are_refused():
    ring = make_ring(lanes=2, shape=(3,))
    with pytest.raises(ValueError, match=r"float32 of shape \(2, 1\), but must be float32 of shape \(2, 3\)"):
        ring.add(step(np.zeros((2, 1), np.float32), first=True))
    with pytest.raises(ValueError, match="frames are float64"):
        ring.add(step(np.zeros((2, 3)), first=True))
    with pytest.raises(ValueError, match=r"float32 of shape \(1, 3\)"):
        ring.cut(Newest(np.zeros((1, 3), np.float32)))


@pytest.mark.parametrize(
    ("masked_actions", "masks", "match"),
    [
        (3, None, r"The masks are missing, but this replay needs shape \(2, 3\)"),
        (3, np.ones((2, 4), bool), r"The masks have shape \(2, 4\), but this replay needs shape \(2, 3\)"),
        (0, np.ones((2, 3), bool), r"The masks have shape \(2, 3\), but this replay stores none"),
    ],
)
def test_masks_that_are_missing_or_of_another_shape_are_refused(masked_actions, masks, match):
    ring = make_ring(lanes=2, masked_actions=masked_actions)
    with pytest.raises(ValueError, match=match):
        ring.add(replace(step(frame(1, 1), first=True), masks=masks))
