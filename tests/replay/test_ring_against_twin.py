"""The ring against a twin that keeps whole episodes as lists, with every observation stacked as it happens."""

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monotau.replay import Newest, Ring, Steps, Uniform

GO, LOSE_LIFE, DIE, TIME_OUT, DIE_AT_TIME_OUT = "go", "lose life", "die", "time out", "die at time out"
ENDS_GAME = {DIE, TIME_OUT, DIE_AT_TIME_OUT}


@dataclass
class TwinStep:
    slot: int
    observation: list[int]
    action: int
    reward: float
    terminated: bool
    truncated: bool
    random: bool


@dataclass
class TwinEpisode:
    steps: list[TwinStep] = field(default_factory=list)
    last_observation: list[int] | None = None


class TwinLane:
    """One lane: its episodes, and how many slots of a ring they would have taken."""

    def __init__(self, slots, stack, n_step, gamma, cut_at_random):
        self.slots, self.stack, self.n_step, self.gamma = slots, stack, n_step, gamma
        self.cut_at_random = cut_at_random
        self.used = 0
        self.episodes = []

    def add(self, frame, first, action, reward, terminated, truncated, final_frame, random):
        if first:
            self.episodes.append(TwinEpisode())
            self.recent = deque([0] * self.stack, maxlen=self.stack)
        self.recent.append(frame)
        truncated = truncated and not terminated
        step = TwinStep(self.used, list(self.recent), action, reward, terminated, truncated, random)
        self.episodes[-1].steps.append(step)
        self.used += 1
        if truncated:
            self.finish(final_frame)

    def cut(self, frame):
        if self.episodes:
            last = self.episodes[-1].steps[-1]
            if not (last.terminated or last.truncated):
                last.truncated = True
                self.finish(frame)

    def finish(self, frame):
        self.recent.append(frame)
        self.episodes[-1].last_observation = list(self.recent)
        self.used += 1

    def stored_steps(self):
        return sum(step.slot >= self.used - self.slots for episode in self.episodes for step in episode.steps)

    def transitions(self):
        """Return every transition that ought to be available, by the newest frame of its observation."""
        found = {}
        for episode in self.episodes:
            for t, start in enumerate(episode.steps):
                oldest_frame_slot = max(start.slot - self.stack + 1, episode.steps[0].slot)
                if oldest_frame_slot < self.used - self.slots:
                    continue
                outcome = self.fold(episode, t, self.n_step)
                if outcome is not None:
                    if self.cut_at_random:
                        later = episode.steps[t + 1 : t + self.n_step]
                        steps = next((k for k, step in enumerate(later, 1) if step.random), self.n_step)
                        outcome = self.fold(episode, t, steps)
                    found[start.observation[-1]] = (start.observation, start.action, *outcome)
        return found

    def newest(self, most):
        """Rewards of the steps in the `most` newest slots, the newest first, and the returns from them on."""
        found = []
        for episode in self.episodes:
            for t, start in enumerate(episode.steps):
                if start.slot < self.used - min(most, self.slots):
                    continue
                total = 0.0
                for k, step in enumerate(episode.steps[t:]):
                    total += self.gamma**k * step.reward
                    if step.terminated or step.truncated:
                        break
                found.append((start.reward, total))
        return found[::-1]

    def fold(self, episode, t, n_step):
        total = 0.0
        for k in range(n_step):
            if t + k == len(episode.steps):
                return None
            step = episode.steps[t + k]
            total += self.gamma**k * step.reward
            if step.terminated:
                seen = [other for each in self.episodes for other in each.steps if other.slot == step.slot + 1]
                return total, 0.0, (seen or [episode.steps[t]])[0].observation
            if step.truncated:
                return total, self.gamma ** (k + 1), episode.last_observation
        if t + n_step == len(episode.steps):
            return None
        return total, self.gamma**n_step, episode.steps[t + n_step].observation


