"""A twin of prioritised replay too simple to be wrong, and games to play into both."""

import numpy as np

from monotau.replay import Layout, Newest, Prioritized, Ring, Steps, Uniform


def layout(*, lanes=1, stack=1, n_step=1):
    return {
        "lanes": lanes,
        "frame_shape": (),
        "frame_dtype": np.int64,
        "stack": stack,
        "n_step": n_step,
        "gamma": 0.5,
    }


def make(*, capacity=64, lanes=1, stack=1, n_step=1, horizon=10**15, **fields):
    config = Prioritized(capacity_steps=capacity, warmup_steps=1, **fields)
    return config.build(Layout(**layout(lanes=lanes, stack=stack, n_step=n_step)), horizon_steps=horizon)


def step(frames, *, first=True, terminated=False, truncated=False):
    frames = np.asarray(frames, np.int64)
    lanes = len(frames)
    return Steps(
        frames=frames,
        first=np.broadcast_to(first, lanes),
        actions=np.zeros(lanes, np.int64),
        rewards=np.zeros(lanes),
        terminated=np.broadcast_to(terminated, lanes),
        truncated=np.broadcast_to(truncated, lanes),
        final_frames=np.full(lanes, -1),
    )


class Naive:
    """The same steps in a ring of their own, with a list of priorities^alpha beside it."""

    def __init__(self, ring, alpha):
        self.ring, self.alpha = ring, alpha
        self.leaves, self.largest = [0.0] * ring.slots, 1.0

    def follow(self, written):
        for slot in written.steps:
            self.leaves[slot] = self.largest
        for slot in written.finals:
            self.leaves[slot] = 0.0

    def update(self, index, losses):
        for slot, loss in zip(index, losses, strict=True):
            self.leaves[slot] = (loss + 1e-6) ** self.alpha
            self.largest = max(self.largest, self.leaves[slot])

    def shares(self):
        valid = self.ring.valid(np.arange(self.ring.slots))
        mass = sum(leaf for leaf, ok in zip(self.leaves, valid, strict=True) if ok)
        return np.array([leaf / mass if ok else 0.0 for leaf, ok in zip(self.leaves, valid, strict=True)])


def random_game(seed, *, lanes, stack, n_step, capacity, alpha, steps):
    """Play games of all kinds of ends with updates in between, into a replay and its twin."""
    rng = np.random.default_rng(seed)
    replay = make(capacity=capacity, lanes=lanes, stack=stack, n_step=n_step, alpha=alpha)
    config = Uniform(capacity_steps=capacity, warmup_steps=1)
    twin = Naive(Ring(config, **layout(lanes=lanes, stack=stack, n_step=n_step)), alpha)
    first = np.ones(lanes, np.bool_)
    for t in range(steps):
        terminated, truncated = rng.random(lanes) < 0.1, rng.random(lanes) < 0.2
        row = step(np.arange(lanes) + t * lanes, first=first, terminated=terminated, truncated=truncated)
        replay.add(row)
        twin.follow(twin.ring.add(row))
        first = terminated | truncated
        if rng.random() < 0.1:
            replay.cut(Newest(np.zeros(lanes, np.int64)))
            twin.follow(twin.ring.cut(Newest(np.zeros(lanes, np.int64))))
            first = np.ones(lanes, np.bool_)
        if replay.ready and rng.random() < 0.5:
            index = replay.draw(5, np.random.default_rng([seed, t]))
            losses = 3.0 * rng.random(5) ** 4
            replay.update(index, losses)
            twin.update(index, losses)
    return replay, twin


GAMES = [
    {"lanes": 1, "stack": 1, "n_step": 1, "capacity": 12, "alpha": 0.6, "steps": 40},
    {"lanes": 3, "stack": 2, "n_step": 3, "capacity": 50, "alpha": 1.0, "steps": 70},
    {"lanes": 2, "stack": 4, "n_step": 2, "capacity": 400, "alpha": 0.5, "steps": 100},  # more leaves than a row
    {"lanes": 4, "stack": 1, "n_step": 2, "capacity": 40, "alpha": 0.0, "steps": 9},
]