class Play:
    """The same random games played into a ring and into its twin; every frame shows a number of its own."""

    def __init__(
        self,
        *,
        lanes,
        stack,
        n_step,
        gamma,
        lane_slots,
        cut_at_random=False,
        warmup=1,
        frame_shape=(),
        frame_dtype=np.int64,
        masked_actions=0,
    ):
        self.ring = Ring(
            Uniform(capacity_steps=lanes * lane_slots + lanes - 1, warmup_steps=warmup),
            lanes=lanes,
            frame_shape=frame_shape,
            frame_dtype=frame_dtype,
            stack=stack,
            n_step=n_step,
            gamma=gamma,
            cut_at_random=cut_at_random,
            masked_actions=masked_actions,
        )
        self.masked_actions = masked_actions
        self.twins = [TwinLane(lane_slots, stack, n_step, gamma, cut_at_random) for _ in range(lanes)]
        self.first = [True] * lanes
        self.shown = 0
        self.frame_shape, self.frame_dtype = frame_shape, frame_dtype

    def new_frames(self):
        numbers = [self.shown + lane + 1 for lane in range(len(self.twins))]
        self.shown = numbers[-1]
        return numbers

    def picture(self, numbers):
        frames = np.empty((len(numbers), *self.frame_shape), self.frame_dtype)
        for lane, number in enumerate(numbers):
            frames[lane] = number
        return frames

    def masks(self, numbers):
        """Return a mask that depends on the number a frame shows."""
        if not self.masked_actions:
            return None
        return np.array([[bool(number >> action & 1) for action in range(self.masked_actions)] for number in numbers])

    def step(self, events, lanes=slice(None)):
        """One step of some lanes; events are those of all, of which others are passed over."""
        events = events[lanes]
        frames, final_frames = self.new_frames()[lanes], self.new_frames()[lanes]
        actions = [frame % 5 for frame in frames]
        rewards = [float(frame % 7 - 3) for frame in frames]
        random = [frame // 2 % 4 == 0 for frame in frames]
        terminated = [event in {LOSE_LIFE, DIE, DIE_AT_TIME_OUT} for event in events]
        truncated = [event in {TIME_OUT, DIE_AT_TIME_OUT} for event in events]
        self.ring.add(
            Steps(
                frames=self.picture(frames),
                first=np.array(self.first[lanes]),
                actions=np.array(actions),
                rewards=np.array(rewards),
                terminated=np.array(terminated),
                truncated=np.array(truncated),
                final_frames=self.picture(final_frames),
                random=np.array(random),
                masks=self.masks(frames),
                final_masks=self.masks(final_frames),
            ),
            lanes,
        )
        columns = (frames, self.first[lanes], actions, rewards, terminated, truncated, final_frames, random)
        for twin, *row in zip(self.twins[lanes], *columns, strict=True):
            twin.add(*row)
        self.first[lanes] = [event in ENDS_GAME for event in events]

    def cut(self, lanes=slice(None)):
        frames = self.new_frames()[lanes]
        self.ring.cut(Newest(self.picture(frames), self.masks(frames)), lanes)
        for twin, frame in zip(self.twins[lanes], frames, strict=True):
            twin.cut(frame)
        self.first[lanes] = [True] * len(frames)

    def run(self, script):
        for events, *lanes in script:
            if events == "cut":
                self.cut(*lanes)
            else:
                self.step(events, *lanes)
            assert len(self.ring) == sum(twin.stored_steps() for twin in self.twins)

    def check(self):
        expected = {newest: row for twin in self.twins for newest, row in twin.transitions().items()}
        index = np.arange(self.ring.slots)
        index = index[self.ring.valid(index)]
        batch = self.ring.gather(index)
        newest = [numbers[-1] for numbers in self.numbers(batch.observations)]
        assert sorted(newest) == sorted(expected)
        rows = zip(
            self.numbers(batch.observations),
            batch.actions.tolist(),
            batch.rewards.tolist(),
            batch.discounts.tolist(),
            self.numbers(batch.next_observations),
            strict=True,
        )
        for row in rows:
            assert row == expected[row[0][-1]]
        for stacks, masks in ((batch.observations, batch.masks), (batch.next_observations, batch.next_masks)):
            expected_masks = self.masks([numbers[-1] for numbers in self.numbers(stacks)])
            assert (masks is None) == (expected_masks is None)
            assert masks is None or masks.tolist() == expected_masks.tolist()
        assert batch.weights.tolist() == [1.0] * len(index)
        assert batch.index.tolist() == index.tolist()

    def numbers(self, stacks):
        """Read the number that each frame shows, and see that all of the frame shows it."""
        flat = stacks.numpy().reshape(*stacks.shape[:2], math.prod(self.frame_shape))
        assert (flat == flat[:, :, :1]).all()
        return flat[:, :, 0].astype(int).tolist()


@st.composite
def games(draw):
    lanes = draw(st.integers(1, 3))
    stack = draw(st.integers(1, 4))
    n_step = draw(st.integers(1, 4))
    events = draw(
        st.sampled_from(
            [
                [GO, GO, GO, GO, LOSE_LIFE, DIE, TIME_OUT, DIE_AT_TIME_OUT],
                [GO] * 8 + [DIE, TIME_OUT],
                [GO, LOSE_LIFE, TIME_OUT],
                [TIME_OUT],
                [GO],
            ]
        )
    )
    length = draw(st.integers(0, 50))
    step = st.tuples(*[st.sampled_from(events)] * lanes)
    moves = st.one_of(*[step] * 9, st.just("cut")) if draw(st.booleans()) else step
    if draw(st.booleans()):  # lanes of their own pace, one or several at a time
        parts = st.builds(lambda a, b: slice(min(a, b), max(a, b) + 1), *[st.integers(0, lanes - 1)] * 2)
        script = draw(st.lists(st.tuples(moves, parts), min_size=length, max_size=2 * length))
    else:
        script = draw(st.lists(st.tuples(moves), min_size=length, max_size=length))
    options = {
        "lanes": lanes,
        "stack": stack,
        "n_step": n_step,
        "gamma": draw(st.sampled_from([0.0, 0.5, 0.75, 1.0])),  # sums of these powers are exact in float32
        "lane_slots": stack + n_step + 1 + draw(st.integers(0, 8)),
        "cut_at_random": draw(st.booleans()),
        "masked_actions": draw(st.sampled_from([0, 0, 3, 8, 11])),
    }
    return options, script


@given(games())
@settings(max_examples=400, deadline=None, derandomize=True)
def test_every_valid_start_is_the_twins_transition_and_none_is_missing(game):
    options, script = game
    play = Play(**options)
    play.run(script)
    play.check()


@given(games(), st.integers(1, 9))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_a_ready_ring_can_be_sampled_and_a_full_one_is_ready(game, warmup):
    options, script = game
    play = Play(**options, warmup=min(warmup, options["lane_slots"]))
    play.run(script)
    if play.ring.ready:
        index = play.ring.draw(5, np.random.default_rng(0))
        assert index.shape == (5,)
        assert play.ring.valid(index).all()
    if all(twin.used >= twin.slots for twin in play.twins):
        assert play.ring.ready


@given(games(), st.integers(1, 60))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_the_newest_returns_are_the_twins(game, most):
    """Lanes of unequal length, frames of truncated episodes in between, ends of both kinds, and rings written over."""
    options, script = game
    play = Play(**options)
    play.run(script)
    share = max(1, most // options["lanes"])
    expected = [row for twin in play.twins for row in twin.newest(share)]
    returns = play.ring.recent_returns(most)
    assert returns.tolist() == pytest.approx([total for _, total in expected], rel=1e-12, abs=1e-12)
    assert returns.dtype == np.float64


def test_the_newest_returns_are_as_worked_out_by_hand():
    """Rewards are 1 to 4; the second step loses a life, the episode goes on and is in flight."""
    ring = Ring(
        Uniform(capacity_steps=9, warmup_steps=1),
        lanes=1,
        frame_shape=(),
        frame_dtype=np.int64,
        stack=1,
        n_step=1,
        gamma=0.5,
    )
    for number in range(1, 5):
        frame, no = np.array([number]), np.zeros(1, bool)
        ring.add(Steps(frame, np.array([number == 1]), frame, frame.astype(float), np.array([number == 2]), no, frame))
    assert ring.recent_returns(100).tolist() == [4, 3 + 0.5 * 4, 2, 1 + 0.5 * 2]
    assert ring.recent_returns(1).tolist() == [4]


@pytest.mark.parametrize(
    ("frame_shape", "frame_dtype"),
    [((5, 4), np.uint8), ((3,), np.float32), ((2,), np.float64), ((), np.int64), ((2, 3, 2), np.int16)],
)
def test_frames_of_any_shape_and_type_are_returned_as_they_were_stored(frame_shape, frame_dtype):
    play = Play(lanes=2, stack=3, n_step=2, gamma=0.5, lane_slots=9, frame_shape=frame_shape, frame_dtype=frame_dtype)
    script = [(GO, GO), (GO, TIME_OUT), (LOSE_LIFE, DIE), (GO, GO), (TIME_OUT, GO), (GO, GO), "cut"] * 3
    play.run([(events,) for events in script])
    play.check()
    batch = play.ring.sample(4, np.random.default_rng(0))
    assert batch.observations.shape == batch.next_observations.shape == (4, 3, *frame_shape)
    assert batch.observations.numpy().dtype == batch.next_observations.numpy().dtype == frame_dtype
